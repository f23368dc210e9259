#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rail is cut at one request after another, while both rails carry data: both ends notice within their bound,
# no byte that was handed over is wrong, whatever arrives late. usage: cuts.sh [late-]RAIL
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

rail=${name#late-}
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
	start_listener --expect-error 20
	"$FABRICCTL" cut "${cut%:*}/$rail" "${cut#*:}" || die fabricctl
	start_connector --expect-error 20 verify --no-both --comms 2 --sizes 1,300,4096,70000,1000000
	finish
	[ "$connector_rc" = 0 ] || die "cut at $cut: the connecting side exits with $connector_rc"
	hold connector 'r["expected_error"]'
	# What arrived late may have been all that it waited for: then nothing is wrong at its end.
	grep -q "the peer's driver .* went away" "$work/listener.err" && continue
	[ "$listener_rc" = 0 ] || die "cut at $cut: the listener exits with $listener_rc"
	hold listener 'r["expected_error"]'
done
