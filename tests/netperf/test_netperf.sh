#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs mpib-netperf against the loopback plugin: an honest plugin passes, and each way of being
# dishonest is noticed. usage: test_netperf.sh NETPERF PLUGIN CASE
set -u

netperf=$1
plugin=$2
name=$3
work=$(mktemp -d)
listener=
# shellcheck disable=SC2046
trap 'kill -KILL $(jobs -p) 2>/dev/null; wait; rm -rf "$work"' EXIT

die() {
	echo "$name: $*"
	for file in "$work"/*; do
		echo "--- ${file##*/}"
		tail -n 20 "$file"
	done
	exit 1
}

# wait_for FILE TEXT WHAT: until the text stands in the file; bounded
wait_for() {
	for _ in $(seq 600); do
		grep -q -e "$2" "$work/$1" 2>/dev/null && return
		sleep 0.1
	done
	die "$3"
}

# Starts the waiting side and learns its port.
start_listener() {
	# emptied here and not by the child, which may run late: an older listener's port is in it
	: >"$work/listener"
	"$netperf" --plugin "$plugin" --listen 0 --bind 127.0.0.1 --json "$@" \
		>"$work/listener" 2>"$work/listener.err" &
	listener=$!
	wait_for listener '"event":"ready".*}' "the listener did not become ready"
	port=$(ready_port listener)
}

# ready_port FILE: the port that a waiting program has told
ready_port() {
	sed -n 's/.*"event":"ready","port":\([0-9]*\).*/\1/p' "$work/$1"
}

# The end of the waiting side, whose own watchdog speaks first; $listener_rc.
wait_listener() {
	for _ in $(seq 1500); do
		kill -0 "$listener" 2>/dev/null || break
		sleep 0.1
	done
	kill -0 "$listener" 2>/dev/null && die "the listener does not end"
	wait "$listener"
	listener_rc=$?
	listener=
}

# Runs the connecting side; $connector_rc and $listener_rc.
run_pair() {
	"$netperf" --plugin "$plugin" --connect "127.0.0.1:$port" --json "$@" \
		>"$work/connector" 2>"$work/connector.err"
	connector_rc=$?
	wait_listener
}

# want CONNECTOR_RC LISTENER_RC
want() {
	[ "$connector_rc" = "$1" ] || die "the connecting side exits with $connector_rc, not $1"
	[ "$listener_rc" = "$2" ] || die "the listener exits with $listener_rc, not $2"
}

# field FILE NAME: a field of the result
field() {
	python3 - "$work/$1" "$2" <<-'EOF'
		import json, sys
		rows = [json.loads(line) for line in open(sys.argv[1])]
		result = [row for row in rows if row["event"] == "result"]
		assert len(result) == 1, rows
		print(json.dumps(result[0][sys.argv[2]]))
	EOF
}

expect_field() {
	local have
	have=$(field "$1" "$2") || die "no result of $1"
	[ "$have" = "$3" ] || die "$2 of $1 is $have, not $3"
}

# above FILE NAME NUMBER
above() {
	local have
	have=$(field "$1" "$2") || die "no result of $1"
	awk -v a="$have" -v b="$3" 'BEGIN { exit !(a > b) }' || die "$2 of $1 is $have, not over $3"
}

