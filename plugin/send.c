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

/* Where the caller has none: an empty message may come so. */
static const struct mpib_mr no_mr;

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

static __attribute__((cold)) int too_large(struct mpib_send_comm *send, size_t size,
					   const struct mpib_cts *cts)
{
	char text[160];

	(void)snprintf(text, sizeof(text),
		       "a message of %zu bytes (tag 0x%x) met a receive of %llu bytes: nothing was "
		       "sent",
		       size, cts->tag, (unsigned long long)mpib_cts_size(cts));
	return mpib_comm_fail(&send->base, -EPROTO, text);
}

static __attribute__((cold)) int post_failed(struct mpib_comm *comm, unsigned int rail, int r)
{
	char text[160];

	(void)snprintf(text, sizeof(text), "%s rail %s: ibv_post_send failed: %s",
		       mpib_rail_name(rail), comm->dev->hca[rail].name, strerror(r < 0 ? -r : r));
	return mpib_comm_fail(comm, -EIO, text);
}

static struct mpib_send_qp *next_qp(struct mpib_send_comm *send, unsigned int rail)
{
	struct mpib_send_qp *at = send->at[rail];

	send->at[rail] = at->next;
	return at;
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
	comm->polled[rail]++;
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
	send->busy = left;
	return 0;
}

/* All messages of the row at head are here: start posting them, piece by piece. */
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
		if (send->at[rail])
			slow->rail[rail].qp = next_qp(send, rail)->index;

	send->head++;
	send->group_count = send->group_first = 0;
	slow->active = true;
	return mpib_send_slow(send);
}

/* ---- groups within the ports' limits -------------------------------------------------------- */

/* Fills in the work request of a message's part on @rail. */
static void group_add(struct mpib_send_comm *send, unsigned int rail, uint64_t addr, uint64_t len,
		      uint32_t lkey, uint64_t remote, uint32_t rkey)
{
	struct mpib_group_wrs *wrs = &send->group_wrs[rail];
	struct mpib_wr *wr = &wrs->data[MPIB_GROUP_MAX - ++wrs->len];

	wr->sge.addr = addr;
	wr->sge.length = (uint32_t)len;
	wr->sge.lkey = lkey;
	wr->wr.wr.rdma.remote_addr = remote;
	wr->wr.wr.rdma.rkey = rkey;
	send->group_cut |= len > send->max_msg[rail];
	send->base.counters->rail[rail].bytes += len;
}

/* One post a rail: the data, and the write-with-immediate that ends the row. */
static int group_post(struct mpib_send_comm *send, unsigned int rail, unsigned int mask,
		      const struct mpib_send_qp *qp)
{
	struct mpib_comm *comm = &send->base;
	struct mpib_group_wrs *wrs = &send->group_wrs[rail];
	unsigned int slot = send->head % MPIB_ROWS, len = wrs->len + 1;
	unsigned int leader = mask & mpib_rail_bit(MPIB_SOUT) ? MPIB_SOUT : MPIB_SUP;
	struct ibv_send_wr *bad, *final = &wrs->final.wr;
	int r;

	final->num_sge = rail == leader;
	final->imm_data = htonl(mpib_imm_encode(slot, mask, MPIB_IMM_SIZE_RECORD));
	final->wr_id = send->group[0]->index | (uint64_t)len << 16 | (uint64_t)qp->index << 32 |
		       MPIB_WR_SLOW | MPIB_WR_FINAL;
	final->wr.rdma.remote_addr =
		send->record_addr + slot * MPIB_GROUP_MAX * sizeof(*send->sizes);
	wrs->final.sge.addr = (uint64_t)(uintptr_t)&send->sizes[slot * MPIB_GROUP_MAX];
	wrs->final.sge.length = send->group_size * (uint32_t)sizeof(*send->sizes);
	send->slow_used[rail][qp->index] += len;
	comm->polled[rail]++;
	comm->counters->rail[rail].requests += wrs->len;
	r = ibv_post_send(qp->qp, &wrs->data[MPIB_GROUP_MAX - wrs->len].wr, &bad);
	wrs->len = 0;
	return mpib_unlikely(r) ? post_failed(comm, rail, r) : 0;
}

