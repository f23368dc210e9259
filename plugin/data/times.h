/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Busy times of a sender's rails, for a share that finds itself: bytes completed, and the time
 * while any were under way (common/counters.h). Kept where the flow's hint asks for it, in
 * functions of their own, so that nothing of it is on the way of other senders' messages.
 *
 * A span of busy time begins with a message that takes both rails and ends when nothing is under
 * way on the rail: messages that go on one rail alone, and wait for each other, tell nothing of its
 * speed. Progress thread.
 */
#ifndef MPIB_PLUGIN_TIMES_H
#define MPIB_PLUGIN_TIMES_H

#include <infiniband/verbs.h>

#include "plugin/base/ticks.h"
#include "plugin/connection/comm.h"

/* Begins or ends what the hint says by now. */
void mpib_times_follow(struct mpib_comm *comm);

/* Before the parts of a message, or of a row, are posted on both rails. */
static mpib_always_inline void mpib_times_post(struct mpib_comm *comm)
{
	struct mpib_counter_entry *counters = comm->counters;

	if (mpib_unlikely(!counters->since[MPIB_SOUT]))
		counters->since[MPIB_SOUT] = mpib_ticks();
	if (mpib_unlikely(!counters->since[MPIB_SUP]))
		counters->since[MPIB_SUP] = mpib_ticks();
}

/* @n good completions, already credited. */
void mpib_times_completed(struct mpib_comm *comm, unsigned int rail, const struct ibv_wc *wc,
			  int n);

#endif
