#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every setting takes effect: what the fabric was asked for, which rail carried what, what is said.
# A case a setting, named as it is; the case `all` wants one for each row of the table.
# usage: takes.sh MPIB_NAME
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

trace=$work/trace
export MPIB_FABRIC_TRACE=$trace

# one_way [OPTION...]: one connection from node 2 to node 1, over both of its ends
one_way() {
	: >"$trace"
	start_listener
	run_pair --log info verify --sizes 4096,65536 --comms 1 --no-both "$@"
	want 0 0
}

# every PATTERN TEXT: there are lines of the trace with the pattern, and each has the text
every() {
	grep -q -e "$1" "$trace" || die "the trace has no '$1'"
	! grep -e "$1" "$trace" | grep -v -q -e "$2" || die "not every '$1' has '$2'"
}

# count PATTERN: of lines of the trace
count() {
	grep -c -e "$1" "$trace"
}

# infiniband_pair [OPTION...]: the same on InfiniBand ports, with two partitions
infiniband_pair() {
	printf '[fabric]\nname = ib\n' >"$work/fabric.ini"
	printf '[device %s]\nlink_layer = infiniband\npkeys = 0xffff 0x8003\n' sout sup >>"$work/fabric.ini"
	printf '[node 1]\n[node 2]\n' >>"$work/fabric.ini"
	export MPIB_FABRIC=$work/fabric.ini
	: >"$trace"
	MPIB_NODE_ADDR=10.0.1.1 start_listener
	MPIB_NODE_ADDR=10.0.1.2 run_pair --log info verify --sizes 4096 --comms 1 --no-both
	want 0 0
}

# spread_of SIZE: messages of that size on InfiniBand ports with adaptive routing; in $spread the
# bytes that it could spread
spread_of() {
	local before

	printf '[fabric]\nname = adaptive\n' >"$work/fabric.ini"
	printf '[device %s]\nlink_layer = infiniband\nadaptive = yes\n' sout sup >>"$work/fabric.ini"
	printf '[node 1]\n[node 2]\n' >>"$work/fabric.ini"
	export MPIB_FABRIC=$work/fabric.ini
	before=$("$FABRICCTL" show 1/sup 2>/dev/null | sed -n 's/^ *spread_bytes //p')
	MPIB_NODE_ADDR=10.0.1.1 start_listener
	MPIB_NODE_ADDR=10.0.1.2 run_pair bw --size "$1" --messages 8 --warmup 0 --check
	want 0 0
	spread=$(($("$FABRICCTL" show 1/sup | sed -n 's/^ *spread_bytes //p') - ${before:-0}))
}

# attempts: sets $attempts to how often SUP is tried in the two seconds after it was lost
attempts() {
	"$FABRICCTL" reset || die fabricctl
	: >"$trace"
	rm -f "$work/end"
	start_listener
	start_connector bw --end-file "$work/end" --seconds 100 --size 100000 --comms 1
	await_data
	"$FABRICCTL" port 1/sup down || die fabricctl
	until_true $GROUND_SECONDS grep -q 'SUP rail sup:1 is lost' "$work/connector.err" || die "no loss"
	attempts=$(count '^2/sup qp')
	sleep 2
	attempts=$(($(count '^2/sup qp') - attempts))
	touch "$work/end"
	finish
	want 0 0
}

# both_agents SHARE: advanced mode, an agent on each node
both_agents() {
	start_agent 1 "$1"
	start_agent 2 "$1"
	export MPIB_MODE=1
}

# A device that refuses relaxed ordering.
strict_device() {
	printf '[fabric]\nname = strict\n' >"$work/fabric.ini"
	printf '[device %s]\nrelaxed_ordering = no\n' sout sup >>"$work/fabric.ini"
	for node in 1 2; do
		printf '[node %s]\nsout.address = 10.0.1.%s\nsup.address = 10.9.1.%s\n' $node $node $node
	done >>"$work/fabric.ini"
	export MPIB_FABRIC=$work/fabric.ini
}

case $name in
all)
	source=$(dirname "$0")/../..
	known=$(sed -nE 's/^\t\{ "(MPIB_[A-Z_]+)".*/\1/p' "$source/common/env_table.c")
	known="$known $(sed -nE 's/^#define MPIB_AGENT_DIR_ENV +"(.*)".*/\1/p' "$source/common/mpib_agent_iface.h")"
	[ "$(wc -w <<<"$known")" -ge 25 ] || die "the table isn't found: $known"
	for setting in $known; do
		grep -qE "^(.* \\| )?$setting( \\|.*)?\\)" "$0" || die "no case for $setting in this file"
		grep -q "'$setting'" "$(dirname "$0")/meson.build" || die "$setting isn't run by meson.build"
	done
	;;
