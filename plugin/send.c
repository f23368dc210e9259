/* SPDX-License-Identifier: Apache-2.0 */
/* isend: match a clear-to-send row, split, post. The usual message, alone in its row and within
 * the ports' limits, takes one write-with-immediate on each rail that has bytes. Groups and longer
 * messages are posted in batches: plain writes, then a write-with-immediate, which on the leader
 * rail carries the exact sizes into the receiver's completion record. */
#include "plugin/transfer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/split.h"
#include "plugin/imm.h"
#include "plugin/policy.h"

#define BATCH_MAX 32 /* work requests in one post of the slow path */

static uint32_t cts_seq(const struct mpib_cts *cts)
{
	return atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&cts->seq, memory_order_acquire);
}

static unsigned int mask_of(size_t sout_bytes, size_t sup_bytes, uint32_t share)
{
	unsigned int mask = (sout_bytes ? mpib_rail_bit(MPIB_SOUT) : 0) |
			    (sup_bytes ? mpib_rail_bit(MPIB_SUP) : 0);

	/* An empty message still takes one request, on the rail that isolation would choose. */
	if (mpib_unlikely(!mask))
		mask = 1u << (share >= MPIB_SHARE_MAX ? MPIB_SUP : MPIB_SOUT);
	return mask;
}

static int not_now(struct mpib_send_comm *send)
{
	struct mpib_comm *comm = &send->base;

	comm->counters->stalls++;
	if (mpib_unlikely(atomic_load_explicit(&comm->flags, memory_order_relaxed)))
		return mpib_comm_check(comm);
	return 0;
}

static int too_large(struct mpib_send_comm *send, size_t size, const struct mpib_cts *cts)
{
	char text[160];

	(void)snprintf(text, sizeof(text),
		       "a message of %zu bytes (tag 0x%x) met a receive of %llu bytes: nothing was "
		       "sent",
		       size, cts->tag, (unsigned long long)mpib_cts_size(cts));
	return mpib_comm_fail(&send->base, -EPROTO, text);
}

static int post_failed(struct mpib_comm *comm, unsigned int rail, int r)
{
	char text[160];

	(void)snprintf(text, sizeof(text), "%s rail %s: ibv_post_send failed: %s",
		       mpib_rail_name(rail), comm->dev->hca[rail].name, strerror(r < 0 ? -r : r));
	return mpib_comm_fail(comm, -EIO, text);
}

static unsigned int next_qp(struct mpib_send_comm *send, unsigned int rail)
{
	unsigned int qp = send->qp_next[rail];

	send->qp_next[rail] = qp + 1 == send->base.nqps[rail] ? 0 : qp + 1;
	return qp;
}

static void count(struct mpib_comm *comm, unsigned int rail, size_t bytes, unsigned int requests)
{
	comm->counters->rail[rail].bytes += bytes;
	comm->counters->rail[rail].requests += requests;
}

/* ---- groups and cut messages ---------------------------------------------------------------- */

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
	struct mpib_slow_post *slow = &send->slow;
	unsigned int at = 0;

	for (struct mpib_request *req = slow->head; req; req = req->mate, at++) {
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
			(void)batch_add(batch, req->addr + offset, piece, req->lkey[rail],
					req->remote_addr + offset, req->rkey[rail]);
			slow->rail[rail].offset += piece;
			count(&send->base, rail, piece, 1);
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
	uint64_t *sizes = &send->sizes[slow->slot * MPIB_GROUP_MAX];
	uint64_t record = send->record_addr + slow->slot * MPIB_GROUP_MAX * sizeof(*sizes);
	struct mpib_wr *wr;

	wr = batch_add(batch, (uint64_t)(uintptr_t)sizes,
		       rail == leader ? slow->count * sizeof(*sizes) : 0, comm->ring_mr->lkey[rail],
		       record, comm->remote_qps.ring_rkey[rail]);
	wr->wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr->wr.imm_data = htonl(mpib_imm_encode(slow->slot, slow->mask, MPIB_IMM_SIZE_RECORD));
	slow->rail[rail].done = true;
}

static int slow_rail(struct mpib_send_comm *send, unsigned int rail)
{
	struct mpib_comm *comm = &send->base;
	struct mpib_slow_post *slow = &send->slow;
	unsigned int qp = slow->rail[rail].qp;
	struct ibv_send_wr *bad;
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
	send->pending[rail]++;
	r = ibv_post_send(comm->qp[rail][qp], &batch.wr[0].wr, &bad);
	return r ? post_failed(comm, rail, r) : 0;
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
	slow->active = left;
	return 0;
}

/* All messages of the row at head are here: start posting them. */
static int start_slow(struct mpib_send_comm *send, unsigned int n, uint32_t share)
{
	struct mpib_slow_post *slow = &send->slow;
	size_t sout = 0, sup = 0;
	uint32_t rails;

	memset(slow, 0, sizeof(*slow));
	slow->slot = send->head % MPIB_ROWS;
	slow->count = n;
	slow->head = send->group[0];
	for (unsigned int k = 0; k < n; k++) {
		struct mpib_request *req = send->group[k];

		req->mate = k + 1 < n ? send->group[k + 1] : NULL;
		send->sizes[slow->slot * MPIB_GROUP_MAX + k] = req->size;
		sout += req->size - req->sup_bytes;
		sup += req->sup_bytes;
		send->group[k] = NULL;
	}
	slow->mask = mask_of(sout, sup, share);
	rails = slow->mask == 3 ? 2 : 1;
	for (struct mpib_request *req = slow->head; req; req = req->mate)
		req->remaining = rails;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (send->base.nqps[rail])
			slow->rail[rail].qp = next_qp(send, rail);

	send->head++;
	send->group_count = 0;
	slow->active = true;
	return mpib_send_slow(send);
}

