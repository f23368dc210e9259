#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rail is cut at one request after another, while both rails carry data: the other one takes over, every byte is
# right, whatever arrives late, and both ends tell the loss. usage: cuts.sh [late-]RAIL
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

rail=${name#late-}
RAIL=${rail^^}
export MPIB_MODE=1 MPIB_SPLIT_MIN=0 MPIB_IB_TIMEOUT=8 MPIB_IB_RETRY_CNT=3
start_agent 1 40%
start_agent 2 40%

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
