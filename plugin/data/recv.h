/* SPDX-License-Identifier: Apache-2.0 */
/*
 * irecv of the usual receive: one message, with a registration, whose clear-to-send asks for no
 * completion. Inline: its one caller is the entry point itself.
 */
#ifndef MPIB_PLUGIN_RECV_H
#define MPIB_PLUGIN_RECV_H

#include "plugin/data/transfer.h"
#include "plugin/verbs/srq.h"

/* Any receive; looks at everything that the usual one takes for granted. */
int mpib_irecv_row(struct mpib_recv_comm *recv, int n, void **data, const size_t *sizes,
		   const int *tags, struct mpib_mr **mrs, struct mpib_request **ret);

/* Fails the connection. */
int mpib_recv_cts_failed(struct mpib_recv_comm *recv, int r);

/* A receive reserved on each rail that may bring the data of one more row. False: on none. */
static inline __attribute__((always_inline)) bool mpib_recv_reserve(
	struct mpib_recv_comm *recv, bool (*reserve)(struct mpib_hca *hca))
{
	unsigned int rails = recv->base.data_mask;

	if (rails & mpib_rail_bit(MPIB_SOUT)) {
		if (mpib_unlikely(!reserve(recv->hca[MPIB_SOUT])))
			return false;
		recv->reserved[MPIB_SOUT]++;
	}
	if (rails & mpib_rail_bit(MPIB_SUP)) {
		if (mpib_unlikely(!reserve(recv->hca[MPIB_SUP]))) {
			if (rails & mpib_rail_bit(MPIB_SOUT)) {
				recv->reserved[MPIB_SOUT]--;
				mpib_srq_release(recv->hca[MPIB_SOUT]);
			}
			return false;
		}
		recv->reserved[MPIB_SUP]++;
	}
	return true;
}

/* Whether a receive of one goes the short way; if so, what it needs is reserved. What says no here
 * is looked at again by mpib_irecv_row: nothing has to outlive a call in the middle. */
static inline __attribute__((always_inline)) bool mpib_recv_usual(struct mpib_recv_comm *recv,
								  const struct mpib_mr *mr)
{
	return mpib_likely(mr != NULL) && mpib_likely(!recv->base.error) &&
	       mpib_likely(recv->tail != recv->one_until) &&
	       mpib_likely(!recv->row[recv->tail % MPIB_ROWS]) &&
	       mpib_likely(recv->base.pool.free != NULL) &&
	       mpib_recv_reserve(recv, mpib_srq_reserve_spare);
}

static inline __attribute__((always_inline)) int mpib_irecv_one(struct mpib_recv_comm *recv,
								void *data, size_t size, int tag,
								const struct mpib_mr *mr,
								struct mpib_request **ret)
{
	struct mpib_cts *cts = &recv->cts_one;
	struct ibv_send_wr *wr = &recv->cts_wr;
	uint32_t tail = recv->tail;
	unsigned int slot = tail % MPIB_ROWS;
	struct mpib_request *req = mpib_request_get(&recv->base.pool);
	int r;

	req->remaining = 1;
	req->imm = 0;
	req->count = 1;
	req->room[0] = size;
	recv->row[slot] = req;
	recv->tail = tail + 1;
	*ret = req;
	cts->addr = (uint64_t)(uintptr_t)data;
	__builtin_memcpy(cts->rkey, mr->rkey, sizeof(cts->rkey));
	cts->size_low = (uint32_t)size;
	cts->size_high = (uint16_t)(size >> 32);
	cts->tag = (uint32_t)tag;
	cts->seq = tail + 1;
	wr->wr.rdma.remote_addr = recv->cts_addr + slot * sizeof(struct mpib_cts_row);
	(*recv->cts_count)++;
	r = ibv_post_send(recv->cts_qp, wr, &recv->base.bad);
	return mpib_unlikely(r) ? mpib_recv_cts_failed(recv, r) : 0;
}

#endif
