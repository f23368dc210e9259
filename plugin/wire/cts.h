/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clear-to-send ring: memory of the sender, written by the receiver with RDMA writes. One row
 * a posted receive (row number modulo MPIB_ROWS), one element a message of the group.
 *
 * An element is 32 bytes and never crosses a cache line, and its sequence number stands last, so
 * whoever sees the number sees the rest (the ring is registered without relaxed ordering).
 */
#ifndef MPIB_PLUGIN_CTS_H
#define MPIB_PLUGIN_CTS_H

#include <stdatomic.h>
#include <stdint.h>

#include "plugin/base/rail.h"

#define MPIB_ROWS      256u /* the slot of an immediate has 8 bits */
#define MPIB_GROUP_MAX 8u
/* A completion record: the row's bytes on SUP, then the size of each message. */
#define MPIB_RECORD_NUMBERS (1u + MPIB_GROUP_MAX)

struct mpib_cts {
	uint64_t addr; /* of the posted buffer */
	uint32_t rkey[MPIB_RAIL_MAX];
	uint32_t size_low; /* bytes of room, 48 bits */
	uint32_t tag;
	uint16_t size_high;
	uint8_t count;	  /* messages of the row, 1..MPIB_GROUP_MAX */
	uint8_t reserved; /* 0 */
	uint32_t seq;	  /* row number + 1 */
};

struct mpib_cts_row {
	struct mpib_cts element[MPIB_GROUP_MAX];
};

_Static_assert(sizeof(struct mpib_cts) == 32, "an element is half a cache line");

/* Whoever sees the number it expects sees the rest of the element. */
static inline uint32_t mpib_cts_seq(const struct mpib_cts *cts)
{
	return atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&cts->seq, memory_order_acquire);
}

static inline uint64_t mpib_cts_size(const struct mpib_cts *cts)
{
	return (uint64_t)cts->size_high << 32 | cts->size_low;
}

#endif
