# SPDX-License-Identifier: Apache-2.0
# nodes: 2
# limit: 900
# From bare nodes to a cluster and back, by the commands of "Install on a cluster" in docs/operators.md, read from
# there: the .deb packages are installed, a transfer is verified, another runs, and under it they are upgraded and
# rolled back. No slot moves, each byte is checked, what an operator wrote stays. Then they are removed and nothing is left.
# shellcheck shell=bash

# shellcheck source=tests/lab/lib/live.sh
. "$LAB_ROOT/lib/live.sh"

command -v dh >/dev/null || skip "debhelper is not installed"
export LAB_TIMEOUT=500
unit=mpib-agentd
packages=(mpib-agent libnccl-net-mpib mpib-netperf)

# The nodes come with the build installed by hand, and the cases after this one need it.
restore() {
	local n

	for n in $(case_nodes); do
		guest "$n" -i -t 120 -- 'dpkg -P mpib-agent libnccl-net-mpib mpib-netperf 2>/dev/null
			rm -f /usr/sbin/policy-rc.d
			tar -xf - -C / --no-overwrite-dir --no-same-owner --keep-directory-symlink &&
			systemd-sysusers && systemctl daemon-reload && systemd-tmpfiles --create mpib.conf &&
			journalctl --update-catalog' \
			<"$LAB_STATE/payload.tar"
	done
}
restore_and_end() {
	local code=$?

	trap - ERR
	set +e
	restore
	(exit "$code")
	case_end
}
trap restore_and_end EXIT

# newer OLD NEW: OLD's packages as the release after it would have them, with another sample policy.
newer() {
	local package root

	mkdir -p "$2"
	for package in "${packages[@]}"; do
		root=$2/$package
		dpkg-deb -R "$1/${package}"_*.deb "$root"
		sed -i 's/^Version: .*/Version: 99.0-1/' "$root/DEBIAN/control"
		[ ! -e "$root/etc/mpib/agent.ini" ] || echo '; of the release after' >>"$root/etc/mpib/agent.ini"
		dpkg-deb --root-owner-group -b "$root" "$2/${package}_99.0-1.deb" >/dev/null
		rm -r "$root"
	done
}

# section, block TITLE: of the page; a block with the title as its first line, which is a comment.
section() {
	sed -n '/^## Install on a cluster/,/^## [^I]/p' "$LAB_TREE/docs/operators.md"
}
block() {
	section | awk -v title="# $1" '/^```/ { inside = index($0, "sh") && !inside; first = inside; next }
		inside && first { wanted = index($0, title) == 1; first = 0 }
		inside && wanted'
}
# step TITLE NODE…: in these nodes at once, with the lab's names; unattended, as what is to be typed is on the page.
step() {
	local title=$1 n text
	local -a jobs=()

	shift
	text=$(block "$title" | sed "s/mlx5_0/sout/g; s/mlx5_1/sup/g; s/node2:/$(oob 2):/")
	[ -n "$text" ] || fail "the page has no block $title"
	echo "$title" >>"$CASE_DIR/ran"
	for n in "$@"; do
		on "$n" "cd /root && export DEBIAN_FRONTEND=noninteractive $PERF_ENV && set -e
			$text" >>"$CASE_DIR/step.$n" 2>&1 &
		jobs+=($!)
	done
	for n in "${jobs[@]}"; do
		wait "$n" || step_failed "$title" $?
	done
}
# step_failed TITLE CODE: warnings of doctor aren't.
step_failed() {
	[ "$1 $2" != "Look 5" ] || return 0
	tail -n 20 "$CASE_DIR"/step.*
	fail "$1: exit status $2"
}
release() {
	on "$1" "dpkg-query -W -f '\${Version} ' ${packages[*]}"
}
# holders: the flow of the job in node 1: "SLOT SHARE CONNECTIONS".
holders() {
	on 1 mpibctl --json flows | jq -r --arg flow "$(flow 1 2)" \
		'.flows[] | select(.flow == $flow) | "\(.slot) \(.share) \(.connections)"'
}
state() {
	on "$1" "systemctl is-active $unit; systemctl is-enabled $unit.service $unit.socket mpib-metrics.timer" \
		2>/dev/null | paste -sd' ' || true
}

# By the page's command, or its packages of before where nothing has changed.
expect_eq "the page's build" "$(block Build | tail -n 1)" "systemd/debian/build ~/mpib"
"$LAB_TREE/tests/builds/debs" "$LAB_TREE" "$LAB_BUILD/builds/deb"
echo Build >"$CASE_DIR/ran"
mkdir "$CASE_DIR/mpib"
for package in "${packages[@]}"; do
	cp "$LAB_BUILD/builds/deb/${package}"_*.deb "$CASE_DIR/mpib"
done
newer "$CASE_DIR/mpib" "$CASE_DIR/mpib-next"

# Bare nodes.
meson introspect "$LAB_BUILD" --installed | jq -r '.[]' >"$CASE_DIR/installed"
for n in $(case_nodes); do
	guest "$n" -i -t 60 -- 'xargs rm -f; rm -rf /etc/mpib /tmp/mpib /usr/include/mpib /usr/share/mpib; systemctl daemon-reload
		userdel mpib' <"$CASE_DIR/installed"
	on "$n" "! command -v mpibctl && ! getent passwd mpib && ! systemctl cat $unit" >/dev/null 2>&1 ||
		fail "node $n isn't bare"
	tar -C "$CASE_DIR" -cf - mpib mpib-next | guest "$n" -i -t 60 -- 'tar -C /root --no-same-owner -xf -'
