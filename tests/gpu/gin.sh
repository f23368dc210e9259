# SPDX-License-Identifier: Apache-2.0
# Kernels that put and signal by themselves, over the plugin's tables for it: a program of our own that looks
# at data behind its signal, and, where their sources are at hand, NCCL's examples (NCCL_SOURCES, a tree of NCCL
# 2.28.9) and nccl-tests (NCCL_TESTS). None of theirs is part of this tree: they are built where they run. NCCL_RMA is a
# folder with lib and include of an NCCL from 2.30.7 on, whose puts go by the RMA tables.
# shellcheck shell=bash

gin_cases() {
	printf '%s\n' "gin vanilla 64 50" "gin vanilla 8192 50" "gin vanilla 262144 30" "gin plain 65536 30" \
		"gin 0 65536 30" "gin 512 65536 50" "gin 512 1048576 10" "gin 1024 65536 50" \
		"gin auto 262144 30" "gin slow_sup 65536 10" "gin slow_sout 65536 10" "gin_sup_cut 65536 1000" \
		"gin_sout_cut 65536 1000" \
		"gin_example 02_gin_alltoall_pure 0" "gin_example 02_gin_alltoall_pure 512" \
		"gin_example 02_gin_alltoall_pure 1024" "gin_example 02_gin_alltoall_pure auto" \
		"gin_example 03_gin_alltoall_hybrid 512" \
		"gin_alltoall_perf 3 0" "gin_alltoall_perf 3 512" "gin_alltoall_perf 3 1024" "gin_alltoall_perf 3 auto" \
		"gin_alltoall_perf 4 512" "gin_perf_cut 3" \
		"gin_rma rma vanilla 262144 30" "gin_rma rma 512 1048576 20" "gin_rma rma 0 65536 20" \
		"gin_rma rma 1024 65536 20" "gin_rma rma auto 1048576 20" "gin_rma kernel vanilla 65536 30" \
		"gin_rma kernel 512 65536 30"
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
		-I"$GIN_INCLUDE" "${@:3}" -o "$1" "$2" -Xlinker "${GIN_LIB:-$WORK/nccl}/libnccl.so.2"
}

# A kernel that waits keeps neither copies of the fabric's nor the loading of the next kernel waiting.
GIN_ENV=(NCCL_GIN_TYPE=2 CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER)

# gin_fabric MODE: share, vanilla, plain (no DMA-BUF), or a rail at 50 MB/s. What SUP has acknowledged is in memory
# 2 ms later.
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
	NET+=("${GIN_ENV[@]}" MPIB_SPLIT_MIN=4096)
	if [ "$1" = plain ]; then
		NET+=(MPIB_GPUDIRECT=1 NCCL_DMABUF_ENABLE=0)
	else
		NET+=(MPIB_GPUDIRECT=-1 NCCL_DMABUF_ENABLE=1)
	fi
}

# gin_cut RAIL: its port of the first host goes, a second after the mesh is up.
gin_cut() {
	local k

	for ((k = 0; k < 600; k++)); do
		job_log 'device-initiated communication: rank 0 of' >/dev/null && break
		sleep 0.05
	done
	sleep 1
	LD_LIBRARY_PATH=$GPU_STAGE/lib "$GPU_STAGE/bin/fabricctl" port "1/$1" down
}

# gin_went_on LOST OTHER: the mesh did, without that rail.
gin_went_on() {
	expect_log "$1 rail .* is lost.* $2 takes over"
	measured "$(job_log "$1 rail .* is lost" | head -n 1 | sed 's/.*MPIB : //')"
}

# gin_rounds ROUNDS: no rank of our own program saw anything wrong.
gin_rounds() {
	local r

	for ((r = 0; r < RANKS_MOST; r++)); do
		expect_rank "$r" "rank $r: 0 words of $1 rounds"
	done
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
	gin_nccl
	gin_compile "$WORK/gin" "$GPU_TREE/tests/gpu/gin/kernel.cu" || fail "nvcc"
	gin_fabric "$1"
	launch gin "$RANKS_MOST" "$WORK/gin" RANK "$RANKS_MOST" "$CASE/gin" "$2" "$3"
	gin_judged
	gin_rounds "$3"
}

