/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isend of the usual message: alone in its row, not empty, and within what one request of a port
 * carries. It takes one write-with-immediate on each rail that has bytes. Inline: its one caller is
 * the entry point itself. What is unusual is in send.c, groups are in send_group.h.
 */
#ifndef MPIB_PLUGIN_SEND_H
#define MPIB_PLUGIN_SEND_H

#include <arpa/inet.h>

#include "common/split.h"
#include "plugin/data/policy.h"
#include "plugin/data/transfer.h"
#include "plugin/wire/imm.h"

/* An answer "not now" for want of a clear-to-send: 0, or why there will be none any more. */
int mpib_send_not_now(struct mpib_send_comm *send);

/* Errors of a send; all fail the connection. */
int mpib_send_too_large(struct mpib_send_comm *send, size_t size, const struct mpib_cts *cts);
int mpib_send_post_failed(struct mpib_send_comm *send, unsigned int rail, int r);

/* An empty message still takes one request, on the rail that isolation would choose: its bit. */
unsigned int mpib_send_empty_mask(const struct mpib_send_comm *send, uint32_t share);

/* Rails that have bytes. */
static inline unsigned int mpib_send_mask(size_t sout_bytes, size_t sup_bytes)
{
	return (sout_bytes ? mpib_rail_bit(MPIB_SOUT) : 0) |
	       (sup_bytes ? mpib_rail_bit(MPIB_SUP) : 0);
}

/* Whether @share divides a message of @size at all; if not, it takes the rail of the larger part.
 */
static inline bool mpib_send_divides(const struct mpib_send_comm *send, size_t size, uint32_t share)
{
	return share - 1 < MPIB_SHARE_MAX - 1 && size >= send->split_min;
}

/* Each message takes the next QP of a rail. */
static inline struct mpib_send_qp *mpib_send_next_qp(struct mpib_send_comm *send, unsigned int rail)
{
	struct mpib_send_qp *at = send->at[rail];

	send->at[rail] = at->next;
	return at;
}

/* The part of @len bytes from @offset on; the rest of the work request is prepared. */
static inline __attribute__((always_inline)) void mpib_send_fill(
	struct mpib_send_comm *send, unsigned int rail, const struct mpib_request *req,
	const struct mpib_cts *cts, const struct mpib_mr *mr, uint64_t addr, size_t offset,
	size_t len, uint32_t imm)
{
	struct mpib_counter_rail *counters = &send->base.counters->rail[rail];
	struct ibv_send_wr *wr = &send->wr[rail];
	struct ibv_sge *sge = &send->sge[rail];

	wr->wr_id = req->index;
	wr->imm_data = imm;
	wr->wr.rdma.remote_addr = cts->addr + offset;
	wr->wr.rdma.rkey = cts->rkey[rail];
	sge->addr = addr + offset;
	sge->length = (uint32_t)len;
	sge->lkey = mr->lkey[rail];
	counters->bytes += len;
	counters->requests++;
}

static inline __attribute__((always_inline)) int mpib_send_post(struct mpib_send_comm *send,
								unsigned int rail)
{
	struct mpib_send_qp *at = mpib_send_next_qp(send, rail);
	int r;

	send->base.polled[rail]++;
	r = ibv_post_send(at->qp, &send->wr[rail], &send->base.bad);
	return mpib_unlikely(r) ? mpib_send_post_failed(send, rail, r) : 0;
}

/* All of it on @rail, a constant. */
static inline __attribute__((always_inline)) int mpib_send_single(
	struct mpib_send_comm *send, unsigned int rail, struct mpib_request *req,
	const struct mpib_cts *cts, const struct mpib_mr *mr, uint64_t addr, size_t size,
	uint32_t imm)
{
	req->remaining = 1;
	mpib_send_fill(send, rail, req, cts, mr, addr, 0, size,
		       htonl(imm | mpib_imm_encode(0, mpib_rail_bit(rail), 0)));
	return mpib_send_post(send, rail);
}

/* The first bytes on SOUT, the last @sup on SUP. Both requests are filled in before one is posted:
 * little has to outlive the call then. */
static inline __attribute__((always_inline)) int mpib_send_both(
	struct mpib_send_comm *send, struct mpib_request *req, const struct mpib_cts *cts,
	const struct mpib_mr *mr, uint64_t addr, size_t size, size_t sup, uint32_t imm)
{
	size_t sout = size - sup;
	int r;

	req->remaining = 2;
	imm = htonl(imm | mpib_imm_encode(0, 3, 0));
	mpib_send_fill(send, MPIB_SOUT, req, cts, mr, addr, 0, sout, imm);
	mpib_send_fill(send, MPIB_SUP, req, cts, mr, addr, sout, sup, imm);
	r = mpib_send_post(send, MPIB_SOUT);
	if (mpib_unlikely(r < 0))
		return r;
	/* If it fails, the other rail has posted: the connection has failed. */
	return mpib_send_post(send, MPIB_SUP);
}

/* Whether the message, which is alone in its row, goes the short way; reads the share. What says no
 * here is looked at again by mpib_isend_odd: nothing has to outlive a call in the middle. */
static inline bool mpib_send_usual(struct mpib_send_comm *send, const struct mpib_cts *cts,
				   size_t size, const struct mpib_mr *mr, uint32_t *ret_share)
{
	return mpib_likely(size <= cts->size_low) && mpib_likely(size - 1 < send->max_whole) &&
	       mpib_likely(mr != NULL) && mpib_policy_try(send, ret_share);
}

/* @cts is the row at head, which has arrived, has one element and the right tag. */
static inline __attribute__((always_inline)) int mpib_isend_one(
	struct mpib_send_comm *send, const struct mpib_cts *cts, uint32_t head, uint32_t share,
	void *data, size_t size, const struct mpib_mr *mr, struct mpib_request **ret)
{
	struct mpib_counter_entry *counters = send->base.counters;
	struct mpib_request *req = mpib_request_get(&send->base.pool);
	uint32_t imm = mpib_imm_encode(head, 0, (uint32_t)(size >> 7));
	uint64_t addr = (uint64_t)(uintptr_t)data;

	if (mpib_unlikely(!req))
		return 0;
	*ret = req;
	req->size = size;
	send->head = head + 1;
	counters->share = share;
	counters->messages++;
	if (mpib_send_divides(send, size, share)) {
		size_t sup = mpib_split_sup(size, share);

		if (mpib_likely(sup))
			return mpib_send_both(send, req, cts, mr, addr, size, sup, imm);
	} else if (share >= MPIB_SHARE_MAX / 2) {
		return mpib_send_single(send, MPIB_SUP, req, cts, mr, addr, size, imm);
	}
	return mpib_send_single(send, MPIB_SOUT, req, cts, mr, addr, size, imm);
}

#endif
