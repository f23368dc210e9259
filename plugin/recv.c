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
	struct mpib_cts *row = recv->cts_out[recv->tail % MPIB_ROWS].element;

	for (int k = 0; k < n; k++) {
		row[k].addr = (uint64_t)(uintptr_t)data[k];
		for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
			row[k].rkey[rail] = mrs[k] ? mrs[k]->rkey[rail] : 0;
		row[k].size_low = (uint32_t)sizes[k];
		row[k].size_high = (uint16_t)(sizes[k] >> 32);
		row[k].tag = (uint32_t)tags[k];
		row[k].count = (uint8_t)n;
		row[k].reserved = 0;
		row[k].seq = recv->tail + 1;
		req->room[k] = sizes[k];
	}
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
	char text[160];
	int r;

	if (sge.length <= MPIB_INLINE_MAX)
		wr.send_flags |= IBV_SEND_INLINE;
	if (slot % MPIB_CTS_SIGNAL_SLOTS == 0)
		wr.send_flags |= IBV_SEND_SIGNALED;
	r = ibv_post_send(recv->cts_qp, &wr, &bad);
	if (mpib_likely(r == 0))
		return 0;

	(void)snprintf(text, sizeof(text), "%s rail %s: clear-to-send can't be posted: %s",
		       mpib_rail_name(recv->cts_rail), comm->dev->hca[recv->cts_rail].name,
		       strerror(r < 0 ? -r : r));
	return mpib_comm_fail(comm, -EIO, text);
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
	req->expected_mask = req->seen_mask = 0;
	req->count = (uint8_t)n;
	req->slot = (uint16_t)slot;
	req->size = 0;
	fill_row(recv, n, data, sizes, tags, mrs, req);
	recv->row[slot] = req;
	r = post_cts(recv, n);
	recv->tail++;
	if (mpib_unlikely(r < 0))
		return r;

	comm->counters->rail[recv->cts_rail].cts++;
	*ret = req;
	return 0;
}

/* ---- completions ---------------------------------------------------------------------------- */

static int protocol_error(struct mpib_recv_comm *recv, unsigned int rail, uint32_t imm,
			  const char *what)
{
	char text[200];

	(void)snprintf(text, sizeof(text), "%s rail %s: immediate 0x%08x: %s", mpib_rail_name(rail),
		       recv->base.dev->hca[rail].name, imm, what);
	return mpib_comm_fail(&recv->base, -EPROTO, text);
}

/* Every rail of the row has reported: fix the exact sizes. */
static int complete(struct mpib_recv_comm *recv, struct mpib_request *req, unsigned int rail,
		    uint32_t imm)
{
	struct mpib_comm *comm = &recv->base;
	unsigned int unused = comm->data_mask & ~(unsigned int)req->expected_mask;
	uint64_t *record = &recv->records[req->slot * MPIB_GROUP_MAX];

	recv->row[req->slot] = NULL;
	recv->carried |= req->expected_mask;
	for (unsigned int idle = 0; unused && idle < MPIB_RAIL_MAX; idle++) {
		if (!(unused & mpib_rail_bit(idle)))
			continue;
		recv->reserved[idle]--;
		mpib_srq_release(&comm->dev->hca[idle]);
	}

	if (req->imm_size == MPIB_IMM_SIZE_RECORD) {
		for (unsigned int k = 0; k < req->count; k++)
			req->sizes[k] = atomic_load_explicit((_Atomic uint64_t *)&record[k],
							     memory_order_acquire);
	} else {
		if (req->count != 1 || req->imm_size != mpib_imm_size_q(req->size))
			return protocol_error(recv, rail, imm,
					      "its size is not that of the data that arrived");
		req->sizes[0] = req->size;
	}
	for (unsigned int k = 0; k < req->count; k++)
		if (req->sizes[k] > req->room[k])
			return protocol_error(recv, rail, imm,
					      "the message is larger than the posted receive");
	comm->counters->messages += req->count;
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

static int on_immediate(struct mpib_recv_comm *recv, unsigned int rail, uint32_t imm,
			uint32_t byte_len)
{
	bool reserved = recv->reserved[rail] != 0;
	struct mpib_comm *comm = &recv->base;
	struct mpib_request *req = recv->row[mpib_imm_slot(imm)];
	unsigned int mask = mpib_imm_mask(imm), bit = mpib_rail_bit(rail);

	take_receive(recv, rail);
	if (mpib_unlikely(!req))
		return protocol_error(recv, rail, imm, "no receive is posted in its slot");
	if (mpib_unlikely(!reserved))
		return protocol_error(recv, rail, imm, "more messages than receives");
	comm->counters->rail[rail].requests++;

	if (req->expected_mask == 0) {
		if (mpib_unlikely(!(mask & bit) || mask & ~comm->data_mask))
			return protocol_error(recv, rail, imm, "it names rails that can't be");
		req->expected_mask = (uint8_t)mask;
		req->imm_size = mpib_imm_size(imm);
		req->remaining = mask == 3 ? 2 : 1;
	} else if (mpib_unlikely(mask != req->expected_mask || req->seen_mask & bit ||
				 mpib_imm_size(imm) != req->imm_size)) {
		return protocol_error(recv, rail, imm, "it contradicts the other rail's");
	}
	req->seen_mask |= (uint8_t)bit;
	if (req->imm_size != MPIB_IMM_SIZE_RECORD) {
		req->size += byte_len;
		comm->counters->rail[rail].bytes += byte_len;
	}
	if (req->seen_mask == req->expected_mask) {
		int r = complete(recv, req, rail, imm);

		if (r < 0)
			return r;
	}
	req->remaining--; /* last: done only when nothing of it can still arrive */
	return 0;
}

void mpib_recv_used(struct mpib_recv_comm *recv, unsigned int rail, const struct ibv_wc *wc)
{
	if (wc->wr_id == MPIB_WR_RECV)
		take_receive(recv, rail);
}

int mpib_recv_completion(struct mpib_recv_comm *recv, unsigned int rail, const struct ibv_wc *wc)
{
	if (mpib_likely(wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM))
		return on_immediate(recv, rail, ntohl(wc->imm_data), wc->byte_len);
	if (wc->opcode == IBV_WC_RDMA_READ) { /* of a flush */
		recv->base.pool.requests[MPIB_WR_INDEX(wc->wr_id)].remaining--;
		return 0;
	}

	/* A signalled CTS write: the queue is free of it and of all before it. */
	recv->cts_reaped = (uint32_t)wc->wr_id + 1;
	return 0;
}
