# SPDX-License-Identifier: Apache-2.0
# Jobs of NCCL ranks on the software fabric: each rank is a host of its own, with a GPU, two rails
# and an agent. Everything of a case lives in $CASE.
# shellcheck shell=bash

GPU_TREE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
GPU_STAGE=${MPIB_GPU_STAGE:-$GPU_TREE/build/gpu}
PLUGIN=$GPU_STAGE/lib/libnccl-net-mpib.so

# What makes every GPU a host of its own, in every job.
export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo NCCL_NVLS_ENABLE=0
export NCCL_NET_GDR_LEVEL=LOC

fail() {
	echo "$*" >&2
	exit 1
}

# measured TEXT: a line below the verdict.
measured() {
	echo "    $*" >>"$CASE/measured"
}

# ---- the fabric ------------------------------------------------------------------------------

# fabric HOSTS [KEY=VALUE…]: islands=2 puts the second half of the hosts into another island, which
# SUP doesn't reach unless joined=yes; sout and sup are rates in bytes a second; gpu=yes registers GPU
# memory; unseen is how many microseconds after its answer what came by SUP is in memory. MPIB_GPU_COPIERS threads of each process help the fabric to copy.
fabric() {
	local hosts=$1 n island islands=1 joined=no sout=0 sup=0 gpu=no unseen=0
	[ $# = 1 ] || local "${@:2}"

	export MPIB_FABRIC=$CASE/fabric.ini MPIB_FABRIC_DIR=$CASE/meeting
	{
		printf '[fabric]\nname = gpu\ngpu = %s\nring = 8Mi\ncopiers = %s\n' "$gpu" \
			"${MPIB_GPU_COPIERS:-0}"
		printf '[device sout]\nrate = %s\nspeed_gbps = 100\n' "$sout"
		printf '[device sup]\nrate = %s\nspeed_gbps = 400\nunseen_us = %s\n' "$sup" "$unseen"
		[ "$islands" = 1 ] || [ "$joined" = yes ] || echo "scope = island"
		for ((n = 1; n <= hosts; n++)); do
			island=$(((n - 1) * islands / hosts + 1))
			printf '[node %d]\nisland = %d\nsout.address = %s\nsup.address = 10.9.%d.%d\n' \
				"$n" "$island" "$(address "$n" "$island")" "$island" "$n"
		done
	} >"$MPIB_FABRIC"
	FABRIC_HOSTS=$hosts FABRIC_ISLANDS=$islands
}

# address HOST [ISLAND]: of the SOUT rail.
address() {
	echo "10.0.${2:-$((($1 - 1) * FABRIC_ISLANDS / FABRIC_HOSTS + 1))}.$1"
}

# ---- agents ----------------------------------------------------------------------------------

# policy LINE…: the policy of all hosts.
policy() {
	printf '%s\n' "$@" >"$CASE/agent.ini.new"
	mv "$CASE/agent.ini.new" "$CASE/agent.ini"
}

agent() {
	LD_LIBRARY_PATH=$GPU_STAGE/lib "$GPU_STAGE/bin/mpib-agentd" --config "$CASE/agent.ini" \
		--dir "$CASE/agent.$1" </dev/null 2>>"$CASE/agent.$1.log" &
	AGENTS[$1]=$!
}

mpibctl() {
	local host=$1

	shift
	LD_LIBRARY_PATH=$GPU_STAGE/lib "$GPU_STAGE/bin/mpibctl" --dir "$CASE/agent.$host" "$@"
}

agents() {
	local n k

	for ((n = 1; n <= FABRIC_HOSTS; n++)); do
		agent "$n"
	done
	for ((n = 1; n <= FABRIC_HOSTS; n++)); do
		for ((k = 0; k < 100; k++)); do
			mpibctl "$n" status >/dev/null 2>&1 && continue 2
			sleep 0.05
		done
		fail "the agent of host $n did not start: $(tail -n 2 "$CASE/agent.$n.log")"
	done
}

reload() {
	local n

	for ((n = 1; n <= FABRIC_HOSTS; n++)); do
		mpibctl "$n" reload >/dev/null || fail "host $n: mpibctl reload"
	done
}

# ---- networks --------------------------------------------------------------------------------
# Each sets NET, the environment by which a job uses that network.

MPIB_ENV=(MPIB_HCA_SOUT=sout MPIB_HCA_SUP=sup MPIB_OOB_IF=lo "NCCL_NET_PLUGIN=$PLUGIN"
	MPIB_CONNECT_TIMEOUT_SEC=30)

net_vanilla() { NET=("${MPIB_ENV[@]}" NCCL_NET=MPIB); }
net_advanced() { NET=("${MPIB_ENV[@]}" NCCL_NET=MPIB MPIB_MODE=1); }
# With the GIN type left open, NCCL 2.28.9 takes a pointer of -1 for a table where no NIC is an mlx5.
IB_ENV=(NCCL_NET_PLUGIN=none NCCL_NET=IB NCCL_GIN_TYPE=2 NCCL_IB_GID_INDEX=3)
net_ib_merged() { NET=("${IB_ENV[@]}" NCCL_IB_HCA==sout,sup NCCL_NET_FORCE_MERGE=sout,sup); }
net_ib_one() { NET=("${IB_ENV[@]}" "NCCL_IB_HCA==$1" NCCL_NET_MERGE_LEVEL=LOC); }
net_socket() { NET=(NCCL_NET_PLUGIN=none NCCL_NET=Socket); }

# dress: lets the jobs that follow see the fabric's NICs in sysfs, as two ports of a PCI function that
# this machine has: NCCL merges NICs of net_ib by their PCI places. Only the jobs' own mount namespace
# changes.
dress() {
	local device name places=()

	for device in /sys/bus/pci/devices/*; do
		case $(cat "$device/class") in
		0x03* | 0x06*) ;; # GPUs and bridges
		*) places+=("$(readlink -f "$device")") ;;
		esac
	done
	[ ${#places[@]} -gt 0 ] || skip "no PCI device whose place the NICs could take"
	mkdir -p "$CASE/class"
	cp -a /sys/class/. "$CASE/class/" 2>/dev/null || true # some files there are not for reading
	for name in sout sup; do
		mkdir -p "$CASE/class/infiniband/$name"
		ln -s "${places[-1]}" "$CASE/class/infiniband/$name/device"
	done
	# shellcheck disable=SC2016 # its own words
	DRESS=(unshare --mount bash -c 'mount --bind "$0" /sys/class && exec "$@"' "$CASE/class")
	measured "place of SOUT and SUP: ${places[-1]##*/}"
}

