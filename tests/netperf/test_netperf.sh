#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs mpib-netperf against the loopback plugin: an honest plugin passes, and each way of being
# dishonest is noticed. usage: test_netperf.sh NETPERF PLUGIN CASE
# shellcheck source=tests/ground/pair.sh
. "$(dirname "$0")/../ground/pair.sh"

NETPERF=$1
PLUGIN=$2
ground_open loopback "$3"

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
	start_connector bw --size 64k --seconds 3600 --warmup 0 --end-file "$work/end"
	sleep 1
	kill -0 "$connector" || die "it ended without the file"
	: >"$work/end"
	finish
	want 0 0
	above connector tx_mbps 1
	;;
bw)
	start_listener
	run_pair bw --size 256k --window 4 --seconds 2 --interval 0.5
	want 0 0
	above connector tx_mbps 1
	above listener rx_mbps 1
	above connector cpu_s 0
	expect_field connector rx_mbps 0.0
	grep -q '"event":"interval"' "$work/listener" || die "no interval"
	;;
bw-rest) # a side that sleeps where nothing moves leaves its processor to others
	start_listener
	run_pair bw --size 64k --window 1 --seconds 1 --warmup 0 --rest 0.02
	want 0 0
	for side in connector listener; do
		above $side messages 5
		! (above $side cpu_s 0.3) 2>/dev/null || die "$side: $(field $side cpu_s) s of processor in 1 s"
	done
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
	"$NETPERF" --plugin "$PLUGIN" --listen "$port" --bind 127.0.0.1 --json \
		>"$work/second" 2>"$work/second.err" &
	listener=$!
	sleep 0.5
	grep -q . "$work/second" && die "it did not wait for the port"
	kill "$first"
	says second '"event":"ready".*}' || die "the port was not taken over"
	run_pair verify --sizes 100
	want 0 0
	;;
stranger)
	start_listener
	for kind in silent close garbage http; do
		"$NETPERF" stranger --target "127.0.0.1:$port" --kind $kind --count 2 --hold 0.1 \
			>>"$work/stranger" || die "stranger $kind"
	done
	run_pair verify --sizes 100
	want 0 0
	;;
fakelisten)
	"$NETPERF" fakelisten --port 0 --kind garbage --hold 1 >"$work/fake" &
	listener=$!
	says fake '"event":"ready".*}' || die "fakelisten did not become ready"
	fake=$(ready_port fake)
	"$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$fake" verify --timeout 5 \
		>"$work/out" 2>&1
	[ $? = 1 ] || die "garbage as a peer is not exit 1"
	kill "$listener"
	wait "$listener" || die "fakelisten did not stop well"
	;;
loop)
	start_listener --loop --print-ports
	for api in 6 9 11 12 11; do
		"$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$port" --api $api \
			verify --sizes 4096 --no-both >"$work/connector" 2>&1 || die "run with v$api"
	done
	grep -q '"event":"ports","tcp":\[[0-9]' "$work/listener" || die "no ports"
	kill -TERM "$listener"
	wait "$listener" || die "a loop ended by a signal is not exit 0"
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
	start_connector --expect-error 30 bw --seconds 60
	says connector '"event":"connected"' || die "no connection"
	sleep 1 # some data
	kill -KILL "$listener"
	wait $connector || die "the death of the peer was not seen as the expected error"
	expect_field connector expected_error true
	;;
stopped)
	start_listener
	start_connector bw --seconds 60
	says connector '"event":"connected"' || die "no connection"
	says listener '"event":"connected"' || die "no connection"
	kill -TERM "$connector"
	finish
	want 1 1
	said "stopped by signal 15"
	;;
usage)
	for args in "" "--plugin $PLUGIN" "--plugin $PLUGIN --listen 1 --connect a:1 bw" \
		"--plugin $PLUGIN --connect a:1" "--plugin $PLUGIN --connect a:1 fly" \
		"--plugin $PLUGIN --listen 99999" "--nonsense" "stranger --kind x --target a:1" \
		"--plugin $PLUGIN --connect a:1 verify --sizes 1,x" "fakelisten --kind http --port 1"; do
		# shellcheck disable=SC2086
		"$NETPERF" $args >"$work/out" 2>&1
		[ $? = 2 ] || die "'$args' is not exit 2"
	done
	"$NETPERF" --help | grep -q -- --handle-override || die "no help"
	"$NETPERF" --help | awk 'length($0) > 80 { exit 1 }' || die "help is wider than 80 columns"
	"$NETPERF" --plugin /nonexistent.so --listen 0 >"$work/out" 2>&1
	[ $? = 1 ] || die "a missing plugin is not exit 1"
	;;
