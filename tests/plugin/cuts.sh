#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rail is cut at one request after another, while both rails carry data: the other one takes over, every byte is
# right, whatever arrives late, and both ends tell the loss. usage: cuts.sh [late-]RAIL
# One verify through several losses and returns, which it counts: cuts.sh verify
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

rail=${name#late-}
RAIL=${rail^^}
export MPIB_MODE=1 MPIB_SPLIT_MIN=0 MPIB_IB_TIMEOUT=8 MPIB_IB_RETRY_CNT=3
start_agent 1 40%
start_agent 2 40%

# told COUNT TEXT: both ends have said it so often
told() {
	[ "$(warnings connector "$2")" -ge "$1" ] && [ "$(warnings listener "$2")" -ge "$1" ]
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
	local cut rail lost back

	rates 100000 # slow until the last return: the run doesn't end before
	start_listener
	start_connector verify --no-both --comms 2 --outstanding 4 --sizes 300,5000 --messages 200
	until_true $GROUND_SECONDS both_connected || die "no connection"
	for cut in 1/sout:2 2/sup:7 2/sout:3 2/sup:1; do
		rail=${cut#*/} rail=${rail%:*}
		lost=$(warnings connector "${rail^^} rail $rail:1 is lost")
		back=$(warnings connector "${rail^^} rail $rail:1 is back")
		"$FABRICCTL" cut "${cut%:*}" "${cut#*:}" || die fabricctl
		until_true $GROUND_SECONDS told $((lost + 2)) "${rail^^} rail $rail:1 is lost" ||
			die "the loss by $cut isn't told by both ends"
		"$FABRICCTL" port "${cut%:*}" up || die fabricctl
		# an event at the sender, which goes by its pauses else
		[ "${cut%%/*}" = 2 ] || { "$FABRICCTL" port "2/$rail" down && "$FABRICCTL" port "2/$rail" up; } || die fabricctl
		until_true $GROUND_SECONDS told $((back + 2)) "${rail^^} rail $rail:1 is back" || die "no return after the cut $cut"
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

# The sender's requests, and the receiver's clear-to-sends, which SOUT has.
cuts="2:1 2:2 2:3 2:7 2:30 2:200"
[ "$rail" = sup ] || cuts+=" 1:1 1:2 1:9 1:90"
if [ -n "${MPIB_TEST_SWEEP:-}" ]; then
	cuts=$(seq -f '2:%g' 200)
	[ "$rail" = sup ] || cuts+=" $(seq -f '1:%g' 90)"
fi
for cut in $cuts; do
	"$FABRICCTL" reset || die fabricctl
	[ "$rail" = "$name" ] || "$FABRICCTL" late "${cut%:*}/$rail" 20000 || die fabricctl
	start_listener
	"$FABRICCTL" cut "${cut%:*}/$rail" "${cut#*:}" || die fabricctl
	start_connector verify --no-both --comms 2 --sizes 1,300,4096,70000,1000000
	finish
	[ "$connector_rc:$listener_rc" = 0:0 ] ||
		die "cut at $cut: the connecting side exits with $connector_rc, the listener with $listener_rc"
	for side in connector listener; do
		[ "$(warnings "$side" "$RAIL rail $rail:1 is lost")" = 2 ] ||
			die "cut at $cut: not one line a connection of the $side tells the loss"
	done
done
