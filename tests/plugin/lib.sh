# SPDX-License-Identifier: Apache-2.0
# For the case scripts of this folder: two nodes of the software fabric on this machine, an agent for
# each where a case wants one, mpib-netperf on both ends. The environment comes from meson.build:
# NETPERF, PLUGIN, FABRIC_LIB, FABRICCTL, AGENTD, FAKEAGENT, DRIVER.
# shellcheck shell=bash
set -u

name=$1
work=$(mktemp -d)
export LD_LIBRARY_PATH=$FABRIC_LIB
export MPIB_HCA_SOUT=sout MPIB_HCA_SUP=sup MPIB_OOB_IF=lo
export MPIB_FABRIC_DIR=$work/fabric
unset MPIB_FABRIC MPIB_FABRIC_NULL MPIB_MODE MPIB_AGENT_DIR NETPERF_LOOPBACK_FAULT
mkdir "$MPIB_FABRIC_DIR"
agent_dir=$work/no-agent

clean_up() {
	local pid
	# Those that still run: the number of one that ended may be somebody else's by now.
	for pid in $(jobs -rp) $(jobs -sp); do
		kill -CONT "$pid" 2>/dev/null
		kill -KILL "$pid" 2>/dev/null
	done
	wait
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

die() {
	echo "$name: $*"
	for file in "$work"/*; do
		[ -f "$file" ] || continue
		echo "--- ${file##*/}"
		tail -n 25 "$file"
	done
	exit 1
}

# until_true SECONDS COMMAND...: tries until it is true or the time is over
until_true() {
	local end=$((SECONDS + $1 + 1))
	shift
	while ! "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.05
	done
}

ready() {
	port=$(sed -n 's/.*"event":"ready","port":\([0-9]*\).*/\1/p' "$work/listener")
	[ -n "$port" ]
}

# start_listener [OPTION...]: the waiting side, on node 1; sets $port and $listener
start_listener() {
	# emptied here and not by the child, which may run late: an older listener's port is in it
	: >"$work/listener"
	MPIB_FABRIC_NODE=1 MPIB_AGENT_DIR=${agent_dir}1 \
		"$NETPERF" --plugin "$PLUGIN" --listen 0 --bind 127.0.0.1 --json "$@" \
		>"$work/listener" 2>"$work/listener.err" &
	listener=$!
	until_true 60 ready || die "the listener did not become ready"
}

# start_connector [OPTION...] MODE...: on node 2, in the background; sets $connector
start_connector() {
	: >"$work/connector"
	MPIB_FABRIC_NODE=2 MPIB_AGENT_DIR=${agent_dir}2 \
		"$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$port" --json "$@" \
		>"$work/connector" 2>"$work/connector.err" &
	connector=$!
}

both_connected() {
	grep -q '"event":"connected"' "$work/connector" &&
		grep -q '"event":"connected"' "$work/listener"
}

# await_data: until both sides are connected, and a second more
await_data() {
	until_true 60 both_connected || die "no connection"
	sleep 1
}

# finish: waits for both; sets $connector_rc and $listener_rc
finish() {
	wait "$connector"
	connector_rc=$?
	wait "$listener"
	listener_rc=$?
}

run_pair() {
	start_connector "$@"
	finish
}

# want CONNECTOR_RC LISTENER_RC
want() {
	[ "$connector_rc" = "$1" ] || die "the connecting side exits with $connector_rc, not $1"
	[ "$listener_rc" = "$2" ] || die "the listener exits with $listener_rc, not $2"
}

# hold SIDE EXPRESSION: a Python expression over `r`, the result of that side; `c`, the counters of its
# connections; and split(size, share)
hold() {
	python3 - "$work/$1" "$2" <<-'END' || die "not so for the $1: $2"
		import json, sys
		rows = [json.loads(line) for line in open(sys.argv[1])]
		r = [row for row in rows if row["event"] == "result"][0]
		c = r["counters"]
		def split(size, share):
		    return {0: 0, 1024: size}.get(share, (size * share >> 10) & ~127)
		if not eval(sys.argv[2]):
		    print(json.dumps(r))
		    sys.exit(1)
	END
}

# warnings SIDE TEXT: how many of its lines on standard error have the text
warnings() {
	# what the peer's driver passes on isn't a line of this side's plugin
	grep -v ' ERROR the peer: ' "$work/$1.err" | grep -c -e "$2"
}

# warned SIDE COUNT TEXT
warned() {
	local have
	have=$(warnings "$1" "$3")
	[ "$have" = "$2" ] || die "the $1 says '$3' $have times, not $2"
}

# start_agent NODE POLICY: shares of the node's own agent; sets agent1 or agent2 to its pid
start_agent() {
	agent_dir=$work/agent
	mkdir -p "$work/agent$1"
	chmod 755 "$work/agent$1"
	policy "$1" "$2"
	launch_agent "$1"
}

# listens PATH: the name is there before anybody listens at it. 00010000 is __SO_ACCEPTCON.
listens() {
	grep -q " 00010000 .* $1\$" /proc/net/unix
}

launch_agent() {
	env -u NOTIFY_SOCKET "$AGENTD" --dir "$work/agent$1" --config "$work/agent$1.ini" \
		>>"$work/agentd$1.log" 2>&1 &
	eval "agent$1=$!"
	until_true 60 listens "$work/agent$1/agent.sock" ||
		die "the agent of node $1 did not start"
}

# policy NODE SHARE: what every flow inside the island gets
policy() {
	printf '[policy]\nintra = %s\n' "$2" >"$work/agent$1.ini"
}

now_ms() {
	date +%s%3N
}
