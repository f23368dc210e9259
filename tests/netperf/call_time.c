/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/call_time.h"

#include <sys/resource.h>

#include "tests/netperf/clock.h"

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

void np_call_begin(struct np_call_start *start)
{
	struct rusage usage = { 0 };

	(void)getrusage(RUSAGE_THREAD, &usage);
	start->user = seconds(usage.ru_utime);
	start->system = seconds(usage.ru_stime);
	start->preempted = (uint64_t)usage.ru_nivcsw;
	start->wall = np_now();
}

void np_call_end(struct np_call_time *longest, const struct np_call_start *start)
{
	double wall = np_now() - start->wall;
	struct rusage usage = { 0 };

	longest->calls++;
	if (wall <= longest->wall)
		return;
	(void)getrusage(RUSAGE_THREAD, &usage);
	longest->wall = wall;
	longest->user = seconds(usage.ru_utime) - start->user;
	longest->system = seconds(usage.ru_stime) - start->system;
	longest->preempted = (uint64_t)usage.ru_nivcsw - start->preempted;
}

void np_call_merge(struct np_call_time *into, const struct np_call_time *from)
{
	uint64_t calls = into->calls + from->calls;

	if (from->wall > into->wall)
		*into = *from;
	into->calls = calls;
}

const char *np_call_name(enum np_call call)
{
	static const char *const names[NP_CALL_MAX] = { "isend", "irecv", "test" };

	return names[call];
}
