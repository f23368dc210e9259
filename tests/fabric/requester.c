/* SPDX-License-Identifier: Apache-2.0 */
/* The asking side of a QP: cuts posted sends into parts, puts them on the link in order, and turns
 * answers into completions. Nothing is lost on a ring, so timers run only after somebody said that
 * a part fell on the floor; what a program sees is what silence and a retransmission timer would
 * give. */
#include "tests/fabric/link.h"

#include <string.h>

static struct fab_wqe *wqe_at(struct fab_qp *qp, uint64_t index)
{
	return &qp->sq[index % qp->sq_max];
}

static bool is_read(const struct fab_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* A QP that drains still finishes what it has begun. */
static bool at_work(struct fab_qp *qp)
{
	int state = atomic_load(&qp->state);

	return state == IBV_QPS_RTS || state == IBV_QPS_SQD;
}

static void rest(struct fab_qp *qp)
{
	if (qp->active)
		TAILQ_REMOVE(&fab.active, qp, active_node);
	qp->active = false;
}

/* What waited for this begins no earlier on the wire, however long ago it was posted. */
static void held_until(struct fab_qp *qp, uint64_t ns)
{
	if (qp->held_ns < ns)
		qp->held_ns = ns;
}

static void wait_stop(struct fab_qp *qp)
{
	if (qp->waiting)
		TAILQ_REMOVE(&fab.waiting, qp, wait_node);
	qp->waiting = false;
	qp->wait = FAB_WAIT_NONE;
}

static void wait_start(struct fab_qp *qp, enum fab_wait why, uint64_t ns)
{
	qp->wait = why;
	qp->wait_due = ns == FAB_NEVER ? FAB_NEVER : fab_now() + ns;
	if (!qp->waiting)
		TAILQ_INSERT_TAIL(&fab.waiting, qp, wait_node);
	qp->waiting = true;
	fab_engine_due(qp->wait_due);
}

/* --- completions --- */

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_SEND;
	}
}

static void complete_one(struct fab_qp *qp, enum ibv_wc_status status)
{
	struct fab_wqe *w = wqe_at(qp, qp->sq_una);
	struct fab_cqe cqe = { .qp = qp, .kind = FAB_CQE_SEND, .sq_end = qp->sq_una + 1 };

	qp->sq_una++;
	if (!w->signaled && status == IBV_WC_SUCCESS)
		return;
	cqe.wc.wr_id = w->wr_id;
	cqe.wc.status = status;
	cqe.wc.opcode = wc_opcode(w->opcode);
	cqe.wc.byte_len = is_read(w) ? (uint32_t)w->length : 0;
	cqe.wc.qp_num = qp->qp.qp_num;
	fab_cq_complete((struct fab_cq *)qp->qp.send_cq, &cqe);
}

static void tell_drained(struct fab_qp *qp)
{
	if (!qp->draining || qp->sq_una < qp->sq_drain)
		return;
	qp->draining = false;
	if (qp->attr.en_sqd_async_notify)
		fab_event_qp(qp, IBV_EVENT_SQ_DRAINED);
}

void fab_requester_drain(struct fab_qp *qp)
{
	qp->sq_drain = qp->sq_tx + (qp->sq_tx_off || qp->wait != FAB_WAIT_NONE);
	qp->draining = true;
	tell_drained(qp);
}

/* An answer to a later request doesn't stand for the data of a READ. */
static bool is_answered(struct fab_qp *qp, uint64_t index)
{
	const struct fab_wqe *w = wqe_at(qp, index);

	return !is_read(w) || w->answered;
}

static void complete_upto(struct fab_qp *qp, uint64_t upto)
{
	if (qp->sq_una >= upto || !is_answered(qp, qp->sq_una))
		return;
	while (qp->sq_una < upto && is_answered(qp, qp->sq_una))
		complete_one(qp, IBV_WC_SUCCESS);
	qp->retries = qp->attr.retry_cnt;
	qp->rnr_retries = qp->attr.rnr_retry;
	if (qp->sq_error_at == qp->sq_una)
		fab_requester_finish(qp, qp->sq_una, qp->sq_error);
	else
		tell_drained(qp);
}

