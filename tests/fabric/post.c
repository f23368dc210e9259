/* SPDX-License-Identifier: Apache-2.0 */
/* Posting sends, by work request and through the ibv_wr_* calls. Both only write the queue; the
 * engine does the rest. */
#include "tests/fabric/fabric.h"

#include <errno.h>
#include <string.h>

#include "tests/fabric/counts.h"

FAB_EXPORT struct mpib_fabric_counts mpib_fabric_counts;

/* The next free slot, or NULL. sq_lock. */
static struct fab_wqe *slot_at(struct fab_qp *qp, uint64_t head)
{
	if (head - atomic_load_explicit(&qp->sq_free, memory_order_acquire) >= qp->sq_max)
		return NULL;
	return &qp->sq[head % qp->sq_max];
}

static int fill(struct fab_qp *qp, struct fab_wqe *w, const struct ibv_send_wr *wr, uint64_t now_ns)
{
	uint64_t length = 0;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->init.cap.max_send_sge ||
	    wr->opcode > IBV_WR_ATOMIC_FETCH_AND_ADD)
		return EINVAL;
	for (int k = 0; k < wr->num_sge; k++)
		length += wr->sg_list[k].length;
	w->wr_id = wr->wr_id;
	w->opcode = wr->opcode;
	w->flags = wr->send_flags;
	w->signaled = qp->sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED);
	w->is_inline = wr->send_flags & IBV_SEND_INLINE;
	w->sges = wr->num_sge;
	w->length = length;
	w->posted_ns = now_ns;
	w->answered = false;
	w->imm = wr->imm_data;
	w->remote_addr = wr->wr.rdma.remote_addr;
	w->rkey = wr->wr.rdma.rkey;
	if (wr->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
		if (length != 8)
			return EINVAL;
		w->remote_addr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
	}
	if (!w->is_inline) {
		if (wr->num_sge)
			memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*w->sge));
		return 0;
	}
	if (wr->opcode >= IBV_WR_RDMA_READ)
		return EINVAL;
	if (length > qp->init.cap.max_inline_data)
		return ENOMEM;
	length = 0;
	for (int k = 0; k < wr->num_sge; k++) {
		memcpy(w->inline_data + length, (void *)(uintptr_t)wr->sg_list[k].addr,
		       wr->sg_list[k].length);
		length += wr->sg_list[k].length;
	}
	return 0;
}

/* Null mode, the other end where this process has it: small plain writes (a clear-to-send row, say)
 * and the bytes of small messages arrive, and an immediate takes a receive. Engine lock. */
static void null_arrive(struct fab_qp *qp, const struct fab_wqe *w)
{
	struct fab_qp *to = fab.qps[qp->attr.dest_qp_num % FAB_QP_INDEXES];
	struct fab_cqe cqe = { .kind = FAB_CQE_RECV };
	struct ibv_sge sge[FAB_SGE_MAX];
	struct fab_rwqe receive;
	struct fab_mr *mr;

	if (!to || to->qp.qp_num != qp->attr.dest_qp_num || to->attr.dest_qp_num != qp->qp.qp_num)
		return;
	if (w->length && w->length <= FAB_NULL_MOVES &&
	    (w->is_inline || fab_sge_fit(qp, w, 0, w->length, 0))) {
		mr = fab_mr_find(w->rkey, to->qp.pd, w->remote_addr, w->length,
				 IBV_ACCESS_REMOTE_WRITE);
		if (mr && fab_pages_kept(mr, w->remote_addr, w->length))
			fab_sge_gather(qp, w, 0, w->length, fab_mr_at(mr, w->remote_addr));
	}
	if (w->opcode != IBV_WR_RDMA_WRITE_WITH_IMM || !fab_rq_take(to, &receive, sge))
		return;
	cqe.qp = to;
	cqe.rq = to->use_rq;
	cqe.wc.wr_id = receive.wr_id;
	cqe.wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	cqe.wc.byte_len = (uint32_t)w->length;
	cqe.wc.imm_data = w->imm;
	cqe.wc.wc_flags = IBV_WC_WITH_IMM;
	cqe.wc.qp_num = to->qp.qp_num;
	fab_cq_push((struct fab_cq *)to->qp.recv_cq, &cqe);
}

/* Null mode: done as soon as it is posted. Engine lock, which comes before sq_lock. */
static void finish_at_once(struct fab_qp *qp, const struct fab_wqe *w, uint64_t head)
{
	struct fab_cqe cqe = { .qp = qp, .kind = FAB_CQE_SEND, .sq_end = head + 1 };

	if (w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		null_arrive(qp, w);
	qp->sq_una = qp->sq_tx = head + 1; /* nothing is left to flush */
	mpib_fabric_counts.requests++;
	if (!w->signaled)
		return;
	cqe.wc.wr_id = w->wr_id;
	cqe.wc.opcode = w->opcode <= IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RDMA_WRITE : IBV_WC_SEND;
	cqe.wc.qp_num = qp->qp.qp_num;
	fab_cq_push((struct fab_cq *)qp->qp.send_cq, &cqe);
}

int fab_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fab_qp *qp = mpib_container_of(ibqp, struct fab_qp, qp);
	int err = fab_fault(qp->dev, FAB_VERB_POST_SEND), state = atomic_load(&qp->state);
	uint64_t now = fab.conf->null ? 0 : fab_now(); /* null: there is no wire */

	if (!err && state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_ERR)
		err = EINVAL;
	if (err) {
		*bad = wr;
		return err;
	}
	if (fab.conf->null)
		fab_engine_lock();
	(void)pthread_mutex_lock(&qp->sq_lock);
	for (; wr; wr = wr->next) {
		uint64_t head = atomic_load_explicit(&qp->sq_head, memory_order_relaxed);
		struct fab_wqe *w = slot_at(qp, head);

		err = w ? fill(qp, w, wr, now) : ENOMEM;
		if (err) {
			*bad = wr;
			break;
		}
		atomic_store(&qp->sq_head, head + 1);
		if (fab.conf->null)
			finish_at_once(qp, w, head);
	}
	(void)pthread_mutex_unlock(&qp->sq_lock);
	if (fab.conf->null) {
		fab_engine_unlock();
		mpib_fabric_counts.posts++;
	} else {
		fab_engine_post(qp);
	}
	return err;
}