handle-override)
	# the plugin's connect goes to a stranger; the peer waits in vain and says so
	"$NETPERF" fakelisten --port 0 --kind silent >"$work/fake" &
	fake_pid=$!
	start_listener
	says fake '"event":"ready".*}' || die "fakelisten did not become ready"
	fake=$(ready_port fake)
	run_pair --handle-override "$(printf '%04x@4' "$fake")" verify --sizes 64 --no-both \
		--comms 1 --timeout 5
	kill "$fake_pid"
	wait "$fake_pid"
	want 1 3
	grep -q '"event":"caller"' "$work/fake" || die "the stranger was not called"
	said "nothing moved"
	;;
wait) # the peer first, then the devices; what is waited for, why, and how long
	"$NETPERF" fakelisten --port 0 --kind silent >"$work/fake" &
	listener=$!
	says fake '"event":"ready".*}' || die "fakelisten did not become ready"
	fake=$(ready_port fake)
	# Neither a silent listener nor none at all lets it open a device: this one would fail.
	export NETPERF_LOOPBACK_FAULT=init
	"$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$fake" verify --timeout 1 \
		>"$work/silent" 2>&1
	[ $? = 3 ] || die "a silent listener is not a time-out"
	said "took the connection but did not answer within 1.0 s"
	grep -q "lb0" "$work/silent" && die "devices were opened before the peer was there"
	kill "$listener"
	wait "$listener"
	"$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$fake" verify --timeout 1 \
		>"$work/nobody" 2>&1
	[ $? = 3 ] || die "no listener is not a time-out"
	said "waiting for the listener at 127.0.0.1:$fake, 0 of at most 1 s: Connection refused"
	said "no listener at 127.0.0.1:$fake within 1.0 s: Connection refused"
	"$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$fake" --json verify --timeout 1 \
		>"$work/nobody.json" 2>/dev/null
	grep -q '"event":"waiting","for":"the listener",.*"reason":"Connection refused",.*"limit_s":1.0' \
		"$work/nobody.json" || die "no event for programs"
	"$NETPERF" --plugin "$PLUGIN" --connect "no-such-host.invalid:1" verify >"$work/name" 2>&1
	[ $? = 1 ] || die "a name without an address is not exit 1"
	said "no-such-host.invalid:1: no such host or port: "
	# A listener that comes late is found, by each of the addresses of a name.
	export -n NETPERF_LOOPBACK_FAULT
	"$NETPERF" --plugin "$PLUGIN" --connect "localhost:$fake" verify --sizes 64 --timeout 30 \
		>"$work/late" 2>&1 &
	connector=$!
	says late "waiting for the listener at localhost:$fake" || die "it doesn't wait"
	"$NETPERF" --plugin "$PLUGIN" --listen "$fake" >"$work/listener" 2>"$work/listener.err" &
	listener=$!
	wait "$connector" || die "the late listener was not found"
	wait_listener
	grep -q "waiting on port $fake for a peer, without a limit" "$work/listener" ||
		die "the listener doesn't say what it waits for"
	grep -q "bytes of each rail: the plugin publishes none" "$work/late" || die "no word on rails"
	;;
reason) # each side hears why the other one gave up, in the words of the plugin
	export NETPERF_LOOPBACK_FAULT=init
	start_listener
	export -n NETPERF_LOOPBACK_FAULT
	run_pair verify --sizes 64
	want 1 1
	field connector errors | grep -q 'the peer: init: ncclSystemError; its plugin: Loopback: device lb0 is gone' ||
		die "the connecting side isn't told"
	start_listener
	export NETPERF_LOOPBACK_FAULT=init
	run_pair verify --sizes 64
	export -n NETPERF_LOOPBACK_FAULT
	want 1 1
	field listener errors | grep -q 'the peer: init: ncclSystemError; its plugin: Loopback: device lb0 is gone' ||
		die "the listener isn't told"
	# A driver of another version, by its first frame, hears so, and the listener goes on.
	start_listener
	python3 - "$port" >"$work/version" <<-'EOF'
		import socket, struct, sys
		s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
		s.sendall(struct.pack(">IIII", 0x4D504E50, 1, 1, 9) + b"table=12\n")
		words = b""
		while part := s.recv(4096):
		    words += part
		print(words[16:].decode())
	EOF
	grep -q "another version" "$work/version" || die "another version isn't told so"
	run_pair verify --sizes 64
	want 0 0
	;;
