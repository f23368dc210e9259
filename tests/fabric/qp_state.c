/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of RC QPs: which attributes each transition needs and allows, as the kernel's
 * table has them, and what entering a state does. */
#include "tests/fabric/link.h"

#include <errno.h>
#include <string.h>

#define INIT_NEEDS (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_NEEDS                                                                                  \
	(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                           \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTR_MAY (IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX)
#define RTS_NEEDS                                                                                  \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |                    \
	 IBV_QP_MAX_QP_RD_ATOMIC)
#define RTS_MAY                                                                                    \
	(IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |         \
	 IBV_QP_PATH_MIG_STATE)
#define SQD_MAY                                                                                    \
	(IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |          \
	 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |                   \
	 IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE)

struct step {
	enum ibv_qp_state from, to;
	int needs, may;
};

/* Any state may go to RESET as well, and any but RESET to ERR. */
static const struct step steps[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, INIT_NEEDS, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, INIT_NEEDS },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RTR_NEEDS, RTR_MAY },
	{ IBV_QPS_RTR, IBV_QPS_RTS, RTS_NEEDS, RTS_MAY },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0, RTS_MAY },
	{ IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_SQD, IBV_QPS_RTS, 0, RTS_MAY },
	{ IBV_QPS_SQD, IBV_QPS_SQD, 0, SQD_MAY },
};

static bool step_fits(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return !(mask & ~IBV_QP_STATE) && (from != IBV_QPS_RESET || to == from);
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(steps); k++) {
		const struct step *s = &steps[k];

		if (s->from == from && s->to == to)
			return (mask & s->needs) == s->needs &&
			       !(mask & ~(s->needs | s->may | IBV_QP_STATE));
	}
	return false;
}

static bool path_fits(const struct fab_qp *qp, const struct ibv_ah_attr *ah)
{
	bool infiniband = fab_dev_conf(qp->dev)->infiniband;
	struct fab_gid gid;

	if (ah->port_num != 1)
		return false;
	if (infiniband && (!ah->dlid || ah->dlid >= FAB_LID_MULTICAST))
		return false;
	if (!ah->is_global) /* RoCE has no other way */
		return infiniband;
	if (ah->grh.sgid_index >= FAB_GIDS_MAX)
		return false;
	fab_state_gid_get(fab_dev_state(qp->dev), ah->grh.sgid_index, &gid);
	return gid.type != FAB_GID_NONE;
}

static bool values_fit(const struct fab_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const struct fab_dev_conf *conf = fab_dev_conf(qp->dev);

	if ((mask & IBV_QP_PORT) && attr->port_num != 1)
		return false;
	if ((mask & IBV_QP_PKEY_INDEX) &&
	    (attr->pkey_index >= conf->pkeys || !(conf->pkey[attr->pkey_index] & 0x7fff)))
		return false;
	if ((mask & IBV_QP_AV) && !path_fits(qp, &attr->ah_attr))
		return false;
	if ((mask & IBV_QP_PATH_MTU) &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096 ||
	     128U << attr->path_mtu > conf->mtu))
		return false;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > conf->max_rd_atomic)
		return false;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > conf->max_rd_atomic)
		return false;
	return !((mask & IBV_QP_TIMEOUT) && attr->timeout > 31) &&
	       !((mask & IBV_QP_RETRY_CNT) && attr->retry_cnt > 7) &&
	       !((mask & IBV_QP_RNR_RETRY) && attr->rnr_retry > 7) &&
	       !((mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31);
}

static void store(struct fab_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *to = &qp->attr;

	if (mask & IBV_QP_ACCESS_FLAGS)
		to->qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = attr->pkey_index;
	if (mask & IBV_QP_PORT)
		to->port_num = attr->port_num;
	if (mask & IBV_QP_AV)
		to->ah_attr = attr->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = attr->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		to->dest_qp_num = attr->dest_qp_num & 0xffffff;
	if (mask & IBV_QP_RQ_PSN)
		to->rq_psn = attr->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		to->sq_psn = attr->sq_psn & 0xffffff;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = attr->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		to->retry_cnt = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		to->rnr_retry = attr->rnr_retry;
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		to->en_sqd_async_notify = attr->en_sqd_async_notify;
	qp->retries = to->retry_cnt;
	qp->rnr_retries = to->rnr_retry;
}

