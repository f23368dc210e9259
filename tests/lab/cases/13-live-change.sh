# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 2
# The main job: an operator edits the policy while data flows. The running transfer follows, no
# byte is lost or wrong, and the journal tells the flow's life.
# shellcheck shell=bash

# shellcheck source=tests/lab/lib/live.sh
. "$LAB_ROOT/lib/live.sh"

agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 25%"
agent_start 1 2

live_start live 1 2 "$ADVANCED" --size 64K --warmup 0 --interval "$(lasting 0.5)" --check
live_until live 8
before=$(live_part live 40)
agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 75%"
agent_reload 1
after=$(live_part live 40)
live_end live 1

measured "SUP's part: $before before the reload, $after after; $(perf_result live '"\(.messages) messages, \(.mbps) MB/s, errors \(.errors | length)"')"
live_near "before" "$before" 0.25
live_near "after" "$after" 0.75
expect_eq "all bytes right" "$(perf_result live .ok) $(perf_result live-peer .ok)" "true true"
expect_eq "errors" "$(perf_result live '.errors | length')" 0

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
