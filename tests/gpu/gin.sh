# SPDX-License-Identifier: Apache-2.0
# Kernels that put and signal by themselves, over the plugin's tables for it: a program of our own that looks
# at data behind its signal, and, where their sources are at hand, NCCL's examples (NCCL_SOURCES, a tree of NCCL
# 2.28.9) and nccl-tests (NCCL_TESTS). None of theirs is part of this tree: they are built where they run.
# shellcheck shell=bash

gin_cases() {
	printf '%s\n' "gin vanilla 64 50" "gin vanilla 8192 50" "gin vanilla 262144 30" "gin plain 65536 30" \
		"gin 0 65536 30" "gin 512 65536 50" "gin 512 1048576 10" "gin 1024 65536 50" \
		"gin slow_sup 65536 10" "gin slow_sout 65536 10" "gin_sup_cut 65536 1000" \
		"gin_example 02_gin_alltoall_pure" "gin_example 03_gin_alltoall_hybrid" \
		"gin_alltoall_perf 3" "gin_alltoall_perf 4"
}

# The wheel's headers before the system's, which may be older, and its library by both names.
gin_nccl() {
	local wheel

	wheel=$(nccl_lib wheel)
	[ -e "${wheel%/lib}/include/nccl_device.h" ] ||
		skip "no NCCL here with headers for device-initiated communication (2.28.7 and later)"
	GIN_INCLUDE=${wheel%/lib}/include
	mkdir -p "$WORK/nccl"
	ln -sf "$wheel/libnccl.so.2" "$WORK/nccl/libnccl.so.2"
	ln -sf "$wheel/libnccl.so.2" "$WORK/nccl/libnccl.so"
}

# gin_compile OUTPUT SOURCE…: without the device headers of another kind of NIC
gin_compile() {
	[ -e "$1" ] || nvcc -std=c++17 -arch=native --expt-extended-lambda -DNCCL_GIN_GDAKI_ENABLE=0 \
		-I"$GIN_INCLUDE" "${@:3}" -o "$1" "$2" -Xlinker "$WORK/nccl/libnccl.so.2"
}

# gin_fabric MODE: share in 1024ths, vanilla, plain (no DMA-BUF), or a rail at 50 MB/s. What SUP has
# acknowledged is in memory 2 ms later.
gin_fabric() {
	local sout=0 sup=0

	case $1 in
	slow_sup) sup=50000000 ;;
	slow_sout) sout=50000000 ;;
	esac
	fabric "$RANKS_MOST" gpu=yes "sout=$sout" "sup=$sup" unseen=2000
	case $1 in
	vanilla | plain) net_vanilla ;;
	slow_*)
		policy '[policy]' 'intra = 512'
		agents
		net_advanced
		;;
	*)
		policy '[policy]' "intra = $1"
		agents
		net_advanced
		;;
	esac
	NET+=(NCCL_GIN_TYPE=2 MPIB_SPLIT_MIN=4096 CUDA_DEVICE_MAX_CONNECTIONS=32)
	if [ "$1" = plain ]; then
		NET+=(MPIB_GPUDIRECT=1 NCCL_DMABUF_ENABLE=0)
	else
		NET+=(MPIB_GPUDIRECT=-1 NCCL_DMABUF_ENABLE=1)
	fi
}

# Every rank went through this plugin's table, and none made a mistake that the fabric shows.
gin_judged() {
	local r

	finish || fail "exit statuses ${JOB_RC[*]}: $(job_tell)"
	for ((r = 0; r < JOB_RANKS; r++)); do
		grep -q "device-initiated communication: rank $r of" "$CASE/$JOB_NAME.$r.nccl" ||
			fail "rank $r has no mesh of MPIB's"
	done
	! LD_LIBRARY_PATH=$GPU_STAGE/lib "$GPU_STAGE/bin/fabricctl" show | grep mistakes ||
		fail "the fabric saw a mistake"
}

