/* SPDX-License-Identifier: Apache-2.0 */
/* isend: what is unusual about single messages, and the set-up. The usual message is in send.h,
 * groups are in send_group.c and .h, those that are cut in send_slow.c. */
#include "plugin/data/send.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plugin/data/send_group.h"

/* The largest size that size_q carries without being cut to its maximum. */
#define WHOLE_MAX (((size_t)MPIB_IMM_SIZE_RECORD << 7) - 1)

int mpib_send_not_now(struct mpib_send_comm *send)
{
	struct mpib_comm *comm = &send->base;

	comm->counters->stalls++;
	if (mpib_unlikely(atomic_load_explicit(&comm->flags, memory_order_relaxed)))
		return mpib_comm_check(comm);
	return 0;
}

__attribute__((cold)) int mpib_send_too_large(struct mpib_send_comm *send, size_t size,
					      const struct mpib_cts *cts)
{
	char text[160];

	(void)snprintf(text, sizeof(text),
		       "a message of %zu bytes (tag 0x%x) met a receive of %llu bytes: nothing was "
		       "sent",
		       size, cts->tag, (unsigned long long)mpib_cts_size(cts));
	return mpib_comm_fail(&send->base, -EPROTO, text);
}

__attribute__((cold)) int mpib_send_post_failed(struct mpib_send_comm *send, unsigned int rail,
						int r)
{
	struct mpib_comm *comm = &send->base;
	char text[160];

	(void)snprintf(text, sizeof(text), "%s rail %s: ibv_post_send failed: %s",
		       mpib_rail_name(rail), comm->dev->hca[rail].name, strerror(r < 0 ? -r : r));
	return mpib_comm_verb_failed(comm, text);
}

unsigned int mpib_send_empty_mask(const struct mpib_send_comm *send, uint32_t share)
{
	return mpib_rail_bit(mpib_split_whole(0, share, send->split_min) >= MPIB_SHARE_MAX
				     ? MPIB_SUP
				     : MPIB_SOUT);
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

bool mpib_send_arrived(struct mpib_send_comm *send)
{
	unsigned int flags = atomic_load_explicit(&send->base.flags, memory_order_acquire);
	struct mpib_comm *comm = &send->base;
	bool out[MPIB_REQUESTS_MAX];

	if (!(flags & MPIB_FLAG_PEER_ROWS) || comm->bye_rows != send->head || comm->error ||
	    comm->busy & MPIB_BUSY_CLOSED)
		return false;
	memset(out, true, sizeof(out));
	for (const struct mpib_request *req = comm->pool.free; req; req = req->mate)
		out[req->index] = false;
	if (send->group.left) /* being collected, in the row that comes next */
		for (const struct mpib_request *req = send->group.head; req; req = req->mate)
			out[req->index] = false;
	for (unsigned int k = 0; k < MPIB_REQUESTS_MAX; k++)
		if (out[k])
			comm->pool.requests[k].remaining = 0;
	comm->polled[MPIB_SOUT] = comm->polled[MPIB_SUP] = 0;
	send->group.left = 0;
	comm->busy = MPIB_BUSY_CLOSED;
	return true;
}

/* ---- set-up --------------------------------------------------------------------------------- */

void mpib_send_prepare(struct mpib_send_comm *send)
{
	struct mpib_comm *comm = &send->base;

	send->max_uncut = WHOLE_MAX;
	for (unsigned int k = 0; k < MPIB_REQUESTS_MAX; k++)
		comm->pool.requests[k].count = 1;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		unsigned int n = comm->nqps[rail];

		send->at[rail] = n ? &send->qps[rail][0] : NULL;
		mpib_group_prepare(send, rail);
		if (!(comm->rail_mask & mpib_rail_bit(rail)))
			continue;
		for (unsigned int k = 0; k < n; k++)
			send->qps[rail][k] = (struct mpib_send_qp){
				.qp = comm->qp[rail][k],
				.next = &send->qps[rail][k + 1 == n ? 0 : k + 1],
				.index = k,
			};
		send->wr[rail].num_sge = 1;
		if (send->max_msg[rail] < send->max_uncut)
			send->max_uncut = send->max_msg[rail];
	}
	send->max_whole = send->max_uncut < send->ar_above ? send->max_uncut : send->ar_above;
}
