#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-format decides how C looks. Another major version decides otherwise, so only the one that
# the settings were made for is asked.
. "$(dirname "$0")/lib.sh"

version=14
tool=$(command -v "clang-format-$version" || command -v clang-format) ||
	skip "clang-format is not installed"
"$tool" --version | grep -q "version $version\." || skip "$("$tool" --version), not $version"

files=$(tree_files | grep -E '\.[ch]$')
off=$(printf '%s\n' "$files" | xargs -d '\n' "$tool" --dry-run -Werror 2>&1 |
	sed -n 's/^\([^:]*\.[ch]\):[0-9]*:[0-9]*: error:.*/\1/p' | sort -u)
for file in $off; do
	bad "$file: run clang-format -i"
done

finish "$(printf '%s\n' "$files" | grep -c .)"
