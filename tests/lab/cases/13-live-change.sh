# SPDX-License-Identifier: Apache-2.0
# nodes: 2
# The main job: an operator edits the policy while data flows. The running transfer follows, no
# byte is lost or wrong, and the journal tells the flow's life.
# shellcheck shell=bash

# sup_part NAME FIRST LAST: SUP's part of all bytes between two interval lines, counted from 0.
sup_part() {
	jq -s --argjson a "$2" --argjson b "$3" '[.[] | select(.event == "interval")] |
		[.[$b].rails[0].bytes - .[$a].rails[0].bytes, .[$b].rails[1].bytes - .[$a].rails[1].bytes] |
		.[1] / (.[0] + .[1])' "$CASE_DIR/$1.out"
}

intervals() {
	grep -c '"interval"' "$CASE_DIR/$1.out" || true
}

# until_intervals NAME COUNT
until_intervals() {
	local k

	for ((k = 0; k < 300; k++)); do
		[ "$(intervals "$1")" -ge "$2" ] && return
		sleep 0.1
	done
	perf_tell "$1"
	fail "only $(intervals "$1") intervals"
}

agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 25%"
agent_start 1 2

perf_start live 1 2 "$ADVANCED" bw --size 256K --seconds 14 --interval 0.5 --check
until_intervals live 8
before=$(intervals live)
agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 75%"
agent_reload 1
after=$(intervals live)
perf_wait live
last=$(($(intervals live) - 1))

[ "$last" -gt $((after + 3)) ] || fail "the transfer ended before the change could show"
part_before=$(sup_part live 1 $((before - 1)))
part_after=$(sup_part live $((after + 1)) "$last")
measured "SUP's part: $part_before before the reload, $part_after after; $(perf_result live '"\(.messages) messages, \(.mbps) MB/s, errors \(.errors | length)"')"

expect_ge "SUP's part before" "$part_before" 0.24
expect_le "SUP's part before" "$part_before" 0.26
expect_ge "SUP's part after" "$part_after" 0.74
expect_le "SUP's part after" "$part_after" 0.76
expect_eq "all bytes right" "$(perf_result live .ok)" true
expect_eq "the peer's too" "$(perf_result live-peer .ok)" true

# The plugin says goodbye when its process ends; the agent may write that a moment later.
for _ in 1 2 3 4 5; do
	events=$(agent_log 1 "MPIB_FLOW=$(flow 1 2)" | jq -r '.MPIB_EVENT + " " + (.MPIB_SHARE // "-")')
	grep -q '^deregister' <<<"$events" && break
	sleep 1
done
measured "journal of the flow: $(paste -sd, <<<"$events")"
agent_log 1 "MPIB_FLOW=$(flow 1 2)" | jq -r .MESSAGE
expect_match "journal" "$events" '^register 256'
expect_match "journal" "$events" '^hint 768'
expect_match "journal" "$events" '^deregister'
