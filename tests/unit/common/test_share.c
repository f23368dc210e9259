/* SPDX-License-Identifier: Apache-2.0 */
/* Shares as people write them. */
#include "common/share.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/macros.h"
#include "tests/unit/common/cmocka_all.h"
#include "tests/unit/common/random.h"

#define UNTOUCHED 4242u

static void share_parses_every_form(void **state)
{
	static const struct {
		const char *text;
		uint32_t share;
	} cases[] = {
		{ "0", 0 },	   { "1", 1 },
		{ "768", 768 },	   { "1024", 1024 },
		{ "0%", 0 },	   { "1%", 10 },    /* 10.24 */
		{ "25%", 256 },	   { "33%", 338 },  /* 337.92 */
		{ "50%", 512 },	   { "67%", 686 },  /* 686.08 */
		{ "75%", 768 },	   { "99%", 1014 }, /* 1013.76 */
		{ "100%", 1024 },  { "1:3", 768 },
		{ "3:1", 256 },	   { "1:1", 512 },
		{ "0:1", 1024 },   { "1:0", 0 },
		{ "2:1", 341 },	 /* 341.33 */
		{ "1:2", 683 },	 /* 682.67 */
		{ "2047:1", 1 }, /* exactly 0.5 rounds up */
		{ "2048:1", 0 }, /* just under 0.5 */
		{ "65535:1", 0 },  { "65535:65535", 512 },
		{ "40:100", 731 }, /* 731.43 */
	};

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		uint32_t share = UNTOUCHED;
		int r = mpib_share_parse(cases[k].text, &share);

		if (r != 0 || share != cases[k].share)
			fail_msg("'%s': %d, share %u, not %u", cases[k].text, r, share,
				 cases[k].share);
	}
}

static void share_refuses_the_rest(void **state)
{
	static const struct {
		const char *text;
		int error;
	} cases[] = {
		{ "", -EINVAL },
		{ " ", -EINVAL },
		{ "abc", -EINVAL },
		{ "-1", -EINVAL },
		{ "+1", -EINVAL },
		{ " 1", -EINVAL },
		{ "1 ", -EINVAL },
		{ "1x", -EINVAL },
		{ "0x10", -EINVAL },
		{ "1.5", -EINVAL },
		{ "25.5%", -EINVAL },
		{ "%", -EINVAL },
		{ "25%%", -EINVAL },
		{ "25 %", -EINVAL },
		{ "101%x", -EINVAL },
		{ ":", -EINVAL },
		{ "1:", -EINVAL },
		{ ":3", -EINVAL },
		{ "1:3:5", -EINVAL },
		{ "1:-3", -EINVAL },
		{ "1: 3", -EINVAL },
		{ "1:3%", -EINVAL },
		{ "99999x", -EINVAL },
		{ "1025", -ERANGE },
		{ "4294967296", -ERANGE }, /* 2^32 */
		{ "18446744073709551617", -ERANGE },
		{ "101%", -ERANGE },
		{ "4294967321%", -ERANGE }, /* 2^32 + 25 */
		{ "0:0", -ERANGE },
		{ "65536:1", -ERANGE },
		{ "1:65536", -ERANGE },
		{ "4294967297:4294967299", -ERANGE },
	};

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		uint32_t share = UNTOUCHED;
		int r = mpib_share_parse(cases[k].text, &share);

		if (r != cases[k].error)
			fail_msg("'%s': %d, not %d", cases[k].text, r, cases[k].error);
		if (share != UNTOUCHED)
			fail_msg("'%s': refused, and yet share = %u", cases[k].text, share);
	}
}

/* |2 * (share * whole - part * 1024)| <= whole says: no other share is nearer. */
static void expect_nearest(const char *text, uint32_t part, uint32_t whole)
{
	uint32_t share = UNTOUCHED;
	int64_t off;

	assert_int_equal(mpib_share_parse(text, &share), 0);
	off = 2 * ((int64_t)share * whole - (int64_t)part * 1024);
	if (off > whole || off < -(int64_t)whole)
		fail_msg("'%s': share %u is not the nearest", text, share);
}

static void share_rounds_to_the_nearest(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(1);
	char text[32];

	for (uint32_t percent = 0; percent <= 100; percent++) {
		(void)snprintf(text, sizeof(text), "%u%%", percent);
		expect_nearest(text, percent, 100);
	}

	for (unsigned int n = 0; n < 100000; n++) {
		uint32_t sout = (uint32_t)mpib_test_random_log(&random) & 65535;
		uint32_t sup = (uint32_t)mpib_test_random_log(&random) & 65535;

		if (sout + sup == 0)
			continue;
		(void)snprintf(text, sizeof(text), "%u:%u", sout, sup);
		expect_nearest(text, sup, sout + sup);
	}
}

