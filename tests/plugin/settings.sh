#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Settings that are wrong, or differ between the two ends: one line that names variable, value and
# cause, within seconds. usage: settings.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

# refused TEXT: the connecting side's init fails, with this one warning
refused() {
	start_listener
	run_pair verify --sizes 8 --timeout 10
	[ "$connector_rc" = 1 ] || die "init was not refused"
	warned connector 1 'NET/MPIB'
	warned connector 1 "$1"
}

# differ TEXT OPTION=VALUE: set on the connecting side alone; both ends name both values
differ() {
	local before
	start_listener
	before=$(now_ms)
	export "$2"
	run_pair verify --sizes 4096 --comms 1 --no-both
	export -n "${2%%=*}"
	unset "${2%%=*}"
	want 1 1
	[ $(($(now_ms) - before)) -lt 20000 ] || die "it took $(($(now_ms) - before)) ms"
	grep -q "$1" "$work/listener.err" || die "the listener doesn't say '$1'"
	grep -q "$1" "$work/connector.err" || die "the connector doesn't say '$1'"
}

case $name in
hca-unknown) # C03: the names that exist are listed
	export MPIB_HCA_SUP=mlx5_7
	refused 'MPIB_HCA_SUP=mlx5_7: no such RDMA device; there are: sout, sup'
	;;
hca-unset)
	unset MPIB_HCA_SOUT
	refused 'MPIB_HCA_SOUT is not set.*there are: sout, sup'
	;;
hca-forbidden) # C03: the true cause, and no other device instead
	"$FABRICCTL" fail 2/sout open_device EACCES 1 || die fabricctl
	refused 'MPIB_HCA_SOUT=sout can.t be opened: Permission denied'
	;;
hca-counts)
	export MPIB_HCA_SOUT=sout,sout
	refused 'MPIB_HCA_SOUT names 2 devices and MPIB_HCA_SUP 1'
	;;
port-down)
	"$FABRICCTL" port 2/sup down || die fabricctl
	refused 'MPIB_HCA_SUP=sup:1: the port is down'
	;;
