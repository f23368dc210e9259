/* SPDX-License-Identifier: Apache-2.0 */
/* When cores of this machine stood still: a host that runs something else meanwhile, interrupts, a
 * process that is preferred to all. No process waits for a core then as far as the kernel can tell,
 * and none gets anything done. */
#ifndef MPIB_TESTS_AGENT_STALLS_H
#define MPIB_TESTS_AGENT_STALLS_H

#include <stdint.h>

struct stalls;

/* Starts a watcher a core, which is preferred to all other processes where this one may do that. */
struct stalls *stalls_start(void);
/* Nanoseconds between @start and @end (CLOCK_MONOTONIC) during which the worst core stood still, of
 * what watchers have seen so far. */
uint64_t stalls_within(const struct stalls *stalls, uint64_t start, uint64_t end);
/* Ends the watchers; what they saw stays. */
void stalls_stop(struct stalls *stalls);
void stalls_free(struct stalls *stalls);

#endif
