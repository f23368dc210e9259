#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rail goes and comes back under load, time after time: every byte is right, both rails carry data again, and both
# ends tell each loss and each return. usage: returns.sh sout|sup|one-end|limits|gids|flaps|exchange
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

export MPIB_MODE=1 MPIB_SPLIT_MIN=0 MPIB_IB_TIMEOUT=14 MPIB_IB_RETRY_CNT=3
# an attempt that fails for want of a processor is followed by the next one soon
export MPIB_RAIL_PAUSE_MIN_MS=200 MPIB_RAIL_PAUSE_MAX_MS=1000
if [ "$name" = limits ]; then # no queue more than the connection has: one that stayed would be one too many
	export MPIB_SOUT_QP=1 MPIB_SUP_QP=1 MPIB_FABRIC=$work/fabric.ini
	printf '[fabric]\nname = limits\n[device sout]\nmax_qp = 1\nmax_cq = 1\n[device sup]\nmax_qp = 1\nmax_cq = 1\n' >"$MPIB_FABRIC"
	for node in 1 2; do
		printf '[node %s]\nsout.address = 10.0.1.%s\nsup.address = 10.9.1.%s\n' $node $node $node
	done >>"$MPIB_FABRIC"
fi
start_agent 1 512
start_agent 2 512

# told COUNT TEXT: both ends have said it so often
told() {
	[ "$(warnings connector "$2")" -ge "$1" ] && [ "$(warnings listener "$2")" -ge "$1" ]
}

# lose_and_return NODE RAIL TIME: both ends are over it
lost=0
lose_and_return() {
	"$FABRICCTL" port "$1/$2" down || die fabricctl
	lost=$((lost + 1))
	until_true 20 told $lost "${2^^} rail $2:1 is lost" || die "loss $lost isn't told by both ends"
	sleep "$3"
	"$FABRICCTL" port "$1/$2" up || die fabricctl
	until_true 20 told $lost "${2^^} rail $2:1 is back" || die "return $lost isn't told by both ends"
}

# both_back: each end tells as many returns as losses
both_back() {
	local side
	for side in connector listener; do
		[ "$(warnings $side "SUP rail sup:1 is lost")" = "$(warnings $side "SUP rail sup:1 is back")" ] || return 1
	done
}
# again_lost: each end tells more losses than returns
again_lost() {
	local side
	for side in connector listener; do
		[ "$(warnings $side "SUP rail sup:1 is lost")" -gt "$(warnings $side "SUP rail sup:1 is back")" ] || return 1
	done
}

start_listener
start_connector bw --check --end-file "$work/end" --seconds "${MPIB_TEST_SWEEP:+3}150" --size 300000 --comms 1
await_data
case $name in
sout | sup)
	lose_and_return 2 "$name" 0.1
	lose_and_return 2 "$name" 0
	lose_and_return 2 "$name" 0.3
	;;
limits)
	for rail in sup sout sup sout; do
		lost=$(warnings connector "${rail^^} rail $rail:1 is lost")
		lose_and_return 2 $rail 0
	done
	;;
one-end) # the port is the receiver's alone: the sender tries by its pauses
	lose_and_return 1 sup 0.1
	lose_and_return 1 sup 0
	;;
gids) # with the link an interface may lose its addresses, whose GIDs come back to other places of the table
	"$FABRICCTL" port 2/sup down || die fabricctl
	lost=1
	until_true 20 told $lost "SUP rail sup:1 is lost" || die "the loss isn't told by both ends"
	for node in 1 2; do
		"$FABRICCTL" gid $node/sup 3 - && "$FABRICCTL" gid $node/sup 5 "10.9.1.$node/v2" || die fabricctl
	done
	"$FABRICCTL" port 2/sup up || die fabricctl
	until_true 20 told $lost "SUP rail sup:1 is back" || die "the return isn't told by both ends"
	;;
exchange) # lost again at a request of the return, and while the frames about it wait for a stopped end
	is_down() {
		"$FABRICCTL" show 2/sup | grep -q 'port down'
	}
	for n in 1 2 6; do
		"$FABRICCTL" port 2/sup down || die fabricctl
		until_true 20 again_lost || die "the loss before request $n isn't told by both ends"
		"$FABRICCTL" cut 2/sup $n && "$FABRICCTL" port 2/sup up || die fabricctl
		until_true 20 is_down || die "request $n of a return never left"
		"$FABRICCTL" port 2/sup up || die fabricctl
		until_true 20 both_back || die "no return after one that was cut at request $n"
	done
	for end in $listener $connector; do
		kill -STOP "$end"
		"$FABRICCTL" port 2/sup down && sleep 0.1 && "$FABRICCTL" port 2/sup up && sleep 0.2 || die fabricctl
		"$FABRICCTL" port 2/sup down || die fabricctl
		kill -CONT "$end"
		"$FABRICCTL" port 2/sup up || die fabricctl
		until_true 60 both_back || die "no return after frames had waited"
	done
	;;
flaps) # 0 to 60 ms down, 0 to 300 ms up
	for interval in ${MPIB_TEST_SWEEP:+0.001 0.002 0.005 0.01 0.02 0.05 0.1 0.2 0.5 1 2 5}; do
		for k in 1 2 3; do
			"$FABRICCTL" port 2/sup down && sleep $interval && "$FABRICCTL" port 2/sup up && sleep $interval || die fabricctl
		done
	done
	for k in $(seq 30); do
		"$FABRICCTL" port 2/sup down && sleep "0.0$((k % 7))" && "$FABRICCTL" port 2/sup up &&
			sleep "0.$((k % 4))" || die fabricctl
	done
	;;
esac

# moved RAIL: bytes that node 2 has sent on it
moved() {
	"$FABRICCTL" show "2/$1" | sed -n 's/.* tx_bytes \([0-9]*\).*/\1/p'
}
# alike: in half a second both rails carry as much, as the share says
alike() {
	local sout sup
	sout=$(moved sout) sup=$(moved sup)
	sleep 0.5
	sout=$(($(moved sout) - sout)) sup=$(($(moved sup) - sup))
	echo "half a second: $sout bytes on SOUT, $sup on SUP"
	[ $((sout * 10)) -gt $((sup * 8)) ] && [ $((sup * 10)) -gt $((sout * 8)) ]
}
until_true 20 alike || die "the rails don't carry as much as before"
touch "$work/end"
finish
want 0 0
hold connector 'r["ok"]'