done

# Installed: where the host's policy forbids it nothing is started.
printf '#!/bin/sh\nexit 101\n' | put 2 /usr/sbin/policy-rc.d
on 2 chmod +x /usr/sbin/policy-rc.d
step Install 1 2
first=$(release 1)
expect_eq "node 1" "$(state 1)" "active enabled disabled disabled"
expect_eq "node 2, whose policy forbids it" "$(state 2)" "inactive enabled disabled disabled"
on 2 "rm /usr/sbin/policy-rc.d; systemctl start $unit"
expect_eq "the directory" "$(on 1 "stat -c '%a %U' /tmp/mpib")" "755 mpib"
expect_match "the catalog" "$(on 1 journalctl --dump-catalog 2>/dev/null)" 'Subject: The MPIB agent has started'

# A transfer that is checked.
step Write 1 2
step Look 1 2
bg 2 wait "cd /root && export $PERF_ENV && $(block Wait | sed 's/mlx5_0/sout/; s/mlx5_1/sup/')"
echo Wait >>"$CASE_DIR/ran"
step Verify 1
bg_wait wait || fail "the waiting end: $(tail -n 3 "$CASE_DIR/wait.err")"
measured "$(grep -h 'ok' "$CASE_DIR/wait.out" | tail -n 1 | cut -c1-100)"

# A job.
live_start job 1 2 "$ADVANCED" --size 64K --warmup 0 --interval 0.5 --check --seconds 450
live_until job 8
live_near "before" "$(live_part job 12)" 0.25
step Note 1
before=$(holders)
inode=$(on 1 stat -c %i /tmp/mpib/hints)

# replaced TITLE NODE…: by that step, under it.
replaced() {
	local what=$1 pid cursor

	pid=$(on 1 systemctl show -P MainPID $unit)
	cursor=$(agent_cursor 1)
	step "$@"
	[ "$(on 1 systemctl show -P MainPID $unit)" != "$pid" ] || fail "$what: the agent of before runs"
	expect_eq "$what: units" "$(state 1) $(state 2)" \
		"active enabled disabled disabled active enabled disabled disabled"
	expect_eq "$what: slot, share and connections" "$(holders)" "$before"
	expect_eq "$what: the table" "$(on 1 stat -c %i /tmp/mpib/hints)" "$inode"
	expect_match "$what: the policy file" "$(get 1 "$INI")" '^intra = 25%'
	expect_match "$what: the journal" "$(agent_since 1 "$cursor")" '1 registrations of 1 processes re-adopted'
	live_near "$what: the job" "$(live_part job 12)" 0.25
}
replaced Upgrade 1 2
expect_eq "the release" "$(release 1)" "99.0-1 99.0-1 99.0-1 "
on 1 "grep -q 'of the release after' $INI.dpkg-dist" || fail "the new sample isn't beside the operator's file"
measured "upgraded under the job: slot, share, connections $before as before"
# One end alone: releases may differ meanwhile.
step Ask 1
replaced Go 1
expect_eq "the release" "$(release 1)" "$first"
agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 75%"
agent_reload 1
live_near "a reload after it" "$(live_part job 40)" 0.75
live_end job 1
expect_eq "all bytes right" "$(perf_result job .ok) $(perf_result job-peer .ok)" "true true"
measured "rolled back; $(perf_result job '"\(.messages) messages, errors \(.errors | length)"')"

# Removed, but for what an operator wrote; purged, with it.
on 1 "systemctl -q enable mpib-metrics.timer $unit.socket; systemctl -q stop $unit
	systemctl start mpib-metrics.timer $unit.socket" 2>/dev/null
step Remove 1
expect_eq "after removal" "$(on 1 "pgrep -x mpib-agentd; systemctl is-active $unit.socket mpib-metrics.timer
	command -v mpibctl; ls /usr/lib/x86_64-linux-gnu/libnccl-net-mpib.so; true" 2>/dev/null | paste -sd' ')" "inactive inactive"
expect_match "the policy file" "$(get 1 "$INI")" '^share = 75%'
step Purge 1
expect_eq "left" "$(on 1 "rm -rf /root/mpib /root/mpib-next /root/agentd-before /tmp/mpib.job-end
	find / -xdev -name '*mpib*' ! -path '/lab/*' ! -path '/proc/*' ! -path '/sys/*'; find /tmp /run -name '*mpib*' ! -path '/run/udev/*'")" ""
on 1 "systemctl --failed --no-legend; systemctl list-unit-files --no-legend 'mpib*' || true" >"$CASE_DIR/units"
expect_eq "units that are left" "$(cat "$CASE_DIR/units")" ""
measured "removed: nothing is left but the user mpib"

# The whole page was run, and nothing of it was left out.
expect_eq "blocks of the page" "$(sort -u "$CASE_DIR/ran")" \
	"$(section | awk '/^```sh/ { getline; sub(/[,.:]$/, "", $2); print $2 }' | sort -u)"
measured "$(wc -l <"$CASE_DIR/ran") blocks of the page"
