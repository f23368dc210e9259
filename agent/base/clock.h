/* SPDX-License-Identifier: Apache-2.0 */
/* Time in microseconds. */
#ifndef MPIB_AGENT_CLOCK_H
#define MPIB_AGENT_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MPIB_CLOCK_SECOND 1000000u /* usec */

/* CLOCK_REALTIME: since the epoch; CLOCK_BOOTTIME: since the boot, whatever becomes of the date. */
static inline uint64_t mpib_clock_usec(clockid_t clock)
{
	struct timespec now = { 0 };

	(void)clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * MPIB_CLOCK_SECOND + (uint64_t)now.tv_nsec / 1000u;
}

#endif
