/* SPDX-License-Identifier: Apache-2.0 */
/*
 * irecv: reserve a receive on each rail that may bring the data, and write the clear-to-send row to
 * the sender. mpib_irecv, at the end, does it itself for one message with a registration whose
 * write asks for no completion, and finds out before it changes anything; for all else there is
 * irecv_general.
 */
#include "plugin/data/recv.h"

#include <errno.h>
#include <string.h>

#include "plugin/base/result.h"
#include "plugin/data/comm_check.h"
#include "plugin/data/comm_error.h"
#include "plugin/data/progress.h"
#include "plugin/data/rail_loss.h"
#include "plugin/verbs/srq.h"

static __attribute__((cold, noinline)) int cts_failed(struct mpib_comm *comm, int r)
{
	return mpib_comm_post_failed(comm, comm->recv.cts_rail, "clear-to-send can't be posted", r);
}

/* A receive reserved on each rail that may bring the data of one more row. False: on none. */
static bool reserve_on_rails(struct mpib_comm *comm)
{
	unsigned int rails = comm->use_mask;

	if (rails & mpib_rail_bit(MPIB_SOUT)) {
		if (mpib_unlikely(!mpib_srq_reserve(comm->recv.hca[MPIB_SOUT])))
			return false;
		comm->recv.reserved[MPIB_SOUT]++;
	}
	if (rails & mpib_rail_bit(MPIB_SUP)) {
		if (mpib_unlikely(!mpib_srq_reserve(comm->recv.hca[MPIB_SUP]))) {
			if (rails & mpib_rail_bit(MPIB_SOUT)) {
				comm->recv.reserved[MPIB_SOUT]--;
				mpib_srq_release(comm->recv.hca[MPIB_SOUT]);
			}
			return false;
		}
		comm->recv.reserved[MPIB_SUP]++;
	}
	return true;
}

static void fill_row(struct mpib_comm *comm, uint32_t tail, int n, void **data, const size_t *sizes,
		     const int *tags, struct mpib_mr **mrs, struct mpib_request *req)
{
	static const struct mpib_mr none;
	struct mpib_cts *row = comm->recv.cts_out[tail % MPIB_ROWS].element;

	for (int k = 0; k < n; k++) {
		row[k].addr = (uint64_t)(uintptr_t)data[k];
		memcpy(row[k].rkey, mrs[k] ? mrs[k]->rkey : none.rkey, sizeof(row[k].rkey));
		row[k].size_low = (uint32_t)sizes[k];
		row[k].size_high = (uint16_t)(sizes[k] >> 32);
		row[k].tag = (uint32_t)tags[k];
		row[k].count = (uint8_t)n;
		row[k].reserved = 0;
		row[k].seq = tail + 1;
		req->room[k] = sizes[k];
	}
}

static int post_cts(struct mpib_comm *comm, uint32_t row, int n)
{
	unsigned int slot = row % MPIB_ROWS;
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)&comm->recv.cts_out[slot],
		.length = (uint32_t)n * (uint32_t)sizeof(struct mpib_cts),
		.lkey = comm->ring_mr->lkey[comm->recv.cts_rail],
	};
	struct ibv_send_wr wr = {
		.wr_id = row,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma.remote_addr = comm->recv.cts_addr + slot * sizeof(struct mpib_cts_row),
		.wr.rdma.rkey = comm->remote_qps.ring_rkey[comm->recv.cts_rail],
	};
	int r;

	if (sge.length <= comm->recv.inline_room)
		wr.send_flags |= IBV_SEND_INLINE;
	if (slot % MPIB_CTS_SIGNAL_SLOTS == 0)
		wr.send_flags |= IBV_SEND_SIGNALED;
	r = ibv_post_send(comm->recv.cts_qp, &wr, &comm->bad);
	return r ? cts_failed(comm, r) : 0;
}

