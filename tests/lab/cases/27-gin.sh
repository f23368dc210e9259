# SPDX-License-Identifier: Apache-2.0
# grounds: lab
# nodes: 2
# limit: 400
# Device-initiated communication over kernel verbs: the same cases as on the software fabric, ranks on both
# nodes in turn, each table.
# shellcheck shell=bash

# shellcheck source=tests/lab/lib/gin.sh
. "$LAB_ROOT/lib/gin.sh"

export LAB_TIMEOUT=120

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