MPIB_HCA_SOUT)
	export MPIB_HCA_SOUT=sup:1 MPIB_HCA_SUP=sout
	one_way
	warned connector 1 'SOUT sup:1: GID 3 10.9.1.2'
	hold connector 'c[0]["rails"][1]["bytes"] > 0'
	;;
MPIB_HCA_SUP)
	export MPIB_HCA_SUP=sout
	one_way
	warned connector 1 'SUP sout:1: GID 3 10.0.1.2'
	[ "$(count '/sup ')" = 0 ] || die "the device sup is used"
	;;
MPIB_OOB_IF)
	unset MPIB_OOB_IF
	NCCL_SOCKET_IFNAME='=nosuch0,nosuch1' start_listener
	run_pair verify --sizes 8
	grep -q 'NCCL_SOCKET_IFNAME==nosuch0,nosuch1: no such interface.* lo' "$work/listener.err" ||
		die "NCCL's variable isn't used"
	export NCCL_SOCKET_IFNAME=nosuch0 MPIB_OOB_IF=l # the own one wins; a beginning is enough
	one_way
	MPIB_OOB_IF='^lo' start_listener --print-ports
	run_pair verify --sizes 8 --comms 1 --no-both
	! grep -q 'peer 127.0.0.1' "$work"/*.err || die "lo is taken all the same"
	;;
MPIB_OOB_FAMILY)
	unshare -n true 2>/dev/null || { echo "skipped: no network namespace of one's own"; exit 77; }
	# loopback has both there, whatever the host has; the driver says which one the handle has
	for family in AF_INET AF_INET6; do
		MPIB_OOB_FAMILY=$family unshare -n sh -c 'ip link set lo up && exec "$0" control-family' \
			"$DRIVER" >"$work/family" || die "the driver exits with $?"
		grep -qx "$family" "$work/family" || die "$(cat "$work/family") and not $family"
	done
	MPIB_OOB_FAMILY='' NCCL_SOCKET_FAMILY=AF_INET6 unshare -n sh -c \
		'ip link set lo up && exec "$0" control-family' "$DRIVER" >"$work/family" || die "the driver"
	grep -qx AF_INET6 "$work/family" || die "NCCL's variable isn't used"
	;;
MPIB_AGENT_DIR | MPIB_MODE) # the agents' share, from the directories that the two sides are given
	both_agents 256
	one_way
	hold connector 'c[0]["mode"] == "advanced" and c[0]["share"] == 256'
	;;
MPIB_ISLAND_PREFIX_LEN)
	export MPIB_ISLAND_PREFIX_LEN=32
	one_way
	hold connector 'c[0]["path"] == "inter" and c[0]["rails"][1]["bytes"] == 0'
	;;
MPIB_SOUT_QP)
	export MPIB_SOUT_QP=3
	one_way
	[ "$(count '^1/sout qp')$(count '^2/sout qp')" = 33 ] || die "not three QPs on SOUT"
	;;
MPIB_SUP_QP)
	export MPIB_SUP_QP=7
	one_way
	[ "$(count '^1/sup qp')$(count '^2/sup qp')" = 77 ] || die "not seven QPs on SUP"
	;;
MPIB_NODE_ADDR)
	infiniband_pair
	warned connector 1 'send to 10.0.1.1 pid'
	;;
MPIB_IB_GID_INDEX)
	export MPIB_IB_GID_INDEX=2
	one_way
	every ' qp ' ' sgid=2 '
	;;
MPIB_IB_TIMEOUT)
	export MPIB_IB_TIMEOUT=19
	one_way
	every ' qp ' ' timeout=19 '
	;;
MPIB_IB_RETRY_CNT)
	export MPIB_IB_RETRY_CNT=5
	one_way
	every ' qp ' ' retry=5 '
	;;
MPIB_IB_TC) # all QPs, those with clear-to-sends too
	export MPIB_IB_TC=96
	one_way
	every ' qp ' ' tc=96 '
	;;
MPIB_IB_FIFO_TC) # the QP with clear-to-sends is the one with inline data, on the receiving node
	export NCCL_IB_TC=96 NCCL_IB_FIFO_TC=104
	one_way
	every '^1/sup qp.* inline=[1-9]' ' tc=104 '
	every ' qp .* inline=0' ' tc=96 '
	[ "$(count ' tc=104 ')" = 1 ] || die "$(count ' tc=104 ') QPs have the class of clear-to-sends"
	export MPIB_IB_FIFO_TC=112
	one_way
	every '^1/sup qp.* inline=[1-9]' ' tc=112 '
	start_listener # one that says something else is refused, by name
	MPIB_IB_FIFO_TC=8 run_pair verify --sizes 4096 --comms 1 --no-both
	want 1 1
	warned connector 1 'MPIB_IB_FIFO_TC differs: 112 on the accepting side, 8 on the connecting side'
	;;
MPIB_IB_AR_THRESHOLD)
	spread_of 8193
	[ "$spread" -ge 8193 ] || die "$spread bytes above the default are spread"
	spread_of 8192
	[ "$spread" = 0 ] || die "$spread bytes are spread of messages as large as the default"
	export NCCL_IB_AR_THRESHOLD=1000
	spread_of 8192
	[ "$spread" -ge 8192 ] || die "NCCL's variable isn't used: $spread bytes"
	export MPIB_IB_AR_THRESHOLD=-1
	spread_of 65536
	[ "$spread" = 0 ] || die "-1 spreads $spread bytes"
	;;
MPIB_IB_SL)
	export MPIB_IB_SL=5
	one_way
	every ' qp ' ' sl=5 '
	;;
MPIB_IB_PKEY)
	infiniband_pair
	every ' qp ' ' pkey=0xffff '
	export MPIB_IB_PKEY=0x8003
	infiniband_pair
	every ' qp ' ' pkey=0x8003 '
	;;
MPIB_GPUDIRECT)
	export MPIB_GPUDIRECT=0
	one_way
	warned connector 1 'GPU memory off (MPIB_GPUDIRECT=0)'
	export MPIB_GPUDIRECT=1
	one_way
	warned connector 1 'GPU memory through ibv_reg_mr (MPIB_GPUDIRECT=1)'
	;;
MPIB_FLUSH) # a QP to itself on each rail with data of a receiver that may hold GPU memory
	export MPIB_GPUDIRECT=1
	one_way
	with=$(count '^1/sup qp')
	export MPIB_FLUSH=0
	one_way
	[ "$with" = 5 ] && [ "$(count '^1/sup qp')" = 4 ] || die "$with and $(count '^1/sup qp') QPs"
	;;
MPIB_IB_ECE)
	one_way
	every ' ece ' asked
	export NCCL_IB_ECE_ENABLE=0
	one_way
	[ "$(count ' ece ')" = 0 ] || die "ECE is asked for"
	;;
MPIB_IB_PCI_RELAXED_ORDERING)
	one_way
	every ' mr .*remote=read' ' relaxed=yes'
	every ' mr .*remote=write' ' relaxed=no' # rings: their last word announces the rest
	export NCCL_IB_PCI_RELAXED_ORDERING=0
	one_way
	every ' mr ' ' relaxed=no'
	unset NCCL_IB_PCI_RELAXED_ORDERING
	strict_device
	one_way # the default goes without, and says so once a rail
	every ' mr ' ' relaxed=no'
	warned connector 1 'SUP rail sup:1: the device has no relaxed ordering (Invalid argument): without it'
	export MPIB_IB_PCI_RELAXED_ORDERING=1
	start_listener
	run_pair verify --sizes 4096 --comms 1 --no-both
	[ "$connector_rc" = 1 ] || die "1 goes without"
	refused='it may have no relaxed ordering: set MPIB_IB_PCI_RELAXED_ORDERING to 2'
	# whoever comes first; the other end stops before it tries
	[ "$(($(warnings connector "$refused") + $(warnings listener "$refused")))" -ge 1 ] ||
		die "neither end says what may be wrong"
	;;
MPIB_AGENT_OPTIONAL)
	export MPIB_MODE=1 MPIB_AGENT_OPTIONAL=1
	one_way
	hold connector 'c[0]["share"] == 1024'
	;;
MPIB_AGENT_STALE_SEC)
	export MPIB_AGENT_STALE_SEC=7
	both_agents 256
	start_listener
	start_connector --interval 0.2 bw --seconds 100 --rest 0.001 --size 64k --window 4
	await_data
	kill -STOP "$agent2"
	silent() { grep -q 'agent silent for 7 s (MPIB_AGENT_STALE_SEC)' "$work/connector.err"; }
	until_true 50 silent || die "the limit isn't seven seconds"
	kill -TERM "$connector"
	finish
	;;
MPIB_CONNECT_TIMEOUT_SEC)
	export MPIB_CONNECT_TIMEOUT_SEC=1
	"$NETPERF" fakelisten --port 0 --kind silent --hold 30 >"$work/fake" &
	fake_ready() { grep -q '"ready"' "$work/fake"; }
	until_true 60 fake_ready || die "no fake listener"
	fake=$(sed -n 's/.*"port":\([0-9]*\).*/\1/p' "$work/fake")
	start_listener
	silent_peer=(--handle-override "$(printf '%04x7f000001' "$fake")@16" verify --sizes 4096 --comms 1 --no-both)
	run_pair "${silent_peer[@]}"
	grep -q 'within 1 s (MPIB_CONNECT_TIMEOUT_SEC)' "$work/connector.err" || die "not after a second"
	# Nor is another time-out told by a process that had no processor until both were over.
	start_listener
	start_connector "${silent_peer[@]}"
	sleep 0.6
	kill -STOP "$connector"
	sleep 4.2 # longer than a greeting may take
	kill -CONT "$connector"
	finish
	grep -q 'within 1 s (MPIB_CONNECT_TIMEOUT_SEC)' "$work/connector.err" || die "not after a stall"
	;;