/* The queue has no room that is known of: looks for completions. 1 where it has. */
static int reap(struct mpib_comm *comm)
{
	int r = mpib_poll_rail(comm, comm->recv.cts_rail);

	if (r == 0 && comm->recv.tail == comm->recv.cts_limit &&
	    atomic_load_explicit(&comm->flags, memory_order_relaxed))
		r = mpib_comm_check(comm);
	if (r < 0)
		return r;
	return comm->recv.tail != comm->recv.cts_limit;
}

/* The next row that asks for a completion, or that the queue may have no room for. */
static uint32_t one_until(const struct mpib_comm *comm, uint32_t tail)
{
	uint32_t next = (tail | (MPIB_CTS_SIGNAL_SLOTS - 1)) + 1;

	/* Not inline: the row must stay as it is until the device has read it, so the staging of
	 * its slot goes out and not the request's. */
	if (comm->recv.trim || tail % MPIB_CTS_SIGNAL_SLOTS == 0 ||
	    comm->recv.inline_room < sizeof(struct mpib_cts))
		return tail;
	return comm->recv.cts_limit - tail < next - tail ? comm->recv.cts_limit : next;
}

/* A rail was lost. 1 where rows may be posted; 0: not before the sender has answered. */
static __attribute__((cold, noinline)) int after_loss(struct mpib_comm *comm)
{
	int r = mpib_comm_check(comm);

	if (r < 0)
		return r;
	return mpib_recv_trim(comm) && !comm->rails->hold;
}

static int irecv_general(struct mpib_comm *comm, int n, void **data, const size_t *sizes,
			 const int *tags, struct mpib_mr **mrs, struct mpib_request **ret)
{
	const uint32_t tail = comm->recv.tail;
	struct mpib_request **row = &comm->recv.row[tail % MPIB_ROWS];
	struct mpib_request *req;
	int r;

	if (mpib_unlikely(comm->error))
		return comm->error;
	if (mpib_unlikely(comm->recv.trim)) {
		r = after_loss(comm);
		if (r <= 0)
			return r;
	}
	if (mpib_unlikely(n < 1 || n > (int)MPIB_GROUP_MAX))
		return -MPIB_EARGUMENT;
	if (mpib_unlikely(tail == comm->recv.cts_limit)) {
		r = reap(comm);
		if (r <= 0)
			return r;
	}
	if (mpib_unlikely(*row))
		return 0;
	req = mpib_request_get(&comm->pool);
	if (mpib_unlikely(!req))
		return 0;
	if (mpib_unlikely(!reserve_on_rails(comm))) {
		mpib_request_put(&comm->pool, req);
		return 0;
	}

	req->remaining = MPIB_REMAINING_ONE;
	req->imm = 0;
	req->count = (uint8_t)n;
	__atomic_store_n(row, req, __ATOMIC_RELAXED);
	fill_row(comm, tail, n, data, sizes, tags, mrs, req);
	/* Before its clear-to-send goes out: see is_idle in rails.c. */
	__atomic_store_n(&comm->recv.tail, tail + 1, __ATOMIC_RELEASE);
	r = post_cts(comm, tail, n);
	comm->recv.one_until = one_until(comm, tail + 1);
	if (mpib_unlikely(r < 0))
		return r;

	(*comm->recv.cts_count)++;
	*ret = req;
	return 0;
}

static __attribute__((noinline)) ncclResult_t general(struct mpib_comm *comm, int n, void **data,
						      const size_t *sizes, const int *tags,
						      struct mpib_mr **mrs,
						      struct mpib_request **ret)
{
	return mpib_result(irecv_general(comm, n, data, sizes, tags, mrs, ret));
}

/* The fast path found one queue with few spare receives: it gives back what it has, and the general
 * function begins anew. Tail calls, which leave the fast path no more to save. */
static __attribute__((noinline)) ncclResult_t few_on_sout(struct mpib_comm *comm, int n,
							  void **data, const size_t *sizes,
							  const int *tags, struct mpib_mr **mrs,
							  struct mpib_request **ret)
{
	mpib_srq_release(comm->recv.hca[MPIB_SOUT]);
	return general(comm, n, data, sizes, tags, mrs, ret);
}

