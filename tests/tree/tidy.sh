#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-tidy over every C file that the build compiles, with the tree's settings: not those of
# tests/gpu, which are compiled where CUDA is. MPIB_TIDY_NODES is how many states of a function the
# analyzer looks at; its own default, 225000, takes two to three times as long. Of tests it looks at
# none, which is half of the time: what it would find in those shows when they run, under sanitizers.
. "$(dirname "$0")/lib.sh"

version=14
tool=$(command -v "clang-tidy-$version" || command -v clang-tidy) || skip "clang-tidy is not installed"
"$tool" --version | grep -q "version $version\." || skip "clang-tidy is not version $version"
[ -e "$build/compile_commands.json" ] || skip "no compile_commands.json in $build"

nodes=${MPIB_TIDY_NODES:-75000}

# look OPTION…: at the files on standard input, the largest first, so that no processor waits for the last.
look() {
	tr '\n' '\0' | xargs -0 -r ls -S |
		xargs -d '\n' -r -n 6 -P "$(nproc)" "$tool" -p "$build" --quiet \
			"$@" 2>/dev/null |
		grep -E ': (warning|error): '
}

files=$(tree_files | grep '\.c$' | grep -v '^tests/gpu/')
found=$({
	printf '%s\n' "$files" | grep -v '^tests/' |
		look --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes="$nodes"
	printf '%s\n' "$files" | grep '^tests/' | look '--checks=-clang-analyzer-*'
} | sort -u)
if [ -n "$found" ]; then
	printf '%s\n' "$found" | while IFS= read -r line; do
		bad "$line"
	done
	bad "clang-tidy has findings"
fi

finish "$(printf '%s\n' "$files" | grep -c .)"