MPIB_SPLIT_MIN)
	both_agents 512
	export MPIB_SPLIT_MIN=65536
	one_way
	hold connector '0 < c[0]["rails"][0]["bytes"] < c[0]["rails"][1]["bytes"]'
	export MPIB_SPLIT_MIN=65537
	one_way
	hold connector 'c[0]["rails"][0]["bytes"] == 0'
	;;
MPIB_FAILOVER)
	both_agents 512
	export MPIB_IB_TIMEOUT=8 MPIB_IB_RETRY_CNT=1 MPIB_FAILOVER=0
	start_listener --expect-error 20
	"$FABRICCTL" cut 2/sup 1 || die fabricctl
	start_connector --expect-error 20 verify --sizes 70000 --comms 1 --no-both
	finish
	hold connector 'r["expected_error"]'
	"$FABRICCTL" reset || die fabricctl
	start_listener
	export MPIB_FAILOVER=1 # one end alone
	start_connector --log info verify --sizes 70000 --comms 1 --no-both
	finish
	want 0 0
	grep -q 'failover is on at this end alone' "$work/connector.err" || die "no line says so"
	"$FABRICCTL" reset || die fabricctl
	start_listener
	"$FABRICCTL" cut 2/sup 1 || die fabricctl
	start_connector verify --sizes 70000 --comms 1 --no-both
	finish
	want 0 0
	;;
