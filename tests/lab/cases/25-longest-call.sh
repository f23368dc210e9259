# SPDX-License-Identifier: Apache-2.0
# nodes: 2
# limit: 200
# quiet: yes
# How long isend, irecv and test keep NCCL's thread while large messages run. rxe sends its packets
# in the system call that posts, so a call may take long here; what is MPIB's own of it is the user
# time. A vanilla transfer, one rail and one request a message, stands beside the split one.
# shellcheck shell=bash

PERF_REST=0

# longest NAME SETTINGS SIZE
longest() {
	local end call

	perf "$1" 1 2 "$2" bw --size "$3" --messages 2 --window 2 --warmup 0 --call-times
	for end in "" -peer; do
		for call in isend irecv test; do
			[ "$(perf_result "$1$end" ".longest_calls.$call.calls")" != 0 ] || continue
			measured "$1: longest $call $(perf_result "$1$end" ".longest_calls.$call |
				\"\\(.wall_ms) ms: user \\(.user_ms), system \\(.system_ms), preempted \\(.preempted) times, of \\(.calls) calls\"")"
			expect_le "$1: MPIB's own time, ms, of the longest $call" \
				"$(perf_result "$1$end" ".longest_calls.$call.user_ms | ceil")" 20
		done
	done
}

for n in 1 2; do
	agent_policy $n "[policy]" "intra = 1:1"
done
agent_start 1 2
for size in 16M 64M; do
	longest "split-$size" "$ADVANCED" $size
	longest "vanilla-$size" "$VANILLA" $size
done
