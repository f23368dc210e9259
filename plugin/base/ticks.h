/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of busy times, for differences: the processor's own counter where that goes on at one
 * speed on all cores, or CLOCK_MONOTONIC in nanoseconds. Any thread. */
#ifndef MPIB_PLUGIN_TICKS_H
#define MPIB_PLUGIN_TICKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/macros.h"

/* Set by mpib_ticks_init(). */
extern bool mpib_ticks_counter;

/* Chooses the clock. Once, before the others; again does nothing. Watch lock. */
void mpib_ticks_init(void);
/* Ticks a millisecond; 0 while that isn't known yet, some milliseconds after the start. Watch lock.
 */
uint32_t mpib_ticks_per_ms(void);

uint64_t mpib_ticks_slow(void);

/* Where mpib_ticks_counter is set. */
static mpib_always_inline uint64_t mpib_ticks_fast(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return mpib_ticks_slow();
#endif
}

static inline uint64_t mpib_ticks(void)
{
	return mpib_likely(mpib_ticks_counter) ? mpib_ticks_fast() : mpib_ticks_slow();
}

#endif
