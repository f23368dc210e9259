/* SPDX-License-Identifier: Apache-2.0 */
/* The listen handle: known bytes, every truncation, every field out of its range. */
#include "tests/unit/plugin/test.h"

#include <errno.h>

#include "tests/unit/plugin/payloads.h"

static void test_handle_known_bytes(void **state)
{
	static const uint8_t want[MPIB_HANDLE_SIZE] = {
		0x4d, 0x50, 0x42, 0x43, 3,  0, 4,  0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
		0x22, 0x11, 0x12, 0x34, 10, 0, 1,  5, 0,    0,	  0,	0,    0,    0,
		0,    0,    0,	  0,	0,  0, 10, 0, 1,    7,	  1,	24,
	};
	struct mpib_handle handle = handle_v4(), back;
	uint8_t buf[MPIB_HANDLE_SIZE];

	(void)state;
	mpib_handle_encode(buf, &handle);
	assert_memory_equal(buf, want, sizeof(want));
	assert_int_equal(mpib_handle_decode(buf, sizeof(buf), &back), 0);
	assert_memory_equal(&back, &handle, sizeof(handle));
}

static void test_handle_ipv6(void **state)
{
	struct mpib_handle handle = handle_v4(), back;
	struct sockaddr_in6 *in6 = (void *)&handle.addr;
	uint8_t buf[MPIB_HANDLE_SIZE];

	(void)state;
	memset(&handle.addr, 0, sizeof(handle.addr));
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(99);
	assert_int_equal(inet_pton(AF_INET6, "2001:db8::17", &in6->sin6_addr), 1);
	mpib_handle_encode(buf, &handle);
	assert_int_equal(mpib_handle_decode(buf, sizeof(buf), &back), 0);
	assert_memory_equal(&back, &handle, sizeof(handle));
}

static void test_handle_truncated(void **state)
{
	struct mpib_handle handle = handle_v4(), back;
	uint8_t buf[MPIB_HANDLE_SIZE];

	(void)state;
	mpib_handle_encode(buf, &handle);
	for (size_t len = 0; len < 40; len++)
		assert_int_equal(decode_handle(buf, len, &back), -EBADMSG);
	assert_int_equal(decode_handle(buf, 40, &back), 0);
}

static void test_handle_wrong_field(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
	} rows[] = {
		{ 0, 0x4c }, { 3, 0 },	  { 6, 5 },   { 6, 0 },	   { 7, 1 },
		{ 38, 2 },   { 38, 255 }, { 39, 33 }, { 39, 255 },
	};
	struct mpib_handle handle = handle_v4(), back;
	uint8_t good[MPIB_HANDLE_SIZE], buf[MPIB_HANDLE_SIZE];

	(void)state;
	mpib_handle_encode(good, &handle);
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		memcpy(buf, good, sizeof(buf));
		buf[rows[k].at] = rows[k].value;
		if (decode_handle(buf, sizeof(buf), &back) != -EBADMSG)
			fail_msg("byte %zu = %u is taken", rows[k].at, rows[k].value);
	}
	memcpy(buf, good, sizeof(buf));
	buf[16] = buf[17] = 0; /* port 0 */
	assert_int_equal(decode_handle(buf, sizeof(buf), &back), -EBADMSG);
	memcpy(buf, good, sizeof(buf));
	buf[39] = 32; /* the largest prefix */
	assert_int_equal(decode_handle(buf, sizeof(buf), &back), 0);
}

/* What has its place in every version can be read in every version. */
static void test_handle_other_version(void **state)
{
	struct mpib_handle handle = handle_v4(), back;
	uint8_t buf[MPIB_HANDLE_SIZE];

	(void)state;
	mpib_handle_encode(buf, &handle);
	buf[4] = 0x34;
	buf[5] = 0x12;
	memset(buf + 34, 0xff, sizeof(buf) - 34);
	assert_int_equal(decode_handle(buf, sizeof(buf), &back), 0);
	assert_int_equal(back.version, 0x1234);
	assert_true(back.nonce == handle.nonce);
	assert_memory_equal(&back.addr, &handle.addr, sizeof(back.addr));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_handle_known_bytes),
		cmocka_unit_test(test_handle_ipv6),
		cmocka_unit_test(test_handle_truncated),
		cmocka_unit_test(test_handle_wrong_field),
		cmocka_unit_test(test_handle_other_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
