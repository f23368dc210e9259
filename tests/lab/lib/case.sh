# SPDX-License-Identifier: Apache-2.0
# What a case may use on every ground: claims, measurements, addresses.
# shellcheck shell=bash

# fail TEXT: ends the case.
fail() {
	printf 'FAIL: %s\n' "$*" >&2
	exit 1
}

# skip TEXT: the case can't be run here, and why.
skip() {
	printf '%s\n' "$*" >"$CASE_DIR/skip"
	exit 77
}

# measured TEXT: a line for the report of a case that passes, too.
measured() {
	printf '%s\n' "$*" | tee -a "$CASE_DIR/measured"
}

# expect_eq WHAT GOT WANT
expect_eq() {
	[ "$2" = "$3" ] || fail "$1: got '$2', not '$3'"
}

# expect_le WHAT GOT LIMIT (integers or decimals)
expect_le() {
	jq -en "$2 <= $3" >/dev/null || fail "$1: $2 is over $3"
}

# expect_ge WHAT GOT LIMIT
expect_ge() {
	jq -en "$2 >= $3" >/dev/null || fail "$1: $2 is under $3"
}

# expect_match WHAT TEXT REGEX
expect_match() {
	grep -Eq -- "$3" <<<"$2" || fail "$1: no line matches '$3' in: $2"
}

# case_nodes: the numbers of this case's nodes.
case_nodes() {
	seq "$CASE_NODES"
}

# island N: the island of node N in this case; sout N, sup N, oob N: its addresses.
island() {
	local -a islands

	read -ra islands <<<"$CASE_ISLANDS"
	printf '%s\n' "${islands[$(($1 - 1))]:-1}"
}
sout() { printf '10.0.%s.%s\n' "$(island "$1")" "$1"; }
sup() { printf '10.9.%s.%s\n' "$(island "$1")" "$1"; }
oob() { printf '10.8.0.%s\n' "$1"; }

# lasting SECONDS: that long in virtual machines, and what does as well on a faster ground.
lasting() {
	jq -n "$1 / ${LAB_PACE:-1}"
}