# gin MODE BYTES ROUNDS
gin() {
	local r

	gin_nccl
	gin_compile "$WORK/gin" "$GPU_TREE/tests/gpu/gin/kernel.cu" || fail "nvcc"
	gin_fabric "$1"
	launch gin "$RANKS_MOST" "$WORK/gin" RANK "$RANKS_MOST" "$CASE/gin" "$2" "$3"
	gin_judged
	for ((r = 0; r < RANKS_MOST; r++)); do
		expect_rank "$r" "rank $r: 0 words of $3 rounds"
	done
}

# gin_sup_cut BYTES ROUNDS: SUP goes in mid-run.
gin_sup_cut() {
	local k r

	gin_nccl
	gin_compile "$WORK/gin" "$GPU_TREE/tests/gpu/gin/kernel.cu" || fail "nvcc"
	gin_fabric slow_sup
	launch gin "$RANKS_MOST" "$WORK/gin" RANK "$RANKS_MOST" "$CASE/gin" "$1" "$2"
	for ((k = 0; k < 600; k++)); do
		job_log 'device-initiated communication: rank 0 of' >/dev/null && break
		sleep 0.05
	done
	sleep 1
	fabricctl port 1/sup down
	gin_judged
	for ((r = 0; r < RANKS_MOST; r++)); do
		expect_rank "$r" "rank $r: 0 words of $2 rounds"
	done
	expect_log 'SUP rail .* is lost to .* SOUT takes over'
	measured "$(job_log 'SUP rail .* is lost to' | head -n 1 | sed 's/.*MPIB : //')"
}

# gin_example NAME: they print a verdict on rank 0, and mismatches on any.
gin_example() {
	local source=${NCCL_SOURCES:-/nonexistent}/examples/06_device_api/$1/main.cu

	gin_nccl
	[ -e "$source" ] || skip "NCCL_SOURCES names no tree with examples/06_device_api/$1"
	gin_compile "$WORK/$1" "$source" -I"$NCCL_SOURCES/examples/common/include" \
		"$GPU_TREE/tests/gpu/gin/one_process.cc" || fail "nvcc"
	gin_fabric 512
	mkdir -p "$CASE/example"
	launch example "$RANKS_MOST" "$WORK/$1" RANK "$RANKS_MOST" "$CASE/example"
	gin_judged
	expect_rank 0 PASSED
	! job_log 'mismatch|FAILED' || fail "a rank has a mismatch"
}

# gin_alltoall_perf D: one process with all GPUs, which is one node of the fabric
gin_alltoall_perf() {
	gin_nccl
	[ -e "${NCCL_TESTS:-/nonexistent}/src/alltoall.cu" ] || skip "NCCL_TESTS names no tree of nccl-tests"
	if [ ! -e "$WORK/nccl-tests/alltoall_perf" ]; then
		cp -r "$NCCL_TESTS" "$WORK/nccl-tests.src"
		mkdir -p "$WORK/nccl-home"
		ln -sfn "$GIN_INCLUDE" "$WORK/nccl-home/include"
		ln -sfn "$WORK/nccl" "$WORK/nccl-home/lib"
		make -s -j -C "$WORK/nccl-tests.src/src" NVCC="nvcc -DNCCL_GIN_GDAKI_ENABLE=0" CXXSTD=-std=c++17 \
			NVCC_GENCODE=-arch=native NCCL_HOME="$WORK/nccl-home" BUILDDIR="$WORK/nccl-tests" \
			"$WORK/nccl-tests/alltoall_perf" >"$CASE/make" 2>&1 || fail "make: $(tail -n 3 "$CASE/make")"
	fi
	gin_fabric 512
	launch perf 1 "$WORK/nccl-tests/alltoall_perf" -g "$(nvidia-smi -L | wc -l)" -D "$1" -R 2 -b 8 -e 4M -f 8 -n 5 -w 1 -c 1
	gin_judged
	expect_rank 0 'Out of bounds values *: *0 OK'
}