/* Whether the QPs that are next have room for all of it. */
static bool group_fits(const struct mpib_send_comm *send)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (send->at[rail] &&
		    send->slow_used[rail][send->at[rail]->index] + send->group_wrs[rail].len + 1 >
			    MPIB_SQ_SLOW)
			return false;
	return true;
}

/* The row at head is complete. */
static int start_group(struct mpib_send_comm *send, uint32_t share)
{
	unsigned int mask, n = send->group_size;
	uint64_t *sizes = &send->sizes[send->head % MPIB_ROWS * MPIB_GROUP_MAX];

	if (mpib_unlikely(send->group_cut || !group_fits(send))) {
		for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
			/* The pieces will be counted as they are posted. */
			struct mpib_group_wrs *wrs = &send->group_wrs[rail];

			for (; wrs->len; wrs->len--)
				send->base.counters->rail[rail].bytes -=
					wrs->data[MPIB_GROUP_MAX - wrs->len].sge.length;
		}
		send->group_cut = false;
		return start_slow(send, n, share);
	}

	mask = mask_of(send->group_wrs[MPIB_SOUT].len, send->group_wrs[MPIB_SUP].len, share);
	for (unsigned int k = 0; k < n; k++) {
		struct mpib_request *req = send->group[k];

		req->mate = k + 1 < n ? send->group[k + 1] : NULL;
		req->remaining = mask == 3 ? 2 : 1;
		sizes[k] = req->size;
	}
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r;

		if (!(mask & mpib_rail_bit(rail)))
			continue;
		r = group_post(send, rail, mask, next_qp(send, rail));
		if (mpib_unlikely(r < 0))
			return r;
	}
	memset(send->group, 0, n * sizeof(send->group[0]));
	send->head++;
	send->group_count = send->group_first = 0;
	send->busy = false;
	return 0;
}

/* The first call for a row: all of it must be here. The row is the peer's to write: what was found
 * then must stay. Negative, 0 not now, else the count. */
static int group_begin(struct mpib_send_comm *send, const struct mpib_cts *row)
{
	unsigned int n = atomic_load_explicit((_Atomic uint8_t *)(uintptr_t)&row[0].count,
					      memory_order_relaxed);

	if (n == 0 || n > MPIB_GROUP_MAX)
		return mpib_comm_fail(&send->base, -EPROTO,
				      "a clear-to-send row names a wrong count");
	for (unsigned int k = 1; k < n; k++)
		if (cts_seq(&row[k]) != send->head + 1)
			return 0;
	return (int)n;
}

/* The first message of the row that has @tag and is not matched yet; most callers keep the order,
 * so it is the first one that is not matched. */
static unsigned int group_find(const struct mpib_send_comm *send, const struct mpib_cts *row,
			       unsigned int n, uint32_t tag)
{
	unsigned int k = send->group_first;

	if (mpib_likely(row[k].tag == tag))
		return k;
	for (; k < n; k++)
		if (!send->group[k] && row[k].tag == tag)
			break;
	return k;
}

static int isend_slow(struct mpib_send_comm *send, void *data, size_t size, int tag,
		      struct mpib_mr *mr, struct mpib_request **ret)
{
	struct mpib_cts *row = send->cts[send->head % MPIB_ROWS].element;
	struct mpib_comm *comm = &send->base;
	struct mpib_request *req;
	uint64_t addr = (uint64_t)(uintptr_t)data, sout_bytes;
	unsigned int k, n = send->group_size;
	uint32_t share, route;

