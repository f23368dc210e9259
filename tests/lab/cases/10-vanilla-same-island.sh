# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 2
# Vanilla mode inside an island: data and CTS on SUP alone. By the plugin's counters, by the NICs'
# and by their count of packets, SOUT carries nothing.
# shellcheck shell=bash

bytes=$((8 << 20))
nics=$(nic_bytes 1)
packets_1=$(nic_packets 1 sout)
packets_2=$(nic_packets 2 sout)

perf same 1 2 "$VANILLA" bw --messages 8 --size 1M --warmup 0 --check

read -r sout_tx sout_rx sup_tx _ <<<"$(nic_diff "$nics" "$(nic_bytes 1)")"
packets_1=$(($(nic_packets 1 sout) - packets_1))
packets_2=$(($(nic_packets 2 sout) - packets_2))
measured "sender's bytes: $(perf_sent same bytes); receiver's: $(perf_received same bytes); CTS: $(perf_received same cts) (SOUT SUP)"
measured "NIC of node 1: SOUT sent $sout_tx received $sout_rx, SUP sent $sup_tx; SOUT packets: $packets_1 and $packets_2"

expect_eq "path" "$(perf_result same '[.counters[].path] | unique | join(" ")')" intra
expect_eq "bytes sent" "$(perf_sent same bytes)" "0 $bytes"
expect_eq "bytes received" "$(perf_received same bytes)" "0 $bytes"
expect_match "CTS" "$(perf_received same cts)" '^0 [1-9]'
expect_le "bytes out of SOUT's NIC" "$sout_tx" 2048
expect_le "bytes into SOUT's NIC" "$sout_rx" 2048
expect_ge "bytes out of SUP's NIC" "$sup_tx" "$bytes"
expect_eq "packets of node 1 on SOUT" "$packets_1" 0
expect_eq "packets of node 2 on SOUT" "$packets_2" 0