void fab_requester_finish(struct fab_qp *qp, uint64_t index, enum ibv_wc_status status)
{
	while (qp->sq_una < index)
		complete_one(qp, IBV_WC_SUCCESS);
	complete_one(qp, status);
	fab_qp_to_error(qp);
}

/* A send that can't go for a reason of its own fails once all before it are answered. */
static bool fail_locally(struct fab_qp *qp, enum ibv_wc_status status)
{
	rest(qp);
	qp->sq_error_at = qp->sq_tx;
	qp->sq_error = status;
	if (qp->sq_una == qp->sq_tx)
		fab_requester_finish(qp, qp->sq_una, status);
	return false;
}

/* --- losses and timers --- */

static void step_back(struct fab_qp *qp, uint64_t seq, uint64_t offset)
{
	qp->sq_tx = seq;
	qp->sq_tx_off = offset;
	qp->epoch++;
	qp->reads = 0;
	for (uint64_t k = qp->sq_una; k < seq; k++)
		qp->reads += is_read(wqe_at(qp, k));
}

/* Nothing is lost as far as this end knows, but nothing goes on. */
static void stall(struct fab_qp *qp)
{
	qp->stalled = true;
	wait_start(qp, FAB_WAIT_RETRY, qp->attr.timeout ? 4096ULL << qp->attr.timeout : FAB_NEVER);
}

void fab_requester_lost(struct fab_qp *qp, uint64_t seq, uint64_t offset)
{
	if (!at_work(qp) || (qp->wait != FAB_WAIT_NONE && !qp->stalled))
		return;
	rest(qp);
	step_back(qp, seq, offset);
	if (qp->wait == FAB_WAIT_NONE)
		wait_start(qp, FAB_WAIT_RETRY,
			   qp->attr.timeout ? 4096ULL << qp->attr.timeout : FAB_NEVER);
}

