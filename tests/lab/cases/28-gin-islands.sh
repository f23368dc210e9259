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
gin v13-gets v13 gets 4 "$VANILLA"
gin rma15-sizes rma15 sizes 4 "$VANILLA"
