/* SPDX-License-Identifier: Apache-2.0 */
/* irecv: reserve a receive on each rail that may bring the data, and write the clear-to-send row to
 * the sender. Then what its completions mean. */
#include "plugin/transfer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plugin/imm.h"
#include "plugin/srq.h"

#define TOO_LARGE "the message is larger than the posted receive"

static bool reserve_receives(struct mpib_recv_comm *recv)
{
	struct mpib_comm *comm = &recv->base;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		if (!(comm->data_mask & mpib_rail_bit(rail)))
			continue;
		if (mpib_unlikely(!mpib_srq_reserve(&comm->dev->hca[rail]))) {
			while (rail-- > 0)
				if (comm->data_mask & mpib_rail_bit(rail)) {
					recv->reserved[rail]--;
					mpib_srq_release(&comm->dev->hca[rail]);
				}
			return false;
		}
		recv->reserved[rail]++;
	}
	return true;
}

static void fill_row(struct mpib_recv_comm *recv, int n, void **data, const size_t *sizes,
		     const int *tags, struct mpib_mr **mrs, struct mpib_request *req)
{
	static const struct mpib_mr none;
	struct mpib_cts *row = recv->cts_out[recv->tail % MPIB_ROWS].element;

	for (int k = 0; k < n; k++) {
		row[k].addr = (uint64_t)(uintptr_t)data[k];
		memcpy(row[k].rkey, mrs[k] ? mrs[k]->rkey : none.rkey, sizeof(row[k].rkey));
		row[k].size_low = (uint32_t)sizes[k];
		row[k].size_high = (uint16_t)(sizes[k] >> 32);
		row[k].tag = (uint32_t)tags[k];
		row[k].count = (uint8_t)n;
		row[k].reserved = 0;
		row[k].seq = recv->tail + 1;
		req->room[k] = sizes[k];
	}
}

static __attribute__((cold)) int cts_failed(struct mpib_recv_comm *recv, int r)
{
	struct mpib_comm *comm = &recv->base;
	char text[160];

	(void)snprintf(text, sizeof(text), "%s rail %s: clear-to-send can't be posted: %s",
		       mpib_rail_name(recv->cts_rail), comm->dev->hca[recv->cts_rail].name,
		       strerror(r < 0 ? -r : r));
	return mpib_comm_fail(comm, -EIO, text);
}

static int post_cts(struct mpib_recv_comm *recv, int n)
{
	struct mpib_comm *comm = &recv->base;
	unsigned int slot = recv->tail % MPIB_ROWS;
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)&recv->cts_out[slot],
		.length = (uint32_t)n * (uint32_t)sizeof(struct mpib_cts),
		.lkey = comm->ring_mr->lkey[recv->cts_rail],
	};
	struct ibv_send_wr wr = {
		.wr_id = recv->tail,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma.remote_addr = recv->cts_addr + slot * sizeof(struct mpib_cts_row),
		.wr.rdma.rkey = comm->remote_qps.ring_rkey[recv->cts_rail],
	};
	struct ibv_send_wr *bad;
	int r;

	if (sge.length <= MPIB_INLINE_MAX)
		wr.send_flags |= IBV_SEND_INLINE;
	if (slot % MPIB_CTS_SIGNAL_SLOTS == 0)
		wr.send_flags |= IBV_SEND_SIGNALED;
	r = ibv_post_send(recv->cts_qp, &wr, &bad);
	return r ? cts_failed(recv, r) : 0;
}

/* A row of one that asks for no completion: everything but the message's own is prepared. */
static inline int post_one(struct mpib_recv_comm *recv, unsigned int slot, void *data, size_t size,
			   int tag, const struct mpib_mr *mr)
{
	struct mpib_cts *cts = &recv->cts_one;
	struct ibv_send_wr *bad, *wr = &recv->cts_wr.wr;
	int r;

	cts->addr = (uint64_t)(uintptr_t)data;
	memcpy(cts->rkey, mr->rkey, sizeof(cts->rkey));
	cts->size_low = (uint32_t)size;
	cts->size_high = (uint16_t)(size >> 32);
	cts->tag = (uint32_t)tag;
	cts->seq = recv->tail + 1;
	wr->wr_id = recv->tail;
	wr->wr.rdma.remote_addr = recv->cts_addr + slot * sizeof(struct mpib_cts_row);
	r = ibv_post_send(recv->cts_qp, wr, &bad);
	return mpib_unlikely(r) ? cts_failed(recv, r) : 0;
}

