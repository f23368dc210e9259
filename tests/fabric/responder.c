/* SPDX-License-Identifier: Apache-2.0 */
/* The answering side of a QP: takes parts from a link in order, checks them as the specification
 * says, places the bytes, and answers. It never blocks on a program: where no receive is posted it
 * says so, and the requester comes again. */
#include "tests/fabric/link.h"

#include <stdlib.h>
#include <string.h>

#define BUDGET 64 /* entries a pass */

/* --- answers --- */

static struct fab_pkt *answer_begin(struct fab_link *link, uint32_t dst, uint32_t src, size_t len)
{
	struct fab_pkt *pkt = fab_ring_reserve(&link->resp, len);
	uint32_t size;

	if (!pkt)
		return NULL;
	size = pkt->size;
	*pkt = (struct fab_pkt){ .size = size, .dst_qpn = dst, .src_qpn = src };
	return pkt;
}

static void answer_end(struct fab_link *link, struct fab_pkt *pkt)
{
	uint64_t latency = atomic_load_explicit(&fab_dev_state(link->local_dev)->latency_ns,
						memory_order_relaxed);

	if (latency && !pkt->due_ns)
		pkt->due_ns = fab_now() + latency;
	fab_ring_publish(&link->resp, pkt);
	fab_link_ring(link);
}

/* The caller has made sure of the room. */
static void send_ack(struct fab_link *link, struct fab_qp *qp)
{
	struct fab_pkt *pkt = answer_begin(link, qp->attr.dest_qp_num, qp->qp.qp_num, 0);

	if (!pkt)
		return;
	/* An answer that is lost is nothing to its requester, which asks again after its timer. */
	if (fab_link_silent(link, link->local_dev)) {
		pkt->op = FAB_OP_LOST;
		pkt->epoch = qp->told_epoch;
	} else {
		pkt->op = FAB_OP_ACK;
		qp->told_seq = qp->exp_seq;
	}
	pkt->seq = qp->told_seq;
	answer_end(link, pkt);
}

static void flush_ack(struct fab_link *link)
{
	struct fab_qp *qp = link->ack_qp;

	link->ack_qp = NULL;
	if (qp && !qp->pending_reads && !qp->spread)
		send_ack(link, qp);
}

static void owe_ack(struct fab_link *link, struct fab_qp *qp)
{
	if (link->ack_qp && link->ack_qp != qp)
		flush_ack(link);
	link->ack_qp = qp;
}

void fab_responder_ack(struct fab_link *link, struct fab_qp *qp)
{
	owe_ack(link, qp);
	flush_ack(link);
}

static void refuse(struct fab_link *link, const struct fab_pkt *req, enum fab_op op, uint32_t arg)
{
	struct fab_pkt *pkt;

	flush_ack(link);
	pkt = answer_begin(link, req->src_qpn, req->dst_qpn, 0);
	if (!pkt)
		return;
	pkt->op = op;
	pkt->seq = req->seq;
	pkt->offset = req->offset;
	pkt->epoch = req->epoch;
	pkt->arg = arg;
	answer_end(link, pkt);
}

/* --- receives --- */

static void complete_recv(struct fab_qp *qp, const struct fab_pkt *pkt, enum ibv_wc_status status)
{
	struct fab_cqe cqe = { .qp = qp, .rq = qp->use_rq, .kind = FAB_CQE_RECV };

	cqe.solicited = (pkt->flags & FAB_PKT_SOLICITED) || status != IBV_WC_SUCCESS;
	cqe.wc.wr_id = qp->cur.wr_id;
	cqe.wc.status = status;
	cqe.wc.qp_num = qp->qp.qp_num;
	cqe.wc.src_qp = qp->attr.dest_qp_num;
	cqe.wc.opcode = pkt->op == FAB_OP_SEND ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
	cqe.wc.byte_len = (uint32_t)pkt->msg_len;
	if (pkt->flags & FAB_PKT_IMM) {
		cqe.wc.wc_flags = IBV_WC_WITH_IMM;
		cqe.wc.imm_data = pkt->imm;
	}
	qp->cur_valid = false;
	fab_cq_complete((struct fab_cq *)qp->qp.recv_cq, &cqe);
}