void fab_qp_set_state(struct fab_qp *qp, enum ibv_qp_state state)
{
	atomic_store(&qp->state, state);
	if (state == IBV_QPS_ERR || state == IBV_QPS_RTS)
		fab_engine_activate(qp); /* to flush, or to go on */
}

/* Ends everything that is under way with a flush status, oldest first. */
void fab_qp_flush(struct fab_qp *qp)
{
	struct fab_cqe cqe = { .qp = qp,
			       .solicited = true,
			       .wc = { .status = IBV_WC_WR_FLUSH_ERR, .qp_num = qp->qp.qp_num } };
	struct fab_cq *send_cq = (struct fab_cq *)qp->qp.send_cq;
	struct fab_cq *recv_cq = (struct fab_cq *)qp->qp.recv_cq;

	cqe.kind = FAB_CQE_SEND;
	while (qp->sq_una < atomic_load(&qp->sq_head)) {
		cqe.wc.wr_id = qp->sq[qp->sq_una % qp->sq_max].wr_id;
		cqe.sq_end = ++qp->sq_una;
		fab_cq_complete(send_cq, &cqe);
	}
	qp->sq_tx = qp->sq_una;
	qp->sq_tx_off = 0;
	cqe.kind = FAB_CQE_RECV;
	cqe.rq = qp->use_rq;
	cqe.wc.opcode = IBV_WC_RECV;
	if (qp->cur_valid) {
		qp->cur_valid = false;
		cqe.wc.wr_id = qp->cur.wr_id;
		fab_cq_complete(recv_cq, &cqe);
	}
	if (qp->qp.srq)
		return;
	while (fab_rq_take(qp, &qp->cur, qp->cur_sge)) {
		cqe.wc.wr_id = qp->cur.wr_id;
		fab_cq_complete(recv_cq, &cqe);
	}
}

void fab_qp_to_error(struct fab_qp *qp)
{
	bool was = atomic_load(&qp->state) == IBV_QPS_ERR;

	if (qp->waiting)
		TAILQ_REMOVE(&fab.waiting, qp, wait_node);
	qp->waiting = false;
	qp->wait = FAB_WAIT_NONE;
	fab_qp_set_state(qp, IBV_QPS_ERR);
	fab_qp_flush(qp);
	if (!was && qp->qp.srq)
		fab_event_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

static int modify(struct fab_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = (enum ibv_qp_state)atomic_load(&qp->state);
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;

	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from)
		return EINVAL;
	if (!step_fits(from, to, mask) || !values_fit(qp, attr, mask))
		return EINVAL;
	if ((mask & IBV_QP_AV) && fab_out_of_scope(qp->dev, &attr->ah_attr))
		return ENETUNREACH;
	store(qp, attr, mask);
	if (mask & IBV_QP_AV)
		qp->link = NULL;
	switch (to) {
	case IBV_QPS_RESET:
		fab_qp_reset(qp);
		fab_qp_set_state(qp, to);
		break;
	case IBV_QPS_ERR:
		fab_qp_to_error(qp);
		break;
	case IBV_QPS_SQD:
		fab_qp_set_state(qp, to);
		if (from == IBV_QPS_RTS)
			fab_requester_drain(qp);
		break;
	default:
		qp->draining = false;
		qp->held_ns = fab_now();
		fab_qp_set_state(qp, to);
		break;
	}
	qp->qp.state = to;
	if (to == IBV_QPS_RTS && from == IBV_QPS_RTR)
		fab_trace_qp(qp);
	return 0;
}

FAB_EXPORT int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct fab_qp *qp = mpib_container_of(ibqp, struct fab_qp, qp);
	int err = fab_fault(qp->dev, FAB_VERB_MODIFY_QP);

	if (err)
		return err;
	fab_engine_lock();
	err = modify(qp, attr, mask);
	fab_engine_unlock();
	if (!err && atomic_load(&qp->state) == IBV_QPS_RTS)
		fab_engine_try();
	return err;
}
