/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a message and of the guard bands, and the random numbers of the plan. Pure. */
#ifndef MPIB_NETPERF_PATTERN_H
#define MPIB_NETPERF_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#define NP_PAGE 4096u

/* Names one message's pattern: every byte depends on all three and on its offset. */
struct np_pattern {
	uint64_t base;
};

struct np_pattern np_pattern_make(uint64_t seed, uint64_t channel, uint64_t message);

/* Writes bytes @offset .. @offset + @len of the pattern to @to. */
void np_pattern_fill(struct np_pattern pattern, void *to, size_t offset, size_t len);

/* Compares; returns @len where all are right, else the index of the first wrong one. */
size_t np_pattern_check(struct np_pattern pattern, const void *from, size_t offset, size_t len);

/* The pattern's byte at @offset. */
uint8_t np_pattern_byte(struct np_pattern pattern, size_t offset);

/* Guard bytes depend on the address within the page alone, so that any part can be restored. */
void np_guard_fill(void *to, size_t len);
size_t np_guard_check(const void *from, size_t len);
uint8_t np_guard_byte(const void *at);

/* A small generator: equal seeds give equal rows on both ends. */
struct np_random {
	uint64_t state;
};

struct np_random np_random_make(uint64_t a, uint64_t b, uint64_t c);
uint64_t np_random_next(struct np_random *random);
/* 0 .. @limit - 1; @limit > 0. */
uint64_t np_random_below(struct np_random *random, uint64_t limit);

#endif
