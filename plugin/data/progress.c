/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test: NCCL asks far more often than there is something to say, so mpib_test, at the end, has no
 * call but the polls where there is nothing, and saves no register. A sender's completions are
 * credited here, a receiver's in recv_completions.c.
 */
#include "plugin/data/progress.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "plugin/base/result.h"
#include "plugin/data/comm_check.h"
#include "plugin/data/comm_error.h"
#include "plugin/data/rail_loss.h"
#include "plugin/data/recv_completions.h"
#include "plugin/data/send.h"
#include "plugin/data/times.h"

/* The last chain of a row on this rail: the row may be done. */
static mpib_always_inline void final_completion(struct mpib_comm *comm, unsigned int rail,
						uint64_t id)
{
	struct mpib_request *req = &comm->pool.requests[MPIB_WR_INDEX(id)];

	comm->send.chained[rail][MPIB_WR_QP(id)] -= MPIB_WR_ENTRIES(id);
	req->rails &= (uint8_t)~mpib_rail_bit(rail);
	if (!req->rails)
		for (; req; req = req->mate)
			req->remaining = 0;
}

/* What a row that waits for the send queues has to know, and busy times. */
static __attribute__((noinline, cold)) int after_completions(struct mpib_comm *comm,
							     unsigned int rail)
{
	if (comm->busy & MPIB_BUSY_TIMED)
		mpib_times_completed(comm, rail, mpib_ticks());
	return comm->busy & MPIB_BUSY_POSTING ? mpib_send_continue(comm) : 0;
}

/* The same of a timed sender, as it is nearly always; @rail is a constant. */
static mpib_always_inline int after_timed(struct mpib_comm *comm, unsigned int rail)
{
	if (mpib_unlikely(mpib_busy_now(comm) & (MPIB_BUSY_POSTING | MPIB_BUSY_CLOCK)))
		return after_completions(comm, rail);
	mpib_times_completed(comm, rail, mpib_ticks_fast());
	return 0;
}

/* From a completion on that is in error, of a chain that doesn't end its row, or of a part that was
 * posted again. One that fails nothing, since its cause is still to come, takes nothing from those
 * behind it: they may be of other QPs. */
static __attribute__((cold, noinline)) int rare_completions(struct mpib_comm *comm,
							    unsigned int rail,
							    const struct ibv_wc *wc,
							    const struct ibv_wc *end)
{
	for (; wc < end; wc++) {
		int r = 0;

		if (wc->status != IBV_WC_SUCCESS)
			r = mpib_comm_bad_completion(comm, rail, wc);
		else if (wc->wr_id & MPIB_WR_AGAIN)
			mpib_send_again_completed(comm, wc->wr_id, rail);
		else if (wc->wr_id & MPIB_WR_FINAL)
			final_completion(comm, rail, wc->wr_id);
		else if (wc->wr_id & MPIB_WR_CHAIN)
			comm->send.chained[rail][MPIB_WR_QP(wc->wr_id)] -=
				MPIB_WR_ENTRIES(wc->wr_id);
		else
			comm->pool.requests[MPIB_WR_INDEX(wc->wr_id)].remaining -=
				mpib_rail_bit(rail);
		if (r < 0)
			return r;
	}
	return after_completions(comm, rail);
}

/* @rail is a constant, @n at least 1. */
static mpib_always_inline int credit_sends(struct mpib_comm *comm, unsigned int rail,
					   const struct ibv_wc *wc, int n)
{
	struct mpib_request *requests = comm->pool.requests;
	const struct ibv_wc *end = wc + n;

	comm->polled[rail] -= (unsigned int)n;
	do {
		if (mpib_unlikely(wc->status != IBV_WC_SUCCESS))
			return rare_completions(comm, rail, wc, end);
		if (mpib_likely(!(wc->wr_id & MPIB_WR_CHAIN)))
			requests[MPIB_WR_INDEX(wc->wr_id)].remaining -= mpib_rail_bit(rail);
		else if (mpib_unlikely(!(wc->wr_id & MPIB_WR_FINAL)))
			return rare_completions(comm, rail, wc, end);
		else
			final_completion(comm, rail, wc->wr_id);
	} while (++wc < end);
	if (mpib_unlikely(mpib_busy_now(comm) & (MPIB_BUSY_POSTING | MPIB_BUSY_TIMED)))
		return after_timed(comm, rail);
	return 0;
}

static __attribute__((noinline)) int send_completed(struct mpib_comm *comm, unsigned int rail,
						    const struct ibv_wc *wc, int n)
{
	return rail == MPIB_SOUT ? credit_sends(comm, MPIB_SOUT, wc, n)
				 : credit_sends(comm, MPIB_SUP, wc, n);
}

static __attribute__((cold)) int poll_failed(struct mpib_comm *comm, unsigned int rail, int n)
{
	char text[120];

	(void)snprintf(text, sizeof(text), "%s rail %s: ibv_poll_cq failed (%d)",
		       mpib_rail_name(rail), comm->dev->hca[rail].name, n);
	return mpib_comm_verb_failed(comm, text);
}

