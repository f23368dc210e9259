# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 4
# islands: 1 1 2 2
# limit: 300
# The ring again in advanced mode, with SUP reaching everywhere: a share for the pair of islands
# from the policy file holds on the hops between them, the default inside.
# shellcheck shell=bash

# shellcheck source=tests/lab/lib/ring.sh
. "$LAB_ROOT/lib/ring.sh"

bytes=$((4 << 20))
for n in 1 2 3 4; do
	agent_policy $n "[islands]" "A = 10.0.1.0/24" "B = 10.0.2.0/24" "[pair A B]" "share = 25%"
done
agent_start 1 2 3 4

ring_run pair "$ADVANCED" --messages 4 --size 1M

for n in 1 2 3 4; do
	hop=$(ring_hop pair $n)
	measured "hop $n → $((n % 4 + 1)): SOUT SUP $hop bytes"
	if [ $((n % 2)) = 1 ]; then
		expect_eq "hop $n" "$hop" "0 $bytes"
	else
		expect_eq "hop $n" "$hop" "$((bytes / 4 * 3)) $((bytes / 4))"
	fi
done
