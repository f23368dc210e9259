# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 2
# islands: 1 2
# sup: split
# Advanced mode between islands whose SUP networks no relay joins, with a policy that wants SUP: the
# connection comes up on SOUT alone, says so once on each end, and all bytes take SOUT.
# shellcheck shell=bash

for n in 1 2; do
	agent_policy $n "[policy]" "inter = 1:1"
done
agent_start 1 2

bytes=$((4 << 20))
nics=$(nic_bytes 1)
started=$SECONDS
perf alone 1 2 "$ADVANCED" bw --messages 4 --size 1M --warmup 0 --check --hold 2
took=$((SECONDS - started))
read -r _ _ sup_tx _ <<<"$(nic_diff "$nics" "$(nic_bytes 1)")"
for end in alone alone-peer; do
	line=$(grep "doesn't reach" "$CASE_DIR/$end.err") || fail "$end: no line tells it"
	measured "${line#*NET/MPIB : }"
	expect_match "$end: the line" "$line" \
		"INFO NET/MPIB : SUP 10\.9\.[12]\.[12] doesn't reach 10\.9\.[12]\.[12] \(found by .*\): the connection to .* uses SOUT alone"
	expect_eq "$end: lines" "$(wc -l <<<"$line")" 1
	expect_eq "$end: warnings" "$(grep -c WARN "$CASE_DIR/$end.err" || true)" 0
done
measured "took $took s, set-up $(perf_result alone .connect_max_ms) ms at most; SOUT SUP $(perf_sent alone bytes), queue pairs $(perf_qps alone)"
expect_eq "bytes" "$(perf_sent alone bytes) $(perf_received alone bytes)" "$bytes 0 $bytes 0"
expect_match "queue pairs" "$(perf_qps alone)" '^[1-9][0-9]* 0$'
expect_le "bytes out of SUP's NIC" "$sup_tx" 65536
expect_le "seconds" $took 45
