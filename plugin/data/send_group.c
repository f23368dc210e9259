/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: what is done once a row. */
#include "plugin/data/send_group.h"

#include <errno.h>

/* Looks at the row at head: 1 and a group is being collected, 0 not now, or an error. */
static int begin(struct mpib_send_comm *send)
{
	struct mpib_group *group = &send->group;
	unsigned int slot = send->head % MPIB_ROWS, n;
	struct mpib_cts *row = send->cts[slot].element;

	if (send->base.busy & MPIB_BUSY_SLOW)
		return 0; /* test() goes on with it */
	if (mpib_cts_seq(&row[0]) != send->head + 1)
		return mpib_send_not_now(send);
	n = atomic_load_explicit((_Atomic uint8_t *)&row[0].count, memory_order_relaxed);
	if (n == 0 || n > MPIB_GROUP_MAX)
		return mpib_comm_fail(&send->base, -EPROTO,
				      "a clear-to-send row names a wrong count");
	/* All of it must be here. */
	for (unsigned int k = 1; k < n; k++)
		if (mpib_cts_seq(&row[k]) != send->head + 1)
			return mpib_send_not_now(send);

	group->row = row;
	group->size = n;
	group->left = (1u << n) - 1;
	group->record = &send->records[slot * MPIB_RECORD_NUMBERS];
	group->sup_before = send->base.counters->rail[MPIB_SUP].bytes;
	group->head = NULL;
	group->cut = false;
	send->base.busy = MPIB_BUSY_GROUP;
	return 1;
}

/* The first message of the row that has @tag and is not matched yet; MPIB_GROUP_MAX: none. */
static unsigned int find(const struct mpib_group *group, uint32_t tag)
{
	for (unsigned int k = 0; k < group->size; k++)
		if (group->left & 1u << k && group->row[k].tag == tag)
			return k;
	return MPIB_GROUP_MAX;
}

static unsigned int filled(const struct mpib_group_wrs *wrs)
{
	return (unsigned int)(&wrs->wr[MPIB_GROUP_MAX] - wrs->at);
}

/* One post a rail: the data, and the write-with-immediate that ends the row. */
static inline __attribute__((always_inline)) int post(struct mpib_send_comm *send,
						      unsigned int rail, unsigned int mask)
{
	const struct mpib_send_qp *qp = mpib_send_next_qp(send, rail);
	struct mpib_comm *comm = &send->base;
	struct mpib_group *group = &send->group;
	struct mpib_group_wrs *wrs = &group->wrs[rail];
	struct mpib_wr *at = wrs->at, *final = &wrs->wr[MPIB_GROUP_MAX];
	unsigned int slot = send->head % MPIB_ROWS, len = filled(wrs) + 1;
	int r;

	/* The leader takes the record along. */
	final->wr.num_sge = rail == MPIB_SOUT || mask == mpib_rail_bit(MPIB_SUP);
	final->wr.imm_data = htonl(mpib_imm_encode(slot, mask, MPIB_IMM_SIZE_RECORD));
	final->wr.wr_id = group->head->index | (uint64_t)len << 16 | (uint64_t)qp->index << 32 |
			  MPIB_WR_SLOW | MPIB_WR_FINAL;
	final->wr.wr.rdma.remote_addr =
		send->record_addr + slot * MPIB_RECORD_NUMBERS * sizeof(*group->record);
	final->sge.addr = (uint64_t)(uintptr_t)group->record;
	final->sge.length = (1 + group->size) * (uint32_t)sizeof(*group->record);
	send->slow_used[rail][qp->index] += len;
	comm->polled[rail]++;
	comm->counters->rail[rail].requests += len - 1;
	wrs->at = final;
	r = ibv_post_send(qp->qp, &at->wr, &comm->bad);
	return mpib_unlikely(r) ? mpib_send_post_failed(send, rail, r) : 0;
}

/* Whether the QPs that are next have room for all of it. */
static bool fits(const struct mpib_send_comm *send)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (send->at[rail] && send->slow_used[rail][send->at[rail]->index] +
						      filled(&send->group.wrs[rail]) + 1 >
					      MPIB_SQ_SLOW)
			return false;
	return true;
}

/* What was filled in is not posted: the pieces will be counted as they are. */
static __attribute__((noinline, cold)) int start_slow(struct mpib_send_comm *send)
{
	struct mpib_counter_rail *counters = send->base.counters->rail;

	for (const struct mpib_request *req = send->group.head; req; req = req->mate) {
		counters[MPIB_SOUT].bytes -= req->size - req->sup_bytes;
		counters[MPIB_SUP].bytes -= req->sup_bytes;
	}
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		struct mpib_group_wrs *wrs = &send->group.wrs[rail];

		wrs->at = &wrs->wr[MPIB_GROUP_MAX];
	}
	return mpib_slow_start(send);
}