# One text must stand in what either side said.
said() {
	cat "$work"/*.err "$work"/* 2>/dev/null | grep -q -e "$1" || die "nobody said '$1'"
}

quick=(--comms 2 --max-size 1M --memory 32M)

case $name in
verify-*)
	start_listener
	if [ "$name" = verify-11 ]; then
		run_pair --api 11 verify # the whole plan, once
	else
		run_pair --api "${name#verify-}" verify "${quick[@]}" --seed "${name#verify-}"
	fi
	want 0 0
	expect_field connector ok true
	expect_field listener ok true
	expect_field listener table "\"v${name#verify-}\""
	expect_field listener name '"Loopback"'
	above listener stages 11
	;;
bw-end-file) # long before its seconds are over, and in good order
	start_listener
	"$netperf" --plugin "$plugin" --connect "127.0.0.1:$port" --json bw --size 64k \
		--seconds 3600 --warmup 0 --end-file "$work/end" >"$work/connector" 2>"$work/connector.err" &
	connector=$!
	sleep 1
	kill -0 "$connector" || die "it ended without the file"
	: >"$work/end"
	wait "$connector"
	connector_rc=$?
	wait_listener
	want 0 0
	above connector tx_mbps 1
	;;
bw)
	start_listener
	run_pair bw --size 256k --window 4 --seconds 4 --interval 0.5
	want 0 0
	above connector tx_mbps 1
	above listener rx_mbps 1
	above connector cpu_s 0
	expect_field connector rx_mbps 0.0
	grep -q '"event":"interval"' "$work/listener" || die "no interval"
	;;
bw-check)
	start_listener
	run_pair bw --size 65536 --window 4 --seconds 1 --check
	want 0 0
	;;
bw-latency)
	start_listener
	run_pair bw --size 8 --window 1 --messages 1000
	want 0 0
	above connector latency_p50_us 0
	above connector latency_p99_us 0
	;;
bw-both)
	start_listener
	run_pair bw --size 64k --window 32 --messages 100 --both --comms 3
	want 0 0
	above connector tx_mbps 0
	above connector rx_mbps 0
	;;
bw-messages)
	start_listener
	run_pair bw --size 1000 --messages 1000 --comms 2
	want 0 0
	above connector messages 1500
	;;
hold)
	start_listener
	before=$(date +%s%N)
	run_pair bw --size 4k --seconds 0.2 --hold 1.5
	want 0 0
	[ $((($(date +%s%N) - before) / 1000000)) -ge 1500 ] || die "did not hold"
	;;
port-busy) # who listened there before is still ending
	start_listener
	first=$listener
	"$netperf" --plugin "$plugin" --listen "$port" --bind 127.0.0.1 --json \
		>"$work/second" 2>"$work/second.err" &
	listener=$!
	sleep 0.5
	grep -q . "$work/second" && die "it did not wait for the port"
	kill "$first"
	wait_for second '"event":"ready".*}' "the port was not taken over"
	run_pair verify --sizes 100
	want 0 0
	;;
stranger)
	start_listener
	for kind in silent close garbage http; do
		"$netperf" stranger --target "127.0.0.1:$port" --kind $kind --count 2 --hold 0.1 \
			>>"$work/stranger" || die "stranger $kind"
	done
	run_pair verify --sizes 100
	want 0 0
	;;
fakelisten)
	"$netperf" fakelisten --port 0 --kind garbage --hold 1 >"$work/fake" &
	listener=$!
	wait_for fake '"event":"ready".*}' "fakelisten did not become ready"
	fake=$(ready_port fake)
	"$netperf" --plugin "$plugin" --connect "127.0.0.1:$fake" verify --timeout 5 \
		>"$work/out" 2>&1
	[ $? = 1 ] || die "garbage as a peer is not exit 1"
	kill "$listener"
	wait "$listener" || die "fakelisten did not stop well"
	listener=
	;;
loop)
	start_listener --loop --print-ports
	for api in 6 9 11 12 11; do
		"$netperf" --plugin "$plugin" --connect "127.0.0.1:$port" --api $api \
			verify --sizes 4096 --no-both >"$work/connector" 2>&1 || die "run with v$api"
	done
	grep -q '"event":"ports","tcp":\[[0-9]' "$work/listener" || die "no ports"
	kill -TERM "$listener"
	wait "$listener" || die "a loop ended by a signal is not exit 0"
	listener=
	;;
expect-error)
	# the listener receives, and has the fault that it expects
	export NETPERF_LOOPBACK_FAULT=error
	start_listener --expect-error 30
	export -n NETPERF_LOOPBACK_FAULT
	run_pair bw --seconds 30
	want 1 0
	expect_field listener expected_error true
	above listener error_after_start_s 0
	# none comes where none is
	start_listener
	run_pair --expect-error 30 bw --seconds 1
	want 1 0
	said "without the error"
	;;
peer-killed)
	start_listener
	"$netperf" --plugin "$plugin" --connect "127.0.0.1:$port" --json --expect-error 30 \
		bw --seconds 60 >"$work/connector" 2>"$work/connector.err" &
	connector=$!
	wait_for connector '"event":"connected"' "no connection"
	sleep 1 # some data
	kill -KILL "$listener"
	listener=
	wait $connector || die "the death of the peer was not seen as the expected error"
	expect_field connector expected_error true
	;;
stopped)
	start_listener
	"$netperf" --plugin "$plugin" --connect "127.0.0.1:$port" --json bw --seconds 60 \
		>"$work/connector" 2>"$work/connector.err" &
	connector=$!
	wait_for connector '"event":"connected"' "no connection"
	wait_for listener '"event":"connected"' "no connection"
	kill -TERM "$connector"
	wait $connector
	connector_rc=$?
	wait_listener
	want 1 1
	said "stopped by signal 15"
	;;
usage)
	for args in "" "--plugin $plugin" "--plugin $plugin --listen 1 --connect a:1 bw" \
		"--plugin $plugin --connect a:1" "--plugin $plugin --connect a:1 fly" \
		"--plugin $plugin --listen 99999" "--nonsense" "stranger --kind x --target a:1" \
		"--plugin $plugin --connect a:1 verify --sizes 1,x" "fakelisten --kind http --port 1"; do
		# shellcheck disable=SC2086
		"$netperf" $args >"$work/out" 2>&1
		[ $? = 2 ] || die "'$args' is not exit 2"
	done
	"$netperf" --help | grep -q -- --handle-override || die "no help"
	"$netperf" --plugin /nonexistent.so --listen 0 >"$work/out" 2>&1
	[ $? = 1 ] || die "a missing plugin is not exit 1"
	;;
handle-override)
	# the plugin's connect goes to a stranger; the peer waits in vain and says so
	"$netperf" fakelisten --port 0 --kind silent >"$work/fake" &
	fake_pid=$!
	start_listener
	wait_for fake '"event":"ready".*}' "fakelisten did not become ready"
	fake=$(ready_port fake)
	run_pair --handle-override "$(printf '%04x@4' "$fake")" verify --sizes 64 --no-both \
		--comms 1 --timeout 5
	kill "$fake_pid"
	wait "$fake_pid"
	want 1 3
	grep -q '"event":"caller"' "$work/fake" || die "the stranger was not called"
	said "nothing moved"
	;;
memory)
	start_listener
	run_pair verify --comms 4 --memory 1M --max-size 1M --no-groups
	want 0 0
	;;
versions)
	start_listener --api 8
	"$netperf" --plugin "$plugin" --connect "127.0.0.1:$port" --api 9 verify >"$work/out" 2>&1
	[ $? = 1 ] || die "two table versions are not exit 1"
	said "no such table"
	run_pair --api 8 verify --sizes 64 --max-size 4k
	want 0 0
	;;
fault-*)
	fault=${name#fault-}
	export NETPERF_LOOPBACK_FAULT=$fault
	start_listener
	case $fault in
	edge) run_pair bw --size 10000 --messages 1000 ;;
	stall | leak | sleep) run_pair verify "${quick[@]}" --timeout 3 --messages 600 ;;
	*) run_pair verify "${quick[@]}" ;;
	esac
	case $fault in
	stall | leak | sleep) ok="1 3" ;;
	*) ok="1" ;;
	esac
	[[ " $ok " == *" $connector_rc "* ]] || die "the connecting side exits with $connector_rc"
	[[ " $ok " == *" $listener_rc "* ]] || die "the listener exits with $listener_rc"
	case $fault in
	flip | edge | sendbuf) said "wrong byte at" ;;
	early) said "said done too early\|test says" ;;
	overrun | underrun) said "wrote outside" ;;
	late) said "wrote outside\|wrong byte at" ;;
	size) said "test says" ;;
	stall | leak) said "nothing moved" ;;
	sleep) said "doesn't return\|does not return" ;;
	error) said "test: ncclRemoteError" ;;
	sizes) said "test wrote a size" ;;
	stale) said "left as it was" ;;
	twice) said "still in use" ;;
	handle) said "128 bytes of a handle" ;;
	props) said "properties of device 0: port" ;;
	swap) said "message" ;;
	esac
	;;
*)
	die "no such case"
	;;
esac
