# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 2
# limit: 240
# A node's SUP goes down under a running transfer and comes back: the agents of both ends tell it in the
# journal, and mpibctl shows which flow lacks which rail, and what share is in force meanwhile. On real verbs it is
# then lost in silence, as the packets that node 2 sends are, acknowledgements among them; and SOUT is lost with the
# control connection on its interface. All bytes are right.
# shellcheck shell=bash

# shellcheck source=tests/lab/lib/live.sh
. "$LAB_ROOT/lib/live.sh"

# events N EVENT: the messages of such entries about this case's flow, as a JSON array.
events() {
	agent_log "$1" "MPIB_FLOW=$(flow "$1" $((3 - $1)))" |
		jq -cs --arg event "$2" '[.[] | select(.MPIB_EVENT == $event) | .MESSAGE]'
}

# await_event N EVENT: the message of the latest one that an earlier case on these nodes hasn't left, within half
# a minute.
await_event() {
	local k said

	for ((k = 0; k < 60; k++)); do
		said=$(events "$1" "$2" | jq -r ".[${LEFT[$1 $2]}:] | last // empty")
		[ -z "$said" ] || break
		sleep 0.5
	done
	echo "$said"
}

# leave_events: those that are there.
leave_events() {
	local n event

	for n in 1 2; do
		for event in rail-lost rail-back; do
			LEFT[$n $event]=$(events $n $event | jq length)
		done
	done
}

# rails_of N: what mpibctl says of the rails of this case's flow; it knows by the agent's next look at the counters.
rails_of() {
	on "$1" "MPIB_AGENT_DIR=$(agent_dir "$1") mpibctl --json flows" |
		jq -r '.flows[0] | "\(.rails), share \(.share) in force \(.share_in_force)"'
}

# expect_rails N WHAT: within ten seconds.
expect_rails() {
	local k

	for ((k = 0; k < 20; k++)); do
		[ "$(rails_of "$1")" != "$2" ] || return 0
		sleep 0.5
	done
	expect_eq "node $1: rails" "$(rails_of "$1")" "$2"
}

for n in 1 2; do
	agent_policy $n "[policy]" "intra = 50%"
done
agent_start 1 2
declare -A LEFT
leave_events
# four waits of 0.5 s for an acknowledgement
live_start live 1 2 "$ADVANCED MPIB_IB_TIMEOUT=17 MPIB_IB_RETRY_CNT=3" --size 64K --warmup 0 --interval "$(lasting 0.5)" --check
live_until live 8
live_near "before" "$(live_part live 40)" 0.5
for n in 1 2; do
	expect_rails $n "both, share 512 in force 512"
done

nic_port 2 sup down
for n in 1 2; do
	said=$(await_event $n rail-lost)
	measured "node $n: $said"
	expect_match "node $n: rail-lost" "$said" \
		"^flow $(flow $n $((3 - n))) lost SUP: 1 time on [0-9]+ connections? of pid [0-9]+; SOUT takes all; share in the table 512 \\(50\\.0%\\); "
	expect_rails $n "SUP lost, share 512 in force 0"
done
live_near "without SUP" "$(live_part live 40)" 0

nic_port 2 sup up
for n in 1 2; do
	said=$(await_event $n rail-back)
	measured "node $n: $said"
	expect_match "node $n: rail-back" "$said" \
		"^flow $(flow $n $((3 - n))) has SUP back: 1 time on [0-9]+ connections? of pid [0-9]+; both rails are in use; share in the table 512 "
	expect_rails $n "both, share 512 in force 512"
done
live_near "after" "$(live_part live 40)" 0.5

if [ "$LAB_GROUND" = lab ]; then
	leave_events
	nic_mute 2 sup on
	for n in 1 2; do
		said=$(await_event $n rail-lost)
		measured "node $n, in silence: $said"
		expect_match "node $n: rail-lost, in silence" "$said" "^flow $(flow $n $((3 - n))) lost SUP: "
	done
	nic_mute 2 sup off
	for n in 1 2; do
		said=$(await_event $n rail-back)
		measured "node $n, in silence: $said"
		expect_match "node $n: rail-back, in silence" "$said" "^flow $(flow $n $((3 - n))) has SUP back: "
	done
fi
live_end live 1
expect_eq "all bytes right" "$(perf_result live .ok) $(perf_result live-peer .ok)" "true true"
expect_eq "errors" "$(perf_result live '.errors | length')" 0

# SOUT, with the control connection on it, as by default; that one ends after ten seconds, and the rail comes back.
if [ "$LAB_GROUND" = lab ]; then
	leave_events
	live_start sout 1 2 "$ADVANCED MPIB_OOB_IF=eth0 MPIB_IB_TIMEOUT=17 MPIB_IB_RETRY_CNT=3" --size 64K --warmup 0 \
		--interval "$(lasting 0.5)" --check
	live_until sout 8
	nic_port 2 sout down
	for n in 1 2; do
		expect_match "node $n: SOUT lost" "$(await_event $n rail-lost)" "^flow $(flow $n $((3 - n))) lost SOUT: "
	done
	live_near "without SOUT" "$(live_part sout 40)" 1
	for ((k = 0; k < 60; k++)); do
		! grep -hs 'the control connection with .* is lost' "$CASE_DIR"/sout{,-peer}.err || break
		sleep 0.5
	done
	[ $k -lt 60 ] || fail "the control connection outlives its interface"
	live_near "without SOUT and control connection" "$(live_part sout 40)" 1
	nic_port 2 sout up
	for n in 1 2; do
		expect_match "node $n: SOUT back" "$(await_event $n rail-back)" "^flow $(flow $n $((3 - n))) has SOUT back: "
	done
	live_near "after SOUT's return" "$(live_part sout 40)" 0.5
	live_end sout 1
	expect_eq "all bytes right over SOUT's loss" "$(perf_result sout .ok) $(perf_result sout-peer .ok)" "true true"
fi
