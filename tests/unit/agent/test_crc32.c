/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum of files that other versions read, too. */
#include "agent/base/crc32.h"
#include "tests/unit/agent/test.h"

static uint32_t bit_by_bit(const uint8_t *bytes, size_t len)
{
	uint32_t crc = UINT32_MAX;

	for (size_t n = 0; n < len; n++) {
		crc ^= bytes[n];
		for (unsigned int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
	}
	return ~crc;
}

static void the_check_value_is_that_of_ethernet(void **state)
{
	(void)state;
	assert_int_equal(mpib_crc32("", 0), 0);
	assert_int_equal(mpib_crc32("123456789", 9), 0xCBF43926u);
}

static void every_length_and_alignment_is_summed_as_bit_by_bit(void **state)
{
	uint8_t bytes[128];

	(void)state;
	for (size_t n = 0; n < sizeof(bytes); n++)
		bytes[n] = (uint8_t)(n * 151 + n / 7);
	for (size_t start = 0; start < 8; start++) {
		for (size_t len = 0; len <= sizeof(bytes) - start; len++)
			assert_int_equal(mpib_crc32(bytes + start, len),
					 bit_by_bit(bytes + start, len));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_check_value_is_that_of_ethernet),
		cmocka_unit_test(every_length_and_alignment_is_summed_as_bit_by_bit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
