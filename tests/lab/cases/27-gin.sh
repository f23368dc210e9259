# SPDX-License-Identifier: Apache-2.0
# grounds: lab
# nodes: 2
# limit: 400
# Device-initiated communication over kernel verbs: the same cases as on the software fabric, ranks on both
# nodes in turn, each table.
# shellcheck shell=bash

gin_port=7300
export LAB_TIMEOUT=120

# gin NAME TABLE CASE RANKS SETTINGS
gin() {
	local n rc=0 other=0

	gin_port=$((gin_port + 1))
	for n in 2 1; do
		bg $n "$1-$n" "exec $PERF_RUN MPIB_GPUDIRECT=1 $5 PLUGIN=$PERF_PLUGIN TABLE=$2 /lab/gin-driver $3 $4 1 2 $((n - 1)) $(oob 1) $gin_port"
	done
	bg_wait "$1-1" || rc=$?
	bg_wait "$1-2" || other=$?
	[ "$rc $other" = "0 0" ] ||
		fail "$1: exit $rc and $other: $(tail -n 5 "$CASE_DIR/$1"-[12].{out,err} | cut -c1-600)"
	measured "$1: ok"
}

for n in 1 2; do
	agent_policy $n "[policy]" "intra = 1:1"
done
agent_start 1 2
for case in sizes order pipeline sum contexts edges unequal-windows too-many cannot-register; do
	gin "v11-$case" v11 $case 2 "$VANILLA"
done
gin advanced-sizes v11 sizes 4 "$ADVANCED MPIB_SPLIT_MIN=4096"
gin advanced-order v11 order 4 "$ADVANCED MPIB_SPLIT_MIN=4096"
gin v12-order v12 order 2 "$VANILLA"
for case in sizes gets flushes bad-gets; do
	gin "v13-$case" v13 $case 2 "$VANILLA"
done
for table in rma14 rma15; do
	gin $table-order $table order 2 "$VANILLA"
	gin $table-gets $table gets 2 "$VANILLA"
done
