/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time for deadlines of set-up and of errors; the data path never asks. */
#ifndef MPIB_PLUGIN_CLOCK_H
#define MPIB_PLUGIN_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t mpib_now_ms(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

#endif
