/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/data/recv_completions.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "plugin/connection/news.h"
#include "plugin/data/comm_check.h"
#include "plugin/data/comm_error.h"
#include "plugin/data/rail_loss.h"
#include "plugin/verbs/srq.h"
#include "plugin/wire/imm.h"

#define TOO_LARGE     "the message is larger than the posted receive"
#define WRONG_RAILS   "it names rails that can't be"
#define CONTRADICTION "it contradicts the other rail's"
#define WRONG_PARTS   "its completion record gives SUP bytes that can't be"
#define WRONG_SIZE    "its size is not that of the data that arrived"

static __attribute__((cold)) int protocol_error(struct mpib_comm *comm, unsigned int rail,
						uint32_t imm, const char *what)
{
	char text[200];

	(void)snprintf(text, sizeof(text), "%s rail %s: immediate 0x%08x: %s", mpib_rail_name(rail),
		       comm->dev->hca[rail].name, imm, what);
	return mpib_comm_fail(comm, -EPROTO, text);
}

/* An immediate that can't belong to anything. */
static __attribute__((cold)) int stray(struct mpib_comm *comm, unsigned int rail, uint32_t imm,
				       const struct mpib_request *req)
{
	mpib_srq_used(comm->recv.hca[rail], &comm->recv.reserved[rail]);
	return protocol_error(comm, rail, imm,
			      req ? "more messages than receives"
				  : "no receive is posted in its slot");
}

/* Whether parts of the other rail may come on @rail. Where the helper thread has answered for an
 * idle end, they may come before this thread knows of the loss: their receives are reserved now. */
static __attribute__((cold, noinline)) bool may_come_again(struct mpib_comm *comm,
							   unsigned int rail)
{
	bool lost;

	if (!comm->rails)
		return false;
	mpib_watch_lock();
	lost = comm->mem_mask & mpib_rail_bit(!rail) && comm->rails->rail[!rail].stopped;
	mpib_watch_unlock();
	if (lost && !(comm->rails->off & mpib_rail_bit(!rail)))
		(void)mpib_recv_reserve_extra(comm, !rail);
	return comm->rails->ever || lost;
}

/* What `missing` returns for an immediate that comes again on the other rail, or is wrong. */
#define ODD (-1)

/* The first immediate of a row fixes the rails that are to come, a second one has to be like it.
 * Returns those that are still missing, or ODD. */
static mpib_always_inline int missing(struct mpib_comm *comm, struct mpib_request *req,
				      unsigned int rail, uint32_t imm)
{
	unsigned int left = mpib_imm_mask(imm), bit = mpib_rail_bit(rail);

	if (req->imm) {
		left = req->left;
		return mpib_unlikely(imm != req->imm || !(left & bit)) ? ODD : 0;
	}
	if (mpib_unlikely(!(left & bit) || left & ~comm->data_mask))
		return ODD;
	left &= ~bit;
	if (left) {
		req->imm = imm;
		req->left = (uint8_t)left;
	}
	return (int)left;
}

/* The receive that a row reserved on @idle and that nothing used is free again. */
static mpib_always_inline void unused(struct mpib_comm *comm, unsigned int idle)
{
	comm->recv.reserved[idle]--;
	mpib_srq_release(comm->recv.hca[idle]);
}

/* Every rail of @mask has reported: nothing of the row can still arrive. */
static mpib_always_inline void complete(struct mpib_comm *comm, struct mpib_request *req,
					uint32_t imm, unsigned int mask, unsigned int messages)
{
	__atomic_store_n(&comm->recv.row[mpib_imm_slot(imm)], NULL, __ATOMIC_RELEASE);
	comm->recv.carried |= mask;
	if (mask != MPIB_RAILS_ALL && mask != comm->use_mask)
		unused(comm, mask == mpib_rail_bit(MPIB_SOUT) ? MPIB_SUP : MPIB_SOUT);
	comm->counters->messages += messages;
	req->remaining = 0;
}

/* Whether a row of @sum bytes, @sup of them on SUP, can come over the rails of @mask. */
static inline bool parts_fit(unsigned int mask, uint64_t sum, uint64_t sup)
{
	if (mask == MPIB_RAILS_ALL)
		return sup <= sum;
	return sup == (mask & mpib_rail_bit(MPIB_SUP) ? sum : 0);
}

/* All parts of a row, @parts, have come whose sizes are in the completion record. @rails: of which
 * `complete` is told. */
