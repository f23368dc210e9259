/* SPDX-License-Identifier: Apache-2.0 */
/* The division of a message between the rails. */
#include "common/split.h"

#include <stdbool.h>

#include "common/macros.h"
#include "tests/unit/common/cmocka_all.h"
#include "tests/unit/common/random.h"

#define ROUNDS 200000

static void split_matches_table(void **state)
{
	static const struct {
		size_t size;
		uint32_t share;
		size_t sup_bytes;
	} cases[] = {
		{ 1 << 20, 0, 0 },
		{ 1 << 20, 256, 262144 },
		{ 1 << 20, 512, 524288 },
		{ 1 << 20, 768, 786432 },
		{ 1 << 20, 1024, 1048576 },
		{ 1 << 20, 5000, 1048576 }, /* over 1024 means 1024 */
		{ 1 << 20, UINT32_MAX, 1048576 },
		{ 1 << 20, 1, 1024 },
		{ 1 << 20, 1023, 1047552 },
		{ 0, 0, 0 },
		{ 0, 512, 0 },
		{ 0, 1024, 0 },
		{ 1, 512, 0 },
		{ 1, 1024, 1 },
		{ 127, 1023, 0 }, /* under one 128-byte step */
		{ 127, 1024, 127 },
		{ 129, 1024, 129 }, /* all means all: no rounding */
		{ 256, 511, 0 },    /* 127.75 bytes are under a step */
		{ 256, 512, 128 },
		{ 257, 512, 128 },
		{ 4097, 256, 1024 },
		{ SIZE_MAX, 0, 0 },
		{ SIZE_MAX, 512, SIZE_MAX / 2 - 127 },
		{ SIZE_MAX, 1024, SIZE_MAX },
	};

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		size_t sup = mpib_split_sup(cases[k].size, cases[k].share);

		if (sup != cases[k].sup_bytes)
			fail_msg("case %zu: %zu bytes on SUP, not %zu", k, sup, cases[k].sup_bytes);
	}
}

/* The definition, computed where nothing can overflow. */
static size_t split_wide(size_t size, uint32_t share)
{
	__extension__ typedef unsigned __int128 wide;

	if (share == 0)
		return 0;
	if (share >= 1024)
		return size;
	return (size_t)((wide)size * share >> 10) & ~(size_t)127;
}

static void split_equals_the_wide_product(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(1);

	for (unsigned int n = 0; n < ROUNDS; n++) {
		size_t size = mpib_test_random_log(&random);
		uint32_t share = (uint32_t)mpib_test_random_below(&random, 1030);

		if (n % 16 == 0) /* the far end */
			size = SIZE_MAX - size % 4096;
		if (mpib_split_sup(size, share) != split_wide(size, share))
			fail_msg("size %zu share %u: %zu, not %zu", size, share,
				 mpib_split_sup(size, share), split_wide(size, share));
	}
}

static void split_parts_fit_and_align(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(2);

	for (unsigned int n = 0; n < ROUNDS; n++) {
		size_t size = mpib_test_random_log(&random);
		uint32_t share = 1 + (uint32_t)mpib_test_random_below(&random, 1023);
		size_t sup = mpib_split_sup(size, share);

		if (sup > size)
			fail_msg("size %zu share %u: SUP gets %zu", size, share, sup);
		if (sup % MPIB_SPLIT_ALIGN)
			fail_msg("size %zu share %u: border at %zu", size, share, sup);
		if (size && sup == size)
			fail_msg("size %zu share %u: nothing left for SOUT", size, share);
	}
}

static void split_grows_with_the_share(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(3);

	for (unsigned int n = 0; n < ROUNDS / 1000; n++) {
		size_t size = mpib_test_random_log(&random);
		size_t last = 0;

		for (uint32_t share = 0; share <= 1025; share++) {
			size_t sup = mpib_split_sup(size, share);

			if (sup < last)
				fail_msg("size %zu share %u: %zu after %zu", size, share, sup,
					 last);
			last = sup;
		}
		assert_int_equal(last, size);
	}
}

static void split_end_shares_are_pure(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(4);

	for (unsigned int n = 0; n < ROUNDS; n++) {
		size_t size = mpib_test_random_log(&random);
		uint32_t over = 1024 + (uint32_t)mpib_test_random_below(&random, UINT32_MAX - 1023);

		if (mpib_split_sup(size, 0) != 0)
			fail_msg("size %zu: share 0 uses SUP", size);
		if (mpib_split_sup(size, over) != size)
			fail_msg("size %zu: share %u leaves bytes on SOUT", size, over);
	}
}

static void short_messages_are_not_divided(void **state)
{
	for (uint32_t share = 0; share <= 1025; share++) {
		bool pure = share == 0 || share >= 1024;

		assert_int_equal(mpib_split_divides(0, share, 0), !pure);
		assert_int_equal(mpib_split_divides(100, share, 100), !pure);
		assert_false(mpib_split_divides(99, share, 100));
		assert_false(mpib_split_divides(0, share, 1));
	}
	(void)state;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(split_matches_table),
		cmocka_unit_test(split_equals_the_wide_product),
		cmocka_unit_test(split_parts_fit_and_align),
		cmocka_unit_test(split_grows_with_the_share),
		cmocka_unit_test(split_end_shares_are_pure),
		cmocka_unit_test(short_messages_are_not_divided),
	};

	return cmocka_run_group_tests_name("split", tests, NULL, NULL);
}
