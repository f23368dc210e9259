#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How jobs are started, as docs/operators.md has it, between two nodes of the software fabric: launch.sh TREE BUILD. Its
# batch script and its prolog run under a Slurm of two nodes, its mpirun over a remote shell that passes no
# variable on; both load the module file. All of it lives in namespaces that end with it.
set -euo pipefail

tree=$1 build=$2 page=$1/docs/operators.md
for tool in srun slurmctld slurmd munged mpirun; do
	PATH=$PATH:/usr/sbin command -v $tool >/dev/null || {
		echo "skipped: $tool is not installed"
		exit 77
	}
done
modules=$(find /usr/share/modules/init/bash /usr/share/lmod/lmod/init/bash 2>/dev/null | head -n 1 || true)
[ -n "$modules" ] || {
	echo "skipped: environment-modules is not installed"
	exit 77
}
if [ "${3:-}" != inside ]; then
	if [ "$(id -u)" != 0 ] || ! unshare --net true; then
		echo "skipped: Slurm and its namespaces want root"
		exit 77
	fi
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	WORK=$work timeout -k 1 -s KILL 60 unshare --mount --pid --net --uts --fork --mount-proc --kill-child "$0" "$1" "$2" inside
	exit
fi
cd "$WORK"
chmod 755 .

die() {
	echo "$*"
	tail -v -n 20 ./*.log ./*.out
	exit 1
}

# until_true COMMAND…: within 30 s.
until_true() {
	local k

	for ((k = 0; k < 300; k++)); do
		! "$@" >/dev/null 2>&1 || return 0
		sleep 0.1
	done
	return 1
}

# block LINE: the block of the page that has the line.
block() {
	awk -v line="$1" '/^```/ { if (has) print text; text = ""; has = 0; next }
		{ text = text $0 "\n"; if (index($0, line)) has = 1 }' "$page"
}

# Node 2 is a network namespace, reached by a shell that begins with an empty environment.
network() {
	hostname node1
	ip link set lo up
	unshare --net sleep 1000 &
	other=$!
	until_true sh -c "[ \$(readlink /proc/$other/ns/net) != \$(readlink /proc/self/ns/net) ]"
	ip link add first type veth peer name second
	ip link set second netns $other
	ip addr add 10.8.0.1/24 dev first
	ip link set first up
	nsenter --net=/proc/$other/ns/net sh -c 'ip link set lo up; ip addr add 10.8.0.2/24 dev second; ip link set second up'
	printf '127.0.0.1 localhost\n10.8.0.1 node1\n10.8.0.2 node2\n' >hosts
	mount --bind hosts /etc/hosts
	cat >remote-shell <<-END
		#!/bin/sh
		shift
		exec nsenter --net=/proc/$other/ns/net env -i PATH=/usr/bin:/bin sh -c "\$*"
	END
	chmod +x remote-shell
}

# program: netperf by rank. Its settings have to come from the job.
program() {
	cat >your-program <<-END
		#!/bin/bash
		rank=\${OMPI_COMM_WORLD_RANK:-\$SLURM_PROCID}
		[ "\$NCCL_NET_PLUGIN \$MPIB_HCA_SOUT \$MPIB_HCA_SUP \$MPIB_MODE" = "mpib sout sup 1" ] || exit 9
		export MPIB_FABRIC_NODE=\$((rank + 1)) MPIB_FABRIC_DIR=$WORK/fabric MPIB_AGENT_DIR=$WORK/agent\$((rank + 1))
		ip link show second >/dev/null 2>&1 && export MPIB_OOB_IF=second || export MPIB_OOB_IF=first
		netperf="$build/tests/netperf/mpib-netperf --plugin \$NCCL_NET_PLUGIN --json"
		[ \$rank != 0 ] || exec \$netperf --listen 7000 --bind 10.8.0.1
		exec \$netperf --connect 10.8.0.1:7000 bw --size 64k --messages 200 --warmup 0 --check
	END
	chmod +x your-program
	mkdir fabric
}

agents() {
	local n

	printf '[policy]\nintra = 25%%\n' >agent.ini
	for n in 1 2; do
		mkdir -m 755 "agent$n"
		"$build/agent/mpib-agentd" --config "$WORK/agent.ini" --dir "$WORK/agent$n" 2>"agent$n.log" &
		until_true "$build/agent/mpibctl" --dir "$WORK/agent$n" status || die "no agent"
	done
}

# module_file: with the names that the page asks an operator to write into it.
module_file() {
	mkdir modules
	sed "s/^set sout .*/set sout sout/; s/^set sup .*/set sup sup/
		s|^set folder .*|set folder $build/plugin:$build/tests/fabric/lib|" "$tree/systemd/modulefile" >modules/mpib
	export MODULEPATH=$WORK/modules
	unset NCCL_NET_PLUGIN MPIB_HCA_SOUT MPIB_HCA_SUP MPIB_MODE LD_LIBRARY_PATH
	set +u
	# shellcheck source=/dev/null
	. "$modules"
	set -u
}