int mpib_irecv(struct mpib_comm *comm, int n, void **data, const size_t *sizes, const int *tags,
	       struct mpib_mr **mrs, struct mpib_request **ret)
{
	struct mpib_recv_comm *recv = mpib_recv_comm(comm);
	unsigned int slot = recv->tail % MPIB_ROWS;
	struct mpib_request *req;
	int r;

	*ret = NULL;
	if (mpib_unlikely(comm->error))
		return comm->error;
	if (mpib_unlikely(n < 1 || n > (int)MPIB_GROUP_MAX))
		return -EINVAL;
	if (mpib_unlikely(recv->tail - recv->cts_reaped >= recv->cts_depth)) {
		r = mpib_poll_rail(comm, recv->cts_rail);
		if (r < 0)
			return r;
		if (recv->tail - recv->cts_reaped >= recv->cts_depth)
			return 0;
	}
	if (mpib_unlikely(recv->row[slot]))
		return 0;
	req = mpib_request_get(&comm->pool);
	if (mpib_unlikely(!req))
		return 0;
	if (mpib_unlikely(!reserve_receives(recv))) {
		mpib_request_put(&comm->pool, req);
		return 0;
	}

	req->remaining = 1;
	req->imm = 0;
	req->count = (uint8_t)n;
	req->size = 0;
	recv->row[slot] = req;
	if (mpib_likely(n == 1 && mrs[0] && slot % MPIB_CTS_SIGNAL_SLOTS)) {
		req->room[0] = sizes[0];
		r = post_one(recv, slot, data[0], sizes[0], tags[0], mrs[0]);
	} else {
		fill_row(recv, n, data, sizes, tags, mrs, req);
		r = post_cts(recv, n);
	}
	recv->tail++;
	if (mpib_unlikely(r < 0))
		return r;

	comm->counters->rail[recv->cts_rail].cts++;
	*ret = req;
	return 0;
}

/* ---- completions ---------------------------------------------------------------------------- */

static __attribute__((cold)) int protocol_error(struct mpib_recv_comm *recv, unsigned int rail,
						uint32_t imm, const char *what)
{
	char text[200];

	(void)snprintf(text, sizeof(text), "%s rail %s: immediate 0x%08x: %s", mpib_rail_name(rail),
		       recv->base.dev->hca[rail].name, imm, what);
	return mpib_comm_fail(&recv->base, -EPROTO, text);
}

/* Sizes of a group, or of a message that was cut, are in the completion record. */
static int read_record(struct mpib_recv_comm *recv, struct mpib_request *req, unsigned int rail,
		       uint32_t imm)
{
	uint64_t *record = &recv->records[mpib_imm_slot(imm) * MPIB_GROUP_MAX];

	for (unsigned int k = 0; k < req->count; k++) {
		req->sizes[k] =
			atomic_load_explicit((_Atomic uint64_t *)&record[k], memory_order_acquire);
		if (req->sizes[k] > req->room[k])
			return protocol_error(recv, rail, imm, TOO_LARGE);
	}
	req->size = req->sizes[0];
	return 0;
}

/* Every rail of the row has reported: fix the exact sizes. */
static inline int complete(struct mpib_recv_comm *recv, struct mpib_request *req, unsigned int rail,
			   uint32_t imm)
{
	struct mpib_comm *comm = &recv->base;
	unsigned int mask = mpib_imm_mask(imm), unused = comm->data_mask & ~mask;

	recv->row[mpib_imm_slot(imm)] = NULL;
	recv->carried |= mask;
	if (unused) { /* one rail, since a mask is never empty */
		unsigned int idle = unused >> 1;

		recv->reserved[idle]--;
		mpib_srq_release(&comm->dev->hca[idle]);
	}

	if (mpib_likely(mpib_imm_size(imm) != MPIB_IMM_SIZE_RECORD)) {
		if (mpib_unlikely(req->count != 1 ||
				  mpib_imm_size(imm) != mpib_imm_size_q(req->size)))
			return protocol_error(recv, rail, imm,
					      "its size is not that of the data that arrived");
		if (mpib_unlikely(req->size > req->room[0]))
			return protocol_error(recv, rail, imm, TOO_LARGE);
	} else {
		int r = read_record(recv, req, rail, imm);

		if (r < 0)
			return r;
	}
	comm->counters->messages += req->count;
	req->remaining = 0; /* last: done only when nothing of it can still arrive */
	return 0;
}

/* A completion used a receive: one that this connection has reserved, or, from a peer that sends
 * more than it may, a spare one. */