static int isend_slow(struct mpib_send_comm *send, void *data, size_t size, int tag,
		      struct mpib_mr *mr, struct mpib_request **ret)
{
	struct mpib_cts *row = send->cts[send->head % MPIB_ROWS].element;
	struct mpib_comm *comm = &send->base;
	struct mpib_request *req;
	unsigned int n, k;
	uint32_t share;

	if (send->slow.active)
		return 0; /* test() goes on with it */
	/* The row is the peer's to write: what its first match found must stay. */
	n = atomic_load_explicit((_Atomic uint8_t *)&row[0].count, memory_order_relaxed);
	if (n == 0 || n > MPIB_GROUP_MAX || (send->group_count && n != send->group_size))
		return mpib_comm_fail(comm, -EPROTO, "a clear-to-send row names a wrong count");
	for (k = 1; k < n; k++)
		if (cts_seq(&row[k]) != send->head + 1)
			return not_now(send);
	for (k = 0; k < n; k++)
		if (!send->group[k] && row[k].tag == (uint32_t)tag)
			break;
	if (k == n)
		return not_now(send);
	if (size > mpib_cts_size(&row[k]))
		return too_large(send, size, &row[k]);
	req = mpib_request_get(&comm->pool);
	if (!req)
		return 0;

	share = mpib_policy_share(send);
	req->size = size;
	req->sup_bytes = mpib_split_sup(size, share);
	req->addr = (uint64_t)(uintptr_t)data;
	req->remote_addr = row[k].addr;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		req->lkey[rail] = mr ? mr->lkey[rail] : 0;
		req->rkey[rail] = row[k].rkey[rail];
	}
	req->remaining = 1;
	req->mate = NULL;
	send->group[k] = req;
	send->group_size = n;
	comm->counters->share = share;
	comm->counters->messages++;
	*ret = req;
	return ++send->group_count == n ? start_slow(send, n, share) : 0;
}

/* ---- the usual message ---------------------------------------------------------------------- */

static inline int post_rail(struct mpib_send_comm *send, unsigned int rail, unsigned int qp,
			    uint64_t addr, size_t len, uint32_t lkey)
{
	struct mpib_wr *wr = &send->wr[rail];
	struct ibv_send_wr *bad;
	int r;

	wr->sge.addr = addr;
	wr->sge.length = (uint32_t)len;
	wr->sge.lkey = lkey;
	wr->wr.num_sge = len ? 1 : 0;
	send->pending[rail]++;
	count(&send->base, rail, len, 1);
	r = ibv_post_send(send->base.qp[rail][qp], &wr->wr, &bad);
	return mpib_unlikely(r) ? post_failed(&send->base, rail, r) : 0;
}

int mpib_isend(struct mpib_comm *comm, void *data, size_t size, int tag, struct mpib_mr *mr,
	       struct mpib_request **ret)
{
	struct mpib_send_comm *send = mpib_send_comm(comm);
	unsigned int slot = send->head % MPIB_ROWS;
	struct mpib_cts *cts = &send->cts[slot].element[0];
	struct mpib_request *req;
	size_t bytes[MPIB_RAIL_MAX];
	unsigned int mask;
	uint32_t share, imm;

	*ret = NULL;
	if (mpib_unlikely(comm->error))
		return comm->error;
	if (cts_seq(cts) != send->head + 1)
		return not_now(send);
	if (mpib_unlikely(cts->count != 1 || send->slow.active || send->group_count))
		return isend_slow(send, data, size, tag, mr, ret);
	if (mpib_unlikely(cts->tag != (uint32_t)tag))
		return not_now(send);
	if (mpib_unlikely(size > mpib_cts_size(cts)))
		return too_large(send, size, cts);

	share = mpib_policy_share(send);
	bytes[MPIB_SUP] = mpib_split_sup(size, share);
	bytes[MPIB_SOUT] = size - bytes[MPIB_SUP];
	if (mpib_unlikely(bytes[MPIB_SOUT] > send->max_msg[MPIB_SOUT] ||
			  bytes[MPIB_SUP] > send->max_msg[MPIB_SUP]))
		return isend_slow(send, data, size, tag, mr, ret);
	req = mpib_request_get(&comm->pool);
	if (mpib_unlikely(!req))
		return 0;

	mask = mask_of(bytes[MPIB_SOUT], bytes[MPIB_SUP], share);
	imm = htonl(mpib_imm_encode(slot, mask, mpib_imm_size_q(size)));
	req->remaining = mask == 3 ? 2 : 1;
	req->mate = NULL;
	req->size = size;
	send->head++;
	comm->counters->share = share;
	comm->counters->messages++;
	*ret = req;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		struct mpib_wr *wr = &send->wr[rail];
		size_t offset = rail == MPIB_SOUT ? 0 : bytes[MPIB_SOUT];
		unsigned int qp = next_qp(send, rail);
		int r;

		if (!(mask & mpib_rail_bit(rail)))
			continue;
		wr->wr.wr_id = req->index;
		wr->wr.imm_data = imm;
		wr->wr.wr.rdma.remote_addr = cts->addr + offset;
		wr->wr.wr.rdma.rkey = cts->rkey[rail];
		r = post_rail(send, rail, qp, (uint64_t)(uintptr_t)data + offset, bytes[rail],
			      mr ? mr->lkey[rail] : 0);
		if (mpib_unlikely(r < 0))
			return r; /* the other rail may have posted: the connection has failed */
	}
	return 0;
}