plugin-name) # as NCCL finds it: libnccl-net-NAME.so where the loader looks
	mkdir "$work/lib"
	cp "$PLUGIN" "$work/lib/libnccl-net-lbtest.so"
	export LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	PLUGIN=lbtest
	start_listener
	PLUGIN=libnccl-net-lbtest.so
	run_pair verify --sizes 64
	want 0 0
	rm -r "$work/lib"
	for PLUGIN in lbtest libnccl-net-lbtest.so; do
		"$NETPERF" --plugin $PLUGIN --listen 0 --json >"$work/out" 2>"$work/err"
		[ $? = 1 ] || die "a plugin that isn't there is not exit 1"
		grep -q "no plugin .*\"$PLUGIN.*: libnccl-net-lbtest.so: cannot open" "$work/err" ||
			die "it doesn't say what it looked for"
		grep -q "the loader looks in $work/lib, /" "$work/err" || die "it doesn't say where"
		grep -q '"errors":\["no plugin' "$work/out" || die "the result has no reason"
	done
	echo "no library" >"$work/broken.so"
	"$NETPERF" --plugin "$work/broken.so" --listen 0 >"$work/out" 2>&1
	[ $? = 1 ] || die "what is no library is not exit 1"
	said "no plugin .*broken.so: .*invalid ELF header\|no plugin .*broken.so: .*file too short"
	;;
stdout) # a full disk is an error, a closed stdout no crash
	for to in /dev/full closed; do
		start_listener
		if [ $to = closed ]; then
			"$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$port" --json verify \
				--sizes 64 >&- 2>"$work/connector.err"
		else
			"$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$port" --json verify \
				--sizes 64 >/dev/full 2>"$work/connector.err"
		fi
		connector_rc=$?
		wait_listener
		want 1 0
		said "can't write the result"
	done
	;;
man) # the page has what --help has
	page=$(dirname "$0")/../../docs/mpib-netperf.1
	[ -f "$page" ] || die "no page"
	help=$("$NETPERF" --help)
	diff <(grep -oE -- '^ +--[a-z-]+' <<<"$help" | tr -d ' ' | sed 's/^--//' | sort -u) \
		<(grep -oE '^\.It Fl Fl [a-z-]+' "$page" | awk '{ print $4 }' | grep -vxE 'help|version' |
			sort -u) || die "options differ"
	for word in verify bw stranger fakelisten; do
		grep -qE "^\.(It )?Cm $word" "$page" && grep -q "$word" <<<"$help" || die "no $word"
	done
	diff <(grep -oE '[0-9] [a-z]' <<<"${help##*Exit: }" | cut -c1) \
		<(sed -n '/^\.Sh EXIT STATUS/,/^\.El/s/^\.It \([0-9]\)$/\1/p' "$page") || die "exit codes differ"
	;;
call-times)
	start_listener
	NETPERF_LOOPBACK_FAULT=nap run_pair bw --size 64 --messages 2000 --call-times
	want 0 0
	python3 - "$work/connector" "$work/listener" <<-'END' || die "the longest calls are wrong"
		import json
		import sys

		def of(path):
		    with open(path, encoding="utf-8") as f:
		        for line in f:
		            if '"longest_calls"' in line:
		                return json.loads(line)["longest_calls"]
		    sys.exit(f"{path}: none")

		sender, receiver = of(sys.argv[1]), of(sys.argv[2])
		assert sender["isend"]["calls"] >= 2000 and sender["irecv"]["calls"] == 0, sender
		assert receiver["irecv"]["calls"] >= 2000 and receiver["isend"]["calls"] == 0, receiver
		nap = sender["test"]
		assert nap["wall_ms"] >= 50 and nap["user_ms"] + nap["system_ms"] < 25, nap
		for call in (sender["isend"], receiver["test"]):
		    assert call["user_ms"] + call["system_ms"] <= call["wall_ms"] + 5, call
	END
	start_listener
	run_pair bw --size 64 --messages 100
	want 0 0
	! grep -q longest_calls "$work/connector" || die "calls are timed unasked"
	;;
memory)
	start_listener
	run_pair verify --comms 4 --memory 1M --max-size 1M --no-groups
	want 0 0
	;;
versions)
	start_listener --api 8
	"$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$port" --api 9 verify >"$work/out" 2>&1
	[ $? = 1 ] || die "two table versions are not exit 1"
	said "the peer: the listener was given --api 8, the caller takes v9"
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
