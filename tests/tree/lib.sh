# SPDX-License-Identifier: Apache-2.0
# What the tests of the tree share. They get the top of the tree as $1 and the build folder as $2.
# shellcheck shell=sh disable=SC2034
set -u
LC_ALL=C
export LC_ALL

top=$1
build=$2
cd "$top" || exit 1
failures=0

# The files of the tree, one a line: those that git knows, or, without git, all but build outputs.
tree_files() {
	if command -v git >/dev/null 2>&1 && git ls-files --error-unmatch meson.build >/dev/null 2>&1; then
		git ls-files --cached | while IFS= read -r file; do
			[ -f "$file" ] && printf '%s\n' "$file"
		done
	else
		find . -path ./.git -prune -o -path './build*' -prune -o -path ./.cache -prune -o \
			-type f ! -name '*.img' -print | sed 's|^\./||'
	fi
}

bad() {
	printf '%s\n' "$*"
	failures=$((failures + 1))
}

skip() {
	printf 'skipped: %s\n' "$*"
	exit 77
}

# Last line of a test: $1 things were looked at. None at all means that the test is broken.
finish() {
	if [ "$1" -eq 0 ]; then
		echo "nothing was checked"
		exit 1
	fi
	echo "$1 checked, $failures bad"
	[ "$failures" -eq 0 ]
	exit
}
