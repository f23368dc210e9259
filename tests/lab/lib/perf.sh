# SPDX-License-Identifier: Apache-2.0
# mpib-netperf between two nodes, and what its JSON lines tell.
# shellcheck shell=bash

# The plugin's settings in the lab. Time-out and retry count: an emulated machine is slow to
# answer, and a retry count of 7 would hide a dead peer for ever.
PERF_ENV="MPIB_HCA_SOUT=sout MPIB_HCA_SUP=sup MPIB_OOB_IF=eth2 MPIB_IB_GID_INDEX=1"
PERF_ENV+=" MPIB_IB_TIMEOUT=18 MPIB_IB_RETRY_CNT=6"
# Its threads poll without a pause and a node has one slow CPU: the operator goes first.
PERF_RUN="nice -n 10 env $PERF_ENV"
PERF_PLUGIN=/usr/lib/x86_64-linux-gnu/libnccl-net-mpib.so
# What is no figure doesn't poll: a node has one slow CPU, and its kernel does the rails' work.
PERF_REST=0.0005
VANILLA=MPIB_MODE=0
ADVANCED=MPIB_MODE=1

# perf_start NAME FROM TO SETTINGS MODE [OPTIONS]: node FROM connects to node TO and sends. The
# lines of FROM land in $CASE_DIR/NAME.out and .err, those of TO in NAME-peer.out and .err.
perf_start() {
	local name=$1 from=$2 to=$3 settings=$4

	shift 4
	perf_listen "$name-peer" "$to" "$settings"
	bg "$from" "$name" "exec $PERF_RUN $settings mpib-netperf --plugin $PERF_PLUGIN" \
		"--connect $(oob "$to"):$(perf_port "$to") --json --log info --rest $PERF_REST $*"
}

# perf_listen NAME NODE SETTINGS: the waiting side alone. It tells its TCP ports, too.
perf_listen() {
	bg "$2" "$1" "exec $PERF_RUN $3 mpib-netperf --plugin $PERF_PLUGIN" \
		"--listen $(perf_port "$2") --json --log info --print-ports"
}

# perf_port NODE: a case that starts one listener after another adds to perf_shift, so that a peer
# can't meet the listener before, which may live on for a moment.
perf_shift=0
perf_port() {
	echo $((7100 + $1 + perf_shift))
}

# perf_wait NAME: both ends must have ended well.
perf_wait() {
	local rc=0 peer=0

	bg_wait "$1" || rc=$?
	bg_wait "$1-peer" || peer=$?
	[ "$rc" = 0 ] && [ "$peer" = 0 ] && return
	perf_tell "$1"
	fail "mpib-netperf $1: exit $rc, its peer $peer"
}

# perf_tell NAME: what both ends said last, for the log of a failure.
perf_tell() {
	local file

	for file in "$CASE_DIR/$1".{out,err} "$CASE_DIR/$1"-peer.{out,err}; do
		printf -- '--- %s\n' "${file##*/}"
		tail -n 8 "$file" | cut -c1-1000
	done
}

# perf NAME FROM TO SETTINGS MODE [OPTIONS]: runs it to its end.
perf() {
	perf_start "$@"
	perf_wait "$1"
}

# perf_result NAME FILTER: FILTER on the result of NAME (NAME-peer for the other end).
perf_result() {
	jq -r "select(.event == \"result\") | $2" "$CASE_DIR/$1.out"
}

# perf_sent NAME FIELD, perf_received NAME FIELD: "SOUT SUP", sums over all connections of what
# the sender (of NAME) or the receiver (NAME's peer) counted: bytes, requests, cts.
perf_sent() {
	perf_result "$1" "[.counters[] | select(.kind == \"send\").rails] |
		\"\\(map(.[0].$2) | add) \\(map(.[1].$2) | add)\""
}

perf_received() {
	perf_result "$1-peer" "[.counters[] | select(.kind == \"recv\").rails] |
		\"\\(map(.[0].$2) | add) \\(map(.[1].$2) | add)\""
}

# perf_qps NAME: "SOUT SUP", the QPs that each connection has.
perf_qps() {
	perf_result "$1" '[.counters[].qps | "\(.[0]) \(.[1])"] | unique | join(", ")'
}