	if (send->slow.active)
		return 0; /* test() goes on with it */
	if (!send->group_count) {
		int r = group_begin(send, row);

		if (r <= 0)
			return r < 0 ? r : not_now(send);
		n = (unsigned int)r;
	}
	k = group_find(send, row, n, (uint32_t)tag);
	if (k == n)
		return not_now(send);
	if (size > mpib_cts_size(&row[k]))
		return too_large(send, size, &row[k]);
	req = mpib_request_get(&comm->pool);
	if (!req)
		return 0;

	share = mpib_policy_share(send);
	req->size = size;
	req->count = 1;
	route = mpib_split_whole(size, share, send->split_min);
	req->sup_bytes = mpib_split_sup(size, route);
	req->addr = addr;
	req->remote_addr = row[k].addr;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		req->lkey[rail] = mr->lkey[rail];
		req->rkey[rail] = row[k].rkey[rail];
	}
	req->remaining = 1;
	sout_bytes = size - req->sup_bytes;
	if (sout_bytes)
		group_add(send, MPIB_SOUT, addr, sout_bytes, req->lkey[MPIB_SOUT], req->remote_addr,
			  req->rkey[MPIB_SOUT]);
	if (req->sup_bytes)
		group_add(send, MPIB_SUP, addr + sout_bytes, req->sup_bytes, req->lkey[MPIB_SUP],
			  req->remote_addr + sout_bytes, req->rkey[MPIB_SUP]);
	send->group[k] = req;
	while (send->group_first < n && send->group[send->group_first])
		send->group_first++;
	send->group_size = n;
	send->busy = true;
	comm->counters->share = share;
	comm->counters->messages++;
	*ret = req;
	return ++send->group_count == n ? start_group(send, route) : 0;
}

/* ---- the usual message ---------------------------------------------------------------------- */

/* One request on @rail: the work request is prepared but for what is the message's own. */
static inline int post_rail(struct mpib_send_comm *send, unsigned int rail,
			    const struct mpib_request *req, const struct mpib_cts *cts,
			    const struct mpib_mr *mr, uint64_t addr, uint64_t remote, uint64_t len,
			    uint32_t imm)
{
	struct mpib_wr *wr = &send->wr[rail];
	struct mpib_send_qp *at = send->at[rail];
	struct mpib_counter_rail *counters = &send->base.counters->rail[rail];
	struct ibv_send_wr *bad;
	int r;

	wr->wr.wr_id = req->index;
	wr->wr.imm_data = imm;
	wr->wr.wr.rdma.remote_addr = remote;
	wr->wr.wr.rdma.rkey = cts->rkey[rail];
	wr->sge.addr = addr;
	wr->sge.length = (uint32_t)len;
	wr->sge.lkey = mr->lkey[rail];
	send->at[rail] = at->next;
	send->base.polled[rail]++;
	counters->bytes += len;
	counters->requests++;
	r = ibv_post_send(at->qp, &wr->wr, &bad);
	return mpib_unlikely(r) ? post_failed(&send->base, rail, r) : 0;
}

/* An empty message still takes one request, on the rail that isolation would choose. */
static __attribute__((noinline)) int post_empty(struct mpib_send_comm *send, unsigned int rail,
						const struct mpib_request *req,
						const struct mpib_cts *cts, uint32_t imm)
{
	int r;

	send->wr[rail].wr.num_sge = 0;
	r = post_rail(send, rail, req, cts, &no_mr, 0, cts->addr, 0, imm);
	send->wr[rail].wr.num_sge = 1;
	return r;
}

int mpib_isend(struct mpib_comm *comm, void *data, size_t size, int tag, struct mpib_mr *mr,
	       struct mpib_request **ret)
{
	struct mpib_send_comm *send = mpib_send_comm(comm);
	uint32_t head = send->head, share, route;
	unsigned int slot = head % MPIB_ROWS, mask;
	struct mpib_cts *cts = &send->cts[slot].element[0];
	struct mpib_request *req;
	uint64_t addr = (uint64_t)(uintptr_t)data;
	size_t sup, sout;
	uint32_t imm;
	int r;

