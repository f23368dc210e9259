# SPDX-License-Identifier: Apache-2.0
# Two nodes on this machine, and a pair of mpib-netperf over them: both ends started, their ports
# handed out, their output collected, their ends joined. For case scripts; $NETPERF and $PLUGIN name
# the driver and the plugin. What the nodes are is one word:
#   ground_open loopback NAME   two processes, for a plugin without devices
#   ground_open fabric NAME     nodes 1 and 2 of the software fabric ($FABRIC_LIB), each with the
#                               agent's directory ${agent_dir}1 or ${agent_dir}2
# Files in $work: listener and connector with what each end printed, .err with its standard error.
# shellcheck shell=bash
set -u

# How long what must happen may take on a machine that is busy with other tests, and how long an end
# may outlive the other: its own watchdog speaks first.
GROUND_SECONDS=60
GROUND_END_SECONDS=150

# ground_open GROUND NAME: NAME stands before what die says.
ground_open() {
	ground=$1
	name=$2
	work=$(mktemp -d)
	mkfifo "$work/.nap" # nobody writes into it
	trap clean_up EXIT
	trap 'exit 1' INT TERM
	unset MPIB_FABRIC MPIB_FABRIC_NULL MPIB_MODE MPIB_AGENT_DIR NETPERF_LOOPBACK_FAULT
	[ "$ground" = fabric ] || return 0

	export LD_LIBRARY_PATH=$FABRIC_LIB MPIB_FABRIC_DIR=$work/fabric
	export MPIB_HCA_SOUT=sout MPIB_HCA_SUP=sup MPIB_OOB_IF=lo
	mkdir "$MPIB_FABRIC_DIR"
	agent_dir=$work/no-agent
}

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

die() {
	local file
	echo "$name: $*"
	for file in "$work"/*; do
		[ -f "$file" ] || continue
		echo "--- ${file##*/}"
		tail -n 25 "$file"
	done
	exit 1
}

# until_true SECONDS COMMAND...: tries until it is true or the time is over. The shell itself sleeps, and longer each
# time: programs that are started twenty times a second take the processor from the tests beside.
until_true() {
	local end=$((SECONDS + $1 + 1)) naps=(0.02 0.03 0.05 0.1) n=0
	shift
	while ! "$@"; do
		[ $SECONDS -lt $end ] || return 1
		read -rt "${naps[n++]:-0.2}" <>"$work/.nap" || :
	done
}

# on_node NODE COMMAND...: replaces this (sub)shell by the command on that node.
on_node() {
	local node=$1
	shift
	[ "$ground" = loopback ] || export MPIB_FABRIC_NODE=$node MPIB_AGENT_DIR=$agent_dir$node
	exec "$@"
}

# says FILE TEXT: the text stands in the file, maybe later.
says() {
	until_true $GROUND_SECONDS grep -qs -e "$2" "$work/$1"
}

# ready_port FILE: the port that a waiting program has told
ready_port() {
	sed -n 's/.*"event":"ready","port":\([0-9]*\).*/\1/p' "$work/$1"
}

# start_listener [OPTION...]: the waiting side, on node 1; sets $port and $listener
start_listener() {
	# emptied here and not by the child, which may run late: an older listener's port is in it
	: >"$work/listener"
	on_node 1 "$NETPERF" --plugin "$PLUGIN" --listen 0 --bind 127.0.0.1 --json "$@" \
		>"$work/listener" 2>"$work/listener.err" &
	listener=$!
	says listener '"event":"ready".*}' || die "the listener did not become ready"
	port=$(ready_port listener)
}

# start_connector [OPTION...] MODE...: on node 2, in the background; sets $connector
start_connector() {
	: >"$work/connector"
	on_node 2 "$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$port" --json "$@" \
		>"$work/connector" 2>"$work/connector.err" &
	connector=$!
}

listener_ended() {
	! kill -0 "$listener" 2>/dev/null
}

# wait_listener: its end; sets $listener_rc
wait_listener() {
	until_true $GROUND_END_SECONDS listener_ended || die "the listener does not end"
	wait "$listener"
	listener_rc=$?
}

# finish: waits for both; sets $connector_rc and $listener_rc
finish() {
	wait "$connector"
	connector_rc=$?
	wait_listener
}

# run_pair [OPTION...] MODE...: the connecting side, to the end of both
run_pair() {
	start_connector "$@"
	finish
}

# want CONNECTOR_RC LISTENER_RC
want() {
	[ "$connector_rc" = "$1" ] || die "the connecting side exits with $connector_rc, not $1"
	[ "$listener_rc" = "$2" ] || die "the listener exits with $listener_rc, not $2"
}
