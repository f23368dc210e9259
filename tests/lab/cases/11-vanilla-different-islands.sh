# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 2
# Vanilla mode between islands (a prefix of 32 bits makes each node an island): everything on
# SOUT, and no queue pair on SUP was ever made.
# shellcheck shell=bash

bytes=$((8 << 20))
queue_pairs() {
	on "$1" "rdma -j res show qp link $2 | tr '{' '\n' | grep -c '\"type\":\"RC\"' || true"
}

# Long enough for the kernel to be asked.
hold=$([ "$LAB_GROUND" = lab ] && echo 6 || echo 0)
nics=$(nic_bytes 1)
perf_start inter 1 2 "$VANILLA MPIB_ISLAND_PREFIX_LEN=32" bw --messages 8 --size 1M --warmup 0 --check --hold "$hold"

# The pairs are there as soon as bytes move, and stay while the connection is held. Only a kernel
# lists them for others to see; the plugin's own count is below.
live=
if [ "$LAB_GROUND" = lab ]; then
	for _ in 1 2 3 4 5 6 7 8; do
		[ "$(queue_pairs 1 sout)" != 0 ] && break
		sleep 0.5
	done
	for n in 1 2; do
		live+="node $n SOUT $(queue_pairs $n sout) SUP $(queue_pairs $n sup); "
	done
fi
perf_wait inter

read -r sout_tx _ sup_tx sup_rx <<<"$(nic_diff "$nics" "$(nic_bytes 1)")"
measured "sender's bytes: $(perf_sent inter bytes); receiver's: $(perf_received inter bytes); CTS: $(perf_received inter cts) (SOUT SUP)"
measured "NIC of node 1: SOUT sent $sout_tx, SUP sent $sup_tx received $sup_rx"

if [ "$LAB_GROUND" = lab ]; then
	measured "queue pairs while it ran: ${live%; }"
	expect_match "queue pairs" "$live" '^node 1 SOUT [1-9][0-9]* SUP 0; node 2 SOUT [1-9][0-9]* SUP 0; $'
fi
expect_match "queue pairs by the plugin" "$(perf_qps inter)" '^[1-9][0-9]* 0$'
expect_match "queue pairs by the peer" "$(perf_qps inter-peer)" '^[1-9][0-9]* 0$'
expect_eq "path" "$(perf_result inter '[.counters[].path] | unique | join(" ")')" inter
expect_eq "bytes sent" "$(perf_sent inter bytes)" "$bytes 0"
expect_eq "bytes received" "$(perf_received inter bytes)" "$bytes 0"
expect_match "CTS" "$(perf_received inter cts)" '^[1-9][0-9]* 0$'
expect_ge "bytes out of SOUT's NIC" "$sout_tx" "$bytes"
expect_le "bytes out of SUP's NIC" "$sup_tx" 2048
expect_le "bytes into SUP's NIC" "$sup_rx" 2048
