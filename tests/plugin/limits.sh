#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A device at its limits, and over them: one line says what ran out, how much there is and what to do; the
# peer is told; nothing is lost of what there is, and there is room again once something goes.
# usage: limits.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

# fabric_of LINE...: the lines are about node 1, as sup.max_qp = 8
fabric_of() {
	{
		printf '[fabric]\nname = limits\n[device sout]\n[device sup]\n'
		for node in 2 1; do
			printf '[node %s]\nsout.address = 10.0.1.%s\nsup.address = 10.9.1.%s\n' $node $node $node
		done
		printf '%s\n' "$@"
	} >"$work/fabric.ini"
	export MPIB_FABRIC=$work/fabric.ini
}

# full FIT TEXT
full() {
	"$LIMITS" "$1" "$2" >"$work/out" 2>&1 || die "limits exits with $?"
	cat "$work/out"
}

case $name in
queue-pairs)
	fabric_of 'sup.max_qp = 8'
	full 2 'the device has 8 for the whole host (max_qp, "rdma resource show"): use fewer channels (NCCL_MAX_CTAS) or ranks, or a lower MPIB_SUP_QP'
	;;
queue-pairs-einval) # as rxe says it: and it is no argument of NCCL's
	fabric_of 'sup.max_qp = 11' 'sup.limit_errno = 22'
	full 2 'Invalid argument; the device has 11 for the whole host (max_qp, '
	;;
queue-pairs-eagain) # as a control group says it, on the other rail
	fabric_of 'sout.max_qp = 3' 'sout.limit_errno = 11'
	full 1 'or its control group fewer (max_qp, "rdma resource show"): use fewer channels (NCCL_MAX_CTAS) or ranks, or a lower MPIB_SOUT_QP'
	;;
completion-queues)
	fabric_of 'sup.max_cq = 2'
	full 2 'the device has 2 for the whole host (max_cq, '
	;;
registrations) # rings and buffers
	fabric_of 'sup.max_mr = 4'
	full 2 'the device has 4 for the whole host (max_mr, "rdma resource show"): use fewer channels (NCCL_MAX_CTAS), ranks or buffers (NCCL_LOCAL_REGISTER)'
	;;
buffers) # one that can't be registered ends no connection
	fabric_of 'sup.max_mr = 3'
	full buffers 'the device has 3 for the whole host (max_mr, '
	;;
shared-queues) # one a process: others of the host hold them
	fabric_of 'sup.max_srq = 1' 'sup.max_srq_wr = 300'
	start_listener
	start_connector verify --sizes 4096 --comms 1 --no-both
	finish
	want 0 0
	"$FABRICCTL" fail 1/sup create_srq ENOMEM 1 || die fabricctl
	start_listener
	run_pair verify --sizes 4096 --comms 1 --no-both
	[ "$connector_rc" = 1 ] && [ "$listener_rc" = 1 ] || die "exits with $connector_rc, $listener_rc"
	for side in connector listener; do
		warned $side 1 'the device has 1 for the whole host (max_srq, "rdma resource show"): use fewer ranks'
	done
	start_listener
	run_pair verify --sizes 4096 --comms 1 --no-both
	want 0 0
	;;
all-at-once) # the least of everything that one connection needs
	fabric_of {sout,sup}.max_{srq,srq_wr,sge,cq}' = 1' {sout,sup}.max_qp_wr' = 328' \
		sout.max_qp' = 2' sup.max_qp' = 4' {sout,sup}.max_cqe' = 776' \
		{sout,sup}.max_mr' = 4'
	start_listener
	run_pair verify --sizes 0,1,127,4096,100000 --comms 1 --no-both --messages 40
	want 0 0
	;;
below) # one less of each: refused at init
	while read -r line said; do
		fabric_of "$line"
		full refused "($said name another device"
	done <<-'END'
		sup.max_srq=0 max_srq), MPIB needs 1:
		sup.max_qp=3 max_qp), MPIB needs 4: lower MPIB_SUP_QP, or
		sout.max_qp=1 max_qp), MPIB needs 2: lower MPIB_SOUT_QP, or
		sup.max_qp_wr=327 max_qp_wr), MPIB needs 328:
		sup.max_cqe=775 max_cqe), MPIB needs 776: set MPIB_FAILOVER=0, or
		sup.max_mr=1 max_mr), MPIB needs 2:
	END
	;;
*)
	die "no such case"
	;;
esac
