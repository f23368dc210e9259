#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every file says its licence within the first lines. Excepted: the licence itself, settings of
# tools in dot files, and data that tests feed to the product byte by byte.
. "$(dirname "$0")/lib.sh"

count=0
for file in $(tree_files | grep -Ev '^LICENSE$|(^|/)\.[^/]*$|/(corpus|museum)/|\.json$'); do
	head -n 5 "$file" | grep -q 'SPDX-License-Identifier: Apache-2\.0' ||
		bad "$file: no SPDX-License-Identifier: Apache-2.0 in its first lines"
	count=$((count + 1))
done

finish "$count"
