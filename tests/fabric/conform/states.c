/* SPDX-License-Identifier: Apache-2.0 */
/* Objects and the QP state machine: what is refused, and with which error. */
#include "tests/fabric/conform/conform.h"

#include <errno.h>
#include <stdlib.h>

static int set_state(struct pair *p, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(p->qp, &attr, IBV_QP_STATE);
}

static void check_memory(struct side *s)
{
	struct ibv_mr *mr;
	char *buf = malloc(4096);

	if (!buf)
		die("malloc");
	errno = 0;
	mr = ibv_reg_mr(s->pd, buf, 4096, IBV_ACCESS_REMOTE_WRITE);
	expect_errno(s, "mr.remote_write_needs_local_write", mr ? 0 : errno, EINVAL);
	errno = 0;
	mr = ibv_reg_mr(s->pd, (void *)(uintptr_t)0x10000, 4096, IBV_ACCESS_LOCAL_WRITE);
	expect_errno(s, "mr.unmapped_memory", mr ? 0 : errno, EFAULT);
	mr = ibv_reg_mr(s->pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	if (!mr)
		die("ibv_reg_mr");
	expect_errno(s, "pd.in_use", ibv_dealloc_pd(s->pd), EBUSY);
	expect_int(s, "mr.dereg", ibv_dereg_mr(mr), 0);
	free(buf);
}

static void check_refusals(struct side *s, struct pair *p)
{
	struct pair_options usual = { 0 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	p->peer = p->mine; /* a QP may be its own peer */
	expect_str(s, "qp.born_in_reset", state_of(p) == IBV_QPS_RESET ? "yes" : "no", "yes");
	expect_errno(s, "qp.reset_to_rtr", to_rtr(p), EINVAL);
	expect_errno(s, "qp.reset_to_rts", to_rts(p, &usual), EINVAL);
	expect_errno(s, "qp.init_without_port",
		     ibv_modify_qp(p->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX), EINVAL);
	attr.port_num = 9;
	expect_errno(
		s, "qp.init_with_wrong_port",
		ibv_modify_qp(p->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		EINVAL);
	expect_errno(s, "qp.reset_to_init", to_init(p, 0), 0);
	expect_errno(s, "qp.init_to_rts", to_rts(p, &usual), EINVAL);
	expect_errno(s, "qp.init_to_rtr_bare", set_state(p, IBV_QPS_RTR), EINVAL);
	expect_errno(s, "qp.init_to_rtr", to_rtr(p), 0);
	expect_errno(s, "qp.rtr_to_init", to_init(p, 0), EINVAL);
	expect_errno(s, "qp.rtr_to_rts_bare", set_state(p, IBV_QPS_RTS), EINVAL);
	expect_errno(s, "qp.rtr_to_rts", to_rts(p, &usual), 0);
	expect_errno(s, "qp.rts_to_rtr", to_rtr(p), EINVAL);
}

static void check_query(struct side *s, struct pair *p)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(p->qp, &attr,
			 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU,
			 &init))
		die("ibv_query_qp");
	expect_int(s, "query_qp.timeout", attr.timeout, 18);
	expect_int(s, "query_qp.retry_cnt", attr.retry_cnt, 6);
	expect_int(s, "query_qp.rnr_retry", attr.rnr_retry, 7);
	expect_int(s, "query_qp.dest_qp_num", attr.dest_qp_num == p->peer.qpn, 1);
	expect_int(s, "query_qp.sq_psn", attr.sq_psn == p->mine.psn, 1);
	expect_int(s, "query_qp.path_mtu", attr.path_mtu == s->mtu, 1);
	expect_int(s, "query_qp.max_send_wr_at_least", init.cap.max_send_wr >= 256, 1);
}

void check_states(struct side *s)
{
	struct pair_options options = { .no_connect = true };
	struct pair p;

	check_memory(s);
	pair_open(s, &p, &options);
	check_refusals(s, &p);
	check_query(s, &p);
	expect_errno(s, "cq.in_use", ibv_destroy_cq(p.send_cq), EBUSY);
	expect_errno(s, "qp.rts_to_err", set_state(&p, IBV_QPS_ERR), 0);
	expect_state(s, "qp.in_err", &p, IBV_QPS_ERR);
	expect_errno(s, "qp.err_to_rts", to_rts(&p, &options), EINVAL);
	expect_errno(s, "qp.err_to_reset", set_state(&p, IBV_QPS_RESET), 0);
	expect_errno(s, "qp.used_again", to_init(&p, 0), 0);
	pair_close(&p);
}
