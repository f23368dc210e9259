# SPDX-License-Identifier: Apache-2.0
# Figures: one JSON line a size, with the network and the rails it was measured on.
# shellcheck shell=bash

FIGURE_GPUS=2

# figure NET RAILS OPERATION FROM TO
figure() {
	local name=$1.$2.$3

	NCCL_DEBUG=WARN JOB_SECONDS=150 run_job "$name" $FIGURE_GPUS bench "$3" "$4" "$5"
	grep -h '^{"op"' "$CASE/$name.0.out" | sed "s/^{/{\"net\":\"$1\",\"rails\":\"$2\",/" \
		>>"$RESULTS/figures.jsonl"
}

# unshaped OPERATION: rails without a limit, all networks in one run.
unshaped() {
	local op=$1 most=1073741824

	fabric $FIGURE_GPUS
	dress
	policy '[policy]' 'intra = 50%'
	agents
	net_advanced
	figure mpib-fused unshaped "$op" 8 $most
	net_ib_merged
	figure ib-merged unshaped "$op" 8 $most
	net_vanilla
	figure mpib-vanilla unshaped "$op" 8 $most
	net_ib_one sup
	figure ib-one unshaped "$op" 8 $most
	net_socket
	figure socket unshaped "$op" 8 $most
}

# shaped: SOUT 0.5 and SUP 2 GB/s.
shaped() {
	local op=all_reduce from=1048576 most=268435456

	fabric $FIGURE_GPUS sout=500000000 sup=2000000000
	dress
	policy '[policy]' 'intra = 1:4'
	agents
	net_advanced
	figure mpib-fused shaped "$op" $from $most
	policy '[policy]' 'intra = 0'
	reload
	figure sout-alone shaped "$op" $from $most
	policy '[policy]' 'intra = 1024'
	reload
	figure sup-alone shaped "$op" $from $most
	net_ib_merged
	figure ib-merged shaped "$op" $from $most
}

figures() {
	printf '%s\n' "unshaped all_reduce" "unshaped send_recv" shaped
}
