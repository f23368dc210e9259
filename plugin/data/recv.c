/* SPDX-License-Identifier: Apache-2.0 */
/* irecv: reserve a receive on each rail that may bring the data, and write the clear-to-send row to
 * the sender. The usual receive is in recv.h; here are rows of several, and rows whose write asks
 * for a completion. */
#include "plugin/data/recv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

__attribute__((cold)) int mpib_recv_cts_failed(struct mpib_recv_comm *recv, int r)
{
	struct mpib_comm *comm = &recv->base;
	char text[160];

	(void)snprintf(text, sizeof(text), "%s rail %s: clear-to-send can't be posted: %s",
		       mpib_rail_name(recv->cts_rail), comm->dev->hca[recv->cts_rail].name,
		       strerror(r < 0 ? -r : r));
	return mpib_comm_verb_failed(comm, text);
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
	int r;

	if (sge.length <= recv->inline_room)
		wr.send_flags |= IBV_SEND_INLINE;
	if (slot % MPIB_CTS_SIGNAL_SLOTS == 0)
		wr.send_flags |= IBV_SEND_SIGNALED;
	r = ibv_post_send(recv->cts_qp, &wr, &comm->bad);
	return r ? mpib_recv_cts_failed(recv, r) : 0;
}

/* The queue has no room that is known of: looks for completions. 1 where it has. */
static int reap(struct mpib_recv_comm *recv)
{
	int r = mpib_poll_rail(&recv->base, recv->cts_rail);

	if (r < 0)
		return r;
	return recv->tail != recv->cts_limit;
}

/* The next row that asks for a completion, or that the queue may have no room for. */
static uint32_t one_until(const struct mpib_recv_comm *recv)
{
	uint32_t next = (recv->tail | (MPIB_CTS_SIGNAL_SLOTS - 1)) + 1;

	/* Not inline: the row must stay as it is until the device has read it, so the staging of
	 * its slot goes out and not cts_one. */
	if (recv->tail % MPIB_CTS_SIGNAL_SLOTS == 0 || recv->inline_room < sizeof(struct mpib_cts))
		return recv->tail;
	return recv->cts_limit - recv->tail < next - recv->tail ? recv->cts_limit : next;
}

int mpib_irecv_row(struct mpib_recv_comm *recv, int n, void **data, const size_t *sizes,
		   const int *tags, struct mpib_mr **mrs, struct mpib_request **ret)
{
	struct mpib_comm *comm = &recv->base;
	unsigned int slot = recv->tail % MPIB_ROWS;
	struct mpib_request *req;
	int r;

	if (mpib_unlikely(comm->error))
		return comm->error;
	if (mpib_unlikely(n < 1 || n > (int)MPIB_GROUP_MAX))
		return -EINVAL;
	if (mpib_unlikely(recv->tail == recv->cts_limit)) {
		r = reap(recv);
		if (r <= 0)
			return r;
	}
	if (mpib_unlikely(recv->row[slot]))
		return 0;
	req = mpib_request_get(&comm->pool);
	if (mpib_unlikely(!req))
		return 0;
	if (mpib_unlikely(!mpib_recv_reserve(recv, mpib_srq_reserve))) {
		mpib_request_put(&comm->pool, req);
		return 0;
	}

	req->remaining = 1;
	req->imm = 0;
	req->count = (uint8_t)n;
	recv->row[slot] = req;
	fill_row(recv, n, data, sizes, tags, mrs, req);
	r = post_cts(recv, n);
	recv->tail++;
	recv->one_until = one_until(recv);
	if (mpib_unlikely(r < 0))
		return r;

	(*recv->cts_count)++;
	*ret = req;
	return 0;
}
