# SPDX-License-Identifier: Apache-2.0
# gin-driver on all nodes of a case.
# shellcheck shell=bash

gin_port=7300

# gin NAME TABLE CASE RANKS SETTINGS: ranks on all nodes in turn; each must end well.
gin() {
	gin_start "$@"
	gin_wait "$1"
}

gin_start() {
	local n

	gin_port=$((gin_port + 1))
	for ((n = CASE_NODES; n >= 1; n--)); do
		bg $n "$1-$n" "exec $PERF_RUN MPIB_GPUDIRECT=1 $5 PLUGIN=$PERF_PLUGIN TABLE=$2" \
			"/lab/gin-driver $3 $4 1 $CASE_NODES $((n - 1)) $(oob 1) $gin_port"
	done
}

# gin_wait NAME
gin_wait() {
	local n rc=0 bad=''

	for ((n = 1; n <= CASE_NODES; n++)); do
		bg_wait "$1-$n" || rc=$?
		[ "$rc" = 0 ] || bad+=" $n:$rc"
		rc=0
	done
	[ -z "$bad" ] || fail "$1: nodes and exit statuses$bad: $(tail -qn 5 "$CASE_DIR/$1"-?.{out,err} | cut -c1-600)"
	measured "$1: ok"
}
