/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people write them, and text that is quoted. */
#include "common/number.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "common/macros.h"
#include "common/printable.h"
#include "tests/unit/common/cmocka_all.h"

static void one_spelling_of_each_number(void **state)
{
	static const struct {
		const char *text;
		int r;
		long value;
	} cases[] = {
		{ "0", 0, 0 },
		{ "7", 0, 7 },
		{ "-1", 0, -1 },
		{ "-10", 0, -10 },
		{ "100", 0, 100 },
		{ "-11", -ERANGE, 0 },
		{ "101", -ERANGE, 0 },
		{ "9223372036854775808", -ERANGE, 0 },
		{ "18446744073709551617", -ERANGE, 0 },
		{ "99999999999999999999999999999999999999", -ERANGE, 0 },
		{ "-18446744073709551615", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "-", -EINVAL, 0 },
		{ "-0", -EINVAL, 0 },
		{ "00", -EINVAL, 0 },
		{ "01", -EINVAL, 0 },
		{ "+1", -EINVAL, 0 },
		{ " 1", -EINVAL, 0 },
		{ "1 ", -EINVAL, 0 },
		{ "1x", -EINVAL, 0 },
		{ "0x1", -EINVAL, 0 },
		{ "1.0", -EINVAL, 0 },
		{ "--1", -EINVAL, 0 },
		{ "\xd9\xa1", -EINVAL, 0 }, /* an Arabic digit */
	};

	(void)state;
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		long value = 4711;
		int r = mpib_number_parse(cases[k].text, strlen(cases[k].text), -10, 100, &value);

		if (r != cases[k].r || value != (r ? 4711 : cases[k].value))
			fail_msg("'%s': %d, %ld", cases[k].text, r, value);
	}
}

static void a_key_may_be_hexadecimal(void **state)
{
	static const struct {
		const char *text;
		int r;
		long value;
	} cases[] = {
		{ "0x8001", 0, 0x8001 },
		{ "0xffff", 0, 0xffff },
		{ "0xFfFf", 0, 0xffff },
		{ "32769", 0, 0x8001 },
		{ "0", 0, 0 },
		{ "0x0", 0, 0 },
		{ "0x10000", -ERANGE, 0 },
		{ "0x", -EINVAL, 0 },
		{ "0X1", -EINVAL, 0 },
		{ "0xfffffffffffffffff", -ERANGE, 0 },
		{ "-0x1", -EINVAL, 0 },
		{ "8001h", -EINVAL, 0 },
		{ "ffff", -EINVAL, 0 },
	};

	(void)state;
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		long value = 4711;
		int r = mpib_number_parse_key(cases[k].text, strlen(cases[k].text), 0, 0xffff,
					      &value);

		if (r != cases[k].r || value != (r ? 4711 : cases[k].value))
			fail_msg("'%s': %d, %ld", cases[k].text, r, value);
	}
}

/* The type's own ends, and a text that goes on behind @len. */
static void all_of_the_type_can_be_read(void **state)
{
	long value;

	(void)state;
	assert_int_equal(mpib_number_parse("9223372036854775807", 19, LONG_MIN, LONG_MAX, &value),
			 0);
	assert_true(value == LONG_MAX);
	assert_int_equal(mpib_number_parse("-9223372036854775807", 20, LONG_MIN, LONG_MAX, &value),
			 0);
	assert_true(value == -LONG_MAX);
	assert_int_equal(mpib_number_parse("12,13", 2, 0, 99, &value), 0);
	assert_int_equal(value, 12);
}

static void quoted_text_is_printable_and_bounded(void **state)
{
	char small[12], exact[4 + 8], text[300];

	(void)state;
	assert_string_equal(mpib_printable("abc", small, sizeof(small)), "abc");
	assert_string_equal(mpib_printable("", small, sizeof(small)), "");
	assert_string_equal(mpib_printable("a\n\xff", small, sizeof(small)), "a\\x0a\\xff");
	assert_string_equal(mpib_printable("12345678901", small, sizeof(small)), "12345678901");
	assert_string_equal(mpib_printable("123456789012", small, sizeof(small)), "12345678...");
	assert_string_equal(mpib_printable("\1\2\3", small, sizeof(small)), "\\x01\\x02...");
	assert_string_equal(mpib_printable("1234567\1", exact, sizeof(exact)), "1234567\\x01");

	memset(text, '\t', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	for (size_t size = 8; size < 200; size++) {
		char buf[200];

		memset(buf, 'x', sizeof(buf));
		(void)mpib_printable(text, buf, size);
		assert_true(strlen(buf) < size);
		assert_true(mpib_is_printable(buf));
		assert_string_equal(buf + strlen(buf) - 3, "...");
	}
	assert_false(mpib_is_printable("\x7f"));
	assert_false(mpib_is_printable("\xc3\xa4"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_spelling_of_each_number),
		cmocka_unit_test(a_key_may_be_hexadecimal),
		cmocka_unit_test(all_of_the_type_can_be_read),
		cmocka_unit_test(quoted_text_is_printable_and_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