oob-unknown) # known at listen only
	export MPIB_OOB_IF=nosuch0
	start_listener
	run_pair verify --sizes 8
	[ "$listener_rc" = 1 ] || die "an unknown interface is taken"
	grep -q 'MPIB_OOB_IF=nosuch0: no such interface.* lo' "$work"/*.err || die "no line names it"
	;;
number-wrong)
	export MPIB_ISLAND_PREFIX_LEN=33
	refused 'MPIB_ISLAND_PREFIX_LEN=33: must be a number from 0 to 32'
	;;
number-strict) # P05: quoted, with its bytes made printable
	export MPIB_IB_SL=$'1\e[31m'
	refused 'MPIB_IB_SL=1\\x1b\[31m: must be a number from 0 to 15'
	;;
nccl-number-wrong) # a value of NCCL's that MPIB would use
	export NCCL_IB_RETRY_CNT=9
	refused 'NCCL_IB_RETRY_CNT=9: must be a number from 0 to 7 .*set MPIB_IB_RETRY_CNT'
	;;
same-port) # P05: one port in two spellings
	export MPIB_MODE=1 MPIB_HCA_SUP=sout:1
	refused 'MPIB_HCA_SOUT and MPIB_HCA_SUP both name port sout:1: MPIB_MODE=1'
	;;
name-unknown) # P05: one warning, and the job runs
	export MPIB_SPLITMIN=1
	start_listener
	run_pair verify --sizes 4096 --comms 1
	want 0 0
	warned connector 1 'MPIB_SPLITMIN is no setting of MPIB .*did you mean MPIB_SPLIT_MIN?'
	;;
nccl-settings) # used where MPIB's own are unset, and told with both names
	export NCCL_IB_TC=96 NCCL_IB_QPS_PER_CONNECTION=3 MPIB_SUP_QP=5 NCCL_IB_HCA=mlx5
	start_listener
	run_pair --log info verify --sizes 4096 --comms 1
	want 0 0
	warned connector 1 'QPs SOUT 3 SUP 5, .*TC 96'
	warned connector 1 "from NCCL's settings:.* NCCL_IB_QPS_PER_CONNECTION=3 (MPIB_SOUT_QP)"
	warned connector 1 "from NCCL's settings:.* NCCL_IB_TC=96 (MPIB_IB_TC)"
	warned connector 1 'set for NCCL and not used by MPIB (see mpib(7)): NCCL_IB_HCA'
	;;
agent-absent) # advanced mode without an agent: one line, with the cure
	export MPIB_MODE=1
	refused 'MPIB_MODE=1 needs mpib-agentd.*MPIB_AGENT_OPTIONAL=1'
	;;
agent-optional) # the vanilla policy until one appears
	export MPIB_MODE=1 MPIB_AGENT_OPTIONAL=1
	start_listener
	run_pair verify --sizes 4096,65536
	want 0 0
	hold connector 'all(e["share"] == 1024 for e in c if e["kind"] == "send")'
	warned connector 1 'vanilla policy until one appears'
	;;
prefix-differs) # C16
	differ 'MPIB_ISLAND_PREFIX_LEN differs: 24 on the accepting side, 16 on' MPIB_ISLAND_PREFIX_LEN=16
	;;
mode-differs)
	export MPIB_AGENT_OPTIONAL=1
	differ 'MPIB_MODE differs: 0 on the accepting side, 1 on' MPIB_MODE=1
	;;
qps-differ)
	differ 'MPIB_SUP_QP differs: 4 on the accepting side, 9 on' MPIB_SUP_QP=9
	;;
wire-version) # C16: the two bytes behind the magic of the handle
	version=$(sed -n 's/^#define MPIB_WIRE_VERSION //p' "$(dirname "$0")/../../common/versions.h")
	start_listener
	before=$(now_ms)
	run_pair --handle-override 0700@4 verify --sizes 4096 --no-both
	want 1 1
	[ $(($(now_ms) - before)) -lt 20000 ] || die "it took $(($(now_ms) - before)) ms"
	text="wire version differs: 7 on the accepting side, $version on the connecting side"
	grep -q "$text" "$work/connector.err" || die "the connector doesn't say it"
	grep -q "$text" "$work/listener.err" || die "the listener doesn't say it"
	;;
handle-garbage)
	start_listener
	run_pair --handle-override 00000000@0 verify --sizes 4096 --no-both
	[ "$connector_rc" = 1 ] || die "a handle of nobody's is taken"
	warned connector 1 "isn't MPIB's"
	;;
libibverbs-absent) # a container without it: one line that says what to install
	mkdir "$work/empty"
	echo 'no library' >"$work/empty/libibverbs.so.1"
	start_listener
	LD_LIBRARY_PATH=$work/empty run_pair verify --sizes 8 --timeout 10
	[ "$connector_rc" = 1 ] || die "init was not refused"
	warned connector 1 'NET/MPIB'
	warned connector 1 "libibverbs can't be loaded (.*): install rdma-core's libibverbs"
	;;
memlock) # X7: one line with the limit of this process
	start_listener
	"$FABRICCTL" fail 2/sup reg_mr ENOMEM 1 || die fabricctl
	(
		ulimit -S -l 64 || exit 1
		MPIB_FABRIC_NODE=2 "$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$port" --json \
			verify --sizes 4096 --comms 1 --no-both >"$work/connector" 2>"$work/connector.err"
	)
	[ $? = 1 ] || die "the connecting side is well"
	warned connector 1 'this process may lock 64 KiB: raise it (ulimit -l unlimited'
	warned connector 1 'NET/MPIB'
	;;
settings-are-told) # at INFO, once: every setting in force, and which came from the environment
	export MPIB_SUP_QP=3 MPIB_IB_TC=96
	start_listener
	run_pair --log info verify --sizes 4096 --comms 2
	want 0 0
	warned connector 1 'mode vanilla, island prefix /24, QPs SOUT 2 SUP 3, .*TC 96'
	warned connector 1 'from the environment:.* MPIB_SUP_QP=3 .*MPIB_IB_TC=96'
	warned connector 1 'by default:.* MPIB_SOUT_QP=2 .*MPIB_IB_TIMEOUT=18'
	warned connector 1 'SOUT sout:1: GID 3 10.0.1.2, MTU 4096, [0-9]* Mbit/s'
	warned connector 1 'SUP sup:1: GID 3 10.9.1.2, MTU 4096, [0-9]* Mbit/s'
	warned connector 1 'sout+sup: .*GPU memory'
	text='send to 10.0.1.1 pid .*: intra-island, vanilla; QPs SOUT 2 SUP 3; all on SUP'
	warned connector 2 "$text"
	;;
*)
	die "no such case"
	;;
esac