/* What was asked before is answered before: a refusal waits for the data of READs. */
static bool must_wait(struct fab_link *link, const struct fab_qp *qp)
{
	if (qp->pending_reads)
		link->held = true;
	return qp->pending_reads;
}

/* Refuses for good: the responder's QP goes to the error state too. A receive that was in use ends
 * with @local, else the program gets an event. */
static void fail_now(struct fab_link *link, struct fab_qp *qp, const struct fab_pkt *pkt,
		     enum ibv_wc_status remote, enum ibv_wc_status local)
{
	refuse(link, pkt, FAB_OP_NAK, remote);
	if (qp->cur_valid)
		complete_recv(qp, pkt, local);
	else
		fab_event_qp(qp, remote == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR
								 : IBV_EVENT_QP_REQ_ERR);
	fab_qp_to_error(qp);
}

static void fail(struct fab_link *link, struct fab_qp *qp, const struct fab_pkt *pkt,
		 enum ibv_wc_status remote, enum ibv_wc_status local)
{
	if (!must_wait(link, qp))
		fail_now(link, qp, pkt, remote, local);
}

static bool need_recv(struct fab_link *link, struct fab_qp *qp, const struct fab_pkt *pkt)
{
	if (qp->cur_valid)
		return true;
	if (fab_rq_take(qp, &qp->cur, qp->cur_sge)) {
		qp->cur_valid = true;
		return true;
	}
	if (!must_wait(link, qp))
		refuse(link, pkt, FAB_OP_RNR, qp->attr.min_rnr_timer);
	return false;
}

/* Places one part of a SEND; false if a local key doesn't fit. */
static bool place_recv(struct fab_qp *qp, const struct fab_pkt *pkt, const uint8_t *data)
{
	struct ibv_pd *pd = qp->qp.srq ? qp->qp.srq->pd : qp->qp.pd;
	uint64_t from = pkt->offset, len = pkt->len;

	for (int k = 0; k < qp->cur.sges && len; k++) {
		const struct ibv_sge *sge = &qp->cur_sge[k];
		struct fab_mr *mr;
		uint64_t n;

		if (from >= sge->length) {
			from -= sge->length;
			continue;
		}
		n = sge->length - from < len ? sge->length - from : len;
		mr = fab_mr_find(sge->lkey, pd, sge->addr + from, n, IBV_ACCESS_LOCAL_WRITE);
		if (!mr || !fab_pages_kept(mr, sge->addr + from, n))
			return false;
		fab_copy_in(mr, fab_mr_at(mr, sge->addr + from), data, n);
		data += n;
		len -= n;
		from = 0;
	}
	return true;
}

