/* SPDX-License-Identifier: Apache-2.0 */
/* What moves: requests, what the other side makes of them, and completions. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "tests/unit/plugin/fake_impl.h"

#define COPY_MAX (64u << 20) /* longer writes are checked and not done: they are about sizes */

struct fake_qp *fake_find_qp(uint32_t qpn)
{
	struct fake_qp *qp;

	LIST_FOREACH(qp, &fake.qps, node)
	if (qp->qp.qp_num == qpn)
		return qp;
	return NULL;
}

static bool covered(uint32_t key, uint64_t addr, size_t len, unsigned int access,
		    const struct ibv_context *ctx)
{
	struct fake_mr *mr;

	LIST_FOREACH(mr, &fake.mrs, node)
	if (mr->mr.lkey == key && mr->mr.context->device == ctx->device)
		return addr >= (uintptr_t)mr->mr.addr &&
		       addr + len <= (uintptr_t)mr->mr.addr + mr->mr.length &&
		       (mr->access & access) == access;
	return false;
}

static void complete(struct ibv_cq *ibcq, const struct ibv_wc *wc, uint32_t sq_seq)
{
	struct fake_cq *cq = (struct fake_cq *)ibcq;

	RULE(cq->head - cq->tail < cq->depth); /* no overflow, ever */
	cq->entry[cq->head % cq->depth].wc = *wc;
	cq->entry[cq->head % cq->depth].sq_seq = sq_seq;
	cq->head++;
	if (cq->head - cq->tail > cq->most)
		cq->most = cq->head - cq->tail;
}

int fake_poll_cq(struct ibv_cq *ibcq, int count, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)ibcq;
	int n = 0;

	fake_lock();
	if (fake_enter(FAKE_POLL_CQ)) {
		fake_unlock();
		return -1;
	}
	while (n < count && cq->tail != cq->head) {
		unsigned int at = cq->tail++ % cq->depth;
		struct fake_qp *qp = fake_find_qp(cq->entry[at].wc.qp_num);

		wc[n++] = cq->entry[at].wc;
		if (qp && cq->entry[at].sq_seq)
			qp->sq_freed = cq->entry[at].sq_seq;
	}
	fake_unlock();
	return n;
}

int fake_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_srq *srq = (struct fake_srq *)ibsrq;
	int err;

	fake_lock();
	err = fake_enter(FAKE_POST_SRQ_RECV);
	for (; !err && wr; wr = wr->next) {
		if (srq->posted == srq->max)
			err = ENOMEM;
		else
			srq->posted++;
		if (err)
			break;
		RULE(srq->posted == 1 || wr->wr_id == srq->wr_id);
		srq->wr_id = wr->wr_id;
	}
	*bad = wr;
	fake_unlock();
	return err;
}

#if defined(__clang__)
#define UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#define UNSEEN __attribute__((no_sanitize_thread, noinline))
#endif

UNSEEN void fake_copy(void *to, const void *from, size_t len)
{
	for (size_t k = 0; k < len; k++)
		((volatile uint8_t *)to)[k] = ((const volatile uint8_t *)from)[k];
}

static int receive(struct fake_qp *dest, uint32_t imm_be, uint32_t len)
{
	struct ibv_wc wc = {
		.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
		.wc_flags = IBV_WC_WITH_IMM,
		.imm_data = imm_be,
		.byte_len = len,
		.qp_num = dest->qp.qp_num,
	};
	struct fake_srq *srq = (struct fake_srq *)dest->qp.srq;

	if (!srq || srq->posted == 0)
		return -1;
	srq->posted--;
	wc.wr_id = srq->wr_id;
	complete(dest->qp.recv_cq, &wc, 0);
	return 0;
}

/* What the other side makes of a request. */
static enum ibv_wc_status execute(struct fake_qp *qp, struct fake_qp *dest,
				  const struct ibv_send_wr *wr, size_t len)
{
	uint64_t remote = wr->wr.rdma.remote_addr;
	bool reads = wr->opcode == IBV_WR_RDMA_READ;

	if (!dest || dest->qp.state < IBV_QPS_RTR || dest->qp.state == IBV_QPS_ERR)
		return IBV_WC_RETRY_EXC_ERR;
	if (len && !(wr->send_flags & IBV_SEND_INLINE) &&
	    !covered(wr->sg_list->lkey, wr->sg_list->addr, len, 0, qp->qp.context))
		return IBV_WC_LOC_PROT_ERR;
	if (len &&
	    !covered(wr->wr.rdma.rkey, remote, len,
		     reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE, dest->qp.context))
		return IBV_WC_REM_ACCESS_ERR;
	if (len && reads)
		fake_copy((void *)(uintptr_t)wr->sg_list->addr, (void *)(uintptr_t)remote, len);
	else if (len && len <= COPY_MAX)
		fake_copy((void *)(uintptr_t)remote, (void *)(uintptr_t)wr->sg_list->addr, len);
	if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		RULE(receive(dest, wr->imm_data, (uint32_t)len) ==
		     0); /* a receive is always there */
	return IBV_WC_SUCCESS;
}