/* --- ibv_wr_*: slots are filled one by one and shown to the engine together --- */

static struct fab_qp *qp_of(struct ibv_qp_ex *ex)
{
	return mpib_container_of(ex, struct fab_qp, ex);
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct fab_qp *qp = qp_of(ex);
	int state = atomic_load(&qp->state);

	(void)pthread_mutex_lock(&qp->sq_lock);
	qp->wr_next = atomic_load(&qp->sq_head);
	qp->wr_error = fab_fault(qp->dev, FAB_VERB_POST_SEND);
	if (!qp->wr_error && state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_ERR)
		qp->wr_error = EINVAL;
}

static struct fab_wqe *wr_begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct fab_qp *qp = qp_of(ex);
	struct fab_wqe *w = qp->wr_error ? NULL : slot_at(qp, qp->wr_next);

	if (!w) {
		if (!qp->wr_error)
			qp->wr_error = ENOMEM;
		return NULL;
	}
	qp->wr_next++;
	w->wr_id = ex->wr_id;
	w->opcode = opcode;
	w->flags = ex->wr_flags;
	w->signaled = qp->sq_sig_all || (ex->wr_flags & IBV_SEND_SIGNALED);
	w->is_inline = false;
	w->sges = 0;
	w->length = 0;
	w->answered = false;
	return w;
}

static void wr_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr,
		    uint32_t imm)
{
	struct fab_wqe *w = wr_begin(ex, opcode);

	if (w) {
		w->rkey = rkey;
		w->remote_addr = addr;
		w->imm = imm;
	}
}

static void wr_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE, rkey, addr, 0);
}

static void wr_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
}

static void wr_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	wr_rdma(ex, IBV_WR_RDMA_READ, rkey, addr, 0);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	wr_rdma(ex, IBV_WR_SEND, 0, 0, 0);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	wr_rdma(ex, IBV_WR_SEND_WITH_IMM, 0, 0, imm);
}

static void wr_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr,
		      uint64_t compare_add, uint64_t swap)
{
	struct fab_wqe *w = wr_begin(ex, opcode);

	if (w) {
		w->rkey = rkey;
		w->remote_addr = addr;
		w->compare_add = compare_add;
		w->swap = swap;
	}
}

static void wr_cas(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare,
		   uint64_t swap)
{
	wr_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	wr_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

/* The work request that the last call began. */
static struct fab_wqe *wr_last(struct ibv_qp_ex *ex)
{
	struct fab_qp *qp = qp_of(ex);

	return qp->wr_error ? NULL : &qp->sq[(qp->wr_next - 1) % qp->sq_max];
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num, const struct ibv_sge *list)
{
	struct fab_wqe *w = wr_last(ex);

	if (!w)
		return;
	if (num > qp_of(ex)->init.cap.max_send_sge) {
		qp_of(ex)->wr_error = EINVAL;
		return;
	}
	memcpy(w->sge, list, num * sizeof(*list));
	w->sges = (int)num;
	w->length = 0;
	for (size_t k = 0; k < num; k++)
		w->length += list[k].length;
	if (w->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP && w->length != 8)
		qp_of(ex)->wr_error = EINVAL;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_list(struct ibv_qp_ex *ex, size_t num, const struct ibv_data_buf *list)
{
	struct fab_wqe *w = wr_last(ex);
	uint64_t length = 0;

	if (!w)
		return;
	if (w->opcode >= IBV_WR_RDMA_READ) {
		qp_of(ex)->wr_error = EINVAL;
		return;
	}
	w->is_inline = true;
	for (size_t k = 0; k < num; k++) {
		if (length + list[k].length > qp_of(ex)->init.cap.max_inline_data) {
			qp_of(ex)->wr_error = ENOMEM;
			return;
		}
		memcpy(w->inline_data + length, list[k].addr, list[k].length);
		length += list[k].length;
	}
	w->length = length;
}

static void wr_set_inline(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_list(ex, 1, &buf);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct fab_qp *qp = qp_of(ex);
	uint64_t head = atomic_load(&qp->sq_head), end = qp->wr_next;
	uint64_t now = fab.conf->null ? 0 : fab_now();
	int err = qp->wr_error;

	if (!err) {
		for (uint64_t k = head; k < end; k++)
			qp->sq[k % qp->sq_max].posted_ns = now;
		atomic_store(&qp->sq_head, end);
	}
	(void)pthread_mutex_unlock(&qp->sq_lock);
	if (err)
		return err;
	if (!fab.conf->null) {
		fab_engine_post(qp);
		return 0;
	}
	fab_engine_lock();
	for (; head < end; head++)
		finish_at_once(qp, &qp->sq[head % qp->sq_max], head);
	fab_engine_unlock();
	return 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	(void)pthread_mutex_unlock(&qp_of(ex)->sq_lock);
}

void fab_wr_ops_set(struct fab_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	qp->has_ex = true;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_rdma_write = wr_write;
	ex->wr_rdma_write_imm = wr_write_imm;
	ex->wr_rdma_read = wr_read;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_atomic_cmp_swp = wr_cas;
	ex->wr_atomic_fetch_add = wr_add;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline;
	ex->wr_set_inline_data_list = wr_set_inline_list;
}