static bool take_send(struct fab_link *link, struct fab_qp *qp, const struct fab_pkt *pkt,
		      const uint8_t *data)
{
	uint64_t room = 0;

	if (!need_recv(link, qp, pkt))
		return false;
	for (int k = 0; k < qp->cur.sges; k++)
		room += qp->cur_sge[k].length;
	if (pkt->msg_len > room) {
		fail(link, qp, pkt, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
		return false;
	}
	if (!place_recv(qp, pkt, data)) {
		fail(link, qp, pkt, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
		return false;
	}
	if (pkt->flags & FAB_PKT_LAST)
		complete_recv(qp, pkt, IBV_WC_SUCCESS);
	return true;
}

static bool take_write(struct fab_link *link, struct fab_qp *qp, const struct fab_pkt *pkt,
		       const uint8_t *data)
{
	struct fab_mr *mr;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE)) {
		fail(link, qp, pkt, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_QP_OP_ERR);
		return false;
	}
	if (pkt->msg_len) {
		mr = fab_mr_find(pkt->rkey, qp->qp.pd, pkt->raddr, pkt->msg_len,
				 IBV_ACCESS_REMOTE_WRITE);
		if (!mr || !fab_pages_kept(mr, pkt->raddr + pkt->offset, pkt->len)) {
			fail(link, qp, pkt, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR);
			return false;
		}
		if (pkt->flags & FAB_PKT_IMM ||
		    (!fab_unseen_hold(link, qp, pkt, data) &&
		     (!fab_dev_conf(qp->dev)->adaptive || !fab_spread_hold(link, qp, pkt, data))))
			fab_copy_in(mr, fab_mr_at(mr, pkt->raddr + pkt->offset), data, pkt->len);
	}
	if ((pkt->flags & (FAB_PKT_LAST | FAB_PKT_IMM)) == (FAB_PKT_LAST | FAB_PKT_IMM)) {
		if (!need_recv(link, qp, pkt))
			return false;
		complete_recv(qp, pkt, IBV_WC_SUCCESS);
	}
	return true;
}

/* --- READ and atomics --- */

static bool take_read(struct fab_link *link, struct fab_qp *qp, const struct fab_pkt *pkt)
{
	bool atomic = pkt->op != FAB_OP_READ;
	unsigned int access = atomic ? IBV_ACCESS_REMOTE_ATOMIC : IBV_ACCESS_REMOTE_READ;
	struct fab_mr *mr = NULL;
	struct fab_read *read;

	if (!(qp->attr.qp_access_flags & access) || (atomic && !fab_dev_conf(qp->dev)->atomics) ||
	    (atomic && (pkt->raddr % 8 || pkt->msg_len != 8)) || !fab_judge_reads(qp, pkt->arg) ||
	    qp->pending_reads >= qp->attr.max_dest_rd_atomic) {
		fail(link, qp, pkt, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_QP_OP_ERR);
		return false;
	}
	if (pkt->msg_len)
		mr = fab_mr_find(pkt->rkey, qp->qp.pd, pkt->raddr, pkt->msg_len, access);
	if (pkt->msg_len && (!mr || (atomic && !fab_pages_kept(mr, pkt->raddr, pkt->msg_len)))) {
		fail(link, qp, pkt, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR);
		return false;
	}
	if (atomic && !fab_judge_atomic(qp, fab_mr_at(mr, pkt->raddr))) {
		fail(link, qp, pkt, IBV_WC_REM_OP_ERR, IBV_WC_LOC_QP_OP_ERR);
		return false;
	}
	read = calloc(1, sizeof(*read));
	if (!read) {
		refuse(link, pkt, FAB_OP_LOST, 0);
		return false;
	}
	read->pkt = *pkt;
	read->asked_ns = pkt->due_ns ? pkt->due_ns : fab_now();
	if (atomic && mr)
		read->pkt.swap = fab_run_atomic(mr, fab_mr_at(mr, pkt->raddr),
						pkt->op == FAB_OP_ADD, pkt->compare_add, pkt->swap);
	TAILQ_INSERT_TAIL(&link->reads, read, node);
	qp->pending_reads++;
	return true;
}

/* Another partition's packets are dropped, and those of one limited member to another. */
static bool same_partition(uint32_t mine, uint32_t theirs)
{
	return !((mine ^ theirs) & 0x7fff) && (mine | theirs) & 0x8000;
}

struct fab_qp *fab_responder_qp(const struct fab_link *link, const struct fab_pkt *pkt)
{
	struct fab_qp *qp = fab.qps[pkt->dst_qpn % FAB_QP_INDEXES];
	int state;

	if (!qp || qp->qp.qp_num != pkt->dst_qpn || qp->dev != link->local_dev ||
	    qp->attr.dest_qp_num != pkt->src_qpn)
		return NULL;
	state = atomic_load(&qp->state);
	if (state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_SQD)
		return NULL;
	if (!same_partition(fab_pkey(qp), pkt->pkey))
		return NULL;
	return (qp->attr.rq_psn & 0xffffff) == (pkt->psn & 0xffffff) ? qp : NULL;
}

