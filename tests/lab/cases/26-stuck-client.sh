# SPDX-License-Identifier: Apache-2.0
# nodes: 1
# A client passes the agent a file whose close never comes back: what puts it away is stuck, beyond
# SIGKILL. A restart of the service, and one after a crash, don't wait for it, and every flow keeps its
# slot and its share.
# shellcheck shell=bash

unit=mpib-agentd

flows() {
	on 1 mpibctl --json flows | jq -c '[.flows[] | [.slot, .flow, .share]]'
}
# Processes of the keeper's that nothing can end.
stuck() {
	on 1 'ps -C mpib-keeper -o state= | grep -c D || true'
}
# until_eq WHAT WANT COMMAND…: looks again for 30 s.
until_eq() {
	local what=$1 want=$2 got='' end=$((SECONDS + 30))

	shift 2
	while [ $SECONDS -lt $end ]; do
		got=$("$@" 2>/dev/null) || true
		[ "$got" = "$want" ] && return
		sleep 0.3
	done
	fail "$what: got '$got', not '$want'"
}
# restart_ms COMMAND: how long it takes in the node.
restart_ms() {
	on 1 "a=\$(date +%s%N); $1; b=\$(date +%s%N); echo \$(((b - a) / 1000000))"
}

on 1 "modprobe fuse && test -c /dev/fuse" || skip "the node's kernel has no FUSE"
agent_policy 1 "[policy]" "intra = 25%"
agent_start 1
bg 1 holder "/lab/hold 10.0.1.1 10.0.1.7"
until_eq "flows of one" '[[0,"10.0.1.1-10.0.1.7",256]]' flows
bg 1 stuck "/lab/hold --stuck 10.0.1.1 10.0.1.8"
before='[[0,"10.0.1.1-10.0.1.7",256],[1,"10.0.1.1-10.0.1.8",256]]'
until_eq "flows of both" "$before" flows
until_eq "stuck processes" 1 stuck

took=$(restart_ms "systemctl restart $unit")
expect_le "restart beside a stuck process, ms" "$took" 5000
expect_eq "the service" "$(on 1 systemctl is-active $unit)" active
expect_eq "flows after the restart" "$(flows)" "$before"
expect_eq "stuck processes after it" "$(stuck)" 1

# A crash: RestartSec is one second of it, and each look at the unit takes time on an emulated CPU.
pid=$(on 1 systemctl show -P MainPID $unit)
crash=$(restart_ms "kill -KILL $pid; until [ \$(systemctl show -P MainPID $unit) != $pid ] &&
	systemctl is-active -q $unit; do sleep 1; done")
expect_le "restart after a crash beside it, ms" "$crash" 15000
expect_eq "flows after the crash" "$(flows)" "$before"
stop=$(restart_ms "systemctl stop $unit")
expect_le "stop beside it, ms" "$stop" 5000
agent_start 1
expect_eq "flows after a stop and a start" "$(flows)" "$before"
measured "with a process of the agent's stuck in FUSE: restart $took ms, after a crash $crash ms, stop $stop ms"

bg_stop stuck
until_eq "flows once the client has ended" '[[0,"10.0.1.1-10.0.1.7",256]]' flows
until_eq "stuck processes once the file system has ended" 0 stuck
bg_stop holder
