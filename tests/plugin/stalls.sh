#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rail over which nothing comes back, and no event tells of it: found after MPIB_RAIL_STALL_MS, long before the
# device's retries are used up (34 s). One that is slow, and a process that is stopped, aren't taken for that.
# usage: stalls.sh data|data-alone|acks|ctss|cts-acks|slow|slow-auto|stopped
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

bound=600
export MPIB_MODE=1 MPIB_SPLIT_MIN=0 MPIB_IB_TIMEOUT=20 MPIB_IB_RETRY_CNT=7 MPIB_RAIL_STALL_MS=$bound
share=512
case $name in
ctss | cts-acks) share=1024 ;; # SOUT has the clear-to-sends alone
slow-auto) # an idle rail is asked whether it is alive, and the agent still believes the counters
	share=auto
	export MPIB_RAIL_STALL_MS=3000
	;;
slow) # a machine that is busy with other tests must not make the alarm
	share=113
	export MPIB_RAIL_STALL_MS=3000
	;;
esac
start_agent 1 $share
start_agent 2 $share

# told COUNT TEXT: both ends have said it so often
told() {
	[ "$(warnings connector "$2")" -ge "$1" ] && [ "$(warnings listener "$2")" -ge "$1" ]
}

# moved NODE/RAIL: bytes that it has sent
moved() {
	"$FABRICCTL" show "$1" | sed -n 's/.* tx_bytes \([0-9]*\).*/\1/p'
}

more_than() {
	[ "$(moved "$1")" -gt "$2" ]
}

# lost NODE RAIL: what that device sends is lost, both ends know long before the retries are used up, the
# other rail goes on, and the rail comes back
lost() {
	local before RAIL=${2^^} other
	before=$(now_ms)
	"$FABRICCTL" silent "$1/$2" on || die fabricctl
	until_true 60 told 1 "$RAIL rail $2:1 is lost" || die "the loss isn't told by both ends"
	echo "told after $(($(now_ms) - before)) ms"
	[ $(($(now_ms) - before)) -lt 30000 ] || die "it took $(($(now_ms) - before)) ms"
	grep -q "nothing of it completes" "$work/connector.err" || die "the connector doesn't say why"
	grep -q "nothing of it completes" "$work/listener.err" || die "the listener doesn't say why"
	other=2/sout
	[ "$2" = sup ] || other=2/sup
	before=$(moved $other)
	until_true 20 more_than $other "$before" || die "nothing goes on"
	"$FABRICCTL" silent "$1/$2" off || die fabricctl
	until_true 60 told 1 "$RAIL rail $2:1 is back" || die "the return isn't told by both ends"
}

load="--size 300000"
case $name in
data-alone) load="--size 300000 --window 1" ;;
slow | slow-auto)
	for node in 1 2; do
		"$FABRICCTL" rate $node/sout 80000000 && "$FABRICCTL" rate $node/sup 10000000 || die fabricctl
	done
	load="--size 4000000"
	[ "$name" = slow ] || load="--size 16000000 --window 1"
	;;
esac
start_listener
# shellcheck disable=SC2086 # words
start_connector bw --check --end-file "$work/end" --seconds 60 $load --comms 1
await_data
case $name in
data | data-alone) lost 2 sup ;;
acks) lost 1 sup ;;
ctss) lost 1 sout ;;
cts-acks) lost 2 sout ;;
slow | slow-auto) sleep 4 ;;
stopped)
	for side in listener connector; do
		kill -STOP "${!side}"
		sleep $((2 * bound / 1000)).$((2 * bound % 1000 / 100))
		kill -CONT "${!side}"
		before=$(moved 2/sout)
		until_true 30 more_than 2/sout "$((before + 3000000))" || die "nothing goes on after a stop of the $side"
	done
	;;
esac
touch "$work/end"
finish
want 0 0
hold connector 'r["ok"]'
case $name in
slow | slow-auto) [ "$(warnings connector "is lost"):$(warnings listener "is lost")" = 0:0 ] ||
	die "a slow rail is taken for lost" ;;
esac
! grep "can't be" "$work"/agentd?.log || die "the agent doesn't believe the counters"