static void take_receive(struct mpib_recv_comm *recv, unsigned int rail)
{
	atomic_int *credits = &recv->base.dev->hca[rail].srq_credits;

	if (mpib_likely(recv->reserved[rail]))
		recv->reserved[rail]--;
	else
		(void)atomic_fetch_sub_explicit(credits, 1, memory_order_acq_rel);
}

static inline int on_immediate(struct mpib_recv_comm *recv, unsigned int rail, uint32_t imm,
			       uint32_t byte_len)
{
	struct mpib_comm *comm = &recv->base;
	struct mpib_request *req = recv->row[mpib_imm_slot(imm)];
	struct mpib_counter_rail *counters = &comm->counters->rail[rail];
	unsigned int left, bit = mpib_rail_bit(rail);

	if (mpib_unlikely(!req || !recv->reserved[rail])) {
		take_receive(recv, rail);
		return protocol_error(recv, rail, imm,
				      req ? "more messages than receives"
					  : "no receive is posted in its slot");
	}
	recv->reserved[rail]--;
	counters->requests++;

	if (req->imm == 0) {
		left = mpib_imm_mask(imm);
		if (mpib_unlikely(!(left & bit) || left & ~comm->data_mask))
			return protocol_error(recv, rail, imm, "it names rails that can't be");
		req->imm = imm;
	} else {
		left = req->left;
		if (mpib_unlikely(imm != req->imm || !(left & bit)))
			return protocol_error(recv, rail, imm, "it contradicts the other rail's");
	}
	left &= ~bit;
	req->left = (uint8_t)left;
	if (mpib_likely(mpib_imm_size(imm) != MPIB_IMM_SIZE_RECORD)) {
		req->size += byte_len;
		counters->bytes += byte_len;
	}
	return left ? 0 : complete(recv, req, rail, imm);
}

void mpib_recv_used(struct mpib_recv_comm *recv, unsigned int rail, const struct ibv_wc *wc)
{
	if (wc->wr_id == MPIB_WR_RECV)
		take_receive(recv, rail);
}

/* Anything but an immediate. */
static void other_completion(struct mpib_recv_comm *recv, const struct ibv_wc *wc)
{
	if (wc->opcode == IBV_WC_RDMA_READ) /* of a flush */
		recv->base.pool.requests[MPIB_WR_INDEX(wc->wr_id)].remaining--;
	else /* a signalled CTS write: the queue is free of it and of all before it */
		recv->cts_reaped = (uint32_t)wc->wr_id + 1;
}

/* Completions that nobody will look at any more still took receives from the shared queue. */
static __attribute__((cold)) int give_up(struct mpib_recv_comm *recv, unsigned int rail,
					 const struct ibv_wc *wc, const struct ibv_wc *end, int r)
{
	for (; wc < end; wc++)
		mpib_recv_used(recv, rail, wc);
	return r;
}

int mpib_recv_take(struct mpib_recv_comm *recv, unsigned int rail, const struct ibv_wc *wc, int n)
{
	for (const struct ibv_wc *end = wc + n; wc < end; wc++) {
		int r;

		if (mpib_unlikely(wc->status != IBV_WC_SUCCESS)) {
			(void)give_up(recv, rail, wc, end, 0);
			return mpib_comm_bad_completion(&recv->base, rail, wc);
		}
		if (mpib_unlikely(wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM)) {
			other_completion(recv, wc);
			continue;
		}
		r = on_immediate(recv, rail, ntohl(wc->imm_data), wc->byte_len);
		if (mpib_unlikely(r < 0))
			return give_up(recv, rail, wc + 1, end, r);
	}
	return 0;
}

void mpib_recv_prepare(struct mpib_recv_comm *recv)
{
	struct mpib_comm *comm = &recv->base;
	struct mpib_wr *wr = &recv->cts_wr;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		comm->polled[rail] = (comm->data_mask & mpib_rail_bit(rail)) != 0;
	recv->cts_one.count = 1;
	wr->sge.addr = (uint64_t)(uintptr_t)&recv->cts_one;
	wr->sge.length = sizeof(recv->cts_one);
	wr->sge.lkey = comm->ring_mr->lkey[recv->cts_rail];
	wr->wr.opcode = IBV_WR_RDMA_WRITE;
	wr->wr.send_flags = IBV_SEND_INLINE;
	wr->wr.sg_list = &wr->sge;
	wr->wr.num_sge = 1;
	wr->wr.wr.rdma.rkey = comm->remote_qps.ring_rkey[recv->cts_rail];
}
