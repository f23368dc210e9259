# SPDX-License-Identifier: Apache-2.0
# What both ring cases share: four hops at once, 1 → 2 → 3 → 4 → 1.
# shellcheck shell=bash

# ring_run NAME SETTINGS [OPTIONS]: all hops at once; every node sends to the next.
ring_run() {
	local name=$1 settings=$2 n

	shift 2
	for n in 1 2 3 4; do
		perf_start "$name-$n" "$n" $((n % 4 + 1)) "$settings" bw --warmup 0 --check "$@"
	done
	for n in 1 2 3 4; do
		perf_wait "$name-$n"
	done
}

# ring_hop NAME N: "SOUT SUP" of hop N, as its sender and its receiver counted; they must agree.
ring_hop() {
	local sent received

	sent=$(perf_sent "$1-$2" bytes)
	received=$(perf_received "$1-$2" bytes)
	expect_eq "hop $2: received" "$received" "$sent"
	printf '%s\n' "$sent"
}
