# SPDX-License-Identifier: Apache-2.0
# Commands in nodes. A command line is one string for the node's bash; output, errors and exit
# status come back apart; 124 is the time limit, 125 a node that is gone.
# shellcheck shell=bash

# guest N [labx options] -- COMMAND
guest() {
	local n=$1
	local -a options=()

	shift
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	"$LAB_STATE/labx" -h "10.8.0.$n" "${options[@]}" "$*"
}

# on N COMMAND: runs it to its end, a minute at most.
on() {
	local n=$1

	shift
	guest "$n" -t "${LAB_TIMEOUT:-60}" -- "$@" </dev/null
}

# on_all COMMAND: in every node of the case at once; fails if one of them does.
on_all() {
	local n rc=0
	local -a jobs=()

	for n in $(case_nodes); do
		on "$n" "$@" &
		jobs+=($!)
	done
	for n in "${jobs[@]}"; do
		wait "$n" || rc=$?
	done
	return "$rc"
}

# bg N NAME COMMAND: starts it and returns. Output goes to $CASE_DIR/NAME.out and .err.
bg() {
	local n=$1 name=$2

	shift 2
	# Not by way of guest(): the pid must be labx's own, for bg_stop to reach it.
	"$LAB_STATE/labx" -h "10.8.0.$n" -t "${LAB_TIMEOUT:-120}" "$*" </dev/null \
		>"$CASE_DIR/$name.out" 2>"$CASE_DIR/$name.err" &
	echo $! >"$CASE_DIR/$name.pid"
}

# bg_wait NAME: waits for its end and returns its exit status.
bg_wait() {
	wait "$(cat "$CASE_DIR/$1.pid")"
}

# bg_stop NAME: ends it; labd ends its processes when the connection goes.
bg_stop() {
	local pid

	pid=$(cat "$CASE_DIR/$1.pid")
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
}

# put N FILE-IN-NODE: standard input becomes that file.
put() {
	guest "$1" -i -- "cat >'$2'"
}

# get N FILE-IN-NODE: prints that file.
get() {
	on "$1" "cat '$2'"
}