int mpib_group_start(struct mpib_send_comm *send)
{
	const struct mpib_group *group = &send->group;
	unsigned int sout = filled(&group->wrs[MPIB_SOUT]), sup = filled(&group->wrs[MPIB_SUP]);
	unsigned int mask;

	group->record[0] = send->base.counters->rail[MPIB_SUP].bytes - group->sup_before;
	if (mpib_unlikely(group->cut || !fits(send)))
		return start_slow(send);

	mask = mpib_send_mask(sout, sup);
	if (mpib_unlikely(!mask))
		mask = mpib_send_empty_mask(send, mpib_policy_share(send));
	group->head->rails = (uint8_t)(mask - (mask >> 1)); /* bits of a mask of two */
	if (mask & mpib_rail_bit(MPIB_SOUT)) {
		int r = post(send, MPIB_SOUT, mask);

		if (mpib_unlikely(r < 0))
			return r;
	}
	if (mask & mpib_rail_bit(MPIB_SUP)) {
		int r = post(send, MPIB_SUP, mask);

		if (mpib_unlikely(r < 0))
			return r;
	}
	send->head++;
	send->base.busy = 0;
	return 0;
}

int mpib_isend_group(struct mpib_send_comm *send, void *data, size_t size, int tag,
		     const struct mpib_mr *mr, struct mpib_request **ret)
{
	static const struct mpib_mr no_mr; /* an empty message may come without */
	struct mpib_group *group = &send->group;
	const struct mpib_cts *cts;
	unsigned int k;

	if (mpib_unlikely(send->base.busy & (MPIB_BUSY_FAILED | MPIB_BUSY_CLOSED)))
		return send->base.error ? send->base.error : mpib_send_not_now(send);
	if (!group->left) {
		int r = begin(send);

		if (r <= 0)
			return r;
	}
	k = find(group, (uint32_t)tag);
	if (k == MPIB_GROUP_MAX)
		return mpib_send_not_now(send);
	cts = &group->row[k];
	if (mpib_unlikely(size > mpib_cts_size(cts)))
		return mpib_send_too_large(send, size, cts);
	if (mpib_unlikely(!send->base.pool.free))
		return 0;
	group->cut |= size > send->max_uncut;
	return mpib_group_add(send, k, mpib_policy_share(send), data, size, mr ? mr : &no_mr, ret);
}

int mpib_isend_odd(struct mpib_send_comm *send, void *data, size_t size, int tag,
		   const struct mpib_mr *mr, struct mpib_request **ret)
{
	static const struct mpib_mr no_mr;
	const struct mpib_cts *cts = send->cts[send->head % MPIB_ROWS].element;
	struct mpib_comm *comm = &send->base;
	uint32_t share = mpib_policy_share(send), imm;
	size_t sup = mpib_split_sup(size, mpib_split_whole(size, share, send->split_min));
	size_t start[MPIB_RAIL_MAX] = { 0, size - sup }, len[MPIB_RAIL_MAX] = { size - sup, sup };
	unsigned int mask = mpib_send_mask(size - sup, sup);
	struct mpib_request *req;

	if (size > mpib_cts_size(cts))
		return mpib_send_too_large(send, size, cts);
	if (len[MPIB_SOUT] > send->max_msg[MPIB_SOUT] || len[MPIB_SUP] > send->max_msg[MPIB_SUP] ||
	    size > send->ar_above)
		return mpib_isend_group(send, data, size, tag, mr, ret);
	req = mpib_request_get(&comm->pool);
	if (!req)
		return 0;
	if (!mask)
		mask = mpib_send_empty_mask(send, share);
	imm = htonl(mpib_imm_encode(send->head, mask, mpib_imm_size_q(size)));
	req->remaining = mask == 3 ? 2 : 1;
	req->size = size;
	send->head++;
	comm->counters->share = share;
	comm->counters->messages++;
	*ret = req;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r;

		if (!(mask & mpib_rail_bit(rail)))
			continue;
		mpib_send_fill(send, rail, req, cts, mr ? mr : &no_mr, (uint64_t)(uintptr_t)data,
			       start[rail], len[rail], imm);
		send->wr[rail].num_sge = len[rail] != 0;
		r = mpib_send_post(send, rail);
		send->wr[rail].num_sge = 1;
		if (r < 0)
			return r;
	}
	return 0;
}
