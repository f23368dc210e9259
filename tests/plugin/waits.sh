#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No rail is left: messages wait for one, and each arrives once; where none comes back in time the connection fails.
# Vanilla connections, whose policy has one rail. usage: waits.sh both|apart|second|cuts|one-rail|reserve|
# reserve-lost|gives-up|peer-dies|peer-port
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

export MPIB_MODE=1 MPIB_SPLIT_MIN=0 MPIB_IB_TIMEOUT=8 MPIB_IB_RETRY_CNT=3
# an attempt that fails for want of a processor is followed by the next one soon
export MPIB_RAIL_PAUSE_MIN_MS=100 MPIB_RAIL_PAUSE_MAX_MS=500
case $name in
one-rail) export MPIB_MODE=0 MPIB_ISLAND_PREFIX_LEN=32 ;;
reserve*) export MPIB_MODE=0 ;;
second) export MPIB_IB_TIMEOUT=20 MPIB_IB_RETRY_CNT=7 ;; # 34 s: its port tells, or nothing does
gives-up) export MPIB_RAIL_WAIT_SEC=2 ;;
peer-port) export MPIB_RAIL_PAUSE_MIN_MS=3600000 MPIB_RAIL_PAUSE_MAX_MS=3600000 ;;
esac
start_agent 1 512
start_agent 2 512

# told COUNT TEXT: both ends have said it so often
told() {
	[ "$(warnings connector "$2")" -ge "$1" ] && [ "$(warnings listener "$2")" -ge "$1" ]
}

# lost_is_told COUNT RAIL, back_is_told COUNT RAIL
lost_is_told() {
	until_true 30 told "$1" "${2^^} rail $2:1 is lost" || die "loss $1 of ${2^^} isn't told by both ends"
}
back_is_told() {
	until_true 30 told "$1" "${2^^} rail $2:1 is back" || die "return $1 of ${2^^} isn't told by both ends"
}

ports() {
	local nic way=$1
	shift
	for nic; do
		"$FABRICCTL" port "$nic" "$way" || die fabricctl
	done
}

# moved RAIL: bytes that node 2 has sent on it
moved() {
	"$FABRICCTL" show "2/$1" | sed -n 's/.* tx_bytes \([0-9]*\).*/\1/p'
}
# goes_on RAIL: more and more of them
goes_on() {
	local before
	before=$(moved "$1")
	more() {
		[ "$(moved "$1")" -gt $((before + 3000000)) ]
	}
	until_true 30 more "$1" || die "${1^^} carries nothing"
}

# verify_cut TEXT NODE/RAIL:N...: verify, while these ports go down at their requests, and come up again
verify_cut() {
	local text=$1 nic
	shift
	"$FABRICCTL" reset || die fabricctl
	start_listener
	for nic; do
		"$FABRICCTL" late "${nic%:*}" $((RANDOM % 3 * 10000)) || die fabricctl
		"$FABRICCTL" cut "${nic%:*}" "${nic#*:}" || die fabricctl
	done
	start_connector verify --no-both --comms 2 --sizes 1,300,4096,70000,1000000 --messages 60
	[ -z "$text" ] || until_true 30 told 1 "$text" || die "cut at $*: '$text' isn't told by both ends"
	while kill -0 "$connector" 2>/dev/null; do
		sleep 0.0$((RANDOM % 7))
		# shellcheck disable=SC2046 # a list
		ports up $(printf '%s ' "${@%:*}")
	done
	finish
	[ "$connector_rc:$listener_rc" = 0:0 ] ||
		die "cut at $*: the connecting side exits with $connector_rc, the listener with $listener_rc"
}

