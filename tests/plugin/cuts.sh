#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rail is cut at one request after another, while both rails carry data: the other one takes over, every byte is
# right, whatever arrives late, and both ends tell the loss. usage: cuts.sh [late-]RAIL|queues|pieces
# While connections come up, and as they are closed: cuts.sh set-up|close
# One verify through several losses and returns, which it counts: cuts.sh verify
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

export MPIB_MODE=1 MPIB_SPLIT_MIN=0 MPIB_IB_TIMEOUT=8 MPIB_IB_RETRY_CNT=3
# an attempt that fails for want of a processor is followed by the next one soon
export MPIB_RAIL_PAUSE_MIN_MS=200 MPIB_RAIL_PAUSE_MAX_MS=1000
start_agent 1 40%
start_agent 2 40%

# note TEXT: how often each end has said it
declare -A noted
note() {
	local side
	for side in connector listener; do
		noted["$side $1"]=$(warnings $side "$1")
	done
}

# told_twice TEXT: both ends have, since it was noted, if it was; a short loss may be told by one alone
told_twice() {
	local side
	for side in connector listener; do
		[ "$(warnings $side "$1")" -ge $((${noted["$side $1"]:-0} + 2)) ] || return 1
	done
}

# counts SIDE: by rail, as JSON has it, how many lines of that side tell a loss, and a return
counts() {
	local what
	for what in lost back; do
		echo "[$(warnings "$1" "SOUT rail sout:1 is $what"), $(warnings "$1" "SUP rail sup:1 is $what")]"
	done
}

rates() {
	local nic
	for nic in 1/sout 1/sup 2/sout 2/sup; do
		"$FABRICCTL" rate $nic "$1" || die fabricctl
	done
}

verify_through_cuts() {
	local cut rail side lost back

	rates 100000 # slow until the last return: the run doesn't end before
	start_listener
	start_connector verify --no-both --comms 2 --outstanding 4 --sizes 300,5000 --messages 200
	until_true $GROUND_SECONDS both_connected || die "no connection"
	for cut in 1/sout:2 2/sup:7 2/sout:3 2/sup:1; do
		rail=${cut#*/} rail=${rail%:*}
		lost="${rail^^} rail $rail:1 is lost" back="${rail^^} rail $rail:1 is back"
		note "$lost"
		note "$back"
		"$FABRICCTL" cut "${cut%:*}" "${cut#*:}" || die fabricctl
		until_true $GROUND_SECONDS told_twice "$lost" ||
			die "the loss by $cut isn't told by both ends"
		"$FABRICCTL" port "${cut%:*}" up || die fabricctl
		# an event at the sender, which goes by its pauses else
		[ "${cut%%/*}" = 2 ] || { "$FABRICCTL" port "2/$rail" down && "$FABRICCTL" port "2/$rail" up; } || die fabricctl
		until_true $GROUND_SECONDS told_twice "$back" || die "no return after the cut $cut"
	done
	until_true $GROUND_SECONDS both_up || die "a rail is lost again"
	rates 0
	finish
	want 0 0
	for side in connector listener; do
		{ read -r lost && read -r back; } < <(counts $side)
		hold $side "(r['ok'] and [n['losses'] for n in r['rails']] == $lost and [n['returns'] for n in r['rails']] == $back and
			all(e['rails_up'] == 3 and e['losses'] == e['returns'] and e['losses'][0] > 1 and e['losses'][1] > 1 for e in c) and
			all(n['sent' if '$side' == 'connector' else 'received'] > 10000 for n in r['rails']) and
			(sum(n['parts_again'] for n in r['rails']) > 0) == ('$side' == 'connector'))"
	done
}

# both_up: as many returns as losses are told by both ends
both_up() {
	[ "$(counts connector | sort -u | wc -l):$(counts listener | sort -u | wc -l)" = 1:1 ]
}

if [ "$name" = verify ]; then
	verify_through_cuts
	exit
fi

verify=(verify --no-both --comms 2 --sizes 1,300,4096,70000,1000000)

# right CUT WHAT: the run is, though the port went down; CUT is NODE/RAIL or NODE/RAIL:N
right() {
	finish
	[ "$connector_rc:$listener_rc" = 0:0 ] ||
		die "$2 at $1: the connecting side exits with $connector_rc, the listener with $listener_rc"
}

