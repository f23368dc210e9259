#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every file says its licence within the first lines. Excepted: the licence itself, settings of
# tools in dot files, and data that tests feed to the product byte by byte.
. "$(dirname "$0")/lib.sh"

files=$(tree_files | grep -Ev '^LICENSE$|(^|/)\.[^/]*$|^tests/(fuzz/corpus|ini/good|ini/bad|agent/earlier/[0-9a-f]+)/|\.json$')
lacking=$(printf '%s\n' "$files" | xargs -d '\n' awk '
	FNR == 1 { if (name && !said) print name; name = FILENAME; said = 0 }
	FNR <= 5 && /SPDX-License-Identifier: Apache-2\.0/ { said = 1 }
	END { if (name && !said) print name }')
for file in $lacking; do
	bad "$file: no SPDX-License-Identifier: Apache-2.0 in its first lines"
done

finish "$(printf '%s\n' "$files" | grep -c .)"