static __attribute__((noinline)) ncclResult_t few_on_sup(struct mpib_comm *comm, int n, void **data,
							 const size_t *sizes, const int *tags,
							 struct mpib_mr **mrs,
							 struct mpib_request **ret)
{
	mpib_srq_release(comm->recv.hca[MPIB_SUP]);
	if (comm->use_mask & mpib_rail_bit(MPIB_SOUT)) {
		comm->recv.reserved[MPIB_SOUT]--;
		mpib_srq_release(comm->recv.hca[MPIB_SOUT]);
	}
	return general(comm, n, data, sizes, tags, mrs, ret);
}

/* Whether nothing about a receive of one asks for the general function, but the shared queues. */
static mpib_always_inline bool fits_fast_path(struct mpib_comm *comm, const struct mpib_mr *mr)
{
	return mpib_likely(mr != NULL) && mpib_likely(!comm->error) &&
	       mpib_likely(comm->recv.tail != comm->recv.one_until) &&
	       mpib_likely(!comm->recv.row[comm->recv.tail % MPIB_ROWS]) &&
	       mpib_likely(comm->pool.free != NULL);
}

static mpib_always_inline int irecv_one(struct mpib_comm *comm, void *data, size_t size, int tag,
					const struct mpib_mr *mr, struct mpib_request **ret)
{
	struct ibv_send_wr *wr = &comm->recv.cts_wr;
	const uint32_t tail = comm->recv.tail;
	const unsigned int slot = tail % MPIB_ROWS;
	struct mpib_request *req = comm->pool.free; /* there is one */
	struct mpib_cts *cts = &req->cts;
	int r;

	comm->pool.free = req->mate;
	req->remaining = MPIB_REMAINING_ONE;
	req->imm = 0;
	req->count = 1;
	req->room[0] = size;
	/* In this order, and before the clear-to-send goes out: see is_idle in rails.c. */
	__atomic_store_n(&comm->recv.row[slot], req, __ATOMIC_RELAXED);
	__atomic_store_n(&comm->recv.tail, tail + 1, __ATOMIC_RELEASE);
	*ret = req;
	cts->addr = (uint64_t)(uintptr_t)data;
	memcpy(cts->rkey, mr->rkey, sizeof(cts->rkey));
	cts->size_low = (uint32_t)size;
	cts->size_high = (uint16_t)(size >> 32);
	cts->tag = (uint32_t)tag;
	cts->seq = tail + 1;
	comm->recv.cts_sge.addr = (uint64_t)(uintptr_t)cts;
	wr->wr.rdma.remote_addr = comm->recv.cts_addr + slot * sizeof(struct mpib_cts_row);
	(*comm->recv.cts_count)++;
	r = ibv_post_send(comm->recv.cts_qp, wr, &comm->bad);
	return mpib_unlikely(r) ? cts_failed(comm, r) : 0;
}

ncclResult_t mpib_irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
			void **mhandles, void **request)
{
	struct mpib_comm *comm = recv_comm;
	struct mpib_mr **mrs = (struct mpib_mr **)mhandles;
	struct mpib_request **ret = (struct mpib_request **)request;
	unsigned int rails;

	*ret = NULL;
	if (mpib_unlikely(n != 1 || !fits_fast_path(comm, mrs[0])))
		return general(comm, n, data, sizes, tags, mrs, ret);
	rails = comm->use_mask;
	if (mpib_likely(rails & mpib_rail_bit(MPIB_SOUT))) {
		if (mpib_unlikely(!mpib_srq_reserve_spare(comm->recv.hca[MPIB_SOUT])))
			return few_on_sout(comm, n, data, sizes, tags, mrs, ret);
		comm->recv.reserved[MPIB_SOUT]++;
	}
	if (rails & mpib_rail_bit(MPIB_SUP)) {
		if (mpib_unlikely(!mpib_srq_reserve_spare(comm->recv.hca[MPIB_SUP])))
			return few_on_sup(comm, n, data, sizes, tags, mrs, ret);
		comm->recv.reserved[MPIB_SUP]++;
	}
	return mpib_result(irecv_one(comm, data[0], sizes[0], tags[0], mrs[0], ret));
}