static void read_done(struct fab_link *link, struct fab_read *read, struct fab_qp *qp)
{
	TAILQ_REMOVE(&link->reads, read, node);
	free(read);
	if (qp && --qp->pending_reads == 0)
		send_ack(link, qp);
}

/* Sends one part of the oldest READ's data. */
static bool read_turn(struct fab_link *link)
{
	struct fab_read *read = TAILQ_FIRST(&link->reads);
	uint32_t len = fab_shape_segment(link->local_dev, link->peer_dev);
	/* The checker doesn't follow the list's removal. NOLINTNEXTLINE(clang-analyzer-unix.Malloc)
	 */
	bool atomic = read->pkt.op != FAB_OP_READ;
	struct fab_qp *qp = fab_responder_qp(link, &read->pkt);
	struct fab_mr *mr = NULL;
	struct fab_pkt *pkt;
	uint64_t due;

	if (!qp) {
		read_done(link, read, NULL);
		return true;
	}
	if (read->pkt.msg_len - read->done < len)
		len = (uint32_t)(read->pkt.msg_len - read->done);
	/* Room for the ack that may follow, too. */
	if (!fab_ring_reserve(&link->resp, len + 4 * FAB_RING_ALIGN))
		return false;
	if (!fab_link_port_up(link) || fab_link_silent(link, link->local_dev)) {
		if (!read->stalled)
			refuse(link, &read->pkt, FAB_OP_STALL, 0);
		read->stalled = true;
		return false;
	}
	if (read->stalled)
		read->asked_ns = fab_now();
	read->stalled = false;
	if (len && !atomic)
		mr = fab_mr_find(read->pkt.rkey, qp->qp.pd, read->pkt.raddr + read->done, len,
				 IBV_ACCESS_REMOTE_READ);
	if (len && !atomic && (!mr || !fab_pages_kept(mr, read->pkt.raddr + read->done, len))) {
		fail_now(link, qp, &read->pkt, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR);
		return true;
	}
	if (!fab_shape(link->local_dev, link->peer_dev, len, read->asked_ns, &due)) {
		fab_engine_due(due);
		return false;
	}
	pkt = answer_begin(link, read->pkt.src_qpn, read->pkt.dst_qpn, len);
	pkt->op = FAB_OP_DATA;
	pkt->seq = read->pkt.seq;
	pkt->epoch = read->pkt.epoch;
	pkt->offset = read->done;
	pkt->len = len;
	pkt->due_ns = due;
	if (atomic)
		memcpy(pkt + 1, &read->pkt.swap, 8);
	else if (len)
		fab_copy_out(mr, pkt + 1, fab_mr_at(mr, read->pkt.raddr + read->done), len);
	read->done += len;
	if (read->done == read->pkt.msg_len)
		pkt->flags = FAB_PKT_LAST;
	answer_end(link, pkt);
	if (read->done == read->pkt.msg_len)
		read_done(link, read, qp);
	return true;
}

void fab_responder_forget(const struct fab_qp *qp)
{
	struct fab_link *link;
	struct fab_read *read, *next;

	TAILQ_FOREACH(link, &fab.links, node)
	{
		if (link->ack_qp == qp)
			link->ack_qp = NULL;
		fab_spread_forget(link, qp);
		TAILQ_FOREACH_SAFE(read, &link->reads, node, next)
		{
			if (read->pkt.dst_qpn == qp->qp.qp_num) {
				TAILQ_REMOVE(&link->reads, read, node);
				free(read);
			}
		}
	}
}

/* --- the way in --- */