	*ret = NULL;
	if (mpib_unlikely(comm->error))
		return comm->error;
	if (mpib_unlikely(!mr))
		mr = (struct mpib_mr *)(uintptr_t)&no_mr;
	if (cts_seq(cts) != head + 1)
		return not_now(send);
	if (mpib_unlikely(cts->count != 1 || send->busy))
		return isend_slow(send, data, size, tag, mr, ret);
	if (mpib_unlikely(cts->tag != (uint32_t)tag))
		return not_now(send);
	if (mpib_unlikely(size > mpib_cts_size(cts)))
		return too_large(send, size, cts);

	share = mpib_policy_share(send);
	route = mpib_split_whole(size, share, send->split_min);
	sup = mpib_split_sup(size, route);
	sout = size - sup;
	if (mpib_unlikely(size > send->max_whole) &&
	    (sout > send->max_msg[MPIB_SOUT] || sup > send->max_msg[MPIB_SUP]))
		return isend_slow(send, data, size, tag, mr, ret);
	req = mpib_request_get(&comm->pool);
	if (mpib_unlikely(!req))
		return 0;

	mask = mask_of(sout, sup, route);
	imm = htonl(mpib_imm_encode(slot, mask, mpib_imm_size_q(size)));
	req->remaining = mask - (mask >> 1); /* bits of a mask of two */
	req->count = 1;
	req->size = size;
	send->head = head + 1;
	comm->counters->share = share;
	comm->counters->messages++;
	*ret = req;

	if (mpib_unlikely(!size))
		return post_empty(send, mask >> 1, req, cts, imm);
	if (sout) {
		r = post_rail(send, MPIB_SOUT, req, cts, mr, addr, cts->addr, sout, imm);
		if (mpib_unlikely(r < 0))
			return r;
	}
	if (sup) /* if it fails, the other rail may have posted: the connection has failed */
		return post_rail(send, MPIB_SUP, req, cts, mr, addr + sout, cts->addr + sout, sup,
				 imm);
	return 0;
}

/* ---- set-up --------------------------------------------------------------------------------- */

static void prepare_group(struct mpib_send_comm *send, unsigned int rail)
{
	struct mpib_group_wrs *wrs = &send->group_wrs[rail];
	struct mpib_comm *comm = &send->base;

	for (unsigned int k = 0; k < MPIB_GROUP_MAX; k++) {
		struct mpib_wr *wr = &wrs->data[k];

		wr->wr.opcode = IBV_WR_RDMA_WRITE;
		wr->wr.sg_list = &wr->sge;
		wr->wr.num_sge = 1;
		wr->wr.next = k + 1 < MPIB_GROUP_MAX ? &wrs->data[k + 1].wr : &wrs->final.wr;
	}
	wrs->final.wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wrs->final.wr.send_flags = IBV_SEND_SIGNALED;
	wrs->final.wr.sg_list = &wrs->final.sge;
	wrs->final.wr.wr.rdma.rkey = comm->remote_qps.ring_rkey[rail];
	wrs->final.sge.lkey = comm->ring_mr->lkey[rail];
}

void mpib_send_prepare(struct mpib_send_comm *send)
{
	struct mpib_comm *comm = &send->base;

	send->max_whole = SIZE_MAX;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		unsigned int n = comm->nqps[rail];

		if (!(comm->rail_mask & mpib_rail_bit(rail)))
			continue;
		for (unsigned int k = 0; k < n; k++)
			send->qps[rail][k] = (struct mpib_send_qp){
				.qp = comm->qp[rail][k],
				.next = &send->qps[rail][k + 1 == n ? 0 : k + 1],
				.index = k,
			};
		send->at[rail] = n ? &send->qps[rail][0] : NULL;
		send->wr[rail].wr.num_sge = 1;
		if (send->max_msg[rail] < send->max_whole)
			send->max_whole = send->max_msg[rail];
		prepare_group(send, rail);
	}
}
