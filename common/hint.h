/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seqlock of a hint slot: the one writer (the agent) and any number of readers (plugins in
 * other processes). The installed header keeps plain integers, and this is the only file that
 * views them as C11 atomics.
 *
 * Writer: seq odd, data, seq even. The data stores are releases, so a reader that sees new data
 * also sees the odd seq (or a later one) when it looks again; the final store of seq is a release,
 * so a reader that sees it sees the data. Reader: both first loads are acquires, which orders the
 * second look at seq after them. No fence is needed, which matters: ThreadSanitizer doesn't
 * support them.
 *
 * An even seq has one more meaning: where MPIB_HINT_TIMED is set in it, the flow's share finds
 * itself, and its senders keep busy times (common/counters.h). A reader that doesn't know that sees
 * an even number all the same; from a writer that doesn't, the bit is chance, and costs a sender a
 * few instructions.
 */
#ifndef MPIB_COMMON_HINT_H
#define MPIB_COMMON_HINT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/macros.h"
#include "common/mpib_agent_iface.h"

/* Looks at a slot before the reader gives up and keeps its last good value: a writer that died
 * with seq odd must not hang a training job. */
#define MPIB_HINT_READ_TRIES 64

#define MPIB_HINT_TIMED 2u

static inline _Atomic uint32_t *mpib_hint_atomic(const uint32_t *field)
{
	return (_Atomic uint32_t *)(uintptr_t)field;
}

/* What a reader in bulk wants of the count: it is even, and says of the share what is meant. */
enum mpib_hint_want {
	MPIB_HINT_WANT_ANY,
	MPIB_HINT_WANT_GIVEN,
	MPIB_HINT_WANT_TIMED,
};

static inline bool mpib_hint_is(uint32_t seq, enum mpib_hint_want want)
{
	if (want == MPIB_HINT_WANT_ANY)
		return !(seq & 1);
	return (seq & (1 | MPIB_HINT_TIMED)) ==
	       (want == MPIB_HINT_WANT_TIMED ? MPIB_HINT_TIMED : 0);
}

/* The first look of mpib_hint_read, for a reader that takes hints in bulk: false where the slot is
 * being written, the share is over 1024, or the count isn't what is wanted, and *ret_share then
 * means nothing. */
static inline bool mpib_hint_read_once(const struct mpib_hint_entry *entry,
				       enum mpib_hint_want want, uint32_t *ret_share)
{
	uint32_t before = atomic_load_explicit(mpib_hint_atomic(&entry->seq), memory_order_acquire);

	*ret_share = atomic_load_explicit(mpib_hint_atomic(&entry->sup_bw), memory_order_acquire);
	return mpib_hint_is(before, want) &&
	       before ==
		       atomic_load_explicit(mpib_hint_atomic(&entry->seq), memory_order_relaxed) &&
	       *ret_share <= MPIB_SHARE_MAX;
}

/* Reads the share of @entry, 0..1024. False where no stable value was seen within the bound:
 * *ret_share is untouched then. Any thread, no system call. */
static inline bool mpib_hint_read(const struct mpib_hint_entry *entry, uint32_t *ret_share)
{
	for (unsigned int n = 0; n < MPIB_HINT_READ_TRIES; n++) {
		uint32_t before =
			atomic_load_explicit(mpib_hint_atomic(&entry->seq), memory_order_acquire);
		uint32_t share = atomic_load_explicit(mpib_hint_atomic(&entry->sup_bw),
						      memory_order_acquire);
		uint32_t after =
			atomic_load_explicit(mpib_hint_atomic(&entry->seq), memory_order_relaxed);

		if (mpib_likely(before == after && !(before & 1))) {
			*ret_share = mpib_likely(share <= MPIB_SHARE_MAX) ? share : MPIB_SHARE_MAX;
			return true;
		}
	}

	return false;
}

/* The same for the whole slot: share and both addresses belong together. ret->seq is the even
 * number under which they were read; sup_bw is not clamped, so that tools can show what is there.
 */
static inline bool mpib_hint_read_entry(const struct mpib_hint_entry *entry,
					struct mpib_hint_entry *ret)
{
	for (unsigned int n = 0; n < MPIB_HINT_READ_TRIES; n++) {
		struct mpib_hint_entry copy;
		uint32_t after;

		copy.seq =
			atomic_load_explicit(mpib_hint_atomic(&entry->seq), memory_order_acquire);
		copy.sup_bw = atomic_load_explicit(mpib_hint_atomic(&entry->sup_bw),
						   memory_order_acquire);
		copy.src_ip = atomic_load_explicit(mpib_hint_atomic(&entry->src_ip),
						   memory_order_acquire);
		copy.dst_ip = atomic_load_explicit(mpib_hint_atomic(&entry->dst_ip),
						   memory_order_acquire);
		after = atomic_load_explicit(mpib_hint_atomic(&entry->seq), memory_order_relaxed);

		if (copy.seq == after && !(after & 1)) {
			*ret = copy;
			return true;
		}
	}

	return false;
}

/* Writes a slot. One writer only, ever: the agent's one thread. A slot that a dead writer left odd
 * ends up even. @timed: MPIB_HINT_TIMED or 0. */
static inline void mpib_hint_write_timed(struct mpib_hint_entry *entry, uint32_t share,
					 uint32_t src_ip_be, uint32_t dst_ip_be, uint32_t timed)
{
	uint32_t odd =
		atomic_load_explicit(mpib_hint_atomic(&entry->seq), memory_order_relaxed) | 1;
	uint32_t even = odd + 1;

	if ((even & MPIB_HINT_TIMED) != timed)
		even += MPIB_HINT_TIMED;

	atomic_store_explicit(mpib_hint_atomic(&entry->seq), odd, memory_order_relaxed);
	atomic_store_explicit(mpib_hint_atomic(&entry->sup_bw), share, memory_order_release);
	atomic_store_explicit(mpib_hint_atomic(&entry->src_ip), src_ip_be, memory_order_release);
	atomic_store_explicit(mpib_hint_atomic(&entry->dst_ip), dst_ip_be, memory_order_release);
	atomic_store_explicit(mpib_hint_atomic(&entry->seq), even, memory_order_release);
}

/* The same for a share that is given. */
static inline void mpib_hint_write(struct mpib_hint_entry *entry, uint32_t share,
				   uint32_t src_ip_be, uint32_t dst_ip_be)
{
	mpib_hint_write_timed(entry, share, src_ip_be, dst_ip_be, 0);
}

/* Raises the heartbeat (agent only). */
static inline void mpib_hint_beat(struct mpib_hint_header *header)
{
	(void)atomic_fetch_add_explicit(mpib_hint_atomic(&header->heartbeat), 1,
					memory_order_release);
}

/* Fields of the header as a reader should load them. */
static inline uint32_t mpib_hint_load(const uint32_t *field)
{
	return atomic_load_explicit(mpib_hint_atomic(field), memory_order_acquire);
}

static inline void mpib_hint_store(uint32_t *field, uint32_t value)
{
	atomic_store_explicit(mpib_hint_atomic(field), value, memory_order_release);
}

#endif
