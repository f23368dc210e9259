/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, prefixes and flow names. */
#include "common/ipv4.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "common/macros.h"
#include "tests/unit/common/cmocka_all.h"
#include "tests/unit/common/random.h"

#define UNTOUCHED 0xa5a5a5a5u
#define ROUNDS	  100000

static void mask_has_len_leading_ones(void **state)
{
	for (unsigned int len = 0; len <= 32; len++) {
		uint32_t host = ntohl(mpib_ipv4_mask(len));

		for (unsigned int bit = 0; bit < 32; bit++)
			if ((host >> (31 - bit) & 1) != (bit < len))
				fail_msg("length %u: bit %u of mask %08x", len, bit, host);
	}

	assert_int_equal(mpib_ipv4_mask(33), UINT32_MAX);
	assert_int_equal(mpib_ipv4_mask(64), UINT32_MAX);
	assert_int_equal(mpib_ipv4_mask(UINT32_MAX), UINT32_MAX);
}

/* For each length: the first and the last address of a prefix are in it, their outer neighbours are
 * not. */
static void same_prefix_ends_where_it_should(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(1);

	for (unsigned int len = 0; len <= 32; len++) {
		uint32_t inside = (uint32_t)mpib_test_random_next(&random);
		uint32_t size_less_1 = len == 0 ? UINT32_MAX : (uint32_t)((1ull << (32 - len)) - 1);
		uint32_t first = inside & ~size_less_1;
		uint32_t last = inside | size_less_1;

		assert_true(mpib_ipv4_same_prefix(htonl(inside), htonl(first), len));
		assert_true(mpib_ipv4_same_prefix(htonl(inside), htonl(last), len));
		assert_true(mpib_ipv4_same_prefix(htonl(first), htonl(last), len));
		if (len > 0) {
			/* These wrap at the ends of the address space, and are outside all the
			 * same. */
			assert_false(mpib_ipv4_same_prefix(htonl(inside), htonl(first - 1), len));
			assert_false(mpib_ipv4_same_prefix(htonl(inside), htonl(last + 1), len));
		}
	}

	assert_true(mpib_ipv4_same_prefix(0, UINT32_MAX, 0));
	assert_false(mpib_ipv4_same_prefix(htonl(0x0a000101), htonl(0x0a000102), 32));
	assert_false(mpib_ipv4_same_prefix(htonl(0x0a000101), htonl(0x0a000102), 33));
	assert_true(mpib_ipv4_same_prefix(htonl(0x0a000101), htonl(0x0a0001fe), 24));
	assert_false(mpib_ipv4_same_prefix(htonl(0x0a000101), htonl(0x0a000201), 24));
	assert_true(mpib_ipv4_same_prefix(htonl(0x0a000101), htonl(0x0a000201), 22));
}

static void parse_takes_addresses(void **state)
{
	static const struct {
		const char *text;
		uint32_t host;
	} cases[] = {
		{ "0.0.0.0", 0 },
		{ "10.0.1.2", 0x0a000102 },
		{ "255.255.255.255", 0xffffffff },
		{ "1.20.255.100", 0x0114ff64 },
	};

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		char buf[MPIB_IPV4_TEXT_MAX];
		uint32_t be = UNTOUCHED;

		assert_int_equal(mpib_ipv4_parse(cases[k].text, &be), 0);
		assert_int_equal(ntohl(be), cases[k].host);
		assert_ptr_equal(mpib_ipv4_format(be, buf), buf);
		assert_string_equal(buf, cases[k].text);
	}
}

static void parse_refuses_the_rest(void **state)
{
	static const char *const cases[] = {
		"",
		"1",
		"1.2.3",
		"1.2.3.",
		"1.2.3.4.",
		"1.2.3.4.5",
		".1.2.3.4",
		"1..3.4",
		"256.1.1.1",
		"1.2.3.256",
		"1.2.3.1000",
		"1.2.3.4294967297", /* 2^32 + 1 */
		"1.2.3.99999999999999999999",
		"01.2.3.4",
		"1.2.3.00",
		"1.2.3.4 ",
		" 1.2.3.4",
		"1.2.3.4\n",
		"-1.2.3.4",
		"+1.2.3.4",
		"1.2.3.0x4",
		"1.2.3.a",
		"a.b.c.d",
		"1,2,3,4",
		"1.2.3.4/24",
		"::1",
		"localhost",
	};

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		uint32_t be = UNTOUCHED;
		int r = mpib_ipv4_parse(cases[k], &be);

		if (r != -EINVAL || be != UNTOUCHED)
			fail_msg("'%s': %d, %08x", cases[k], r, be);
	}
}

/* libc's parser is as strict as ours on such texts: both must agree on noise. */
static void parse_agrees_with_libc(void **state)
{
	static const char alphabet[] = "0123456789...12";
	struct mpib_test_random random = mpib_test_random_init(2);
	unsigned int taken = 0;

	for (unsigned int n = 0; n < ROUNDS; n++) {
		char text[18];
		size_t len = 7 + mpib_test_random_below(&random, sizeof(text) - 7);
		struct in_addr theirs;
		uint32_t ours = UNTOUCHED;
		int r;

		for (size_t pos = 0; pos < len; pos++)
			text[pos] = alphabet[mpib_test_random_below(&random, sizeof(alphabet) - 1)];
		text[len] = '\0';

		r = mpib_ipv4_parse(text, &ours);
		if ((r == 0) != (inet_pton(AF_INET, text, &theirs) == 1))
			fail_msg("'%s': %d", text, r);
		if (r == 0 && ours != theirs.s_addr)
			fail_msg("'%s': %08x", text, ours);
		taken += r == 0;
	}

	assert_true(taken > 0);
}

