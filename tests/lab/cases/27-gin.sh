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
for case in sizes order pipeline sum contexts edges unequal-windows too-many cannot-register bad-memory; do
	gin "v11-$case" v11 $case 2 "$VANILLA"
done
for case in ranks-differ settings-differ dies-while-connecting closes-early; do
	gin "v11-$case" v11 $case 3 "$VANILLA"
done
gin advanced-sizes v11 sizes 4 "$ADVANCED MPIB_SPLIT_MIN=4096"
gin advanced-order v11 order 4 "$ADVANCED MPIB_SPLIT_MIN=4096"
for table in v12 v13 rma14 rma15; do
	for case in sizes order sum edges bad-contexts; do
		gin $table-$case $table $case 2 "$VANILLA"
	done
done
for table in v13 rma14 rma15; do
	for case in gets flushes bad-gets; do
		gin $table-$case $table $case 2 "$VANILLA"
	done
done