# ---- jobs ------------------------------------------------------------------------------------

# launch NAME RANKS COMMAND [ARGUMENT…]: starts the ranks; RANK, WORLD and FOLDER among the words
# stand for theirs. Logs: $CASE/NAME.RANK.out, NCCL's $CASE/NAME.RANK.nccl. JOB_ENV adds variables.
launch() {
	local name=$1 ranks=$2 r folder

	shift 2
	folder=$CASE/$name
	mkdir -p "$folder"
	JOB=() JOB_NAME=$name JOB_RANKS=$ranks
	for ((r = 0; r < ranks; r++)); do
		env "LD_LIBRARY_PATH=$GPU_STAGE/lib:$NCCL_LIB${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
			"NCCL_DEBUG=${NCCL_DEBUG:-INFO}" NCCL_DEBUG_SUBSYS=INIT,NET,ENV,GRAPH \
			"NCCL_DEBUG_FILE=$folder.$r.nccl" "NCCL_HOSTID=host$r" \
			"MPIB_FABRIC_NODE=$((r + 1))" "MPIB_AGENT_DIR=$CASE/agent.$((r + 1))" \
			"${NET[@]}" "${JOB_ENV[@]}" "${DRESS[@]}" setpriv --pdeathsig KILL \
			timeout -k 5 "${JOB_SECONDS:-120}" \
			"${@/#RANK/$r}" </dev/null >"$folder.$r.out" 2>&1 &
		JOB+=($!)
	done
}

# rank_job NAME RANKS TEST [ARGUMENT…]: launches ranks of our own program.
rank_job() {
	local name=$1 ranks=$2

	shift 2
	launch "$name" "$ranks" "$CASE/../rank" RANK "$ranks" "$CASE/$name" "$@"
}

# finish: waits for the job; JOB_RC has the exit statuses. False if one isn't 0.
finish() {
	local r good=0

	JOB_RC=()
	for ((r = 0; r < JOB_RANKS; r++)); do
		wait "${JOB[$r]}" && JOB_RC[r]=0 || JOB_RC[r]=$?
		[ "${JOB_RC[$r]}" = 0 ] || good=1
	done
	return $good
}

# run_job NAME RANKS TEST [ARGUMENT…]: must end with every result right.
run_job() {
	rank_job "$@"
	finish || fail "$1: exit statuses ${JOB_RC[*]}: $(job_tell)"
}

# job_tell: the last words of a job.
job_tell() {
	grep -hE 'WARN|WRONG|error|Error|rank [0-9]+:' "$CASE/$JOB_NAME".*.out "$CASE/$JOB_NAME".*.nccl |
		tail -n 12
}

# job_log PATTERN: the lines of NCCL's logs that match, of all ranks.
job_log() {
	grep -hE -- "$1" "$CASE/$JOB_NAME".*.nccl "$CASE/$JOB_NAME".*.out
}

expect_log() {
	job_log "$1" >/dev/null || fail "no line in the logs matches: $1"
}

# expect_rank RANK PATTERN: what the rank printed.
expect_rank() {
	grep -qE -- "$2" "$CASE/$JOB_NAME.$1.out" || fail "rank $1 printed no line like: $2"
}

# sends RANK: a line for each of its sending connections that carried data: peer, path, share, bytes
# of SOUT and SUP.
sends() {
	python3 - "$CASE/$JOB_NAME.$1.out" <<-'END'
		import json, sys
		for line in open(sys.argv[1]):
		    if line.startswith('{"rank"'):
		        for c in json.loads(line)["connections"]:
		            b = [rail["bytes"] for rail in c["rails"]]
		            if c["kind"] == "send" and sum(b):
		                print(c["sout_remote"], c["path"], c["share"], *b)
	END
}

# until_progress COUNT: waits until rank 0 of a stream has done so many.
until_progress() {
	local k

	for ((k = 0; k < 600; k++)); do
		[ "$(progress)" -ge "$1" ] && return
		kill -0 "${JOB[0]}" 2>/dev/null || fail "$JOB_NAME ended early: $(job_tell)"
		sleep 0.05
	done
	fail "$JOB_NAME: $(progress) of $1 after 30 s"
}

progress() {
	sed -n 's/^rank 0: \([0-9]*\) done$/\1/p;s/^step \([0-9]*\) .*/\1/p' "$CASE/$JOB_NAME.0.out" |
		tail -n 1 | grep . || echo 0
}
