/* SPDX-License-Identifier: Apache-2.0 */
/* Time and CPU time, in seconds. */
#ifndef MPIB_NETPERF_CLOCK_H
#define MPIB_NETPERF_CLOCK_H

#include <sys/resource.h>
#include <time.h>

/* Monotonic. */
static inline double np_now(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* User and system time of RUSAGE_SELF or RUSAGE_THREAD. */
static inline double np_cpu(int who)
{
	struct rusage usage;

	if (getrusage(who, &usage) < 0)
		return 0;
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

#endif
