# SPDX-License-Identifier: Apache-2.0
# nodes: 2
# The agent is stopped while data flows: the transfer goes on with its last share. It is started
# again: the same slot, the same file, and later shares are followed.
# shellcheck shell=bash

# rails NAME: "SOUT SUP" bytes of the latest interval line.
rails() {
	jq -rs 'map(select(.event == "interval")) | last | "\(.rails[0].bytes) \(.rails[1].bytes)"' "$CASE_DIR/$1.out"
}

# part_over NAME SECONDS: SUP's part of the bytes of the next seconds.
part_over() {
	local -a a b

	sleep 1.2 # an interval that began before is over
	read -ra a <<<"$(rails "$1")"
	sleep "$2"
	read -ra b <<<"$(rails "$1")"
	jq -n "(${b[1]} - ${a[1]}) / (${b[0]} - ${a[0]} + ${b[1]} - ${a[1]})"
}

agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 25%"
agent_start 1 2
inode=$(on 1 stat -c %i /tmp/mpib/hints)

perf_start stop 1 2 "$ADVANCED MPIB_AGENT_STALE_SEC=600" bw --size 256K --seconds 30 --interval 0.5 --check
for _ in $(seq 100); do
	[ "$(grep -c '"interval"' "$CASE_DIR/stop.out")" -ge 2 ] && break
	sleep 0.2
done

with=$(part_over stop 2)
on 1 systemctl stop mpib-agentd
without=$(part_over stop 4)
agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 75%"
on 1 systemctl start mpib-agentd
again=$(part_over stop 3)
agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 50%"
agent_reload 1
later=$(part_over stop 3)
perf_wait stop

measured "SUP's part: $with with the agent, $without without it, $again after a start with 75%, $later after a reload with 50%"
for pair in "$with 0.25" "$without 0.25" "$again 0.75" "$later 0.50"; do
	expect_le "part against ${pair#* }" "(${pair% *} - ${pair#* } | fabs)" 0.02
done
expect_eq "all bytes right" "$(perf_result stop .ok) $(perf_result stop-peer .ok)" "true true"
expect_eq "inode of the hints" "$(on 1 stat -c %i /tmp/mpib/hints)" "$inode"
