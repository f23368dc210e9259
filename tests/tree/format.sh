#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-format decides how C looks. Another major version decides otherwise, so only the one that
# the settings were made for is asked.
. "$(dirname "$0")/lib.sh"

version=14
tool=$(command -v "clang-format-$version" || command -v clang-format) ||
	skip "clang-format is not installed"
"$tool" --version | grep -q "version $version\." || skip "$("$tool" --version), not $version"

count=0
for file in $(tree_files | grep -E '\.[ch]$'); do
	"$tool" --dry-run -Werror "$file" 2>/dev/null || bad "$file: run clang-format -i"
	count=$((count + 1))
done

finish "$count"
