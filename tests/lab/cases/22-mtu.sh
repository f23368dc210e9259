# SPDX-License-Identifier: Apache-2.0
# nodes: 2
# Another MTU on each rail and on each end: each rail's queue pairs take the smaller of their two
# ends and no other's, which the count of packets shows, and every byte is right, also in grouped
# receives.
# shellcheck shell=bash

# SOUT 2048 by node 2, SUP 1024 by node 1 (netdev's MTU: RDMA's and its headers).
on 1 "ip link set eth1 mtu 1500" || fail "ip link set mtu"
on 2 "ip link set eth0 mtu 2200" || fail "ip link set mtu"
for n in 1 2; do
	agent_policy $n "[policy]" "intra = 1:1"
done
agent_start 1 2

packets() {
	on 1 'cat /sys/class/net/eth0/statistics/tx_packets /sys/class/net/eth1/statistics/tx_packets' | paste -sd' '
}
resent=$(nic_resent 2)
before=$(packets)
perf mtu 1 2 "$ADVANCED" bw --messages 8 --size 256K --warmup 0 --check
after=$(packets)
resent=$(($(nic_resent 2) - resent))
read -r sout sup <<<"$(jq -nr --arg a "$before" --arg b "$after" \
	'($a / " " | map(tonumber)) as $a | ($b / " " | map(tonumber)) as $b | "\($b[0] - $a[0]) \($b[1] - $a[1])"')"
measured "2 MiB at 1:1: SOUT $sout packets (512 of 2048 bytes), SUP $sup (1024 of 1024), resent $resent"
expect_ge "packets on SOUT" "$sout" 512
expect_ge "packets on SUP" "$sup" 1024
# Acknowledgements and resent ones come on top; half the size would double the count.
if [ "$resent" = 0 ]; then
	expect_le "packets on SOUT" "$sout" 750
	expect_le "packets on SUP" "$sup" 1250
fi
expect_match "MTU of node 1's ports" "$(grep -E 'S(OUT|UP) s(out|up):1: ' "$CASE_DIR/mtu.err" | sed 's/.*NET.MPIB : //; s/ s[a-z]*:1: .*MTU/ MTU/; s/,.*//' | paste -sd' ')" '^SOUT MTU 4096 SUP MTU 1024$'

perf groups 1 2 "$ADVANCED" verify --max-size 64K --memory 32M --comms 1 --groups
measured "grouped receives: $(perf_result groups '"\(.messages) messages, \(.bytes) bytes, ok \(.ok)"'), SOUT SUP $(perf_sent groups bytes)"
expect_eq "grouped" "$(perf_result groups .ok) $(perf_result groups-peer .ok)" "true true"
