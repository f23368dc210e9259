/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/data/times.h"

#include "plugin/base/counters.h"
#include "plugin/data/policy.h"
#include "plugin/data/wr_id.h"

/* Numbers that the agent reads while they are written. */
static void add(uint64_t *to, uint64_t more)
{
	__atomic_store_n(to, *to + more, __ATOMIC_RELAXED);
}

static void begin(struct mpib_comm *comm)
{
	struct mpib_counter_entry *counters = comm->counters;

	if (comm->own_counters || comm->data_mask != MPIB_RAILS_ALL || !mpib_counters_time())
		return;
	counters->since[MPIB_SOUT] = counters->since[MPIB_SUP] = 0;
	__atomic_store_n(&counters->timed, counters->timed + 1, __ATOMIC_RELEASE);
	comm->timing = MPIB_TIMING;
}

void mpib_times_follow(struct mpib_comm *comm)
{
	bool asked = mpib_policy_is_timed(comm);

	if (asked && !comm->timing)
		begin(comm);
	else if (!asked && comm->timing)
		comm->timing = 0; /* also where a rail is lost: the hint isn't followed then */
}

/* What the row that @req is the first of has on @rail. */
static uint64_t row_bytes(const struct mpib_request *req, unsigned int rail)
{
	uint64_t bytes = 0;

	for (; req; req = req->mate)
		bytes += rail == MPIB_SUP ? req->sup_bytes : req->size - req->sup_bytes;
	return bytes;
}

void mpib_times_completed(struct mpib_comm *comm, unsigned int rail, const struct ibv_wc *wc, int n)
{
	struct mpib_request *requests = comm->pool.requests;
	struct mpib_counter_entry *counters = comm->counters;
	uint64_t bytes = 0;
	uint64_t now;

	if (!counters->since[rail])
		return;
	for (const struct ibv_wc *end = wc + n; wc < end; wc++) {
		const struct mpib_request *req = &requests[MPIB_WR_INDEX(wc->wr_id)];

		if (mpib_likely(!(wc->wr_id & MPIB_WR_CHAIN)))
			bytes += req->sge[rail].length;
		else if (wc->wr_id & MPIB_WR_FINAL)
			bytes += row_bytes(req, rail);
	}
	now = mpib_ticks();
	add(&counters->completed[rail], bytes);
	add(&counters->busy[rail], now - counters->since[rail]);
	counters->since[rail] = comm->polled[rail] ? now : 0;
}
