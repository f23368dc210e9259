# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 2
# limit: 400
# Every size around every border, grouped receives with shuffled tags, 32 outstanding, several
# connections, both directions, every byte and the guard bands checked: in vanilla mode on each
# rail, and in advanced mode over both.
# shellcheck shell=bash

# matrix NAME SETTINGS [OPTIONS]
matrix() {
	local name=$1 settings=$2

	shift 2
	perf "$name" 1 2 "$settings" verify --timeout 90 "$@"
	measured "$name: $(perf_result "$name" '"\(.messages) messages, \(.bytes) bytes, \(.seconds | floor) s, ok \(.ok)"'); SOUT SUP sent $(perf_sent "$name" bytes)"
	expect_eq "$name" "$(perf_result "$name" .ok) $(perf_result "$name-peer" .ok)" "true true"
}

LAB_TIMEOUT=300
# One more than may be under way, so that each place of the ring is used again.
small="--max-size 64K --memory 32M --messages 33"
# shellcheck disable=SC2086
matrix sup "$VANILLA" $small
# shellcheck disable=SC2086
matrix sout "$VANILLA MPIB_ISLAND_PREFIX_LEN=32" $small

for n in 1 2; do
	agent_policy $n "[policy]" "intra = 1:1"
done
agent_start 1 2
matrix both "$ADVANCED" --max-size 1M --memory 64M --messages 33
matrix large "$ADVANCED" --sizes 16M --comms 1 --no-both --no-groups --messages 2 --memory 128M
