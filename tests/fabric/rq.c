/* SPDX-License-Identifier: Apache-2.0 */
/* Receive queues: those of QPs, and shared ones. */
#include "tests/fabric/fabric.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fabric/counts.h"

int fab_rq_init(struct fab_rq *rq, uint32_t max, uint32_t max_sge)
{
	(void)pthread_mutex_init(&rq->lock, NULL);
	rq->max = max;
	rq->max_sge = max_sge ? max_sge : 1;
	rq->ring = calloc(max ? max : 1, sizeof(*rq->ring));
	rq->sge = calloc((size_t)(max ? max : 1) * rq->max_sge, sizeof(*rq->sge));
	if (!rq->ring || !rq->sge) {
		fab_rq_fini(rq);
		return -ENOMEM;
	}
	for (uint32_t k = 0; k < max; k++)
		rq->ring[k].sge = rq->sge + (size_t)k * rq->max_sge;
	return 0;
}

void fab_rq_fini(struct fab_rq *rq)
{
	(void)pthread_mutex_destroy(&rq->lock);
	free(rq->ring);
	free(rq->sge);
	rq->ring = NULL;
	rq->sge = NULL;
}

/* Takes the oldest receive for @qp; the limit event comes from here. Engine lock. */
bool fab_rq_take(struct fab_qp *qp, struct fab_rwqe *ret_wqe, struct ibv_sge *ret_sge)
{
	struct fab_rq *rq = qp->use_rq;
	bool limit = false, found;

	(void)pthread_mutex_lock(&rq->lock);
	found = rq->ready > 0;
	if (found) {
		*ret_wqe = rq->ring[rq->head];
		memcpy(ret_sge, ret_wqe->sge, (size_t)ret_wqe->sges * sizeof(*ret_sge));
		rq->head = (rq->head + 1) % rq->max;
		rq->ready--;
		limit = rq->ready < rq->limit;
		if (limit)
			rq->limit = 0;
	}
	(void)pthread_mutex_unlock(&rq->lock);
	if (limit) {
		struct ibv_async_event event = { .event_type = IBV_EVENT_SRQ_LIMIT_REACHED };

		event.element.srq = qp->qp.srq;
		fab_event_push(fab_context_of(qp->qp.context), &event);
	}
	return found;
}

static int post(struct fab_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = 0;

	if (fab.conf->null)
		mpib_fabric_counts.recv_posts++;
	(void)pthread_mutex_lock(&rq->lock);
	for (; wr; wr = wr->next) {
		struct fab_rwqe *w;

		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
			err = EINVAL;
		else if (atomic_load(&rq->in_use) >= rq->max)
			err = ENOMEM;
		if (err) {
			*bad = wr;
			break;
		}
		w = &rq->ring[(rq->head + rq->ready) % rq->max];
		w->wr_id = wr->wr_id;
		w->sges = wr->num_sge;
		if (wr->num_sge)
			memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*w->sge));
		rq->ready++;
		atomic_fetch_add(&rq->in_use, 1);
		if (fab.conf->null)
			mpib_fabric_counts.receives++;
	}
	(void)pthread_mutex_unlock(&rq->lock);
	return err;
}

int fab_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fab_qp *qp = mpib_container_of(ibqp, struct fab_qp, qp);
	int err = fab_fault(qp->dev, FAB_VERB_POST_RECV), state = atomic_load(&qp->state);

	if (!err && (ibqp->srq || state == IBV_QPS_RESET))
		err = EINVAL;
	if (err) {
		*bad = wr;
		return err;
	}
	err = post(&qp->rq, wr, bad);
	if (atomic_load(&qp->state) == IBV_QPS_ERR)
		fab_engine_post(qp);
	return err;
}

int fab_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fab_srq *srq = mpib_container_of(ibsrq, struct fab_srq, srq);
	int err = fab_fault(fab_context_of(ibsrq->context)->dev, FAB_VERB_POST_SRQ_RECV);

	if (err) {
		*bad = wr;
		return err;
	}
	return post(&srq->rq, wr, bad);
}

/* --- shared receive queues --- */

FAB_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *ibpd, struct ibv_srq_init_attr *attr)
{
	struct fab_pd *pd = mpib_container_of(ibpd, struct fab_pd, pd);
	uint32_t dev = fab_context_of(ibpd->context)->dev;
	int err = fab_fault(dev, FAB_VERB_CREATE_SRQ);
	struct fab_srq *srq;

	if (!err && !fab_dev_conf(dev)->max_srq)
		err = EOPNOTSUPP;
	if (!err && (!attr->attr.max_wr || attr->attr.max_wr > fab_dev_conf(dev)->max_srq_wr ||
		     attr->attr.max_sge > fab_dev_conf(dev)->max_sge))
		err = EINVAL;
	if (!err)
		err = fab_object_take(ibpd->context, FAB_OBJECT_SRQ);
	if (err) {
		errno = err;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq || fab_rq_init(&srq->rq, attr->attr.max_wr, attr->attr.max_sge) < 0) {
		fab_object_drop(ibpd->context, FAB_OBJECT_SRQ);
		free(srq);
		errno = ENOMEM;
		return NULL;
	}
	srq->srq.context = ibpd->context;
	srq->srq.srq_context = attr->srq_context;
	srq->srq.pd = ibpd;
	srq->number = srq->srq.handle = atomic_fetch_add(&pd->objects, 1);
	(void)pthread_mutex_init(&srq->srq.mutex, NULL);
	(void)pthread_cond_init(&srq->srq.cond, NULL);
	return &srq->srq;
}

FAB_EXPORT int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
	struct fab_srq *srq = mpib_container_of(ibsrq, struct fab_srq, srq);
	struct fab_pd *pd = mpib_container_of(ibsrq->pd, struct fab_pd, pd);
	int err = fab_fault(fab_context_of(ibsrq->context)->dev, FAB_VERB_DESTROY_SRQ);

	if (err)
		return err;
	if (atomic_load(&srq->qps))
		return EBUSY;
	fab_event_cancel(fab_context_of(ibsrq->context), ibsrq);
	atomic_fetch_sub(&pd->objects, 1);
	fab_object_drop(ibsrq->context, FAB_OBJECT_SRQ);
	fab_rq_fini(&srq->rq);
	(void)pthread_mutex_destroy(&ibsrq->mutex);
	(void)pthread_cond_destroy(&ibsrq->cond);
	free(srq);
	return 0;
}

FAB_EXPORT int ibv_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct fab_srq *srq = mpib_container_of(ibsrq, struct fab_srq, srq);
	int err = 0;

	if (mask & ~IBV_SRQ_LIMIT)
		return EINVAL; /* resizing is not offered */
	(void)pthread_mutex_lock(&srq->rq.lock);
	if (mask & IBV_SRQ_LIMIT) {
		if (attr->srq_limit > srq->rq.max)
			err = EINVAL;
		else
			srq->rq.limit = attr->srq_limit;
	}
	(void)pthread_mutex_unlock(&srq->rq.lock);
	return err;
}

FAB_EXPORT int ibv_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct fab_srq *srq = mpib_container_of(ibsrq, struct fab_srq, srq);

	(void)pthread_mutex_lock(&srq->rq.lock);
	*attr = (struct ibv_srq_attr){ .max_wr = srq->rq.max,
				       .max_sge = srq->rq.max_sge,
				       .srq_limit = srq->rq.limit };
	(void)pthread_mutex_unlock(&srq->rq.lock);
	return 0;
}