if [ "$name" = cuts ]; then # both rails, one request or some after the other
	for cut in 1:1 7:3 30:31 200:90; do
		verify_cut "is lost .*no rail is left" 2/sup:${cut%:*} 2/sout:${cut#*:}
	done
	# at random, the receiver's clear-to-sends too, in each mode; MPIB_TEST_SWEEP: how many
	RANDOM=${MPIB_TEST_SEED:=$(date +%s)}
	echo "MPIB_TEST_SEED=$MPIB_TEST_SEED"
	for k in $(seq "${MPIB_TEST_SWEEP:-4}"); do
		export MPIB_MODE=$((RANDOM % 2)) MPIB_ISLAND_PREFIX_LEN=$((24 + 8 * (RANDOM % 3 == 0)))
		export MPIB_SOUT_QP=$((1 + RANDOM % 3)) MPIB_SUP_QP=$((1 + RANDOM % 5))
		cuts=
		for nic in 2/sup 2/sout 1/sup 1/sout; do
			[ $((RANDOM % 3)) = 0 ] || cuts+="$nic:$((1 + RANDOM % (RANDOM % 2 ? 400 : 20))) "
		done
		echo "$k: mode $MPIB_MODE prefix $MPIB_ISLAND_PREFIX_LEN QPs $MPIB_SOUT_QP $MPIB_SUP_QP, $cuts"
		# shellcheck disable=SC2086 # a list
		verify_cut "" $cuts
	done
	exit
fi

fails=
[ "$name" != gives-up ] && [ "$name" != peer-dies ] || fails="--expect-error 30"
# shellcheck disable=SC2086 # options
start_listener $fails
# shellcheck disable=SC2086
start_connector $fails bw --check --end-file "$work/end" --seconds 150 --size 300000 --comms 2
await_data
case $name in
both)
	lost=0
	for pair in "sup sout" "sout sup"; do
		first=${pair% *} second=${pair#* }
		for up in "$first" "$second"; do
			lost=$((lost + 2))
			ports down 2/$first
			lost_is_told $lost $first
			ports down 2/$second
			lost_is_told $lost $second
			[ "$up" != "$first" ] || sleep 1
			ports up 2/$up
			back_is_told $lost $up
			goes_on $up
			ports up 2/sup 2/sout
			back_is_told $lost sup
			back_is_told $lost sout
		done
	done
	until_true 20 told 1 "is lost .*no rail is left, messages wait up to 60 s for one" || die "no line tells that no rail is left"
	goes_on sup
	goes_on sout
	;;
apart) # each end loses another one
	for k in 1 2; do
		ports down 1/sup 2/sout
		lost_is_told $((2 * k)) sup
		lost_is_told $((2 * k)) sout
		ports up 1/sup 2/sout
		back_is_told $((2 * k)) sup
		back_is_told $((2 * k)) sout
		goes_on sup
	done
	;;
second) # the last one's port goes down, and the other one is back: that one is lost now, and not after all its retries
	ports down 2/sup
	lost_is_told 2 sup
	before=$(now_ms)
	ports down 2/sout
	sleep 0.2
	ports up 2/sup
	back_is_told 2 sup
	lost_is_told 2 sout
	goes_on sup
	[ $(($(now_ms) - before)) -lt 20000 ] || die "it took $(($(now_ms) - before)) ms"
	;;
one-rail)
	for k in 1 2; do
		ports down 1/sout
		lost_is_told $((2 * k)) sout
		ports up 1/sout
		back_is_told $((2 * k)) sout
		goes_on sout
	done
	;;
reserve)
	[ "$(moved sout)" -lt 100000 ] || die "SOUT carries data while SUP is up"
	for k in 1 2; do
		ports down 2/sup
		lost_is_told $((2 * k)) sup
		goes_on sout
		ports up 2/sup
		back_is_told $((2 * k)) sup
		goes_on sup
	done
	;;
reserve-lost)
	ports down 2/sout
	lost_is_told 2 sout
	goes_on sup
	ports up 2/sout
	back_is_told 2 sout
	[ "$(moved sout)" -lt 100000 ] || die "SOUT carries data while SUP is up"
	ports down 2/sup
	lost_is_told 2 sup
	goes_on sout
	;;
gives-up)
	ports down 2/sup 2/sout
	finish
	want 0 0
	hold connector 'r["expected_error"] and r["error_after_progress_s"] < 20'
	hold listener 'r["expected_error"] and r["error_after_progress_s"] < 20'
	grep -h 'no rail is left since' "$work"/*.err
	grep -qh 'no rail is left since [2-9][0-9]* ms (MPIB_RAIL_WAIT_SEC=2); SOUT rail sout:1: .*; SUP rail sup:1: ' "$work"/*.err ||
		die "no line names both rails"
	exit
	;;
peer-dies)
	ports down 2/sup 2/sout
	until_true 30 told 1 "is lost .*no rail is left" || die "that no rail is left isn't told by both ends"
	kill -KILL "$connector"
	before=$(now_ms)
	wait_listener
	[ "$listener_rc" = 0 ] || die "the listener exits with $listener_rc"
	hold listener 'r["expected_error"]'
	grep -q 'process or host is gone' "$work/listener.err" || die "no line says that the peer is gone"
	[ $(($(now_ms) - before)) -lt 20000 ] || die "it took $(($(now_ms) - before)) ms"
	exit
	;;
peer-port) # the receiver's port alone: it tells the sender, who would wait for an hour
	ports down 1/sup
	lost_is_told 2 sup
	ports up 1/sup
	back_is_told 2 sup
	;;
*)
	die "no such case"
	;;
esac
touch "$work/end"
finish
want 0 0
hold connector 'r["ok"]'
