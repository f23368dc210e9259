/* SPDX-License-Identifier: Apache-2.0 */
/* test(): polls what can bring news for the connection and credits every request it concerns. */
#include "plugin/transfer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

static inline void send_completion(struct mpib_send_comm *send, unsigned int rail,
				   const struct ibv_wc *wc)
{
	struct mpib_request *req = &send->base.pool.requests[MPIB_WR_INDEX(wc->wr_id)];

	send->pending[rail]--;
	if (mpib_likely(!(wc->wr_id & MPIB_WR_SLOW))) {
		req->remaining--;
		return;
	}

	send->slow_used[rail][MPIB_WR_QP(wc->wr_id)] -= MPIB_WR_ENTRIES(wc->wr_id);
	if (wc->wr_id & MPIB_WR_FINAL)
		for (; req; req = req->mate)
			req->remaining--;
}

/* Completions that nobody will look at any more still took receives from the shared queue. */
static void drop_batch(struct mpib_comm *comm, unsigned int rail, const struct ibv_wc *wc, int n)
{
	for (int k = 0; comm->kind == MPIB_COUNTER_RECV && k < n; k++)
		mpib_recv_used(mpib_recv_comm(comm), rail, &wc[k]);
}

int mpib_poll_rail(struct mpib_comm *comm, unsigned int rail)
{
	struct ibv_wc wc[MPIB_POLL_BATCH];
	char text[120];
	int n;

	do {
		n = ibv_poll_cq(comm->cq[rail], MPIB_POLL_BATCH, wc);
		if (mpib_unlikely(n < 0)) {
			(void)snprintf(text, sizeof(text), "%s rail %s: ibv_poll_cq failed (%d)",
				       mpib_rail_name(rail), comm->dev->hca[rail].name, n);
			return mpib_comm_fail(comm, -EIO, text);
		}
		for (int k = 0; k < n; k++) {
			int r;

			if (mpib_unlikely(wc[k].status != IBV_WC_SUCCESS)) {
				drop_batch(comm, rail, &wc[k], n - k);
				return mpib_comm_bad_completion(comm, rail, &wc[k]);
			}
			if (comm->kind == MPIB_COUNTER_SEND) {
				send_completion(mpib_send_comm(comm), rail, &wc[k]);
				continue;
			}
			r = mpib_recv_completion(mpib_recv_comm(comm), rail, &wc[k]);
			if (mpib_unlikely(r < 0)) {
				drop_batch(comm, rail, &wc[k + 1], n - k - 1);
				return r;
			}
		}
		comm->counters->rail[rail].completions += (unsigned int)n;
	} while (n == MPIB_POLL_BATCH);

	return 0;
}

static int progress(struct mpib_comm *comm)
{
	int r;

	if (mpib_unlikely(comm->error))
		return comm->error;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		if (comm->kind == MPIB_COUNTER_SEND ? !mpib_send_comm(comm)->pending[rail]
						    : !(comm->data_mask & mpib_rail_bit(rail)))
			continue;
		r = mpib_poll_rail(comm, rail);
		if (mpib_unlikely(r < 0))
			return r;
	}
	if (comm->kind == MPIB_COUNTER_SEND && mpib_unlikely(mpib_send_comm(comm)->slow.active)) {
		r = mpib_send_slow(mpib_send_comm(comm));
		if (r < 0)
			return r;
	}
	if (mpib_unlikely(atomic_load_explicit(&comm->flags, memory_order_relaxed)))
		return mpib_comm_check(comm);
	return 0;
}

/* NCCL takes sizes as ints. */
static int report_sizes(struct mpib_request *req, int *sizes)
{
	unsigned int n = req->comm->kind == MPIB_COUNTER_SEND ? 1 : req->count;

	for (unsigned int k = 0; k < n; k++) {
		uint64_t size = req->comm->kind == MPIB_COUNTER_SEND ? req->size : req->sizes[k];

		if (size > INT_MAX)
			return mpib_comm_fail(
				req->comm, -EPROTO,
				"a message of 2 GiB or more can't be reported to NCCL");
		sizes[k] = (int)size;
	}
	return 0;
}

int mpib_test(struct mpib_request *req, int *done, int *sizes)
{
	struct mpib_comm *comm = req->comm;
	int r;

	*done = 0;
	if (req->remaining) {
		r = progress(comm);
		if (req->remaining)
			return r;
	}

	if (sizes) {
		r = report_sizes(req, sizes);
		if (r < 0)
			return r;
	}
	*done = 1;
	mpib_request_put(&comm->pool, req);
	return 0;
}