# gin_sup_cut BYTES ROUNDS: SUP goes in mid-run.
gin_sup_cut() {
	gin_nccl
	gin_compile "$WORK/gin" "$GPU_TREE/tests/gpu/gin/kernel.cu" || fail "nvcc"
	gin_fabric slow_sup
	launch gin "$RANKS_MOST" "$WORK/gin" RANK "$RANKS_MOST" "$CASE/gin" "$1" "$2"
	gin_cut sup
	gin_judged
	gin_rounds "$2"
	gin_went_on SUP SOUT
}

# gin_sout_cut BYTES ROUNDS: SOUT goes in mid-run, and signals take SUP.
gin_sout_cut() {
	gin_nccl
	gin_compile "$WORK/gin" "$GPU_TREE/tests/gpu/gin/kernel.cu" || fail "nvcc"
	gin_fabric slow_sup
	launch gin "$RANKS_MOST" "$WORK/gin" RANK "$RANKS_MOST" "$CASE/gin" "$1" "$2"
	gin_cut sout
	gin_judged
	gin_rounds "$2"
	gin_went_on SOUT SUP
}

# gin_rma rma|kernel MODE BYTES ROUNDS: puts from the host, or from kernels, by the RMA table.
gin_rma() {
	[ -e "${NCCL_RMA:-/nonexistent}/lib/libnccl.so.2" ] || skip "NCCL_RMA names no NCCL from 2.30.7 on"
	GIN_INCLUDE=$NCCL_RMA/include NCCL_LIB=$NCCL_RMA/lib
	GIN_LIB=$NCCL_LIB gin_compile "$WORK/rma-$1" "$GPU_TREE/tests/gpu/gin/$1.cu" || fail "nvcc"
	gin_fabric "$2"
	launch gin "$RANKS_MOST" "$WORK/rma-$1" RANK "$RANKS_MOST" "$CASE/gin" "$3" "$4"
	gin_judged
	gin_rounds "$4"
	expect_log 'RMA/Plugin: Assigned plugin MPIB'
	measured "$(job_log 'NCCL version|RMA/Plugin: Assigned plugin' | sed 's/.*NCCL INFO //' | sort -u | paste -sd';')"
}

# gin_example NAME MODE: they print a verdict on rank 0, and mismatches on any.
gin_example() {
	local source=${NCCL_SOURCES:-/nonexistent}/examples/06_device_api/$1/main.cu

	gin_nccl
	[ -e "$source" ] || skip "NCCL_SOURCES names no tree with examples/06_device_api/$1"
	gin_compile "$WORK/$1" "$source" -I"$NCCL_SOURCES/examples/common/include" \
		"$GPU_TREE/tests/gpu/gin/one_process.cc" || fail "nvcc"
	gin_fabric "$2"
	mkdir -p "$CASE/example"
	launch example "$RANKS_MOST" "$WORK/$1" RANK "$RANKS_MOST" "$CASE/example"
	gin_judged
	expect_rank 0 PASSED
	! job_log 'mismatch|FAILED' || fail "a rank has a mismatch"
}

# gin_perf_build: nccl-tests' all-to-all.
gin_perf_build() {
	gin_nccl
	[ -e "${NCCL_TESTS:-/nonexistent}/src/alltoall.cu" ] || skip "NCCL_TESTS names no tree of nccl-tests"
	[ ! -e "$WORK/nccl-tests/alltoall_perf" ] || return 0
	cp -r "$NCCL_TESTS" "$WORK/nccl-tests.src"
	mkdir -p "$WORK/nccl-home"
	ln -sfn "$GIN_INCLUDE" "$WORK/nccl-home/include"
	ln -sfn "$WORK/nccl" "$WORK/nccl-home/lib"
	make -s -j -C "$WORK/nccl-tests.src/src" NVCC="nvcc -DNCCL_GIN_GDAKI_ENABLE=0" CXXSTD=-std=c++17 \
		NVCC_GENCODE=-arch=native NCCL_HOME="$WORK/nccl-home" BUILDDIR="$WORK/nccl-tests" \
		"$WORK/nccl-tests/alltoall_perf" >"$CASE/make" 2>&1 || fail "make: $(tail -n 3 "$CASE/make")"
}

