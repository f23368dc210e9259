# SPDX-License-Identifier: Apache-2.0
# The software fabric as a ground for cases: a node is the processes that have its number in
# MPIB_FABRIC_NODE. What is left here is what differs from virtual machines. All of a case lives in
# $CASE_DIR; every process of it carries MPIB_FABRIC_DIR, by which fabric_sweep finds it.
# shellcheck shell=bash

PERF_ENV="MPIB_HCA_SOUT=sout MPIB_HCA_SUP=sup MPIB_OOB_IF=lo MPIB_IB_TIMEOUT=18 MPIB_IB_RETRY_CNT=6"
PERF_RUN="env $PERF_ENV"
PERF_PLUGIN=$LAB_BUILD/plugin/libnccl-net-mpib.so
export LAB_PACE=3

# Ports below the ephemeral ones; a running shell's pid is its alone.
FABRIC_PORT=$((10000 + $$ % 1000 * 20))

# fabric_config: the case's topology as its header gives it.
fabric_config() {
	local n

	printf '[fabric]\nname = case\n\n[device sout]\n\n[device sup]\n'
	[ "$CASE_SUP" != split ] || echo 'scope = island'
	for n in $(case_nodes); do
		printf '\n[node %d]\nisland = %s\nsout.address = %s\nsup.address = %s\n' \
			"$n" "$(island "$n")" "$(sout "$n")" "$(sup "$n")"
	done
}

# fabric_open: everything that the case's nodes need, in $CASE_DIR.
fabric_open() {
	local n

	export MPIB_FABRIC=$CASE_DIR/fabric.ini MPIB_FABRIC_DIR=$CASE_DIR/meeting
	export LD_LIBRARY_PATH=$LAB_BUILD/tests/fabric/lib
	export PATH=$LAB_BUILD/tests/netperf:$LAB_BUILD/tests/fabric:$LAB_BUILD/agent:$PATH
	unset MPIB_FABRIC_NULL JOURNAL_STREAM NOTIFY_SOCKET LISTEN_FDS
	fabric_config >"$MPIB_FABRIC"
	for n in $(case_nodes); do
		mkdir -p "$CASE_DIR/node$n"
		: >"$CASE_DIR/node$n/agent.ini"
	done
}

# fabric_sweep: ends every process that was started in the case's fabric, by whomever.
fabric_sweep() {
	local k mark=MPIB_FABRIC_DIR=$MPIB_FABRIC_DIR
	local -a left

	for ((k = 0; k < 50; k++)); do
		# Those that search don't carry the mark.
		mapfile -t left < <(unset MPIB_FABRIC_DIR &&
			grep -lzFxs "$mark" /proc/[0-9]*/environ | cut -d/ -f3 | grep -vx "$$")
		[ ${#left[@]} -gt 0 ] || return 0
		kill "-$([ $k -lt 30 ] && echo TERM || echo KILL)" "${left[@]}" 2>/dev/null || true
		sleep 0.1
	done
	echo "still there: ${left[*]}" >&2
	return 1
}

# fabric_run N SECONDS COMMAND: becomes it. What starts it may die; then it ends, too.
fabric_run() {
	MPIB_FABRIC_NODE=$1 MPIB_AGENT_DIR=$(agent_dir "$1") \
		exec setpriv --pdeathsig TERM timeout -k 5 "$2" setpriv --pdeathsig KILL bash -c "$3"
}

# guest N [options] -- COMMAND
guest() {
	local n=$1 seconds=60 input=/dev/null

	shift
	while [ "$1" != -- ]; do
		case $1 in
		-t)
			seconds=$2
			shift
			;;
		-i) input=/dev/stdin ;;
		esac
		shift
	done
	shift
	(fabric_run "$n" "$seconds" "$*") <"$input"
}

bg() {
	local n=$1 name=$2

	shift 2
	fabric_run "$n" "${LAB_TIMEOUT:-120}" "$*" </dev/null \
		>"$CASE_DIR/$name.out" 2>"$CASE_DIR/$name.err" &
	echo $! >"$CASE_DIR/$name.pid"
}

oob() { echo 127.0.0.1; }
perf_port() { echo $((FABRIC_PORT + $1 + perf_shift)); }

agent_dir() {
	echo "$CASE_DIR/node$1/mpib"
}

agent_policy() {
	local n=$1

	shift
	printf '%s\n' "$@" >"$CASE_DIR/node$n/agent.ini"
}

agent_start() {
	local n k

	for n in "$@"; do
		setpriv --pdeathsig TERM mpib-agentd --config "$CASE_DIR/node$n/agent.ini" \
			--dir "$(agent_dir "$n")" </dev/null 2>>"$CASE_DIR/node$n/agent.log" &
		echo $! >"$CASE_DIR/agent$n.pid"
	done
	for n in "$@"; do
		for ((k = 0; k < 200; k++)); do
			mpibctl --dir "$(agent_dir "$n")" status >/dev/null 2>&1 && continue 2
			kill -0 "$(cat "$CASE_DIR/agent$n.pid")" 2>/dev/null || break
			sleep 0.05
		done
		fail "node $n: the agent did not start: $(tail -n 3 "$CASE_DIR/node$n/agent.log")"
	done
}

agent_stop() {
	local pid

	pid=$(cat "$CASE_DIR/agent$1.pid")
	kill "$pid"
	wait "$pid" || fail "node $1: the agent ended with $?"
	rm "$CASE_DIR/agent$1.pid"
}

agent_reload() {
	on "$1" mpibctl reload >/dev/null || fail "node $1: mpibctl reload"
}

# agent_log N [MPIB_FLOW=FLOW]: without a journal the agent writes the same messages to its log.
agent_log() {
	local flow=${2:-}

	jq -Rc --arg flow "${flow#MPIB_FLOW=}" 'sub("^mpib-agentd: "; "") | . as $text |
		capture("^flow (?<flow>[^ ]+) (?<event>registered|deregistered|share|lost|has)") |
		select($flow == "" or .flow == $flow) |
		{MESSAGE: $text, MPIB_FLOW: .flow,
			MPIB_EVENT: {registered: "register", deregistered: "deregister", share: "hint", lost: "rail-lost",
				has: "rail-back"}[.event],
			MPIB_SHARE: ([$text | match("(, share |-> )([0-9]+)").captures[1].string] | first)}' \
		"$CASE_DIR/node$1/agent.log"
}

# fabric_counter N RAIL FIELD: what fabricctl shows.
fabric_counter() {
	fabricctl show "$1/$2" | sed -n "1s/.* $3 \([0-9]*\).*/\1/p"
}

nic_port() {
	fabricctl port "$1/$2" "$3" || fail "node $1: fabricctl port $1/$2 $3"
}

# nic_bytes N: payload, since the fabric has no headers.
nic_bytes() {
	echo "$(fabric_counter "$1" sout tx_bytes)" "$(fabric_counter "$1" sout rx_bytes)" \
		"$(fabric_counter "$1" sup tx_bytes)" "$(fabric_counter "$1" sup rx_bytes)"
}

# nic_packets N RAIL: the fabric counts bytes; there are none if and only if nothing was sent.
nic_packets() {
	fabric_counter "$1" "$2" tx_bytes
}

nic_resent() {
	echo 0
}
