/* SPDX-License-Identifier: Apache-2.0 */
/* Immediate data: every field comes back, and the sentinel is never a size. */
#include "tests/unit/plugin/test.h"

#include "plugin/wire/imm.h"
#include "tests/unit/common/random.h"

static void test_fields(void **state)
{
	static const uint32_t sizes[] = { 0, 1, 8191, MPIB_IMM_SIZE_MAX, MPIB_IMM_SIZE_RECORD };

	(void)state;
	assert_int_equal(mpib_imm_encode(0x12, 2, 0x155), 0x12 | 2 << 8 | 0x155 << 10);
	for (unsigned int slot = 0; slot < 256; slot++)
		for (unsigned int mask = 0; mask < 4; mask++)
			for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
				uint32_t imm = mpib_imm_encode(slot, mask, sizes[k]);

				assert_int_equal(mpib_imm_slot(imm), slot);
				assert_int_equal(mpib_imm_mask(imm), mask);
				assert_int_equal(mpib_imm_size(imm), sizes[k]);
			}
}

static void test_size_q(void **state)
{
	static const struct {
		size_t size;
		uint32_t want;
	} rows[] = {
		{ 0, 0 },
		{ 127, 0 },
		{ 128, 1 },
		{ 255, 1 },
		{ 1 << 20, 8192 },
		{ ((size_t)MPIB_IMM_SIZE_MAX << 7) - 1, MPIB_IMM_SIZE_MAX - 1 },
		{ (size_t)MPIB_IMM_SIZE_MAX << 7, MPIB_IMM_SIZE_MAX },
		{ ((size_t)MPIB_IMM_SIZE_RECORD << 7) - 1, MPIB_IMM_SIZE_MAX },
		{ (size_t)MPIB_IMM_SIZE_RECORD << 7, MPIB_IMM_SIZE_MAX },
		{ (size_t)1 << 29, MPIB_IMM_SIZE_MAX },
		{ ((size_t)1 << 31) + 1, MPIB_IMM_SIZE_MAX },
		{ SIZE_MAX, MPIB_IMM_SIZE_MAX },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
		assert_int_equal(mpib_imm_size_q(rows[k].size), rows[k].want);
}

/* No size is the sentinel, and a larger message never has a smaller size_q. */
static void test_sentinel_is_no_size(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(3);

	(void)state;
	for (unsigned int n = 0; n < 1000000; n++) {
		size_t a = mpib_test_random_log(&random), b = mpib_test_random_log(&random);
		uint32_t qa = mpib_imm_size_q(a), qb = mpib_imm_size_q(b);

		assert_true(qa < MPIB_IMM_SIZE_RECORD);
		assert_true(a <= b ? qa <= qb : qa >= qb);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_size_q),
		cmocka_unit_test(test_sentinel_is_no_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
