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

static inline uint32_t mpib_imm_size_q(size_t size)
{
	size_t units = size >> 7;

	return units > MPIB_IMM_SIZE_MAX ? MPIB_IMM_SIZE_MAX : (uint32_t)units;
}

static inline uint32_t mpib_imm_encode(unsigned int slot, unsigned int mask, uint32_t size_q)
{
	return (slot & 0xffu) | (mask & 3u) << 8 | size_q << 10;
}

static inline unsigned int mpib_imm_slot(uint32_t imm)
{
	return imm & 0xffu;
}

static inline unsigned int mpib_imm_mask(uint32_t imm)
{
	return imm >> 8 & 3u;
}

static inline uint32_t mpib_imm_size(uint32_t imm)
{
	return imm >> 10;
}

#endif