MPIB_RAIL_STALL_MS)
	# what leaves node 2's SUP is lost, its data and its acknowledgements; retries last 8.6 s
	both_agents 512
	export MPIB_RAIL_STALL_MS=400 MPIB_IB_TIMEOUT=18 MPIB_IB_RETRY_CNT=7
	start_listener
	"$FABRICCTL" silent 2/sup on || die fabricctl
	start_connector verify --sizes 70000 --comms 1
	finish
	want 0 0
	grep -q 'SUP rail sup:1 is lost .*nothing of it completes' "$work/connector.err" || die "no loss by a stall"
	;;
MPIB_RAIL_WAIT_SEC)
	export MPIB_ISLAND_PREFIX_LEN=32 MPIB_IB_TIMEOUT=8 MPIB_IB_RETRY_CNT=1 # SOUT alone
	for MPIB_RAIL_WAIT_SEC in 0 1; do
		export MPIB_RAIL_WAIT_SEC
		"$FABRICCTL" reset || die fabricctl
		start_listener --expect-error 20
		"$FABRICCTL" cut 2/sout 1 || die fabricctl
		start_connector --expect-error 20 verify --sizes 70000 --comms 1 --no-both
		finish
		hold connector 'r["expected_error"]'
		[ "$(warnings connector 'no rail is left since [1-9][0-9]* ms (MPIB_RAIL_WAIT_SEC=1); SOUT rail')$(
			warnings listener 'no rail is left since [1-9][0-9]* ms (MPIB_RAIL_WAIT_SEC=1); SOUT rail')" != 00 ] ||
			[ $MPIB_RAIL_WAIT_SEC = 0 ] || die "no line says that no rail came back"
		[ $MPIB_RAIL_WAIT_SEC = 1 ] || warned connector 0 'no rail is left'
	done
	;;
MPIB_RAIL_PAUSE_MIN_MS | MPIB_RAIL_PAUSE_MAX_MS)
	both_agents 512
	export MPIB_IB_TIMEOUT=8 MPIB_IB_RETRY_CNT=1 MPIB_SUP_QP=1
	attempts # after 1 s, and 2 s more
	few=$attempts
	export MPIB_RAIL_PAUSE_MIN_MS=50 # 100, 200, 400, 800
	attempts
	[ "$attempts" -gt "$few" ] || die "$attempts attempts in two seconds, $few by default"
	[ $name = MPIB_RAIL_PAUSE_MIN_MS ] && exit
	few=$attempts
	export MPIB_RAIL_PAUSE_MAX_MS=50
	attempts
	[ "$attempts" -gt $((few + 1)) ] || die "$attempts attempts in two seconds, $few with longer pauses"
	;;
*)
	die "no such case"
	;;
esac