static mpib_always_inline int record_arrived(struct mpib_comm *comm, struct mpib_request *req,
					     unsigned int rail, uint32_t imm, unsigned int parts,
					     unsigned int rails)
{
	unsigned int count = req->count, k = 0;
	uint64_t *record, sum = 0, sup;

	record = &comm->recv.records[mpib_imm_slot(imm) * MPIB_RECORD_NUMBERS];
	do {
		uint64_t size = atomic_load_explicit((_Atomic uint64_t *)&record[1 + k],
						     memory_order_acquire);

		req->sizes[k] = size;
		sum += size;
		if (mpib_unlikely(size > req->room[k]))
			return protocol_error(comm, rail, imm, TOO_LARGE);
	} while (++k < count);
	sup = atomic_load_explicit((_Atomic uint64_t *)&record[0], memory_order_acquire);
	if (mpib_unlikely(!parts_fit(parts, sum, sup)))
		return protocol_error(comm, rail, imm, WRONG_PARTS);
	comm->counters->rail[MPIB_SOUT].bytes += sum - sup;
	comm->counters->rail[MPIB_SUP].bytes += sup;
	req->size = req->sizes[0];
	complete(comm, req, imm, rails, count);
	return 0;
}

/* All of a message alone in its row has come. */
static mpib_always_inline int alone_arrived(struct mpib_comm *comm, struct mpib_request *req,
					    unsigned int rail, uint32_t imm, uint64_t size,
					    unsigned int rails)
{
	if (mpib_unlikely(req->count != 1 || (mpib_imm_units(size) != mpib_imm_size(imm) &&
					      mpib_imm_size_q(size) != mpib_imm_size(imm))))
		return protocol_error(comm, rail, imm, WRONG_SIZE);
	if (mpib_unlikely(size > req->room[0]))
		return protocol_error(comm, rail, imm, TOO_LARGE);
	complete(comm, req, imm, rails, 1);
	return 0;
}

/* The immediate of a part that was lost with its rail and comes on the other one, or one that is
 * wrong. What such a row has reserved beyond its need is given back by mpib_recv_trim. */
static __attribute__((cold, noinline)) int odd_immediate(struct mpib_comm *comm,
							 struct mpib_request *req,
							 unsigned int rail, uint32_t imm,
							 uint32_t byte_len)
{
	bool record = mpib_imm_size(imm) == MPIB_IMM_SIZE_RECORD;
	unsigned int mask = mpib_imm_mask(imm), parts = mpib_mask_parts(mask, rail);
	unsigned int bit = mpib_rail_bit(!rail), left = parts & ~bit;

	if (!mpib_mask_is_replay(mask, rail) || parts & ~(unsigned int)comm->mem_mask ||
	    !may_come_again(comm, rail))
		return protocol_error(comm, rail, imm, req->imm ? CONTRADICTION : WRONG_RAILS);
	imm = mpib_imm_encode(mpib_imm_slot(imm), parts, mpib_imm_size(imm));
	if (req->imm && (imm != req->imm || !(req->left & bit)))
		return protocol_error(comm, rail, imm, CONTRADICTION);
	if (!record) {
		req->size = byte_len + (req->imm ? req->size : 0);
		comm->counters->rail[rail].bytes += byte_len;
	}
	if (left && !req->imm) {
		req->imm = imm;
		req->left = (uint8_t)left;
		return 0;
	}
	return record ? record_arrived(comm, req, rail, imm, parts, MPIB_RAILS_ALL)
		      : alone_arrived(comm, req, rail, imm, req->size, MPIB_RAILS_ALL);
}

/* A row whose sizes are in the completion record: a group, or a message that was cut. */
static __attribute__((noinline)) int record_immediate(struct mpib_comm *comm,
						      struct mpib_request *req, unsigned int rail,
						      uint32_t imm)
{
	int left = missing(comm, req, rail, imm);

	if (left)
		return left < 0 ? odd_immediate(comm, req, rail, imm, 0) : 0;
	return record_arrived(comm, req, rail, imm, mpib_imm_mask(imm), mpib_imm_mask(imm));
}

/* A message alone in its row: its size is what arrived. */
static mpib_always_inline int on_immediate(struct mpib_comm *comm, struct mpib_request *req,
					   unsigned int rail, uint32_t imm, uint32_t byte_len)
{
	uint64_t size = byte_len;
	unsigned int mask = mpib_rail_bit(rail);

	/* The only one of its row: that it names its rail and no other one is all that `missing`
	 * would find out, since a receive was reserved on that rail. */
	if (req->imm || mpib_imm_mask(imm) != mask) {
		int left;

		if (req->imm)
			size += req->size;
		left = missing(comm, req, rail, imm);
		if (mpib_unlikely(left < 0))
			return odd_immediate(comm, req, rail, imm, byte_len);
		mask = MPIB_RAILS_ALL;
		if (left) {
			req->size = size;
			comm->counters->rail[rail].bytes += byte_len;
			return 0;
		}
	}
	req->size = size;
	comm->counters->rail[rail].bytes += byte_len;
	return alone_arrived(comm, req, rail, imm, size, mask);
}

