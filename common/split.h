/* SPDX-License-Identifier: Apache-2.0 */
/* How a message is divided between the rails: (size, share) -> bytes on SUP. Pure, integers only.
 */
#ifndef MPIB_COMMON_SPLIT_H
#define MPIB_COMMON_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/mpib_agent_iface.h"

/* LL128 data must not be torn inside a 128-byte line (NCCL ABI reference, 7.4), so the border
 * between the rails lies on one. */
#define MPIB_SPLIT_ALIGN 128u

__extension__ typedef unsigned __int128 mpib_uint128;

/* Of a share that finds itself: a shorter message with nothing under way before it isn't divided,
 * since it would wait for two parts' way instead of one's (docs/performance.md). */
#define MPIB_SPLIT_MIN_IDLE ((size_t)64 << 10)

/* Bytes of a message of @size that go to SUP under @share; the rest, which comes first in the
 * buffer, goes to SOUT. 0 and >= 1024 mean *all* on one rail, before any rounding: isolation must
 * hold for odd sizes too. Exact for every size_t: the product has 128 bits. */
static inline size_t mpib_split_sup(size_t size, uint32_t share)
{
	if (__builtin_expect(share >= MPIB_SHARE_MAX, 0))
		return size;
	return (size_t)(((mpib_uint128)size * share) >> 10) & ~(size_t)(MPIB_SPLIT_ALIGN - 1);
}

/* Whether @share divides a message of @size at all, where those shorter than @least aren't divided.
 * If not, it travels whole, on SUP from half of MPIB_SHARE_MAX on. */
static inline bool mpib_split_divides(size_t size, uint32_t share, size_t least)
{
	return share - 1 < MPIB_SHARE_MAX - 1 && size >= least;
}

#endif