# gin_perf_launch D ITERATIONS: one process with all GPUs, which is one node of the fabric
gin_perf_launch() {
	launch perf 1 "$WORK/nccl-tests/alltoall_perf" -g "$(nvidia-smi -L | wc -l)" -D "$1" -R 2 -b 8 -e 4M -f 8 \
		-n "$2" -w 1 -c 1
}

# gin_alltoall_perf D MODE
gin_alltoall_perf() {
	gin_perf_build
	gin_fabric "$2"
	gin_perf_launch "$1" 5
	gin_judged
	expect_rank 0 'Out of bounds values *: *0 OK'
}

# gin_perf_cut D: SUP goes in mid-run.
gin_perf_cut() {
	gin_perf_build
	gin_fabric slow_sup
	gin_perf_launch "$1" 200
	gin_cut sup
	gin_judged
	expect_rank 0 'Out of bounds values *: *0 OK'
	gin_went_on SUP SOUT
}

# ---- figures: beside net_ib's proxy of it, on the same fabric in one run ------------------------

# gin_figures_ground [SOUT SUP]: a fabric of two hosts with agents, whose NICs net_ib may merge.
gin_figures_ground() {
	gin_nccl
	gin_compile "$WORK/gin-figures" "$GPU_TREE/tests/gpu/gin/figures.cu" || fail "nvcc"
	fabric 2 gpu=yes "sout=${1:-0}" "sup=${2:-0}"
	dress
	policy '[policy]' 'intra = 1:4'
	agents
	JOB_ENV+=("${GIN_ENV[@]}" MPIB_GPUDIRECT=-1 NCCL_DMABUF_ENABLE=1)
}

# gin_figure NAME latency|rate WARM: of the network in NET.
gin_figure() {
	rm -rf "${CASE:?}/$1"
	launch "$1" 2 "$WORK/gin-figures" RANK 2 "$CASE/$1" "$1" "$2" "$3"
	finish || fail "$1: exit statuses ${JOB_RC[*]}: $(job_tell)"
	grep -h '^{"net"' "$CASE/$1.0.out" | tee -a "$RESULTS/gin-$2.jsonl" >>"$CASE/figures.jsonl"
}

# gin_latency: a put with its signal, 8 B to 64 KiB, in turns.
gin_latency() {
	local turn

	gin_figures_ground
	for turn in 1 2 3 4 5 6 7; do
		net_vanilla
		gin_figure mpib latency 0
		net_advanced
		gin_figure mpib-1to4 latency 0
		net_ib_one sout
		gin_figure net_ib latency 0
	done
	python3 - "$CASE/figures.jsonl" <<-'END' >>"$CASE/measured"
		import json, sys
		from statistics import median
		rows = [json.loads(line) for line in open(sys.argv[1])]
		for size in sorted({r["bytes"] for r in rows}):
		    us = {n: median(r["us"] for r in rows if r["bytes"] == size and r["net"] == n) for n in ("mpib", "mpib-1to4", "net_ib")}
		    print(f"    {size} bytes:", ", ".join(f"{n} {t:.1f} us ({t / us['net_ib']:.3f})" for n, t in us.items()))
	END
}

# gin_rate: all-to-all on rails of 100 and 400 MB/s.
gin_rate() {
	local share rail warm

	gin_figures_ground 100000000 400000000
	net_advanced
	for share in 1:4 0 1024 auto; do
		policy '[policy]' "intra = $share"
		reload
		warm=3
		[ "$share" != auto ] || warm=100
		gin_figure "mpib-${share/:/to}" rate "$warm"
	done
	net_ib_merged
	gin_figure net_ib-merged rate 3
	for rail in sout sup; do
		net_ib_one "$rail"
		gin_figure "net_ib-$rail" rate 3
	done
	measured "$(paste -sd' ' "$CASE/figures.jsonl")"
	measured "$(grep -hi auto "$CASE/agent.1.log" | tail -n 1)"
}