/* An immediate without a receive: 0 where one is reserved now, or an error. */
static __attribute__((cold, noinline)) int without_receive(struct mpib_comm *comm,
							   unsigned int rail, uint32_t imm,
							   const struct mpib_request *req)
{
	if (req && may_come_again(comm, rail) && comm->recv.reserved[rail])
		return 0;
	return stray(comm, rail, imm, req);
}

/* Anything but an immediate. */
static __attribute__((noinline)) void other_completion(struct mpib_comm *comm, unsigned int rail,
						       const struct ibv_wc *wc)
{
	if (wc->opcode == IBV_WC_RDMA_READ) /* of a flush */
		comm->pool.requests[wc->wr_id].remaining -=
			mpib_rail_bit(rail) * MPIB_REMAINING_ONE;
	else if (!(wc->wr_id & MPIB_WR_MAIL)) /* a signalled CTS write: the queue is free of it and
						 of all before it */
		comm->recv.cts_limit = (uint32_t)wc->wr_id + 1 + MPIB_CTS_DEPTH;
}

/* Completions that nobody will look at any more still took receives from the shared queue. */
static __attribute__((cold)) int give_up(struct mpib_comm *comm, unsigned int rail,
					 const struct ibv_wc *wc, const struct ibv_wc *end, int r)
{
	for (; wc < end; wc++)
		if (wc->wr_id == MPIB_WR_RECV)
			mpib_srq_used(comm->recv.hca[rail], &comm->recv.reserved[rail]);
	return r;
}

/* A clear-to-send of a peer that has closed: all that it sent went before its end, and nothing
 * answers the row any more. */
static bool is_idle_cts(struct mpib_comm *comm, unsigned int rail, const struct ibv_wc *wc)
{
	return wc->wr_id != MPIB_WR_RECV && rail == comm->recv.cts_rail &&
	       wc->qp_num == comm->recv.cts_qp->qp_num && mpib_comm_peer_closed(comm);
}

/* 0 where the rest of the completions still count. */
static __attribute__((cold)) int bad_completion(struct mpib_comm *comm, unsigned int rail,
						const struct ibv_wc *wc, const struct ibv_wc *end)
{
	int r;

	if (is_idle_cts(comm, rail, wc))
		return 0;
	r = mpib_comm_bad_completion(comm, rail, wc);
	return give_up(comm, rail, wc, r < 0 ? end : wc + 1, r);
}

/* @rail is a constant. */
static mpib_always_inline int completed(struct mpib_comm *comm, unsigned int rail,
					const struct ibv_wc *wc, int n)
{
	struct mpib_counter_rail *counters = &comm->counters->rail[rail];

	for (const struct ibv_wc *end = wc + n; wc < end; wc++) {
		struct mpib_request *req;
		uint32_t imm;
		int r;

		if (mpib_unlikely(wc->status != IBV_WC_SUCCESS)) {
			r = bad_completion(comm, rail, wc, end);
			if (r < 0)
				return r;
			continue;
		}
		if (mpib_unlikely(wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM)) {
			other_completion(comm, rail, wc);
			continue;
		}
		imm = ntohl(wc->imm_data);
		req = comm->recv.row[mpib_imm_slot(imm)];
		if (mpib_unlikely(!req || !comm->recv.reserved[rail])) {
			r = without_receive(comm, rail, imm, req);
			if (r < 0)
				return give_up(comm, rail, wc + 1, end, r);
		}
		comm->recv.reserved[rail]--;
		counters->requests++;
		r = mpib_likely(mpib_imm_size(imm) != MPIB_IMM_SIZE_RECORD)
			    ? on_immediate(comm, req, rail, imm, wc->byte_len)
			    : record_immediate(comm, req, rail, imm);
		if (mpib_unlikely(r < 0))
			return give_up(comm, rail, wc + 1, end, r);
	}
	return 0;
}

int mpib_recv_completed(struct mpib_comm *comm, unsigned int rail, const struct ibv_wc *wc, int n)
{
	return rail == MPIB_SOUT ? completed(comm, MPIB_SOUT, wc, n)
				 : completed(comm, MPIB_SUP, wc, n);
}
