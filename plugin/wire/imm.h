/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The immediate data of a message: slot | active rails << 8 | size_q << 10. Pure.
 *
 * size_q is the message's size in 128-byte units, cut to 22 bits, and only a cross-check: the exact
 * size of a single message is the sum of the completions' byte_len. All ones is never a size: it
 * says that the exact sizes are in the completion record (groups, and messages that a port can't
 * carry in one request). On the wire the value is big-endian, as verbs want it.
 */
#ifndef MPIB_PLUGIN_IMM_H
#define MPIB_PLUGIN_IMM_H

#include <stddef.h>
#include <stdint.h>

#define MPIB_IMM_SIZE_RECORD 0x3fffffu /* read the completion record */
#define MPIB_IMM_SIZE_MAX    0x3ffffeu /* sizes of 512 MiB and more */

#define MPIB_IMM_UNIT_BITS  7 /* sizes are told in units of 128 bytes */
#define MPIB_IMM_SLOT_MASK  0xffu
#define MPIB_IMM_MASK_SHIFT 8
#define MPIB_IMM_MASK	    3u
#define MPIB_IMM_SIZE_SHIFT 10

/* Of a size that isn't cut: less than MPIB_IMM_SIZE_RECORD units. */
static inline uint32_t mpib_imm_units(size_t size)
{
	return (uint32_t)(size >> MPIB_IMM_UNIT_BITS);
}

static inline uint32_t mpib_imm_size_q(size_t size)
{
	size_t units = size >> MPIB_IMM_UNIT_BITS;

	return units > MPIB_IMM_SIZE_MAX ? MPIB_IMM_SIZE_MAX : (uint32_t)units;
}

static inline uint32_t mpib_imm_encode(unsigned int slot, unsigned int mask, uint32_t size_q)
{
	return (slot & MPIB_IMM_SLOT_MASK) | (mask & MPIB_IMM_MASK) << MPIB_IMM_MASK_SHIFT |
	       size_q << MPIB_IMM_SIZE_SHIFT;
}

static inline unsigned int mpib_imm_slot(uint32_t imm)
{
	return imm & MPIB_IMM_SLOT_MASK;
}

static inline unsigned int mpib_imm_mask(uint32_t imm)
{
	return imm >> MPIB_IMM_MASK_SHIFT & MPIB_IMM_MASK;
}

static inline uint32_t mpib_imm_size(uint32_t imm)
{
	return imm >> MPIB_IMM_SIZE_SHIFT;
}

#endif