static void share_formats_as_percent(void **state)
{
	static const struct {
		uint32_t share;
		const char *text;
	} cases[] = {
		{ 0, "0.0%" },	    { 1, "0.1%" },	{ 256, "25.0%" },
		{ 341, "33.3%" },   { 683, "66.7%" },	{ 1023, "99.9%" },
		{ 1024, "100.0%" }, { 1025, "100.0%" }, { UINT32_MAX, "100.0%" },
	};
	char buf[MPIB_SHARE_TEXT_MAX];

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		assert_ptr_equal(mpib_share_format(cases[k].share, buf), buf);
		assert_string_equal(buf, cases[k].text);
	}
}

static void share_format_is_within_a_twentieth(void **state)
{
	char buf[MPIB_SHARE_TEXT_MAX];
	unsigned int whole;
	unsigned int tenth;

	for (uint32_t share = 0; share <= 1024; share++) {
		int64_t off;

		assert_int_equal(sscanf(mpib_share_format(share, buf), "%u.%1u%%", &whole, &tenth),
				 2);
		off = 2 * ((int64_t)(whole * 10 + tenth) * 1024 - (int64_t)share * 1000);
		if (off > 1024 || off < -1024)
			fail_msg("share %u: '%s'", share, buf);
	}
}

static void rules_say_a_share_or_auto(void **state)
{
	static const struct {
		const char *text;
		uint32_t rule;
		const char *printed;
	} cases[] = {
		{ "256", 256, "256" },
		{ "1:3", 768, "768" },
		{ "auto", 0x80000400, "auto" },
		{ "auto 10%..90%", 0x80000000 | 102 << 11 | 922, "auto 102..922" },
		{ "auto  \t0..1024", 0x80000400, "auto" },
		{ "auto 9:1..1:9", 0x80000000 | 102 << 11 | 922, "auto 102..922" },
		{ "auto 7..7", 0x80000000 | 7 << 11 | 7, "auto 7..7" },
		{ "auto 1024..1024", 0x80000000 | 1024 << 11 | 1024, "auto 1024..1024" },
	};

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		char text[MPIB_SHARE_RULE_TEXT_MAX];
		uint32_t rule = UNTOUCHED;
		uint32_t again = UNTOUCHED;
		int r = mpib_share_rule_parse(cases[k].text, &rule);

		if (r != 0 || rule != cases[k].rule)
			fail_msg("'%s': %d, %08x, not %08x", cases[k].text, r, rule, cases[k].rule);
		assert_true(mpib_share_rule_is_valid(rule));
		assert_string_equal(mpib_share_rule_format(rule, text), cases[k].printed);
		assert_int_equal(mpib_share_rule_parse(text, &again), 0);
		assert_int_equal(again, rule);
		if (mpib_share_is_auto(rule))
			assert_int_equal(
				mpib_share_auto(mpib_share_least(rule), mpib_share_most(rule)),
				rule);
	}
}

static void rules_say_nothing_else(void **state)
{
	static const struct {
		const char *text;
		int error;
	} cases[] = {
		{ "AUTO", -EINVAL },
		{ "aut", -EINVAL },
		{ "auto ", -EINVAL },
		{ "auto10%..90%", -EINVAL },
		{ "auto 10%", -EINVAL },
		{ "auto 10%..", -EINVAL },
		{ "auto ..90%", -EINVAL },
		{ "auto 10%...90%", -EINVAL },
		{ "auto 10%..90% ", -EINVAL },
		{ "auto 10% ..90%", -EINVAL },
		{ "auto 1..2..3", -EINVAL },
		{ "auto auto..auto", -EINVAL },
		{ "auto 90%..10%", -ERANGE },
		{ "auto 0..1025", -ERANGE },
		{ "auto 101%..101%", -ERANGE },
		{ "1025", -ERANGE },
		{ "auto 0000000000000000000000000000000000001..2", -EINVAL },
	};
	static const uint32_t wrong[] = { 1025,	      0x7FFFFFFF,
					  0x80000401, 0x80000000 | 2 << 11 | 1,
					  0xC0000400, 0xFFFFFFFF };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		uint32_t rule = UNTOUCHED;
		int r = mpib_share_rule_parse(cases[k].text, &rule);

		if (r != cases[k].error || rule != UNTOUCHED)
			fail_msg("'%s': %d, %08x", cases[k].text, r, rule);
	}
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(wrong); k++)
		assert_false(mpib_share_rule_is_valid(wrong[k]));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_say_a_share_or_auto),
		cmocka_unit_test(rules_say_nothing_else),
		cmocka_unit_test(share_parses_every_form),
		cmocka_unit_test(share_refuses_the_rest),
		cmocka_unit_test(share_rounds_to_the_nearest),
		cmocka_unit_test(share_formats_as_percent),
		cmocka_unit_test(share_format_is_within_a_twentieth),
	};

	return cmocka_run_group_tests_name("share", tests, NULL, NULL);
}
