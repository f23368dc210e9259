/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for property tests: a small generator whose seed is printed, so that a failure can be
 * run again with MPIB_TEST_SEED. Not for threads: each takes a generator of its own. */
#ifndef MPIB_TESTS_UNIT_COMMON_RANDOM_H
#define MPIB_TESTS_UNIT_COMMON_RANDOM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MPIB_TEST_SEED_ENV "MPIB_TEST_SEED"

struct mpib_test_random {
	uint64_t state;
};

/* The seed of this process: chosen and printed at the first call. */
static inline uint64_t mpib_test_seed(void)
{
	static uint64_t seed;
	static int chosen;
	const char *text = getenv(MPIB_TEST_SEED_ENV);
	struct timespec now;

	if (chosen)
		return seed;

	if (text) {
		seed = strtoull(text, NULL, 0);
	} else {
		(void)clock_gettime(CLOCK_REALTIME, &now);
		seed = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
	}
	chosen = 1;
	(void)printf("# " MPIB_TEST_SEED_ENV "=%llu\n", (unsigned long long)seed);
	(void)fflush(stdout);
	return seed;
}

/* A generator that depends on the seed and @stream alone, not on which tests ran before. */
static inline struct mpib_test_random mpib_test_random_init(uint64_t stream)
{
	return (struct mpib_test_random){ mpib_test_seed() ^ stream * 0xd1342543de82ef95u };
}

/* The next 64 bits: a Weyl sequence through a mixer of two multiplications. */
static inline uint64_t mpib_test_random_next(struct mpib_test_random *random)
{
	uint64_t x = random->state += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	return x ^ x >> 32;
}

/* A number below @limit, which is not 0. */
static inline uint64_t mpib_test_random_below(struct mpib_test_random *random, uint64_t limit)
{
	return mpib_test_random_next(random) % limit;
}

/* A number with a random count of significant bits: small and huge ones are equally likely. */
static inline uint64_t mpib_test_random_log(struct mpib_test_random *random)
{
	return mpib_test_random_next(random) >> mpib_test_random_below(random, 64);
}

#endif
