# SPDX-License-Identifier: Apache-2.0
# The tests that there have to be, by tests/names: a line each, suite, name, and marks: the suites beside.
# shellcheck shell=bash

NAMES=tests/names

# listed [-MARK…] SUITE…: suite and name of each test of these suites that has none of the marks.
listed() {
	local -a without=()

	while [[ $1 == -* ]]; do
		without+=("${1#-}")
		shift
	done
	awk -v suites="$*" -v without="${without[*]}" '
		BEGIN {
			split(suites, list, " "); for (k in list) wanted[list[k]]
			split(without, list, " "); for (k in list) left[list[k]]
		}
		/^#/ || !($1 in wanted) { next }
		{ for (k = 3; k <= NF; k++) if ($k in left) next; print $1, $2 }' "$NAMES"
}

# expect COUNT: that many tests more have to end.
expect() {
	expected=$((expected + $1))
}

# write_names: the file anew, from what the plain build has. Compiles nothing.
write_names() {
	tests/setup && ninja -C build build.ninja >/dev/null && tests/tree/names.py . build --write
}
