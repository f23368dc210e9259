/* SPDX-License-Identifier: Apache-2.0 */
/* What is made of a device: memory, queues, queue pairs. */
#include <errno.h>

#include "plugin/verbs/verbs.h"
#include "tests/unit/plugin/fake_impl.h"

/* ---- memory --------------------------------------------------------------------------------- */

int mpib_verbs_alloc_pd(struct ibv_context *ctx, struct ibv_pd **ret)
{
	struct ibv_pd *pd = NULL;
	int err;

	fake_lock();
	err = fake_enter(FAKE_ALLOC_PD);
	if (!err) {
		pd = fake_new_object(sizeof(*pd));
		pd->context = ctx;
		((struct fake_context *)ctx)->children++;
	}
	fake_unlock();
	*ret = pd;
	return -err;
}

void mpib_verbs_dealloc_pd(struct ibv_pd *pd)
{
	if (!pd)
		return;
	fake_lock();
	RULE(pd->handle == 0); /* what was made of it is gone */
	((struct fake_context *)pd->context)->children--;
	fake_free_object(pd);
	fake_unlock();
}

int mpib_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t size, unsigned int access,
		      struct ibv_mr **ret)
{
	struct fake_mr *mr;
	int err;

	fake_lock();
	err = fake_enter(FAKE_REG_MR);
	if (!err) {
		mr = fake_new_object(sizeof(*mr));
		mr->mr.context = pd->context;
		mr->mr.pd = pd;
		mr->mr.addr = addr;
		mr->mr.length = size;
		mr->mr.lkey = mr->mr.rkey = fake.next_key++;
		mr->access = fake.mr_access = access;
		pd->handle++;
		fake.live_mrs++;
		LIST_INSERT_HEAD(&fake.mrs, mr, node);
		*ret = &mr->mr;
	}
	fake_unlock();
	return -err;
}

int mpib_verbs_reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t size, uint64_t iova, int fd,
			  unsigned int access, struct ibv_mr **ret)
{
	int err;

	(void)offset;
	fake_lock();
	err = fake.dmabuf[pd->context->device - fake.device];
	fake_unlock();
	if (err)
		return -err;
	if (fd < 0)
		return -EBADF;
	return mpib_verbs_reg_mr(pd, (void *)(uintptr_t)iova, size, access, ret);
}

int mpib_verbs_dereg_mr(struct ibv_mr *mr)
{
	int err;

	if (!mr)
		return 0;
	fake_lock();
	err = fake_enter(FAKE_DEREG_MR);
	mr->pd->handle--;
	fake.live_mrs--;
	LIST_REMOVE((struct fake_mr *)mr, node);
	fake_free_object(mr);
	fake_unlock();
	return -err;
}

/* ---- queues --------------------------------------------------------------------------------- */

int mpib_verbs_create_cq(struct ibv_context *ctx, int depth, void *owner, struct ibv_cq **ret)
{
	struct fake_cq *cq;
	int err;

	fake_lock();
	err = fake_enter(FAKE_CREATE_CQ);
	if (!err) {
		cq = fake_new_object(sizeof(*cq));
		cq->cq.context = ctx;
		cq->cq.cq_context = owner;
		cq->depth = (unsigned int)depth;
		cq->entry = fake_allocate(cq->depth * sizeof(cq->entry[0]));
		((struct fake_context *)ctx)->children++;
		*ret = &cq->cq;
	}
	fake_unlock();
	return -err;
}

int mpib_verbs_destroy_cq(struct ibv_cq *ibcq)
{
	struct fake_cq *cq = (struct fake_cq *)ibcq;
	int err;

	if (!cq)
		return 0;
	fake_lock();
	err = fake_enter(FAKE_DESTROY_CQ);
	RULE(cq->users == 0);
	((struct fake_context *)ibcq->context)->children--;
	free(cq->entry);
	fake_free_object(cq);
	fake_unlock();
	return -err;
}

int mpib_verbs_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr, struct ibv_srq **ret)
{
	struct fake_srq *srq;
	int err;

	fake_lock();
	err = fake_enter(FAKE_CREATE_SRQ);
	if (!err) {
		srq = fake_new_object(sizeof(*srq));
		srq->srq.context = pd->context;
		srq->srq.pd = pd;
		srq->max = attr->attr.max_wr;
		pd->handle++;
		*ret = &srq->srq;
	}
	fake_unlock();
	return -err;
}

