# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 2
# limit: 240
# Peers that are none. A listener that sends garbage, closes early, says nothing or speaks another
# version: a clear error within a bound. Strangers at our own listener: dropped, and the peer that
# is expected gets through.
# shellcheck shell=bash

fake_port=$(perf_port 3)

# handle_to NODE PORT: what turns a listen handle into one that points there (port and IPv4
# address, network order, at byte 16).
handle_to() {
	# shellcheck disable=SC2046
	printf '%04x%02x%02x%02x%02x@16' "$2" $(oob "$1" | tr . ' ')
}

# refused NAME BOUND REGEX OPTIONS: connects with OPTIONS; an error within BOUND seconds, one line
# of which matches.
refused() {
	local name=$1 bound=$2 regex=$3 rc=0 started=$SECONDS took

	shift 3
	perf_shift=$((perf_shift + 4))
	perf_listen "$name-peer" 2 "$VANILLA"
	bg 1 "$name" "exec $PERF_RUN $VANILLA MPIB_CONNECT_TIMEOUT_SEC=5 mpib-netperf" \
		"--plugin $PERF_PLUGIN --connect $(oob 2):$(perf_port 2) --json --log warn $*" \
		"verify --sizes 4096 --no-both --no-groups --comms 1 --timeout 30"
	bg_wait "$name" || rc=$?
	took=$((SECONDS - started))
	bg_stop "$name-peer"
	measured "$name: exit $rc after $took s: $(grep -Em1 -- "$regex" "$CASE_DIR/$name.err" | cut -c1-200)"
	cat "$CASE_DIR/$name.err"
	expect_eq "$name: exit status" "$rc" 1
	expect_le "$name: seconds" "$took" "$bound"
	expect_match "$name: a clear line" "$(cat "$CASE_DIR/$name.err")" "$regex"
}

for kind in garbage close silent; do
	bg 2 "fake-$kind" "exec mpib-netperf fakelisten --port $fake_port --kind $kind --hold 60"
	sleep 1
	refused "$kind" 20 "$(oob 2)" --handle-override "$(handle_to 2 $fake_port)"
	bg_stop "fake-$kind"
	fake_port=$((fake_port + 1))
done

# Wire version 9 in the handle.
refused version 15 'version' --handle-override 0900@4

# Strangers, while the real peer takes its time.
perf_shift=$((perf_shift + 1))
perf_start strangers 1 2 "$VANILLA" verify --sizes 4096,65536 --connect-delay 8
ports=""
for _ in $(seq 80); do
	ports=$(jq -r 'select(.event == "ports").tcp | join(" ")' "$CASE_DIR/strangers-peer.out" 2>/dev/null | tail -1)
	[ -n "$ports" ] && break
	sleep 0.25
done
[ -n "$ports" ] || { perf_tell strangers; fail "the listener told no port"; }
for port in $ports; do
	for kind in garbage http close silent; do
		bg 1 "stranger-$kind-$port" "mpib-netperf stranger --target $(oob 2):$port --kind $kind --count 3"
	done
done
perf_wait strangers
lines=$(grep -ci 'stranger\|dropped\|not an mpib' "$CASE_DIR/strangers-peer.err" || true)
measured "strangers at ports $ports: the peer got through, all bytes right; lines about strangers: $lines"
