/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the seqlock tests toggle between, and readers and writers that are wrong on purpose. A
 * check of ordering that no wrong variant fails proves nothing, so every check here is run with
 * these too. The wrong ones spell out what a compiler or a weakly ordered machine could make of
 * code without the memory orders of hint.h; they use relaxed atomics, so that they have no data
 * race in the language's sense and fail by what they return.
 */
#ifndef MPIB_TESTS_UNIT_COMMON_HINT_PAIRS_H
#define MPIB_TESTS_UNIT_COMMON_HINT_PAIRS_H

#include "common/hint.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MPIB_TEST_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define MPIB_TEST_TSAN 1
#endif
#ifndef MPIB_TEST_TSAN
#define MPIB_TEST_TSAN 0
#endif

typedef void (*hint_writer)(struct mpib_hint_entry *entry, uint32_t share, uint32_t src_ip_be,
			    uint32_t dst_ip_be);
typedef bool (*hint_reader)(const struct mpib_hint_entry *entry, struct mpib_hint_entry *ret);

struct hint_pair {
	uint32_t share;
	uint32_t src;
	uint32_t dst;
};

/* No field of one has the value of any field of the other. */
static const struct hint_pair hint_pairs[2] = {
	{ 0, 0x11111111, 0x12121212 },
	{ 1024, 0x21212121, 0x22222222 },
};

enum hint_verdict {
	HINT_PAIR_0,
	HINT_PAIR_1,
	HINT_MIXED, /* parts of both */
	HINT_OTHER, /* a value that was never written */
};

static inline enum hint_verdict hint_judge(const struct mpib_hint_entry *seen)
{
	unsigned int from[2] = { 0, 0 };

	for (unsigned int k = 0; k < 2; k++)
		from[k] = (seen->sup_bw == hint_pairs[k].share) +
			  (seen->src_ip == hint_pairs[k].src) + (seen->dst_ip == hint_pairs[k].dst);

	if (from[0] + from[1] != 3)
		return HINT_OTHER;
	if (from[0] == 3)
		return HINT_PAIR_0;
	return from[1] == 3 ? HINT_PAIR_1 : HINT_MIXED;
}

static inline void hint_put(uint32_t *field, uint32_t value)
{
	atomic_store_explicit(mpib_hint_atomic(field), value, memory_order_relaxed);
}

static inline uint32_t hint_get(const uint32_t *field)
{
	return atomic_load_explicit(mpib_hint_atomic(field), memory_order_relaxed);
}

static inline void hint_put_pair(struct mpib_hint_entry *entry, uint32_t share, uint32_t src,
				 uint32_t dst)
{
	hint_put(&entry->sup_bw, share);
	hint_put(&entry->src_ip, src);
	hint_put(&entry->dst_ip, dst);
}

static inline void hint_get_pair(const struct mpib_hint_entry *entry, struct mpib_hint_entry *ret)
{
	ret->sup_bw = hint_get(&entry->sup_bw);
	ret->src_ip = hint_get(&entry->src_ip);
	ret->dst_ip = hint_get(&entry->dst_ip);
}

/* The right steps without any order between them. */
static inline void hint_write_relaxed(struct mpib_hint_entry *entry, uint32_t share, uint32_t src,
				      uint32_t dst)
{
	uint32_t odd = hint_get(&entry->seq) | 1;

	hint_put(&entry->seq, odd);
	hint_put_pair(entry, share, src, dst);
	hint_put(&entry->seq, odd + 1);
}

/* The data rose above the store that makes seq odd. */
static inline void hint_write_data_first(struct mpib_hint_entry *entry, uint32_t share,
					 uint32_t src, uint32_t dst)
{
	uint32_t odd = hint_get(&entry->seq) | 1;

	hint_put_pair(entry, share, src, dst);
	hint_put(&entry->seq, odd);
	hint_put(&entry->seq, odd + 1);
}

/* The data sank below the store that makes seq even. */
static inline void hint_write_data_last(struct mpib_hint_entry *entry, uint32_t share, uint32_t src,
					uint32_t dst)
{
	uint32_t odd = hint_get(&entry->seq) | 1;

	hint_put(&entry->seq, odd);
	hint_put(&entry->seq, odd + 1);
	hint_put_pair(entry, share, src, dst);
}

/* seq is never odd. */
static inline void hint_write_never_odd(struct mpib_hint_entry *entry, uint32_t share, uint32_t src,
					uint32_t dst)
{
	hint_put_pair(entry, share, src, dst);
	hint_put(&entry->seq, hint_get(&entry->seq) + 2);
}

/* No second look at seq. */
static inline bool hint_read_one_look(const struct mpib_hint_entry *entry,
				      struct mpib_hint_entry *ret)
{
	ret->seq = hint_get(&entry->seq);
	hint_get_pair(entry, ret);
	return !(ret->seq & 1);
}

/* The second look rose above the data. */
static inline bool hint_read_looks_first(const struct mpib_hint_entry *entry,
					 struct mpib_hint_entry *ret)
{
	uint32_t after;

	ret->seq = hint_get(&entry->seq);
	after = hint_get(&entry->seq);
	hint_get_pair(entry, ret);
	return ret->seq == after && !(after & 1);
}

/* The data rose above the first look. */
static inline bool hint_read_looks_last(const struct mpib_hint_entry *entry,
					struct mpib_hint_entry *ret)
{
	uint32_t after;

	hint_get_pair(entry, ret);
	ret->seq = hint_get(&entry->seq);
	after = hint_get(&entry->seq);
	return ret->seq == after && !(after & 1);
}

#endif
