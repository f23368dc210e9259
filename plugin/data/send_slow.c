/* SPDX-License-Identifier: Apache-2.0 */
/* Groups and single messages that a port can't carry in one request, or that find no room in the
 * send queues: posted in batches, piece by piece, and gone on with as completions make room. */
#include "plugin/data/send_group.h"

#include <string.h>

#define BATCH_MAX 32 /* work requests in one post */

static void part_of(const struct mpib_request *req, unsigned int rail, size_t *ret_start,
		    size_t *ret_len)
{
	*ret_start = rail == MPIB_SOUT ? 0 : req->size - req->sup_bytes;
	*ret_len = rail == MPIB_SOUT ? req->size - req->sup_bytes : req->sup_bytes;
}

/* The batch of one post: chained work requests, the last one signalled. */
struct batch {
	struct mpib_wr wr[BATCH_MAX];
	unsigned int len, limit;
};

static struct mpib_wr *batch_add(struct batch *batch, uint64_t addr, size_t len, uint32_t lkey,
				 uint64_t remote, uint32_t rkey)
{
	struct mpib_wr *wr = &batch->wr[batch->len];

	memset(wr, 0, sizeof(*wr));
	wr->wr.opcode = IBV_WR_RDMA_WRITE;
	wr->wr.sg_list = &wr->sge;
	wr->wr.num_sge = len ? 1 : 0;
	wr->wr.wr.rdma.remote_addr = remote;
	wr->wr.wr.rdma.rkey = rkey;
	wr->sge.addr = addr;
	wr->sge.length = (uint32_t)len;
	wr->sge.lkey = lkey;
	if (batch->len)
		batch->wr[batch->len - 1].wr.next = &wr->wr;
	batch->len++;
	return wr;
}

/* Adds data pieces of the row on @rail; true when none is left. */
static bool add_pieces(struct mpib_send_comm *send, unsigned int rail, struct batch *batch)
{
	struct mpib_counter_rail *counters = &send->base.counters->rail[rail];
	struct mpib_slow_post *slow = &send->slow;
	unsigned int at = 0;

	for (struct mpib_request *req = slow->head; req; req = req->mate, at++) {
		const struct mpib_cts *cts = &send->group.row[req->element];
		size_t start, len;

		if (at < slow->rail[rail].entry)
			continue;
		part_of(req, rail, &start, &len);
		while (slow->rail[rail].offset < len) {
			size_t piece = len - slow->rail[rail].offset;
			size_t offset = start + slow->rail[rail].offset;

			if (batch->len == batch->limit)
				return false;
			if (piece > send->max_msg[rail])
				piece = send->max_msg[rail];
			(void)batch_add(batch, req->addr + offset, piece, req->mr->lkey[rail],
					cts->addr + offset, cts->rkey[rail]);
			slow->rail[rail].offset += piece;
			counters->bytes += piece;
			counters->requests++;
		}
		slow->rail[rail].entry++;
		slow->rail[rail].offset = 0;
	}
	return batch->len < batch->limit;
}

/* The write-with-immediate that ends the row on @rail. */
static void add_final(struct mpib_send_comm *send, unsigned int rail, struct batch *batch)
{
	struct mpib_comm *comm = &send->base;
	struct mpib_slow_post *slow = &send->slow;
	unsigned int leader = slow->mask & mpib_rail_bit(MPIB_SOUT) ? MPIB_SOUT : MPIB_SUP;
	const uint64_t *numbers = send->group.record;
	uint64_t record = send->record_addr + slow->slot * MPIB_RECORD_NUMBERS * sizeof(*numbers);
	struct mpib_wr *wr;

	wr = batch_add(batch, (uint64_t)(uintptr_t)numbers,
		       rail == leader ? (1 + slow->count) * sizeof(*numbers) : 0,
		       comm->ring_mr->lkey[rail], record, comm->remote_qps.ring_rkey[rail]);
	wr->wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr->wr.imm_data = htonl(mpib_imm_encode(slow->slot, slow->mask, MPIB_IMM_SIZE_RECORD));
	slow->rail[rail].done = true;
}

static int slow_rail(struct mpib_send_comm *send, unsigned int rail)
{
	struct mpib_comm *comm = &send->base;
	struct mpib_slow_post *slow = &send->slow;
	unsigned int qp = slow->rail[rail].qp;
	struct batch batch;
	struct mpib_wr *last;
	int r;

	batch.len = 0;
	batch.limit = MPIB_SQ_SLOW - send->slow_used[rail][qp];
	if (batch.limit > BATCH_MAX)
		batch.limit = BATCH_MAX;
	if (batch.limit == 0)
		return 0;

	if (add_pieces(send, rail, &batch))
		add_final(send, rail, &batch);

	last = &batch.wr[batch.len - 1];
	last->wr.send_flags = IBV_SEND_SIGNALED;
	last->wr.wr_id = slow->head->index | (uint64_t)batch.len << 16 | (uint64_t)qp << 32 |
			 MPIB_WR_SLOW | (slow->rail[rail].done ? MPIB_WR_FINAL : 0);
	send->slow_used[rail][qp] += batch.len;
	comm->polled[rail]++;
	r = ibv_post_send(comm->qp[rail][qp], &batch.wr[0].wr, &comm->bad);
	return r ? mpib_send_post_failed(send, rail, r) : 0;
}

int mpib_send_slow(struct mpib_send_comm *send)
{
	struct mpib_slow_post *slow = &send->slow;
	bool left = false;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		unsigned int used = UINT32_MAX;

		/* Batch after batch until the rail is done or its queue has no room. */
		while (slow->mask & mpib_rail_bit(rail) && !slow->rail[rail].done &&
		       used != send->slow_used[rail][slow->rail[rail].qp]) {
			int r;

			used = send->slow_used[rail][slow->rail[rail].qp];
			r = slow_rail(send, rail);
			if (r < 0)
				return r;
		}
		left |= slow->mask & mpib_rail_bit(rail) && !slow->rail[rail].done;
	}
	send->base.busy = left ? MPIB_BUSY_SLOW : 0;
	return 0;
}

/* All messages of the row at head are here: start posting them, piece by piece. */
int mpib_slow_start(struct mpib_send_comm *send)
{
	struct mpib_slow_post *slow = &send->slow;
	size_t sout = 0, sup = 0;

	memset(slow, 0, sizeof(*slow));
	slow->slot = send->head % MPIB_ROWS;
	slow->count = send->group.size;
	slow->head = send->group.head;
	for (const struct mpib_request *req = slow->head; req; req = req->mate) {
		sout += req->size - req->sup_bytes;
		sup += req->sup_bytes;
	}
	slow->mask = mpib_send_mask(sout, sup);
	if (!slow->mask)
		slow->mask = mpib_send_empty_mask(send, mpib_policy_share(send));
	slow->head->rails = slow->mask == 3 ? 2 : 1;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (send->at[rail])
			slow->rail[rail].qp = mpib_send_next_qp(send, rail)->index;
	send->head++;
	return mpib_send_slow(send);
}
