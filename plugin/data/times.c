/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/data/times.h"

#include "plugin/base/counters.h"
#include "plugin/data/policy.h"

static void begin(struct mpib_comm *comm)
{
	struct mpib_counter_entry *counters = comm->counters;

	if (comm->own_counters || comm->data_mask != MPIB_RAILS_ALL || !mpib_counters_time())
		return;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (counters->busy[rail] & 1) /* as it was left */
			mpib_times_set(&counters->busy[rail],
				       counters->busy[rail] + 2 * counters->latest[rail] - 1);
	__atomic_store_n(&counters->timed, counters->timed + 1, __ATOMIC_RELEASE);
	comm->busy |= MPIB_BUSY_TIMED | MPIB_BUSY_IDLE | (mpib_ticks_counter ? 0 : MPIB_BUSY_CLOCK);
}

void mpib_times_follow(struct mpib_comm *comm)
{
	bool asked = mpib_policy_is_timed(comm);

	if (asked && !(comm->busy & MPIB_BUSY_TIMED))
		begin(comm);
	else if (!asked)
		mpib_times_end(comm);
}

void mpib_times_end(struct mpib_comm *comm)
{
	comm->busy &= (uint8_t) ~(MPIB_BUSY_TIMED | MPIB_BUSY_IDLE | MPIB_BUSY_CLOCK);
}

void mpib_times_row(struct mpib_comm *comm)
{
	uint64_t sout = 0, sup = 0;

	if (!(comm->busy & MPIB_BUSY_IDLE))
		return;
	for (const struct mpib_request *req = comm->send.group.head; req; req = req->mate) {
		sout += req->size - req->sup_bytes;
		sup += req->sup_bytes;
	}
	if (sout && sup) {
		mpib_times_both(comm);
		return;
	}
	mpib_times_one(comm, MPIB_SOUT, sout);
	mpib_times_one(comm, MPIB_SUP, sup);
}
