# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 2
# limit: 400
# NCCL's network tables v8 to v12, as its releases ask for them: single messages and groups, both
# directions, every byte checked, on one rail and on both.
# shellcheck shell=bash

# table API NAME SETTINGS
table() {
	perf "$2" 1 2 "$3" verify --api "$1" --timeout 60 --sizes 0,1,127,4096,65536 --messages 8 \
		--memory 16M --comms 1
	measured "$2: $(perf_result "$2" '"\(.messages) messages, \(.bytes) bytes, \(.seconds | floor) s"')"
	expect_eq "$2" "$(perf_result "$2" '"\(.table) \(.ok)"'), $(perf_result "$2-peer" '"\(.table) \(.ok)"')" \
		"v$1 true, v$1 true"
}

for n in 1 2; do
	agent_policy $n "[policy]" "intra = 1:1"
done
agent_start 1 2
for api in 8 9 10 11 12; do
	table $api "vanilla-v$api" "$VANILLA"
	table $api "advanced-v$api" "$ADVANCED MPIB_SPLIT_MIN=0"
done