# The port is lost before there are queue pairs on it, which nobody tells the connection.
set_up() {
	local nic rail

	for nic in 2/sup 1/sout; do
		rail=${nic#*/}
		"$FABRICCTL" reset || die fabricctl
		start_listener
		# both ends have opened their devices when the connecting one, which listens too, has told its ports
		start_connector --connect-delay 0.5 --print-ports --both --comms 1 verify --sizes 1,300,4096,70000
		says connector '"event":"ports"' || die "no listener"
		"$FABRICCTL" port $nic down || die fabricctl
		until_true $GROUND_SECONDS told_twice "${rail^^} rail $rail:1 is lost" || die "the loss of $nic isn't told by both ends"
		"$FABRICCTL" port $nic up || die fabricctl
		right $nic "set-up"
	done
}

# A last request is cut, and an idle connection as it is closed.
at_close() {
	local total k

	"$FABRICCTL" cut 2/sup 1000000 || die fabricctl
	start_listener
	verify+=(--sizes 4096)
	run_pair "${verify[@]}"
	want 0 0
	total=$((1000000 - $("$FABRICCTL" show 2/sup | sed -n 's/^ *cut_left //p')))
	for k in 0 1; do
		"$FABRICCTL" reset || die fabricctl
		start_listener
		"$FABRICCTL" cut 2/sup $((total - k)) || die fabricctl
		start_connector "${verify[@]}"
		right "2/sup:$((total - k))" "close"
		[ "$(warnings connector "SUP rail sup:1 is lost")" -ge 1 ] || die "no loss at request $((total - k)) of $total"
	done
	for k in 0.19 0.2 0.21; do
		"$FABRICCTL" reset || die fabricctl
		start_listener
		start_connector --hold 0.2 "${verify[@]}"
		says connector '"event":"hold"' || die "no idle connection"
		sleep $k
		"$FABRICCTL" port 2/sup down || die fabricctl
		right 2/sup "idle for $k s"
	done
}

case $name in
set-up) set_up ;;
close) at_close ;;
esac
case $name in
set-up | close) exit ;;
queues)
	export MPIB_SOUT_QP=16 MPIB_SUP_QP=16
	cuts="2/sup:1 2/sup:23 2/sout:40 1/sout:3"
	;;
pieces) # messages of several requests on each rail
	printf '[fabric]\nname = small\n[device sout]\nmax_msg = 65536\n[device sup]\nmax_msg = 65536\n' >"$work/fabric.ini"
	for node in 1 2; do
		printf '[node %s]\nsout.address = 10.0.1.%s\nsup.address = 10.9.1.%s\n' $node $node $node
	done >>"$work/fabric.ini"
	export MPIB_FABRIC=$work/fabric.ini
	verify=(verify --no-both --comms 2 --sizes 65537,400000 --messages 24)
	cuts="2/sup:2 2/sup:31 2/sout:9 1/sout:3"
	;;
*) # the sender's requests, and the receiver's clear-to-sends, which SOUT has
	rail=${name#late-}
	cuts="1 2 3 7 30 200"
	[ -z "${SANITIZED:-}" ] || cuts="1 3 30"
	[ -z "${MPIB_TEST_SWEEP:-}" ] || cuts=$(seq 200)
	# shellcheck disable=SC2086 # a list
	cuts=$(printf "2/$rail:%s " $cuts)
	if [ "$rail" = sout ]; then
		receiver="1 2 9 90"
		[ -z "${SANITIZED:-}" ] || receiver="2 90"
		[ -z "${MPIB_TEST_SWEEP:-}" ] || receiver=$(seq 90)
		# shellcheck disable=SC2086 # a list
		cuts+=$(printf '1/sout:%s ' $receiver)
	fi
	;;
esac
for cut in $cuts; do
	nic=${cut%:*} rail=${nic#*/}
	"$FABRICCTL" reset || die fabricctl
	[ "$name" = "${name#late-}" ] || "$FABRICCTL" late "$nic" 20000 || die fabricctl
	start_listener
	"$FABRICCTL" cut "$nic" "${cut#*:}" || die fabricctl
	start_connector "${verify[@]}"
	right "$cut" cut
	for side in connector listener; do
		[ "$(warnings "$side" "${rail^^} rail $rail:1 is lost")" = 2 ] ||
			die "cut at $cut: not one line a connection of the $side tells the loss"
	done
	[ "$name" != pieces ] || hold connector 'all(max(n["requests"] for n in e["rails"]) > e["messages"] for e in c)'
done
