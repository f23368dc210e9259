/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data path: isend (send.h, send*.c), irecv (recv.h, recv.c), completions of receives
 * (recv_take.c), test and polling (progress.c); api_data.c puts it together. Progress thread only;
 * on a healthy connection no system call, no allocation, no log line, and no lock but for the
 * shared receive queue's, once in MPIB_SRQ_CHAIN receives.
 *
 * All return 0 or a negative errno; "not now" is 0 with *ret = NULL.
 */
#ifndef MPIB_PLUGIN_TRANSFER_H
#define MPIB_PLUGIN_TRANSFER_H

#include <limits.h>

#include "plugin/data/comm_error.h"

/* wr_id of a sender's work request: the request's index, and for requests posted in a batch what
 * the batch took of the send queue. */
#define MPIB_WR_INDEX(id)   ((unsigned int)((id)&0xffff))
#define MPIB_WR_ENTRIES(id) ((unsigned int)((id) >> 16 & 0xffff))
#define MPIB_WR_QP(id)	    ((unsigned int)((id) >> 32 & 0xff))
#define MPIB_WR_FINAL	    (1ull << 40) /* the batch ends its row on this rail */
#define MPIB_WR_SLOW	    (1ull << 41)

/* Goes on with a group or a cut message whose requests didn't all fit into the send queues. */
int mpib_send_slow(struct mpib_send_comm *send);

/* Polls a rail's completions and credits every request that they belong to. */
int mpib_poll_rail(struct mpib_comm *comm, unsigned int rail);

/* Credits @n good or bad completions that a poll of the rail gave. */
int mpib_send_take(struct mpib_send_comm *send, unsigned int rail, const struct ibv_wc *wc, int n);
int mpib_recv_take(struct mpib_recv_comm *recv, unsigned int rail, const struct ibv_wc *wc, int n);

/* What a call of mpib_test keeps while it polls: on the stack, whose lines are always at hand. It
 * finds its request here again, so that no register has to be saved for it. */
struct mpib_asked {
	struct mpib_request *req;
	int *done, *sizes;
};

struct mpib_test {
	struct ibv_wc wc[MPIB_POLL_BATCH];
	/* Passed on in place of the whole: gcc would keep the address of the whole, which is that
	 * of `wc`, in a register that has to be saved. */
	struct mpib_asked asked;
};

/* The rest of mpib_test: a poll of @rail gave @n, not 0; the connection has failed or somebody
 * reported something; sizes of a group, or those that NCCL can't take. */
int mpib_test_news(struct mpib_asked *asked, unsigned int rail, int n);
int mpib_test_flagged(const struct mpib_asked *asked);
int mpib_test_sizes(struct mpib_request *req, int *done, int *sizes);

/* The request is done: reports it and hands it back. */
static inline int mpib_test_done(struct mpib_request *req, int *done, int *sizes)
{
	struct mpib_comm *comm = req->comm;

	if (sizes) {
		if (mpib_unlikely(req->count != 1 || req->size > INT_MAX))
			return mpib_test_sizes(req, done, sizes);
		sizes[0] = (int)req->size;
	}
	*done = 1;
	mpib_request_put(&comm->pool, req);
	return 0;
}

static inline __attribute__((always_inline)) int mpib_test_pending(struct mpib_request *req,
								   int *done, int *sizes)
{
	struct mpib_comm *comm = req->comm;
	struct mpib_test test;
	int n;

	test.asked.req = req;
	test.asked.done = done;
	test.asked.sizes = sizes;
	if (mpib_unlikely((unsigned int)comm->error |
			  atomic_load_explicit(&comm->flags, memory_order_relaxed)))
		return mpib_test_flagged(&test.asked);

	if (comm->polled[MPIB_SOUT]) {
		n = ibv_poll_cq(comm->cq[MPIB_SOUT], MPIB_POLL_BATCH, test.wc);
		if (n)
			return mpib_test_news(&test.asked, MPIB_SOUT, n);
		comm = test.asked.req->comm;
	}
	if (comm->polled[MPIB_SUP]) {
		n = ibv_poll_cq(comm->cq[MPIB_SUP], MPIB_POLL_BATCH, test.wc);
		if (n)
			return mpib_test_news(&test.asked, MPIB_SUP, n);
	}
	return 0;
}

/* *done = 1 hands the request back; @sizes may be NULL. Inline, since NCCL asks far more often
 * than there is something to say. */
static inline int mpib_test(struct mpib_request *req, int *done, int *sizes)
{
	*done = 0;
	return req->remaining ? mpib_test_pending(req, done, sizes)
			      : mpib_test_done(req, done, sizes);
}

#endif