void fab_requester_timer(struct fab_qp *qp, uint64_t now)
{
	enum fab_wait why = qp->wait;

	wait_stop(qp);
	held_until(qp, now);
	if (why == FAB_WAIT_RETRY && qp->retries-- == 0) {
		fab_requester_finish(qp, qp->sq_una, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	if (qp->stalled && !(qp->link && fab_link_port_up(qp->link) &&
			     !fab_link_silent(qp->link, qp->link->peer_dev))) {
		wait_start(qp, FAB_WAIT_RETRY, 4096ULL << qp->attr.timeout);
		return;
	}
	qp->stalled = false;
	fab_engine_activate(qp);
}

/* The 32 codes of the RNR timer, in units of 10 microseconds; code 0 is the longest. */
static uint64_t rnr_ns(uint32_t code)
{
	static const uint32_t units[32] = { 65536, 1,	 2,    3,     4,     6,	    8,	   12,
					    16,	   24,	 32,   48,    64,    96,    128,   192,
					    256,   384,	 512,  768,   1024,  1536,  2048,  3072,
					    4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152 };

	return units[code & 31] * 10000ULL;
}

static void receiver_not_ready(struct fab_qp *qp, const struct fab_pkt *pkt)
{
	complete_upto(qp, pkt->seq);
	if (!at_work(qp) || qp->wait != FAB_WAIT_NONE)
		return;
	if (qp->rnr_retries == 0) {
		fab_requester_finish(qp, pkt->seq, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	if (qp->attr.rnr_retry != 7)
		qp->rnr_retries--;
	rest(qp);
	step_back(qp, pkt->seq, pkt->offset);
	wait_start(qp, FAB_WAIT_RNR, rnr_ns(pkt->arg));
}

/* --- sending --- */

/* May the message at sq_tx begin? Otherwise it waits for an answer or has failed. */
static bool may_begin(struct fab_qp *qp, const struct fab_wqe *w)
{
	if ((w->flags & IBV_SEND_FENCE) && qp->reads) {
		rest(qp);
		return false;
	}
	if (is_read(w) && qp->reads >= qp->attr.max_rd_atomic) {
		if (!qp->attr.max_rd_atomic)
			return fail_locally(qp, IBV_WC_LOC_QP_OP_ERR);
		rest(qp);
		return false;
	}
	if (w->length > fab_dev_conf(qp->dev)->max_msg)
		return fail_locally(qp, IBV_WC_LOC_LEN_ERR);
	return true;
}

static enum fab_op wire_op(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return FAB_OP_WRITE;
	case IBV_WR_RDMA_READ:
		return FAB_OP_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return FAB_OP_CAS;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return FAB_OP_ADD;
	default:
		return FAB_OP_SEND;
	}
}

static void fill(struct fab_qp *qp, const struct fab_wqe *w, struct fab_pkt *pkt, uint32_t len,
		 bool last)
{
	uint32_t size = pkt->size;

	*pkt = (struct fab_pkt){ .size = size,
				 .epoch = qp->epoch,
				 .dst_qpn = qp->attr.dest_qp_num,
				 .src_qpn = qp->qp.qp_num,
				 .seq = qp->sq_tx,
				 .offset = qp->sq_tx_off,
				 .msg_len = w->length,
				 .raddr = w->remote_addr,
				 .rkey = w->rkey,
				 .compare_add = w->compare_add,
				 .swap = w->swap,
				 .imm = w->imm,
				 .len = len,
				 .psn = qp->attr.sq_psn,
				 .pkey = fab_pkey(qp) };
	pkt->op = (uint8_t)wire_op(w->opcode);
	if (is_read(w))
		pkt->arg = qp->reads + 1;
	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || w->opcode == IBV_WR_SEND_WITH_IMM)
		pkt->flags |= FAB_PKT_IMM;
	if (last)
		pkt->flags |= FAB_PKT_LAST;
	if (w->flags & IBV_SEND_SOLICITED)
		pkt->flags |= FAB_PKT_SOLICITED;
}

/* Puts the next part on the link. */
static bool send_part(struct fab_qp *qp, struct fab_wqe *w)
{
	uint64_t left = is_read(w) ? 0 : w->length - qp->sq_tx_off, due;
	uint32_t len = fab_shape_segment(qp->dev, qp->link->peer_dev);
	uint64_t asked = w->posted_ns > qp->held_ns ? w->posted_ns : qp->held_ns;
	struct fab_pkt *pkt;

	if (left < len)
		len = (uint32_t)left;
	if (is_read(w) ? !fab_sge_fit(qp, w, 0, w->length, IBV_ACCESS_LOCAL_WRITE)
		       : !w->is_inline && !fab_sge_fit(qp, w, qp->sq_tx_off, len, 0))
		return fail_locally(qp, IBV_WC_LOC_PROT_ERR);
	pkt = fab_ring_reserve(&qp->link->req, len);
	if (!pkt)
		return false; /* the peer rings when there is room */
	if (!fab_shape(qp->dev, qp->link->peer_dev, len, asked, &due)) {
		fab_engine_due(due);
		return false;
	}
	fill(qp, w, pkt, len, len == left);
	pkt->due_ns = due;
	if (len)
		fab_sge_gather(qp, w, qp->sq_tx_off, len, (uint8_t *)(pkt + 1));
	if (qp->sq_tx_off == 0)
		fab_fault_cut(qp->dev); /* before anybody can take what leaves now */
	fab_ring_publish(&qp->link->req, pkt);
	fab_link_ring(qp->link);
	qp->sq_tx_off += len;
	if (len == left) {
		qp->reads += is_read(w);
		w->epoch = qp->epoch;
		qp->sq_tx++;
		qp->sq_tx_off = 0;
	}
	return true;
}

bool fab_requester_send(struct fab_qp *qp)
{
	struct fab_wqe *w;

	if (atomic_load(&qp->state) == IBV_QPS_ERR) {
		rest(qp);
		fab_qp_flush(qp);
		return false;
	}
	if (!at_work(qp) || qp->wait != FAB_WAIT_NONE || qp->sq_error_at != FAB_NEVER ||
	    qp->sq_tx == atomic_load(&qp->sq_head) ||
	    (atomic_load(&qp->state) == IBV_QPS_SQD && qp->sq_tx >= qp->sq_drain)) {
		rest(qp);
		return false;
	}
	w = wqe_at(qp, qp->sq_tx);
	if (qp->sq_tx_off == 0 && !may_begin(qp, w))
		return false;
	if (!qp->link || qp->link->dead)
		qp->link = fab_link_get(qp->dev, qp->attr.dest_qp_num, &qp->attr.ah_attr);
	if (!qp->link) {
		fab_requester_lost(qp, qp->sq_tx, qp->sq_tx_off);
		return false;
	}
	/* What is on its way may have been refused: that answer must still count. */
	if (!fab_link_port_up(qp->link)) {
		rest(qp);
		stall(qp);
		return false;
	}
	return send_part(qp, w);
}

/* --- answers --- */

static void data_arrived(struct fab_qp *qp, const struct fab_pkt *pkt, const uint8_t *data)
{
	struct fab_wqe *w = wqe_at(qp, pkt->seq);

	if (pkt->seq < qp->sq_una || pkt->seq >= qp->sq_tx || pkt->epoch != w->epoch ||
	    !is_read(w) || pkt->offset + pkt->len > w->length)
		return;
	complete_upto(qp, pkt->seq);
	if (!fab_sge_scatter(qp, w, pkt->offset, pkt->len, data)) {
		fab_requester_finish(qp, pkt->seq, IBV_WC_LOC_PROT_ERR);
		return;
	}
	if (pkt->flags & FAB_PKT_LAST) {
		w->answered = true;
		qp->reads--;
		/* A fence, or the next READ. */
		held_until(qp, pkt->due_ns ? pkt->due_ns : fab_now());
		fab_engine_activate(qp);
		complete_upto(qp, pkt->seq + 1);
	}
}

void fab_requester_answer(struct fab_qp *qp, const struct fab_pkt *pkt, const uint8_t *data)
{
	bool current = pkt->epoch == qp->epoch;
	uint64_t head = atomic_load(&qp->sq_head);

	if (!at_work(qp) || pkt->seq > head)
		return;
	switch (pkt->op) {
	case FAB_OP_ACK:
		if (pkt->seq > qp->sq_tx) { /* sent again, but it had been done */
			qp->sq_tx = pkt->seq;
			qp->sq_tx_off = 0;
		}
		complete_upto(qp, pkt->seq);
		break;
	case FAB_OP_LOST:
		complete_upto(qp, pkt->seq < qp->sq_tx ? pkt->seq : qp->sq_tx);
		if (current && pkt->seq >= qp->sq_una)
			fab_requester_lost(qp, pkt->seq, pkt->offset);
		break;
	case FAB_OP_STALL:
		if (current && qp->wait == FAB_WAIT_NONE && pkt->seq >= qp->sq_una) {
			stall(qp);
		}
		break;
	case FAB_OP_RNR:
		if (current && pkt->seq >= qp->sq_una)
			receiver_not_ready(qp, pkt);
		break;
	case FAB_OP_NAK:
		if (current && pkt->seq >= qp->sq_una && pkt->seq < head)
			fab_requester_finish(qp, pkt->seq, (enum ibv_wc_status)pkt->arg);
		break;
	case FAB_OP_DATA:
		data_arrived(qp, pkt, data);
		break;
	default:
		break;
	}
}

bool fab_requester_poll(struct fab_link *link, uint64_t now)
{
	uint64_t due = FAB_NEVER;
	struct fab_pkt *pkt;
	bool moved = false;

	while ((pkt = fab_ring_peek(&link->resp, now, &due))) {
		struct fab_qp *qp = fab.qps[pkt->dst_qpn % FAB_QP_INDEXES];

		if (qp && qp->qp.qp_num == pkt->dst_qpn && qp->attr.dest_qp_num == pkt->src_qpn &&
		    pkt->len <= pkt->size - sizeof(*pkt))
			fab_requester_answer(qp, pkt, (const uint8_t *)(pkt + 1));
		if (fab_ring_consume(&link->resp, pkt))
			fab_link_ring(link);
		moved = true;
	}
	fab_engine_due(due);
	return moved;
}
