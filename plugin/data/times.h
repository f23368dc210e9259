/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Busy times of a sender's rails, for a share that finds itself: when a span of busy time begins
 * and ends, and when a completion was polled (common/counters.h). Which bytes had completed by then
 * the agent finds out from what is counted of any sender. Kept where the flow's hint asks for it,
 * and nothing of it is on the way of other senders' messages.
 *
 * A span begins with a message that takes both rails and ends when nothing is under way on the
 * rail: messages that go on one rail alone, and wait for each other, tell nothing of its speed.
 * MPIB_BUSY_IDLE leads the next message to where a span may begin. Progress thread.
 */
#ifndef MPIB_PLUGIN_TIMES_H
#define MPIB_PLUGIN_TIMES_H

#include "plugin/base/ticks.h"
#include "plugin/connection/comm.h"

/* Begins or ends what the hint says by now. */
void mpib_times_follow(struct mpib_comm *comm);
/* Ends it, until the hint is followed again. */
void mpib_times_end(struct mpib_comm *comm);
/* Of a timed sender, before a row's chains are posted. */
void mpib_times_row(struct mpib_comm *comm);

/* Numbers that the agent reads while they are written. */
static mpib_always_inline void mpib_times_set(uint64_t *to, uint64_t value)
{
	__atomic_store_n(to, value, __ATOMIC_RELEASE);
}

/* Before parts on both rails are posted. */
static mpib_always_inline void mpib_times_both(struct mpib_comm *comm)
{
	struct mpib_counter_entry *counters = comm->counters;
	uint64_t now = mpib_ticks();

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		if (counters->busy[rail] & 1)
			continue;
		mpib_times_set(&counters->latest[rail], now);
		mpib_times_set(&counters->busy[rail], counters->busy[rail] - 2 * now + 1);
	}
	comm->busy &= (uint8_t)~MPIB_BUSY_IDLE;
}

/* Before a part of @bytes that is alone is counted. */
static mpib_always_inline void mpib_times_one(struct mpib_comm *comm, unsigned int rail,
					      uint64_t bytes)
{
	struct mpib_counter_entry *counters = comm->counters;

	if (!(counters->busy[rail] & 1))
		mpib_times_set(&counters->apart[rail], counters->apart[rail] + bytes);
}

/* Completions have been credited, at @now. */
static mpib_always_inline void mpib_times_completed(struct mpib_comm *comm, unsigned int rail,
						    uint64_t now)
{
	struct mpib_counter_entry *counters = comm->counters;

	if (comm->polled[rail]) {
		mpib_times_set(&counters->latest[rail], now);
	} else if (counters->busy[rail] & 1) {
		mpib_times_set(&counters->busy[rail], counters->busy[rail] + 2 * now - 1);
		comm->busy |= MPIB_BUSY_IDLE;
	}
}

#endif
