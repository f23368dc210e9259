#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Peers that are strangers, liars, or dead. usage: peers.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

# The listener's ports but the one that mpib-netperf itself waits on.
plugin_ports() {
	sed -n 's/.*"event":"ports","tcp":\[\([0-9,]*\)\].*/\1/p' "$work/listener" | tr ',' '\n' |
		grep -vx "$port" | grep .
}

# told_in_time SIDE: the error came within 2 s of the end of the control connection. The plugin's own
# time: how long the kernel takes to end the killed process is not counted.
told_in_time() {
	local ms
	ms=$(sed -n 's/.*host is gone (control connection lost \([0-9]*\) ms ago).*/\1/p' \
		"$work/$1.err" | sort -n | tail -n 1)
	[ -n "$ms" ] || die "the $1 doesn't say that its peer is gone"
	[ "$ms" -lt 2000 ] || die "the $1 told it $ms ms late"
	echo "told $ms ms after the end of the control connection"
}

case $name in
strangers-*) # C16: whatever they send, the real peer connects fast
	kind=${name#strangers-}
	start_listener --print-ports
	start_connector --connect-delay 2 verify --sizes 4096 --comms 1 --no-both
	until_true 60 plugin_ports >/dev/null || die "no ports"
	for target in $(plugin_ports); do
		"$NETPERF" stranger --target "127.0.0.1:$target" --kind "$kind" --count 20 --hold 8 \
			>>"$work/strangers" 2>&1 &
	done
	finish
	want 0 0
	hold connector 'r["connect_max_ms"] < 3000'
	[ "$(grep -c NET/MPIB "$work/listener.err")" -le 1 ] || die "more than one line about them"
	;;
fake-*) # a listener that is no MPIB listener
	kind=${name#fake-}
	"$NETPERF" fakelisten --port 0 --kind "$kind" --hold 30 >"$work/fake" &
	fake_ready() { grep -q '"ready"' "$work/fake"; }
	until_true 60 fake_ready || die "no fake listener"
	fake=$(sed -n 's/.*"port":\([0-9]*\).*/\1/p' "$work/fake")
	start_listener
	before=$(now_ms)
	# port and address of an IPv4 handle stand at 16
	run_pair --handle-override "$(printf '%04x7f000001' "$fake")@16" verify --sizes 4096 \
		--comms 1 --no-both
	[ "$connector_rc" = 1 ] || die "the connecting side exits with $connector_rc, not 1"
	[ $(($(now_ms) - before)) -lt 20000 ] || die "it took $(($(now_ms) - before)) ms"
	[ "$(warnings connector "127.0.0.1:$fake")" = 1 ] || die "not one line that names the peer"
	;;
nobody-listens)
	start_listener
	run_pair --handle-override 00017f000001@16 verify --sizes 4096 --comms 1 --no-both
	[ "$connector_rc" = 1 ] || die "the connecting side exits with $connector_rc, not 1"
	warned connector 1 '127.0.0.1:1: Connection refused'
	;;
receiver-killed | sender-killed) # both directions, long before the rails' retries end (7.5 s)
	start_listener --expect-error 10
	start_connector --expect-error 10 bw --seconds 60 --size 64k --both
	await_data
	if [ "$name" = receiver-killed ]; then
		kill -KILL "$listener"
		survivor=connector
	else
		kill -KILL "$connector"
		survivor=listener
	fi
	wait "${!survivor}" || die "the death was not seen as the expected error"
	hold $survivor 'r["expected_error"] and r["error_after_progress_s"] < 7'
	told_in_time $survivor
	;;
peer-killed-idle) # nothing posted on the sender's side but a wish to send
	start_listener
	start_connector --expect-error 10 bw --seconds 60 --size 8 --window 1
	await_data
	kill -STOP "$listener"
	sleep 1
	kill -KILL "$listener"
	wait "$connector" || die "the death was not seen as the expected error"
	hold connector 'r["expected_error"]'
	told_in_time connector
	;;
sup-cut | both-cut) # C12, C13: an error within the stated bound, that names what it knows
	export MPIB_IB_TIMEOUT=12 MPIB_IB_RETRY_CNT=3 MPIB_RAIL_WAIT_SEC=0
	[ $name = both-cut ] || export MPIB_FAILOVER=0
	start_listener --expect-error 20
	start_connector --expect-error 20 bw --seconds 60 --size 64k
	await_data
	"$FABRICCTL" port 1/sup down || die fabricctl
	[ $name = sup-cut ] || "$FABRICCTL" port 1/sout down || die fabricctl
	finish
	want 0 0
	hold connector 'r["expected_error"] and r["error_after_progress_s"] < 5'
	hold listener 'r["expected_error"] and r["error_after_progress_s"] < 5'
	grep -q "S[OU][UP]T* rail s[a-z]*:1, QP 0x.*retry" "$work"/*.err || die "no line names rail, QP and status"
	;;
device-lost)
	start_listener --expect-error 20
	start_connector --expect-error 20 bw --seconds 60 --size 64k
	await_data
	"$FABRICCTL" kill 2/sup || die fabricctl
	finish
	want 0 0
	grep -q 'the device is lost' "$work/connector.err" || die "no line says so"
	;;
*)
	die "no such case"
	;;
esac