static bool take(struct fab_link *link, struct fab_qp *qp, const struct fab_pkt *pkt)
{
	const uint8_t *data = (const uint8_t *)(pkt + 1);

	if (pkt->op != FAB_OP_WRITE || pkt->flags & FAB_PKT_IMM) {
		fab_spread_place(link, qp);
		fab_unseen_place(link, qp);
	}
	if (pkt->op == FAB_OP_READ && link->requester)
		fab_unseen_place_device(link->local_dev);
	switch (pkt->op) {
	case FAB_OP_SEND:
		return take_send(link, qp, pkt, data);
	case FAB_OP_WRITE:
		return take_write(link, qp, pkt, data);
	case FAB_OP_READ:
	case FAB_OP_CAS:
	case FAB_OP_ADD:
		return take_read(link, qp, pkt);
	default:
		return false;
	}
}

void fab_responder_take(struct fab_link *link, struct fab_qp *qp, const struct fab_pkt *pkt)
{
	if (!qp->established && atomic_load(&qp->state) == IBV_QPS_RTR)
		fab_event_qp(qp, IBV_EVENT_COMM_EST);
	qp->established = true;
	qp->told_epoch = pkt->epoch;
	if (pkt->seq < qp->exp_seq) { /* sent again without need */
		owe_ack(link, qp);
		return;
	}
	if (pkt->seq != qp->exp_seq || pkt->offset != qp->exp_off ||
	    pkt->len > pkt->size - sizeof(*pkt) || pkt->offset + pkt->len > pkt->msg_len)
		return; /* a part before this one was refused: it comes again */
	if (!take(link, qp, pkt))
		return;
	qp->exp_off += pkt->len;
	if (pkt->flags & FAB_PKT_LAST) {
		qp->exp_packets +=
			pkt->msg_len ? (uint32_t)((pkt->msg_len - 1) >> fab_mtu_shift(qp)) + 1 : 1;
		qp->exp_seq++;
		qp->exp_off = 0;
		owe_ack(link, qp);
	}
}

static void receive(struct fab_link *link, const struct fab_pkt *pkt)
{
	struct fab_qp *qp = fab_responder_qp(link, pkt);
	bool up = fab_link_port_up(link);

	if (!up)
		fab_late_hold(link, pkt);
	if (!qp || !up || fab_link_silent(link, link->peer_dev))
		refuse(link, pkt, FAB_OP_LOST, 0);
	else
		fab_responder_take(link, qp, pkt);
}

/* A peer acknowledges a message before its program can answer it: what it asks now comes after the
 * answers that it gave, on the QP's own way out. */
static void answers_first(const struct fab_link *link, const struct fab_pkt *pkt, uint64_t now)
{
	const struct fab_qp *qp = fab_responder_qp(link, pkt);

	if (qp && qp->link && !qp->link->dead)
		(void)fab_requester_poll(qp->link, now);
}

bool fab_responder_poll(struct fab_link *link, uint64_t now)
{
	uint64_t due = FAB_NEVER;
	bool moved = false;

	for (unsigned int k = 0; k < BUDGET; k++) {
		struct fab_pkt *pkt = fab_ring_peek(&link->req, now, &due);

		/* Room for an ack and a refusal, so that nothing here can fail for lack of it. */
		if (!pkt || !fab_ring_reserve(&link->resp, 4 * FAB_RING_ALIGN))
			break;
		answers_first(link, pkt, now);
		link->held = false;
		receive(link, pkt);
		if (link->held)
			break;
		if (fab_ring_consume(&link->req, pkt))
			fab_link_ring(link);
		moved = true;
	}
	if (fab_ring_reserve(&link->resp, 4 * FAB_RING_ALIGN)) {
		moved |= fab_late_due(link, now);
		moved |= fab_spread_due(link, now);
	}
	moved |= fab_unseen_due(link, now);
	flush_ack(link);
	while (!TAILQ_EMPTY(&link->reads) && read_turn(link))
		moved = true;
	fab_engine_due(due);
	return moved;
}