int mpib_verbs_destroy_srq(struct ibv_srq *ibsrq)
{
	int err;

	if (!ibsrq)
		return 0;
	fake_lock();
	err = fake_enter(FAKE_DESTROY_SRQ);
	RULE(((struct fake_srq *)ibsrq)->users == 0);
	ibsrq->pd->handle--;
	fake_free_object(ibsrq);
	fake_unlock();
	return -err;
}

/* ---- queue pairs ---------------------------------------------------------------------------- */

int mpib_verbs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct ibv_qp **ret)
{
	struct fake_qp *qp;
	int err;

	fake_lock();
	err = fake_enter(FAKE_CREATE_QP);
	if (!err) {
		qp = fake_new_object(sizeof(*qp));
		qp->qp.context = pd->context;
		qp->qp.pd = pd;
		qp->qp.qp_context = attr->qp_context;
		qp->qp.send_cq = attr->send_cq;
		qp->qp.recv_cq = attr->recv_cq;
		qp->qp.srq = attr->srq;
		qp->qp.qp_num = fake.next_qpn++;
		qp->qp.state = IBV_QPS_RESET;
		qp->state.cap = attr->cap;
		qp->hold = fake_allocate(attr->cap.max_send_wr * sizeof(qp->hold[0]));
		qp->device = ((struct fake_context *)pd->context)->device;
		pd->handle++;
		((struct fake_cq *)attr->send_cq)->users++;
		if (attr->srq)
			((struct fake_srq *)attr->srq)->users++;
		LIST_INSERT_HEAD(&fake.qps, qp, node);
		*ret = &qp->qp;
	}
	fake_unlock();
	return -err;
}

static void note_attributes(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = from->pkey_index;
	if (mask & IBV_QP_AV)
		to->ah_attr = from->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = from->path_mtu;
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = from->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		to->retry_cnt = from->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		to->rnr_retry = from->rnr_retry;
}

int mpib_verbs_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	int err;

	fake_lock();
	err = fake_enter(FAKE_MODIFY_QP);
	if (!err && mask & IBV_QP_STATE) {
		if (attr->qp_state != IBV_QPS_ERR && attr->qp_state != ibqp->state + 1)
			err = EINVAL;
		else
			ibqp->state = attr->qp_state;
	}
	if (!err && mask & IBV_QP_DEST_QPN)
		qp->dest = attr->dest_qp_num;
	if (!err)
		note_attributes(&qp->state.attr, attr, mask);
	fake_unlock();
	return -err;
}

int mpib_verbs_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *ret, int mask)
{
	(void)mask;
	fake_lock();
	*ret = ((struct fake_qp *)ibqp)->state.attr;
	fake_unlock();
	return 0;
}

int mpib_verbs_destroy_qp(struct ibv_qp *ibqp)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	int err;

	if (!qp)
		return 0;
	fake_lock();
	err = fake_enter(FAKE_DESTROY_QP);
	LIST_REMOVE(qp, node);
	((struct fake_cq *)ibqp->send_cq)->users--;
	if (ibqp->srq)
		((struct fake_srq *)ibqp->srq)->users--;
	ibqp->pd->handle--;
	free(qp->hold);
	fake_free_object(qp);
	fake_unlock();
	return -err;
}

int mpib_verbs_query_ece(struct ibv_qp *ibqp, struct ibv_ece *ret)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	int r = 0;

	fake_lock();
	*ret = fake.ece[qp->device];
	if (!ret->vendor_id)
		r = -EOPNOTSUPP;
	if (qp->state.ece_vendor)
		ret->options = qp->state.ece_options;
	fake_unlock();
	return r;
}

int mpib_verbs_set_ece(struct ibv_qp *ibqp, struct ibv_ece *ece)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	int r = 0;

	fake_lock();
	RULE(ibqp->state == IBV_QPS_INIT); /* man ibv_set_ece: before RTR */
	if (fake.ece[qp->device].vendor_id != ece->vendor_id) {
		r = -EINVAL;
	} else {
		qp->state.ece_vendor = ece->vendor_id;
		qp->state.ece_options = fake.ece[qp->device].options & ece->options;
	}
	fake_unlock();
	return r;
}

int fake_qp(uint32_t qpn, struct fake_qp_state *ret)
{
	struct fake_qp *qp;

	fake_lock();
	qp = fake_find_qp(qpn);
	if (qp)
		*ret = qp->state;
	fake_unlock();
	return qp ? 0 : -1;
}
