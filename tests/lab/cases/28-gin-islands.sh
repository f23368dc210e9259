# SPDX-License-Identifier: Apache-2.0
# grounds: lab
# nodes: 4
# islands: 1 1 2 2
# sup: split
# limit: 400
# Device-initiated communication among four nodes in two islands: SUP inside an island, SOUT between.
# shellcheck shell=bash

# shellcheck source=tests/lab/lib/gin.sh
. "$LAB_ROOT/lib/gin.sh"

export LAB_TIMEOUT=150
bytes=$((1 << 20))
declare -A nics
for n in 1 2 3 4; do
	nics[$n]=$(nic_bytes $n)
done
gin v11-sizes v11 sizes 4 "$VANILLA"
gin v11-order v11 order 4 "$VANILLA"
for n in 1 2 3 4; do
	read -r sout_tx _ sup_tx _ <<<"$(nic_diff "${nics[$n]}" "$(nic_bytes $n)")"
	expect_ge "bytes of SOUT from node $n" "$sout_tx" $bytes
	expect_ge "bytes of SUP from node $n" "$sup_tx" $bytes
done
gin v11-sum v11 sum 4 "$VANILLA"
for table in v12 v13 rma14 rma15; do
	for case in sizes order sum; do
		gin $table-$case $table $case 4 "$VANILLA"
	done
done
for table in v13 rma14 rma15; do
	gin $table-gets $table gets 4 "$VANILLA"
done
