/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs: birth, death and questions. State changes are in qp_state.c. */
#include "tests/fabric/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEND_OPS                                                                                   \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |    \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                                 \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

static int check_init(const struct fab_dev_conf *conf, const struct ibv_context *context,
		      const struct ibv_qp_init_attr_ex *attr)
{
	if (attr->qp_type != IBV_QPT_RC)
		return EOPNOTSUPP;
	if (!attr->send_cq || !attr->recv_cq || attr->cap.max_send_wr > conf->max_qp_wr ||
	    attr->cap.max_recv_wr > conf->max_qp_wr || attr->cap.max_send_sge > conf->max_sge ||
	    attr->cap.max_recv_sge > conf->max_sge || attr->cap.max_inline_data > conf->max_inline)
		return EINVAL;
	/* The kernel looks the handles up among those of the device's own context. */
	if (attr->pd->context != context || attr->send_cq->context != context ||
	    attr->recv_cq->context != context || (attr->srq && attr->srq->context != context))
		return EINVAL;
	return (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
			       (attr->send_ops_flags & ~(uint64_t)SEND_OPS)
		       ? EOPNOTSUPP
		       : 0;
}

/* What a QP gets where @wanted is asked for. */
static uint32_t granted_inline(const struct fab_dev_conf *conf, uint32_t wanted)
{
	uint32_t bytes = (wanted + conf->inline_step - 1) / conf->inline_step * conf->inline_step;

	return bytes < conf->max_inline ? bytes : conf->max_inline;
}

static int sq_init(struct fab_qp *qp, const struct ibv_qp_cap *cap)
{
	uint32_t sges = cap->max_send_sge ? cap->max_send_sge : 1;

	qp->sq_max = cap->max_send_wr ? cap->max_send_wr : 1;
	qp->sq = calloc(qp->sq_max, sizeof(*qp->sq));
	qp->sq_sge = calloc((size_t)qp->sq_max * sges, sizeof(*qp->sq_sge));
	qp->sq_inline = calloc((size_t)qp->sq_max, cap->max_inline_data + 1);
	if (!qp->sq || !qp->sq_sge || !qp->sq_inline)
		return -ENOMEM;
	for (uint32_t k = 0; k < qp->sq_max; k++) {
		qp->sq[k].sge = qp->sq_sge + (size_t)k * sges;
		qp->sq[k].inline_data = qp->sq_inline + (size_t)k * (cap->max_inline_data + 1);
	}
	return 0;
}

static void qp_free(struct fab_qp *qp)
{
	fab_rq_fini(&qp->rq);
	(void)pthread_mutex_destroy(&qp->sq_lock);
	(void)pthread_mutex_destroy(&qp->qp.mutex);
	(void)pthread_cond_destroy(&qp->qp.cond);
	free(qp->sq);
	free(qp->sq_sge);
	free(qp->sq_inline);
	free(qp);
}

/* Gives the QP a number that wasn't used for as long as possible. Engine lock. */
static int number_qp(struct fab_qp *qp)
{
	int err = fab.qp_count >= FAB_QP_INDEXES ? ENOMEM
						 : fab_object_take(qp->qp.context, FAB_OBJECT_QP);

	if (err)
		return -err;
	while (fab.qps[fab.qp_next % FAB_QP_INDEXES])
		fab.qp_next++;
	qp->index = fab.qp_next++ % FAB_QP_INDEXES;
	qp->qp.qp_num = fab.meeting.slot << FAB_QPN_BITS | qp->index;
	qp->qp.handle = qp->qp.qp_num;
	fab.qps[qp->index] = qp;
	fab.qp_count++;
	return 0;
}

static struct fab_qp *qp_new(struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr)
{
	struct fab_qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	(void)pthread_mutex_init(&qp->qp.mutex, NULL);
	(void)pthread_cond_init(&qp->qp.cond, NULL);
	(void)pthread_mutex_init(&qp->sq_lock, NULL);
	TAILQ_INIT(&qp->held);
	qp->qp.context = context;
	qp->qp.qp_context = attr->qp_context;
	qp->qp.pd = attr->pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.srq = attr->srq;
	qp->qp.qp_type = attr->qp_type;
	qp->qp.state = IBV_QPS_RESET;
	qp->dev = fab_context_of(context)->dev;
	qp->sq_sig_all = attr->sq_sig_all;
	qp->sq_error_at = FAB_NEVER;
	memcpy(&qp->init, attr, sizeof(qp->init));
	qp->use_rq = attr->srq ? &mpib_container_of(attr->srq, struct fab_srq, srq)->rq : &qp->rq;
	if (fab_rq_init(&qp->rq, attr->srq ? 0 : attr->cap.max_recv_wr, attr->cap.max_recv_sge) <
		    0 ||
	    sq_init(qp, &attr->cap) < 0) {
		qp_free(qp);
		return NULL;
	}
	return qp;
}

static void count_uses(struct fab_qp *qp, int by)
{
	struct fab_pd *pd = mpib_container_of(qp->qp.pd, struct fab_pd, pd);

	atomic_fetch_add(&pd->objects, (uint32_t)by);
	atomic_fetch_add(&((struct fab_cq *)qp->qp.send_cq)->qps, (uint32_t)by);
	atomic_fetch_add(&((struct fab_cq *)qp->qp.recv_cq)->qps, (uint32_t)by);
	if (qp->qp.srq)
		atomic_fetch_add(&mpib_container_of(qp->qp.srq, struct fab_srq, srq)->qps,
				 (uint32_t)by);
}

struct ibv_qp *fab_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const struct fab_dev_conf *conf = fab_dev_conf(fab_context_of(context)->dev);
	int err = fab_fault(fab_context_of(context)->dev, FAB_VERB_CREATE_QP), r;
	struct fab_qp *qp;

	if (!err && ((attr->comp_mask &
		      ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) ||
		     !(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd))
		err = EOPNOTSUPP;
	if (!err)
		err = check_init(conf, context, attr);
	if (err) {
		errno = err;
		return NULL;
	}
	attr->cap.max_inline_data = granted_inline(conf, attr->cap.max_inline_data);
	qp = qp_new(context, attr);
	if (!qp) {
		errno = ENOMEM;
		return NULL;
	}
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		fab_wr_ops_set(qp);
	fab_engine_lock();
	r = number_qp(qp);
	fab_engine_unlock();
	if (r < 0) {
		qp_free(qp);
		errno = -r;
		return NULL;
	}
	count_uses(qp, 1);
	return &qp->qp;
}

FAB_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = { 0 };
	struct ibv_qp *qp;

	memcpy(&ex, attr, sizeof(*attr));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	ex.pd = pd;
	qp = fab_create_qp_ex(pd->context, &ex);
	if (qp)
		attr->cap = ex.cap; /* what it got */
	return qp;
}