static int post_one(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	size_t len = wr->num_sge ? wr->sg_list->length : 0;
	struct ibv_wc wc = { .wr_id = wr->wr_id, .qp_num = qp->qp.qp_num };
	struct fake_qp *dest = fake_find_qp(qp->dest);

	if (qp->qp.state != IBV_QPS_RTS && qp->qp.state != IBV_QPS_ERR)
		return EINVAL;
	RULE(qp->sq_posted - qp->sq_freed < qp->state.cap.max_send_wr); /* the queue has room */
	RULE(len <= fake.max_msg);
	RULE(!(wr->send_flags & IBV_SEND_INLINE) || len <= qp->state.cap.max_inline_data);
	qp->sq_posted++;
	if (qp->sq_posted - qp->sq_freed > qp->state.sq_most)
		qp->state.sq_most = qp->sq_posted - qp->sq_freed;
	if (qp->qp.state == IBV_QPS_ERR) {
		wc.status = IBV_WC_WR_FLUSH_ERR;
	} else if (fake.bad[qp->device]) {
		wc.status = fake.bad[qp->device];
		fake.bad[qp->device] = IBV_WC_SUCCESS;
	} else {
		wc.status = execute(qp, dest, wr, len);
	}
	if (wc.status) {
		qp->qp.state = IBV_QPS_ERR;
		if (dest && wc.status == IBV_WC_REM_ACCESS_ERR)
			dest->qp.state = IBV_QPS_ERR;
	}
	wc.opcode = IBV_WC_RDMA_WRITE;
	if (wr->opcode == IBV_WR_RDMA_READ) {
		wc.opcode = IBV_WC_RDMA_READ;
		fake.reads[qp->device]++;
	}
	if (qp->holds) {
		qp->hold[qp->held].wc = wc;
		qp->hold[qp->held].signalled = wr->send_flags & IBV_SEND_SIGNALED || wc.status;
		qp->hold[qp->held++].sq_seq = qp->sq_posted;
	} else if (wr->send_flags & IBV_SEND_SIGNALED || wc.status) {
		complete(qp->qp.send_cq, &wc, qp->sq_posted);
	}
	return 0;
}

int fake_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int err;

	fake_lock();
	err = fake_enter(FAKE_POST_SEND);
	for (; !err && wr; wr = wr->next) {
		err = post_one((struct fake_qp *)ibqp, wr);
		if (err)
			break;
	}
	*bad = wr;
	fake_unlock();
	return err;
}

void fake_hold(uint32_t qpn)
{
	fake_lock();
	fake_find_qp(qpn)->holds = true;
	fake_unlock();
}

static void let_go(uint32_t qpn, bool fails)
{
	struct fake_qp *qp;

	fake_lock();
	qp = fake_find_qp(qpn);
	qp->holds = false;
	for (unsigned int k = 0; k < qp->held; k++) {
		if (fails)
			qp->hold[k].wc.status = IBV_WC_WR_FLUSH_ERR;
		if (fails || qp->hold[k].signalled)
			complete(qp->qp.send_cq, &qp->hold[k].wc, qp->hold[k].sq_seq);
	}
	qp->held = 0;
	if (fails)
		qp->qp.state = IBV_QPS_ERR;
	fake_unlock();
}

void fake_let_go(uint32_t qpn)
{
	let_go(qpn, false);
}

void fake_fail_qp(uint32_t qpn)
{
	let_go(qpn, true);
}

unsigned int fake_cq_most(const struct ibv_cq *cq)
{
	unsigned int most;

	fake_lock();
	most = ((const struct fake_cq *)cq)->most;
	fake_unlock();
	return most;
}

int fake_immediate(uint32_t qpn, uint32_t imm, uint32_t byte_len)
{
	struct fake_qp *qp;
	int r = -1;

	fake_lock();
	qp = fake_find_qp(qpn);
	if (qp)
		r = receive(qp, htonl(imm), byte_len);
	fake_unlock();
	return r;
}
