/* SPDX-License-Identifier: Apache-2.0 */
/* test(): polls what can bring news for the connection and credits every request it concerns. */
#include "plugin/data/transfer.h"

#include <errno.h>
#include <stdio.h>

/* A batch's last request: its row may be done on this rail. */
static void slow_completion(struct mpib_send_comm *send, unsigned int rail, uint64_t id)
{
	struct mpib_request *req = &send->base.pool.requests[MPIB_WR_INDEX(id)];

	send->slow_used[rail][MPIB_WR_QP(id)] -= MPIB_WR_ENTRIES(id);
	if (id & MPIB_WR_FINAL && --req->rails == 0)
		for (; req; req = req->mate)
			req->remaining = 0;
}

int mpib_send_take(struct mpib_send_comm *send, unsigned int rail, const struct ibv_wc *wc, int n)
{
	struct mpib_request *requests = send->base.pool.requests;

	send->base.polled[rail] -= (unsigned int)n;
	for (const struct ibv_wc *end = wc + n; wc < end; wc++) {
		if (mpib_unlikely(wc->status != IBV_WC_SUCCESS))
			return mpib_comm_bad_completion(&send->base, rail, wc);
		if (mpib_likely(!(wc->wr_id & MPIB_WR_SLOW)))
			requests[MPIB_WR_INDEX(wc->wr_id)].remaining--;
		else
			slow_completion(send, rail, wc->wr_id);
	}
	if (mpib_unlikely(send->base.busy & MPIB_BUSY_SLOW))
		return mpib_send_slow(send);
	return 0;
}

static __attribute__((cold)) int poll_failed(struct mpib_comm *comm, unsigned int rail, int n)
{
	char text[120];

	(void)snprintf(text, sizeof(text), "%s rail %s: ibv_poll_cq failed (%d)",
		       mpib_rail_name(rail), comm->dev->hca[rail].name, n);
	return mpib_comm_verb_failed(comm, text);
}

/* Credits what a poll gave, and polls on where there may be more. */
static inline int take(struct mpib_comm *comm, unsigned int rail, struct ibv_wc *wc, int n)
{
	for (;;) {
		int r;

		if (mpib_unlikely(n < 0))
			return poll_failed(comm, rail, n);
		comm->counters->rail[rail].completions += (unsigned int)n;
		r = comm->kind == MPIB_COUNTER_SEND
			    ? mpib_send_take(mpib_send_comm(comm), rail, wc, n)
			    : mpib_recv_take(mpib_recv_comm(comm), rail, wc, n);
		if (mpib_unlikely(r < 0) || mpib_likely(n < MPIB_POLL_BATCH))
			return r;
		n = ibv_poll_cq(comm->cq[rail], MPIB_POLL_BATCH, wc);
	}
}

int mpib_poll_rail(struct mpib_comm *comm, unsigned int rail)
{
	struct ibv_wc wc[MPIB_POLL_BATCH];
	int n = ibv_poll_cq(comm->cq[rail], MPIB_POLL_BATCH, wc);

	return n ? take(comm, rail, wc, n) : 0;
}

int mpib_test_news(struct mpib_asked *asked, unsigned int rail, int n)
{
	struct mpib_test *test = mpib_container_of(asked, struct mpib_test, asked);
	struct mpib_request *req = asked->req;
	struct mpib_comm *comm = req->comm;
	int r = take(comm, rail, test->wc, n);

	/* The other rail is asked only if the request still wants something. */
	if (r == 0 && req->remaining && rail == MPIB_SOUT && comm->polled[MPIB_SUP])
		r = mpib_poll_rail(comm, MPIB_SUP);
	return req->remaining ? r : mpib_test_done(req, asked->done, asked->sizes);
}

static int poll_all(struct mpib_comm *comm)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r = comm->polled[rail] ? mpib_poll_rail(comm, rail) : 0;

		if (r < 0)
			return r;
	}
	return mpib_comm_check(comm);
}

int mpib_test_flagged(const struct mpib_asked *asked)
{
	struct mpib_request *req = asked->req;
	int r = req->comm->error ? req->comm->error : poll_all(req->comm);

	return req->remaining ? r : mpib_test_done(req, asked->done, asked->sizes);
}

static __attribute__((cold)) int size_failed(struct mpib_comm *comm)
{
	return mpib_comm_fail(comm, -EPROTO,
			      "a message of 2 GiB or more can't be reported to NCCL");
}

/* NCCL takes sizes as ints. */
int mpib_test_sizes(struct mpib_request *req, int *done, int *sizes)
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