/* Credits what a poll gave: not nothing. */
static mpib_always_inline int credit(struct mpib_comm *comm, unsigned int rail,
				     const struct ibv_wc *wc, int n)
{
	if (mpib_unlikely(n < 0))
		return poll_failed(comm, rail, n);
	comm->counters->rail[rail].completions += (unsigned int)n;
	return comm->kind == MPIB_COUNTER_SEND ? send_completed(comm, rail, wc, n)
					       : mpib_recv_completed(comm, rail, wc, n);
}

int mpib_poll_rail(struct mpib_comm *comm, unsigned int rail)
{
	struct ibv_wc wc[MPIB_POLL_BATCH];
	int n, r = 0;

	do {
		n = ibv_poll_cq(comm->cq[rail], MPIB_POLL_BATCH, wc);
		if (n)
			r = credit(comm, rail, wc, n);
	} while (mpib_unlikely(n == MPIB_POLL_BATCH) && r == 0);
	return r;
}

static __attribute__((cold)) int size_failed(struct mpib_comm *comm)
{
	return mpib_comm_fail(comm, -EPROTO,
			      "a message of 2 GiB or more can't be reported to NCCL");
}

/* NCCL takes sizes as ints. */
static __attribute__((noinline)) int report_sizes(struct mpib_request *req, int *done, int *sizes)
{
	const uint64_t *from = req->count == 1 ? &req->size : req->sizes;

	for (const uint64_t *end = from + req->count; from < end; from++) {
		if (mpib_unlikely(*from > INT_MAX))
			return size_failed(req->comm);
		*sizes++ = (int)*from;
	}
	*done = 1;
	mpib_request_put(&req->comm->pool, req);
	return 0;
}

/* The request is done: reports it and hands it back. */
static inline int report(struct mpib_request *req, int *done, int *sizes)
{
	struct mpib_comm *comm = req->comm;

	if (sizes) {
		if (mpib_unlikely(req->count != 1 || req->size > INT_MAX))
			return report_sizes(req, done, sizes);
		sizes[0] = (int)req->size;
	}
	*done = 1;
	mpib_request_put(&comm->pool, req);
	return 0;
}

/* What a call of mpib_test keeps while it polls: on the stack, whose lines are always at hand. It
 * finds its request here again, so that no register has to be saved for it. */
struct asked {
	struct mpib_request *req;
	int *done, *sizes;
};

struct test_call {
	struct ibv_wc wc[MPIB_POLL_BATCH];
	/* Passed on in place of the whole: gcc would keep the address of the whole, which is that
	 * of `wc`, in a register that has to be saved. */
	struct asked asked;
};

static __attribute__((noinline)) int news(struct asked *asked, unsigned int rail, int n)
{
	struct test_call *test = mpib_container_of(asked, struct test_call, asked);
	struct mpib_request *req = asked->req;
	struct mpib_comm *comm = req->comm;
	int r = credit(comm, rail, test->wc, n);

	if (mpib_unlikely(n == MPIB_POLL_BATCH) && r == 0) /* there may be more */
		r = mpib_poll_rail(comm, rail);
	/* The other rail is asked only if the request still wants something. */
	if (r == 0 && req->remaining && rail == MPIB_SOUT && comm->polled[MPIB_SUP])
		r = mpib_poll_rail(comm, MPIB_SUP);
	return req->remaining ? r : report(req, asked->done, asked->sizes);
}

/* Somebody reported something. */
static int poll_all(struct mpib_comm *comm)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r = comm->polled[rail] ? mpib_poll_rail(comm, rail) : 0;

		if (r < 0)
			return r;
	}
	return mpib_comm_check(comm);
}

static __attribute__((noinline)) int flagged(const struct asked *asked)
{
	struct mpib_request *req = asked->req;
	int r = req->comm->error ? req->comm->error : poll_all(req->comm);

	return req->remaining ? r : report(req, asked->done, asked->sizes);
}

static mpib_always_inline int pending(struct mpib_request *req, int *done, int *sizes)
{
	struct mpib_comm *comm = req->comm;
	struct test_call test;
	int n;

	test.asked.req = req;
	test.asked.done = done;
	test.asked.sizes = sizes;
	if (mpib_unlikely((unsigned int)comm->error |
			  atomic_load_explicit(&comm->flags, memory_order_relaxed)))
		return flagged(&test.asked);

	if (comm->polled[MPIB_SOUT]) {
		n = ibv_poll_cq(comm->cq[MPIB_SOUT], MPIB_POLL_BATCH, test.wc);
		if (n)
			return news(&test.asked, MPIB_SOUT, n);
		comm = test.asked.req->comm;
	}
	if (comm->polled[MPIB_SUP]) {
		n = ibv_poll_cq(comm->cq[MPIB_SUP], MPIB_POLL_BATCH, test.wc);
		if (n)
			return news(&test.asked, MPIB_SUP, n);
	}
	return 0;
}

/* Apart from mpib_test, which then has nothing to save. */
static __attribute__((noinline)) ncclResult_t test_pending(struct mpib_request *req, int *done,
							   int *sizes)
{
	return mpib_result(pending(req, done, sizes));
}

ncclResult_t mpib_test(void *request, int *done, int *sizes)
{
	struct mpib_request *req = request;

	*done = 0;
	if (req->remaining)
		return test_pending(req, done, sizes);
	return mpib_result(report(req, done, sizes));
}