static void cidr_takes_prefixes(void **state)
{
	static const struct {
		const char *text;
		uint32_t host;
		unsigned int len;
	} cases[] = {
		{ "0.0.0.0/0", 0, 0 },
		{ "128.0.0.0/1", 0x80000000, 1 },
		{ "10.0.0.0/8", 0x0a000000, 8 },
		{ "10.0.1.0/24", 0x0a000100, 24 },
		{ "10.0.1.2/31", 0x0a000102, 31 },
		{ "10.0.1.3/32", 0x0a000103, 32 },
		{ "255.255.255.255/32", 0xffffffff, 32 },
	};

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		uint32_t be = UNTOUCHED;
		unsigned int len = UNTOUCHED;

		assert_true(strlen(cases[k].text) < MPIB_CIDR_TEXT_MAX);
		if (mpib_cidr_parse(cases[k].text, &be, &len) != 0 || ntohl(be) != cases[k].host ||
		    len != cases[k].len)
			fail_msg("'%s': %08x/%u", cases[k].text, ntohl(be), len);
	}
}

static void cidr_refuses_the_rest(void **state)
{
	static const struct {
		const char *text;
		int error;
	} cases[] = {
		{ "", -EINVAL },
		{ "10.0.1.0", -EINVAL },
		{ "10.0.1.0/", -EINVAL },
		{ "10.0.1.0/024", -EINVAL },
		{ "10.0.1.0/ 24", -EINVAL },
		{ "10.0.1.0/24 ", -EINVAL },
		{ "10.0.1.0/-1", -EINVAL },
		{ "10.0.1.0/24/8", -EINVAL },
		{ "10.0.1/24", -EINVAL },
		{ "10.0.1.0/x", -EINVAL },
		{ "10.0.1.1/33x", -EINVAL },
		{ "10.0.1.0/33", -ERANGE },
		{ "10.0.1.0/255", -ERANGE },
		{ "10.0.1.0/4294967320", -ERANGE }, /* 2^32 + 24 */
		{ "10.0.1.1/24", -EADDRNOTAVAIL },
		{ "10.0.1.1/31", -EADDRNOTAVAIL },
		{ "0.0.0.1/0", -EADDRNOTAVAIL },
		{ "128.0.0.0/0", -EADDRNOTAVAIL },
	};

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		uint32_t be = UNTOUCHED;
		unsigned int len = UNTOUCHED;
		int r = mpib_cidr_parse(cases[k].text, &be, &len);

		if (r != cases[k].error)
			fail_msg("'%s': %d, not %d", cases[k].text, r, cases[k].error);
		if (be != UNTOUCHED || len != UNTOUCHED)
			fail_msg("'%s': refused, and yet %08x/%u", cases[k].text, be, len);
	}
}

static void flow_names_come_back(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(3);
	char buf[MPIB_FLOW_TEXT_MAX];

	assert_string_equal(mpib_flow_format(htonl(0x0a000101), htonl(0x0a000205), buf),
			    "10.0.1.1-10.0.2.5");
	assert_string_equal(mpib_flow_format(UINT32_MAX, UINT32_MAX, buf),
			    "255.255.255.255-255.255.255.255");

	for (unsigned int n = 0; n < ROUNDS; n++) {
		uint32_t src = (uint32_t)mpib_test_random_next(&random);
		uint32_t dst = (uint32_t)mpib_test_random_next(&random);
		uint32_t src_back = UNTOUCHED;
		uint32_t dst_back = UNTOUCHED;

		(void)mpib_flow_format(src, dst, buf);
		if (mpib_flow_parse(buf, &src_back, &dst_back) != 0 || src_back != src ||
		    dst_back != dst)
			fail_msg("'%s' came back as %08x, %08x", buf, src_back, dst_back);
	}
}

static void flow_parse_refuses_the_rest(void **state)
{
	static const char *const cases[] = {
		"",
		"-",
		"10.0.1.1",
		"10.0.1.1-",
		"-10.0.1.1",
		"10.0.1.1 10.0.1.2",
		"10.0.1.1 - 10.0.1.2",
		"10.0.1.1--10.0.1.2",
		"10.0.1.1-10.0.1.2-",
		"10.0.1.1-10.0.1.2-10.0.1.3",
		"10.0.1.1-10.0.1.256",
		"10.0.1.1-10.0.1",
		"10.0.1-10.0.1.2",
		"10.0.1.1-10.0.1.2 ",
		"10.0.1.1-10.0.1.02",
		"10.0.1.1:10.0.1.2",
	};

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		uint32_t src = UNTOUCHED;
		uint32_t dst = UNTOUCHED;
		int r = mpib_flow_parse(cases[k], &src, &dst);

		if (r != -EINVAL || src != UNTOUCHED || dst != UNTOUCHED)
			fail_msg("'%s': %d, %08x, %08x", cases[k], r, src, dst);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(mask_has_len_leading_ones),
		cmocka_unit_test(same_prefix_ends_where_it_should),
		cmocka_unit_test(parse_takes_addresses),
		cmocka_unit_test(parse_refuses_the_rest),
		cmocka_unit_test(parse_agrees_with_libc),
		cmocka_unit_test(cidr_takes_prefixes),
		cmocka_unit_test(cidr_refuses_the_rest),
		cmocka_unit_test(flow_names_come_back),
		cmocka_unit_test(flow_parse_refuses_the_rest),
	};

	return cmocka_run_group_tests_name("ipv4", tests, NULL, NULL);
}
