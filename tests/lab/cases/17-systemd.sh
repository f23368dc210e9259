# SPDX-License-Identifier: Apache-2.0
# nodes: 2
# The agent as a service: verbs of systemctl, a clean unit file, a tight sandbox.
# shellcheck shell=bash

unit=mpib-agentd
is() {
	expect_eq "after $1" "$(on 1 systemctl is-active $unit || true)" "$2"
}

found=$(on 1 "systemd-analyze verify --man=no $unit.service $unit.socket" 2>&1) ||
	fail "systemd-analyze verify: $found"
expect_eq "systemd-analyze verify" "$found" ""

on 1 systemctl start $unit
is start active
expect_eq "sub-state" "$(on 1 systemctl show -P SubState $unit)" running
expect_match "status" "$(on 1 systemctl status --no-pager $unit)" '^ *Status: ".+"'
measured "$(on 1 systemctl status --no-pager $unit | sed -n 's/^ *\(Status: .*\)/\1/p')"
# READY means that everything is there.
on 1 "test -S /tmp/mpib/agent.sock && test -f /tmp/mpib/hints" || fail "ready without its files"
expect_eq "hints" "$(on 1 "stat -c '%s %U' /tmp/mpib/hints")" "4112 mpib"
first=$(on 1 systemctl show -P MainPID $unit)

on 1 systemctl reload $unit
is reload active
expect_eq "process after a reload" "$(on 1 systemctl show -P MainPID $unit)" "$first"

on 1 systemctl restart $unit
is restart active
second=$(on 1 systemctl show -P MainPID $unit)
[ "$first" != "$second" ] || fail "restart kept the process"

# A crash is mended by systemd.
on 1 "kill -KILL $second"
for _ in $(seq 20); do
	third=$(on 1 systemctl show -P MainPID $unit)
	[ "$third" != 0 ] && [ "$third" != "$second" ] &&
		[ "$(on 1 systemctl is-active $unit || true)" = active ] && break
	sleep 0.5
done
is "a crash" active

on 1 systemctl stop $unit
is stop inactive
expect_eq "hints stay" "$(on 1 stat -c %s /tmp/mpib/hints)" 4112

# What starts jobs finds the agent ready, by the unit's own Before=: this stands for slurmd and has
# no After=, and it fails without an agent.
on 1 "printf '[Unit]\\nWants=$unit.service\\n[Service]\\nType=oneshot\\nRemainAfterExit=yes\\n%s\\n' \
	ExecStart='/usr/bin/mpibctl status' >/run/systemd/system/slurmd.service; systemctl daemon-reload"
is stop inactive
on 1 systemctl start slurmd || fail "slurmd started without an agent"
ready=$(on 1 systemctl show -P ActiveEnterTimestampMonotonic $unit)
began=$(on 1 systemctl show -P ExecMainStartTimestampMonotonic slurmd)
[ "$ready" -gt 0 ] && [ "$ready" -le "$began" ] || fail "slurmd began at $began, the agent was ready at $ready"
measured "slurmd began $(((began - ready) / 1000)) ms after the agent was ready"
on 1 "systemctl stop slurmd $unit; rm /run/systemd/system/slurmd.service; systemctl daemon-reload"

# The preset: the agent starts with the host, the rest is a choice.
states() {
	on 1 systemctl is-enabled $unit.service $unit.socket mpib-metrics.timer 2>/dev/null | xargs
}
on 1 "systemctl -q disable $unit.service; systemctl -q enable $unit.socket mpib-metrics.timer"
expect_eq "enabled before the preset" "$(states || true)" "disabled enabled enabled"
on 1 "systemctl -q preset $unit.service $unit.socket mpib-metrics.timer" 2>/dev/null
expect_eq "enabled by the preset" "$(states || true)" "enabled disabled disabled"
on 1 "systemctl -q disable $unit.service"

exposure=$(on 1 "systemd-analyze security --no-pager $unit.service" |
	sed -n 's/.*Overall exposure level for .*: \([0-9.]*\) .*/\1/p')
measured "systemd-analyze security: exposure $exposure"
expect_le "exposure" "${exposure:-99}" 2.0