/* Drops everything that is under way and every completion of the QP. */
void fab_qp_reset(struct fab_qp *qp)
{
	fab_engine_forget(qp);
	fab_responder_forget(qp);
	fab_cq_forget((struct fab_cq *)qp->qp.send_cq, qp, &qp->rq);
	fab_cq_forget((struct fab_cq *)qp->qp.recv_cq, qp, &qp->rq);
	if (qp->cur_valid)
		atomic_fetch_sub(&qp->use_rq->in_use, 1);
	(void)pthread_mutex_lock(&qp->sq_lock);
	atomic_store(&qp->sq_head, 0);
	atomic_store(&qp->sq_free, 0);
	(void)pthread_mutex_unlock(&qp->sq_lock);
	(void)pthread_mutex_lock(&qp->rq.lock);
	qp->rq.head = qp->rq.ready = 0;
	atomic_store(&qp->rq.in_use, 0);
	(void)pthread_mutex_unlock(&qp->rq.lock);
	qp->sq_una = qp->sq_tx = qp->sq_tx_off = 0;
	qp->sq_error_at = FAB_NEVER;
	qp->reads = qp->pending_reads = 0;
	qp->wait = FAB_WAIT_NONE;
	qp->stalled = qp->cur_valid = qp->established = qp->draining = false;
	qp->exp_seq = qp->exp_off = 0;
	qp->exp_packets = 0;
	qp->epoch++;
	qp->held_due = 0;
	qp->link = NULL;
}

FAB_EXPORT int ibv_destroy_qp(struct ibv_qp *ibqp)
{
	struct fab_qp *qp = mpib_container_of(ibqp, struct fab_qp, qp);
	int err = fab_fault(qp->dev, FAB_VERB_DESTROY_QP);

	if (err)
		return err;
	fab_engine_lock();
	fab_qp_reset(qp);
	fab.qps[qp->index] = NULL;
	fab.qp_count--;
	fab_object_drop(ibqp->context, FAB_OBJECT_QP);
	fab_engine_unlock();
	fab_event_cancel(fab_context_of(ibqp->context), ibqp);
	count_uses(qp, -1);
	qp_free(qp);
	return 0;
}

FAB_EXPORT int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
			    struct ibv_qp_init_attr *init)
{
	struct fab_qp *qp = mpib_container_of(ibqp, struct fab_qp, qp);
	int err = fab_fault(qp->dev, FAB_VERB_QUERY_QP);

	(void)mask; /* a hint: all of it is known anyway */
	if (err)
		return err;
	fab_engine_lock();
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = (enum ibv_qp_state)atomic_load(&qp->state);
	attr->rq_psn =
		(attr->rq_psn + qp->exp_packets + (uint32_t)(qp->exp_off >> fab_mtu_shift(qp))) &
		0xffffff;
	attr->cap = qp->init.cap;
	attr->sq_draining = qp->draining;
	*init = qp->init;
	ibqp->state = attr->qp_state;
	fab_engine_unlock();
	return 0;
}

FAB_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibqp)
{
	struct fab_qp *qp = mpib_container_of(ibqp, struct fab_qp, qp);

	return qp->has_ex ? &qp->ex : NULL;
}

FAB_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)ece;
	fab_trace_ece(mpib_container_of(qp, struct fab_qp, qp)->dev);
	return EOPNOTSUPP;
}

FAB_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	(void)ece;
	return EOPNOTSUPP;
}

FAB_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp;
	(void)op;
	(void)flags;
	return 0;
}
