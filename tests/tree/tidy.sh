#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-tidy over every C file that the build compiles, with the tree's settings: not those of
# tests/gpu, which are compiled where CUDA is.
. "$(dirname "$0")/lib.sh"

version=14
tool=$(command -v "clang-tidy-$version" || command -v clang-tidy) || skip "clang-tidy is not installed"
"$tool" --version | grep -q "version $version\." || skip "clang-tidy is not version $version"
[ -e "$build/compile_commands.json" ] || skip "no compile_commands.json in $build"

files=$(tree_files | grep '\.c$' | grep -v '^tests/gpu/')
found=$(printf '%s\n' "$files" |
	xargs -d '\n' -n 4 -P "$(nproc)" "$tool" -p "$build" --quiet 2>/dev/null |
	grep -E ': (warning|error): ' | sort -u)
if [ -n "$found" ]; then
	printf '%s\n' "$found" | while IFS= read -r line; do
		bad "$line"
	done
	bad "clang-tidy has findings"
fi

finish "$(printf '%s\n' "$files" | grep -c .)"
