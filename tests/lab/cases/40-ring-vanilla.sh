# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 4
# islands: 1 1 2 2
# sup: split
# limit: 240
# Two islands of two nodes, each with a SUP fabric of its own, and a ring through all four with all
# hops running at once: inside the islands everything takes SUP, between them SOUT.
# shellcheck shell=bash

# shellcheck source=tests/lab/lib/ring.sh
. "$LAB_ROOT/lib/ring.sh"

bytes=$((4 << 20))
declare -A nics
for n in 1 2 3 4; do
	nics[$n]=$(nic_bytes $n)
done

ring_run ring "$VANILLA" --messages 4 --size 1M

for n in 1 2 3 4; do
	hop=$(ring_hop ring $n)
	read -r sout_tx _ sup_tx _ <<<"$(nic_diff "${nics[$n]}" "$(nic_bytes $n)")"
	measured "hop $n → $((n % 4 + 1)): SOUT SUP $hop bytes, CTS $(perf_received ring-$n cts), queue pairs $(perf_qps ring-$n); node $n's NICs sent $sout_tx $sup_tx"
	if [ $((n % 2)) = 1 ]; then
		expect_eq "hop $n" "$hop" "0 $bytes"
		# What node n's SOUT sends: the CTS of the hop that comes in.
		expect_le "node $n's SOUT" "$sout_tx" $((bytes / 20))
		expect_ge "node $n's SUP" "$sup_tx" $bytes
	else
		expect_eq "hop $n" "$hop" "$bytes 0"
		expect_match "queue pairs of hop $n" "$(perf_qps ring-$n)" '^[1-9][0-9]* 0$'
		expect_ge "node $n's SOUT" "$sout_tx" $bytes
		expect_le "node $n's SUP" "$sup_tx" $((bytes / 20))
	fi
done
