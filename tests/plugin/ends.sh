#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How connections of one process end, and what its children leave alone. usage: ends.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

export MPIB_FABRIC_NODE=1

# with_agent SHARE: advanced mode, both rails
with_agent() {
	start_agent 1 "$1"
	export MPIB_MODE=1 MPIB_AGENT_DIR=${agent_dir}1
}

case $name in
receive-too-small-both-rails) # C09 with a share of one half
	with_agent 512
	"$DRIVER" receive-too-small || die "the driver exits with $?"
	;;
close-before-last-ack-both-rails)
	with_agent 512
	"$DRIVER" close-before-last-ack || die "the driver exits with $?"
	;;
ports-flap-both-rails)
	with_agent 512
	"$DRIVER" ports-flap || die "the driver exits with $?"
	;;
close-in-flight-both-rails)
	with_agent 512
	"$DRIVER" close-in-flight || die "the driver exits with $?"
	;;
completion-queues) # a port's limit far below the messages, and retries that end at once
	printf '[fabric]\nname = small\n[device sout]\nmax_msg = 4096\n[device sup]\nmax_msg = 4096\n' \
		>"$work/fabric.ini"
	for node in 1 2; do
		printf '[node %s]\nsout.address = 10.0.1.%s\nsup.address = 10.9.1.%s\n' $node $node $node
	done >>"$work/fabric.ini"
	export MPIB_FABRIC=$work/fabric.ini MPIB_IB_TIMEOUT=10 MPIB_IB_RETRY_CNT=1 MPIB_SPLIT_MIN=0
	export MPIB_RAIL_WAIT_SEC=0
	with_agent 512
	"$DRIVER" completion-queues 2>"$work/stderr" || die "the driver exits with $?"
	grep -q 'no answer within timeout' "$work/stderr" || die "no QP broke"
	! grep 'CQ' "$work/stderr" || die "a completion queue was too small"
	;;
fork-keeps-registrations) # C17: a child's end deregisters nothing
	with_agent 512
	export ASAN_OPTIONS=detect_leaks=0
	# run by the parent when its children are gone and its two ends still there
	export DRIVER_HOOK="cp $work/agentd1.log $work/then.log"
	"$DRIVER" fork-exit || die "the driver exits with $?"
	[ "$(grep -c ' registered by' "$work/then.log")" = 2 ] || die "not two registrations"
	! grep -q 'deregistered\|refused' "$work/then.log" || die "a child took one back"
	all_gone() { [ "$(grep -c 'deregistered.*as asked' "$work/agentd1.log")" = 4 ]; }
	until_true 20 all_gone || die "the parent's own ends aren't given back"
	;;
ipv6-control) # no IPv4 address anywhere
	unshare -n true 2>/dev/null || { echo "skipped: no network namespace of one's own"; exit 77; }
	unshare -n sh -c 'ip link set lo up && ip -4 addr flush dev lo && exec "$0" "$1"' \
		"$DRIVER" ipv6-control || die "the driver exits with $?"
	;;
*)
	"$DRIVER" "$name" || die "the driver exits with $?"
	;;
esac
