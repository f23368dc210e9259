/* SPDX-License-Identifier: Apache-2.0 */
/* Eight bytes a step, each by a table of its own: the longest input is a policy file, and the event
 * loop waits for it. */
#include "agent/base/crc32.h"

#define STEP 8u

/* What a byte does to the sum when so many others of its step follow it. */
static uint32_t table[STEP][256];

static void fill_table(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (unsigned int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
		table[0][byte] = crc;
	}
	for (unsigned int n = 1; n < STEP; n++) {
		for (uint32_t byte = 0; byte < 256; byte++)
			table[n][byte] =
				table[n - 1][byte] >> 8 ^ table[0][table[n - 1][byte] & 0xFF];
	}
}

static uint32_t add_step(uint32_t crc, const uint8_t bytes[STEP])
{
	uint32_t sum = 0;

	for (unsigned int n = 0; n < STEP; n++) {
		uint32_t byte = bytes[n] ^ (n < sizeof(crc) ? crc >> 8 * n & 0xFF : 0);

		sum ^= table[STEP - 1 - n][byte];
	}
	return sum;
}

uint32_t mpib_crc32(const void *data, size_t len)
{
	const uint8_t *bytes = data;
	uint32_t crc = UINT32_MAX;
	size_t n = 0;

	if (!table[0][1])
		fill_table();
	for (; n + STEP <= len; n += STEP)
		crc = add_step(crc, bytes + n);
	for (; n < len; n++)
		crc = crc >> 8 ^ table[0][(crc ^ bytes[n]) & 0xFF];
	return ~crc;
}
