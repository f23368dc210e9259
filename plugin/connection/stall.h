/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rail over which nothing comes back any more and that no event tells of: a switch, a cable, the
 * far port. The device finds it when its retries are used up, seconds later. Here it is found by
 * what completes: requests are under way on the rail, none of them completes for
 * MPIB_RAIL_STALL_MS, and the other rail completes some.
 *
 * The helper thread peeks at numbers that are there anyway, so that a connection that is getting on
 * pays nothing for it. Where one of its rails isn't, MPIB_FLAG_LOOK asks the progress thread to
 * poll and judge (data/stall_look.c). So nothing is counted against a rail while NCCL doesn't call.
 */
#ifndef MPIB_PLUGIN_STALL_H
#define MPIB_PLUGIN_STALL_H

#include "plugin/connection/rails.h"

/* Looks within one bound, as far as the helper thread's tick allows. */
#define MPIB_STALL_LOOKS 10u

/* Between two looks at the connection. */
static inline uint32_t mpib_stall_interval_ms(const struct mpib_comm *comm)
{
	const uint32_t ms = (uint32_t)comm->rails->env->rail_stall_ms / MPIB_STALL_LOOKS;

	return ms > MPIB_WATCH_TICK_MS ? ms : MPIB_WATCH_TICK_MS;
}

/* From now on, while comm->rails->live. Under the watch lock. */
void mpib_stall_watch(const struct mpib_comm *comm);

#endif
