/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/base/ticks.h"

#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "plugin/base/watch.h"

/* A speed that is measured over so long is right to a thousandth. */
#define MEASURE_NSEC 10000000u

#define NSEC_PER_MS 1000000u

bool mpib_ticks_counter;

/* Under the watch lock. */
static struct {
	bool ready;
	uint64_t start_nsec; /* of a measurement */
	uint64_t start_ticks;
	uint32_t per_ms;
} the_clock;

uint64_t mpib_ticks_slow(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#if defined(__x86_64__)
/* "Invariant TSC": one speed, in all states of the processor. */
static bool has_counter(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && d & 1u << 8;
}

static uint32_t told_speed(void)
{
	return 0;
}
#elif defined(__aarch64__)
static bool has_counter(void)
{
	return true;
}

static uint32_t told_speed(void)
{
	uint64_t hz;

	__asm__("mrs %0, cntfrq_el0" : "=r"(hz));
	return (uint32_t)(hz / 1000);
}
#else
static bool has_counter(void)
{
	return false;
}

static uint32_t told_speed(void)
{
	return 0;
}
#endif

void mpib_ticks_init(void)
{
	mpib_watch_assert_locked();
	if (the_clock.ready)
		return;
	the_clock.ready = true;
	mpib_ticks_counter = has_counter();
	the_clock.per_ms = mpib_ticks_counter ? told_speed() : NSEC_PER_MS;
	the_clock.start_nsec = mpib_ticks_slow();
	the_clock.start_ticks = mpib_ticks();
}

uint32_t mpib_ticks_per_ms(void)
{
	uint64_t nsec;

	mpib_watch_assert_locked();
	if (!the_clock.ready || the_clock.per_ms)
		return the_clock.per_ms;
	nsec = mpib_ticks_slow() - the_clock.start_nsec;
	if (nsec >= MEASURE_NSEC)
		the_clock.per_ms = (uint32_t)((double)(mpib_ticks() - the_clock.start_ticks) *
					      NSEC_PER_MS / (double)nsec);
	return the_clock.per_ms;
}
