# SPDX-License-Identifier: Apache-2.0
# nodes: 2
# limit: 300
# What systemd does to the agent while a job has it in use: the first client starts it through its
# socket, a cleaner of /tmp runs with the clock 40 days on, the watchdog ends one that hangs, a
# reload is over when its shares hold.
# shellcheck shell=bash

# shellcheck source=tests/lab/lib/live.sh
. "$LAB_ROOT/lib/live.sh"

unit=mpib-agentd
inode() {
	on 1 stat -c %i /tmp/mpib/hints
}
# connections: of the flow that the job uses, and the slot of it.
connections() {
	on 1 mpibctl --json flows | jq -r --arg flow "$(flow 1 2)" \
		'.flows[] | select(.flow == $flow) | "\(.connections) in slot \(.slot)"'
}
# until_eq WHAT WANT COMMAND…: looks again for 20 s.
until_eq() {
	local what=$1 want=$2 got='' end=$((SECONDS + 20))

	shift 2
	while [ $SECONDS -lt $end ]; do
		got=$("$@" 2>/dev/null) || true
		[ "$got" = "$want" ] && return
		sleep 0.3
	done
	fail "$what: got '$got', not '$want'"
}

agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 25%"
agent_start 2

# The watchdog at 4 s in place of 30, from the start: a reload of units takes long beside a job.
on 1 "mkdir -p /etc/systemd/system/$unit.service.d
	printf '[Service]\nWatchdogSec=4\n' >/etc/systemd/system/$unit.service.d/lab.conf
	systemctl daemon-reload"

# The daemon is off and its socket waits: a job in advanced mode is the first client.
on 1 systemctl start $unit.socket
expect_eq "the daemon before the first client" "$(on 1 systemctl is-active $unit || true)" inactive
perf_start job 1 2 "$ADVANCED MPIB_AGENT_STALE_SEC=600" \
	bw --size 64K --window 1 --seconds 600 --rest 0.002 --warmup 0 --interval 0.5 --check
live_until job 4
expect_eq "the daemon after it" "$(on 1 systemctl is-active $unit)" active
until_eq "its flow" "1 in slot 0" connections
live_near "its share" "$(live_part job 12)" 0.25
inode=$(inode)

# Stopped by hand, the socket stays: the next client starts it again and it takes the job over.
on 1 systemctl stop $unit 2>/dev/null
on 1 "test -S /tmp/mpib/agent.sock" || fail "the socket went with the daemon"
expect_eq "the first answer" "$(on 1 "mpibctl --json status" | jq .registrations)" 1
until_eq "its flow again" "1 in slot 0" connections
expect_eq "hints by way of the socket" "$(inode)" "$inode"
measured "socket activation: a job and mpibctl each started the daemon; $(connections)"

# Ageing as upstream's tmpfiles.d has it and Debian has not. A copy beside the directory shows that
# the cleaner takes what is as old.
on 1 'rm -rf /tmp/old && mkdir -p /tmp/old /run/tmpfiles.d && cp /tmp/mpib/hints /tmp/mpib/lock /tmp/old/
	echo "q /tmp 1777 root root 10d" >/run/tmpfiles.d/tmp.conf
	date -s "+40 days" >/dev/null
	systemd-tmpfiles --clean; date -s "-40 days" >/dev/null
	rm /run/tmpfiles.d/tmp.conf
	test ! -e /tmp/old/hints -a ! -e /tmp/old/lock' || fail "the cleaner cleaned nothing"
on 1 "test -S /tmp/mpib/agent.sock && test -f /tmp/mpib/lock" || fail "the cleaner took the agent's files"
expect_eq "hints after the cleaner" "$(inode)" "$inode"
expect_eq "the flow after it" "$(connections)" "1 in slot 0"

# The watchdog.
cursor=$(agent_cursor 1)
pid=$(on 1 systemctl show -P MainPID $unit)
on 1 "kill -STOP $pid"
other_pid() {
	on 1 "p=\$(systemctl show -P MainPID $unit); systemctl is-active -q $unit &&
		[ \$p != 0 ] && [ \$p != $pid ] && echo another"
}
started=$SECONDS
until_eq "a stopped daemon" another other_pid
measured "watchdog: another daemon $((SECONDS - started)) s after SIGSTOP (WatchdogSec=4)"
expect_eq "its restarts" "$(on 1 systemctl show -P NRestarts $unit)" 1
expect_eq "result in the journal" \
	"$(agent_since 1 "$cursor" | grep -c 'Watchdog timeout')" 1
expect_eq "hints after the watchdog" "$(inode)" "$inode"
until_eq "the flow after it" "1 in slot 0" connections
expect_match "adopted" "$(agent_log 1 MPIB_EVENT=adopt | tail -1)" '1 registrations of 1 processes re-adopted'

# A bad file: non-zero, and systemctl status tells why.
agent_policy 1 "[policy]" "inter = lots"
! on 1 systemctl reload $unit 2>/dev/null || fail "systemctl reload took a bad file"
expect_match "status" "$(on 1 systemctl status --no-pager $unit)" "$INI:2: inter = lots is not a share"

# Good ones: when the command is back, the table has the share, and the next message takes it. With
# one message in flight, one at most may still be under way on the rail that is to fall silent.
late=0
for share in 0 1024; do
	agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = $share"
	rail=$([ $share = 0 ] && echo eth1 || echo eth0)
	found=$(on 1 "systemctl reload $unit && cat /sys/class/net/$rail/statistics/tx_bytes &&
		mpibctl --json hints && sleep 0.7 && cat /sys/class/net/$rail/statistics/tx_bytes") ||
		fail "systemctl reload"
	expect_eq "hint" "$(sed '1d;$d' <<<"$found" | jq '.hints[0].share')" "$share"
	moved=$(($(tail -1 <<<"$found") - $(head -1 <<<"$found")))
	[ $moved -le $late ] || late=$moved
done
measured "after a reload returned, at most $late bytes left the rail that has no share any more (messages of 65536)"
expect_le "bytes on the silent rail" "$late" 98304

on 1 pkill -INT -x mpib-netperf || true
bg_stop job
bg_stop job-peer
expect_eq "errors of the job" "$(grep -c '"errors": *\["' "$CASE_DIR/job.out" || true)" 0
on 1 systemctl stop $unit.socket $unit.service
