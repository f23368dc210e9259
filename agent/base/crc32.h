/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 as Ethernet has it, bit by bit: the inputs are small. */
#ifndef MPIB_AGENT_CRC32_H
#define MPIB_AGENT_CRC32_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t mpib_crc32(const void *data, size_t len)
{
	const uint8_t *byte = data;
	uint32_t crc = UINT32_MAX;

	for (size_t n = 0; n < len; n++) {
		crc ^= byte[n];
		for (unsigned int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
	}

	return ~crc;
}

#endif
