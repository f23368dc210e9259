# SPDX-License-Identifier: Apache-2.0
# nodes: 2
# limit: 600
# quiet: yes
# What fusing two rails is worth. The sender's rails are limited by netem, so that the wire is the
# limit and not the emulated CPU: fused MB/s at the right share over the sum of both rails alone,
# all of one run; and an equal split beside it. The last pair of rails isn't told: its share is auto.
# shellcheck shell=bash

PERF_REST=0

# speed NAME SHARE: MB/s of messages of 64 KiB, 8 in flight: so few bytes that the slowest rail has
# sent them before the warm-up is over, and what is measured is the steady state.
speed() {
	agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = $2"
	agent_reload 1
	perf "$1" 1 2 "$ADVANCED" bw --size 64K --window 8 --seconds 3 --warmup 1
	perf_result "$1" .mbps
}

# compare NAME SOUT-MBIT SUP-MBIT SHARE: a machine that is busy with something else may take the
# emulated CPUs away; so up to three tries, each of which is printed.
compare() {
	local name=$1 sout sup fused equal ratio try

	limit_rails 1 "$2" "$3"
	for try in 1 2 3; do
		sout=$(speed "$name-sout-$try" 0)
		sup=$(speed "$name-sup-$try" 1024)
		fused=$(speed "$name-fused-$try" "$4")
		ratio=$(jq -n "$fused / ($sout + $sup) * 1000 | round / 1000")
		measured "$2 + $3 Mbit/s: SOUT alone $sout, SUP alone $sup, fused at share $4 $fused MB/s = $ratio of the sum"
		jq -en "$ratio >= 0.97" >/dev/null && break
	done
	if [ "$4" != 512 ]; then
		equal=$(speed "$name-equal" 512)
		measured "$2 + $3 Mbit/s: equal split $equal MB/s = $(jq -n "$equal / ($sout + $sup) * 1000 | round / 1000") of the sum"
	fi
	unlimit_rails 1
	expect_ge "$name: fused over the sum" "$ratio" 0.97
}

agent_start 1 2
# A third of what two emulated CPUs can move.
compare even 20 20 512
compare uneven 10 30 768
compare untold 20 60 auto
