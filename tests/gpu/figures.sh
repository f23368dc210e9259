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
	policy '[policy]' 'intra = auto'
	reload
	figure mpib-auto shaped "$op" $from $most
	net_ib_merged
	figure ib-merged shaped "$op" $from $most
	# One rail as fast as both: what NCCL gets out of so much, with nothing to divide.
	fabric $FIGURE_GPUS sup=2500000000
	policy '[policy]' 'intra = 1024'
	reload
	net_advanced
	figure one-rail shaped "$op" $from $most
}

# ---- profiles: where the time of one size goes ---------------------------------------------------

# profile_job NET OPERATION BYTES
profile_job() {
	local name=$1.$3

	JOB_ENV=("LD_PRELOAD=$GPU_STAGE/lib/libmpib-sampler.so" "MPIB_SAMPLER_OUT=$CASE/$name.samples")
	NCCL_DEBUG=WARN run_job "$name" $FIGURE_GPUS bench "$2" "$3" "$3"
	JOB_ENV=()
	{
		printf '\n### %s, %s, %s bytes: %s\n\n' "$1" "$2" "$3" \
			"$(sed -nE 's|.*"us":([0-9.]+).*"busbw":([0-9.]+).*|\1 µs, \2 GB/s|p' "$CASE/$name.0.out")"
		"$GPU_TREE/tests/gpu/profile/profile.py" "$CASE/$name.samples".*
	} >>"$RESULTS/profile.md"
	measured "$name: $("$GPU_TREE/tests/gpu/profile/profile.py" --json "$CASE/$name.samples".* |
		sed -E 's/.*"parts": (\{[^}]*\}).*/\1/')"
}

# profile_unshaped, profile_shaped: the sizes at which a target was missed.
profile_unshaped() {
	local size

	fabric $FIGURE_GPUS
	dress
	policy '[policy]' 'intra = 50%'
	agents
	for size in 262144 1048576 4194304 268435456; do
		net_advanced
		profile_job mpib-fused all_reduce $size
		net_ib_merged
		profile_job ib-merged all_reduce $size
	done
	net_socket
	profile_job socket all_reduce $size
}

profile_shaped() {
	fabric $FIGURE_GPUS sout=500000000 sup=2000000000
	dress
	policy '[policy]' 'intra = 1:4'
	agents
	net_advanced
	profile_job mpib-fused all_reduce 1048576
}

profiles() {
	printf '%s\n' profile_unshaped profile_shaped
}

figures() {
	printf '%s\n' "unshaped all_reduce" "unshaped send_recv" shaped gin_latency gin_rate
}
