# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 2
# The agent is stopped while data flows: the transfer goes on with its last share. It is started
# again: the same slot, the same file, and later shares are followed.
# shellcheck shell=bash

# shellcheck source=tests/lab/lib/live.sh
. "$LAB_ROOT/lib/live.sh"

agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 25%"
agent_start 1 2
inode=$(on 1 stat -c %i "$(agent_dir 1)/hints")

live_start stop 1 2 "$ADVANCED MPIB_AGENT_STALE_SEC=600" --size 64K --warmup 0 --interval "$(lasting 0.5)" --check
live_until stop 8
with=$(live_part stop 24)
agent_stop 1
without=$(live_part stop 48)
agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 75%"
agent_start 1
again=$(live_part stop 24)
agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 50%"
agent_reload 1
later=$(live_part stop 24)
live_end stop 1

measured "SUP's part: $with with the agent, $without without it, $again after a start with 75%, $later after a reload with 50%"
live_near "with the agent" "$with" 0.25
live_near "without it" "$without" 0.25
live_near "started again" "$again" 0.75
live_near "reloaded" "$later" 0.50
expect_eq "all bytes right" "$(perf_result stop .ok) $(perf_result stop-peer .ok)" "true true"
expect_eq "inode of the hints" "$(on 1 stat -c %i "$(agent_dir 1)/hints")" "$inode"