slurm() {
	local n

	mkdir state
	head -c 64 /dev/urandom >key
	chmod 400 key
	munged --foreground --force --key-file="$WORK/key" --socket="$WORK/munge" --pid-file="$WORK/munge.pid" \
		--log-file="$WORK/munge.log" --seed-file="$WORK/seed" --num-threads=1 2>munged.log &
	cat >slurm.conf <<-END
		ClusterName=test
		SlurmctldHost=node1(10.8.0.1)
		SlurmUser=root
		AuthType=auth/munge
		AuthInfo=socket=$WORK/munge
		CredType=cred/munge
		StateSaveLocation=$WORK/state
		SlurmdSpoolDir=$WORK/spool.%n
		SlurmctldPidFile=$WORK/slurmctld.pid
		SlurmdPidFile=$WORK/slurmd%n.pid
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		MpiDefault=none
		ReturnToService=2
		NodeName=n[1-2] NodeHostname=node1 NodeAddr=10.8.0.1 Port=[17001-17002] CPUs=2
		PartitionName=all Nodes=ALL Default=YES State=UP
	END
	export SLURM_CONF=$WORK/slurm.conf
	slurmctld -D >slurmctld.log 2>&1 &
	for n in n1 n2; do
		mkdir "spool.$n"
		slurmd -D -N $n >slurmd.$n.log 2>&1 &
	done
	until_true sh -c '[ "$(sinfo -h -o %T)" = idle ]' || die "Slurm doesn't start"
}

# right OUT WHAT: both ends, all bytes, by the agents' share.
right() {
	[ "$(grep -c '"event":"result","ok":true' "$1")" = 2 ] || die "$2: not both ends are right"
	[ "$(grep -o '"kind":"send".*"mode":"advanced".*"share":256' "$1" | wc -l)" = 1 ] || die "$2: not by the agent"
}

PATH=$WORK:$PATH:/usr/sbin
network
program
agents
module_file

slurm
block 'srun your-program' >job
grep -q '^#SBATCH --nodes=2 --ntasks-per-node=1$' job || die "the page has no batch script"
sbatch --output=batch.out --export=ALL job >sbatch.out || die "sbatch"
until_true sh -c '[ -z "$(squeue -h)" ]' || die "the batch script doesn't end"
right batch.out "the batch script"
# A node without devices keeps the job off, whatever it has.
block '# TaskProlog=' >prolog
chmod +x prolog
ln -s "$build/agent/mpibctl" mpibctl
! (module load mpib && srun --nodes=2 --task-prolog="$WORK/prolog" your-program) >prolog.out 2>&1 || die "the prolog lets it through"
[ "$(grep -c '^mpib: this node needs a person: FAIL' prolog.out)" = 2 ] && ! grep -q '"event"' prolog.out || die "the prolog"

block 'mpirun --host' >run-mpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent=$WORK/remote-shell
unset SLURM_CONF
# shellcheck source=/dev/null
(. ./run-mpi) >mpi.out 2>&1 || die "mpirun"
right mpi.out "mpirun"
sed 's/-x MPIB_MODE//' run-mpi >run-less
# shellcheck source=/dev/null
! (. ./run-less) >less.out 2>&1 && ! grep -q '"connected"' less.out || die "what isn't named is passed on"
echo "batch script, prolog, mpirun and module file ($(basename "$(dirname "$(dirname "$modules")")")) do what the page says"
