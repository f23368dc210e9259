/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/pattern.h"

#include <string.h>

/* Odd constants of multiplicative hashing; any with well spread bits would do. */
#define STEP 0x9E3779B97F4A7C15u
#define MIX  0xD6E8FEB86659FD93u

static uint64_t mix(uint64_t x)
{
	x ^= x >> 32;
	x *= MIX;
	x ^= x >> 29;
	x *= MIX;
	x ^= x >> 32;
	return x;
}

/* With each word checked a pattern took up to 60 times as long, under ThreadSanitizer. What is
 * copied and compared sanitizers still see. */
#define NOT_SANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

/* One multiplication: the base is well mixed already. */
NOT_SANITIZED static inline uint64_t word_at(uint64_t base, uint64_t index)
{
	uint64_t x = base + index * STEP;

	x ^= x >> 32;
	x *= MIX;
	return x ^ (x >> 31);
}

/* Words of a pattern on the way to or from a buffer. */
#define BLOCK 128u

NOT_SANITIZED static void make_words(uint64_t *words, uint64_t base, uint64_t index, size_t n)
{
	for (size_t k = 0; k < n; k++)
		words[k] = word_at(base, index + k);
}

struct np_pattern np_pattern_make(uint64_t seed, uint64_t channel, uint64_t message)
{
	return (struct np_pattern){ mix(mix(mix(seed + STEP) + channel) + message) };
}

uint8_t np_pattern_byte(struct np_pattern pattern, size_t offset)
{
	return (uint8_t)(word_at(pattern.base, offset / 8) >> (8 * (offset % 8)));
}

void np_pattern_fill(struct np_pattern pattern, void *to, size_t offset, size_t len)
{
	uint64_t words[BLOCK];
	uint8_t *out = to;

	for (; len && offset % 8; len--, offset++)
		*out++ = np_pattern_byte(pattern, offset);
	while (len >= 8) {
		size_t n = len / 8 < BLOCK ? len / 8 : BLOCK;

		make_words(words, pattern.base, offset / 8, n);
		memcpy(out, words, n * 8);
		len -= n * 8;
		offset += n * 8;
		out += n * 8;
	}
	for (; len; len--, offset++)
		*out++ = np_pattern_byte(pattern, offset);
}

size_t np_pattern_check(struct np_pattern pattern, const void *from, size_t offset, size_t len)
{
	uint64_t words[BLOCK];
	const uint8_t *in = from;
	size_t at = 0;

	for (; at < len && (offset + at) % 8; at++)
		if (in[at] != np_pattern_byte(pattern, offset + at))
			return at;
	while (len - at >= 8) {
		size_t n = (len - at) / 8 < BLOCK ? (len - at) / 8 : BLOCK;

		make_words(words, pattern.base, (offset + at) / 8, n);
		if (memcmp(in + at, words, n * 8) != 0)
			break;
		at += n * 8;
	}
	for (; at < len; at++)
		if (in[at] != np_pattern_byte(pattern, offset + at))
			return at;
	return len;
}

static const uint8_t *guard_page(void)
{
	static uint8_t page[NP_PAGE];
	static uint8_t made;

	/* every writer writes the same bytes, and the first call comes before any thread */
	if (!made) {
		for (size_t n = 0; n < NP_PAGE; n++)
			page[n] = (uint8_t)(mix(n + 77) | 1);
		made = 1;
	}
	return page;
}

uint8_t np_guard_byte(const void *at)
{
	return guard_page()[(uintptr_t)at % NP_PAGE];
}

void np_guard_fill(void *to, size_t len)
{
	uint8_t *out = to;

	while (len) {
		size_t start = (uintptr_t)out % NP_PAGE, part = NP_PAGE - start;

		if (part > len)
			part = len;
		memcpy(out, guard_page() + start, part);
		out += part;
		len -= part;
	}
}

size_t np_guard_check(const void *from, size_t len)
{
	const uint8_t *in = from;
	size_t at = 0;

	while (at < len) {
		size_t start = (uintptr_t)(in + at) % NP_PAGE, part = NP_PAGE - start;

		if (part > len - at)
			part = len - at;
		if (memcmp(in + at, guard_page() + start, part) != 0) {
			while (in[at] == guard_page()[(uintptr_t)(in + at) % NP_PAGE])
				at++;
			return at;
		}
		at += part;
	}
	return len;
}

struct np_random np_random_make(uint64_t a, uint64_t b, uint64_t c)
{
	return (struct np_random){ mix(mix(mix(a + STEP) ^ b) + c) };
}

uint64_t np_random_next(struct np_random *random)
{
	random->state += STEP;
	return mix(random->state);
}

uint64_t np_random_below(struct np_random *random, uint64_t limit)
{
	return np_random_next(random) % limit;
}
