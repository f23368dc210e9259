/* SPDX-License-Identifier: Apache-2.0 */
/* The payloads of the control connection: known bytes, every truncation, every field out of its
 * range, and random input in buffers of exactly its size. */
#include "tests/unit/plugin/test.h"

#include <errno.h>
#include <stdbool.h>

#include "tests/unit/common/random.h"
#include "tests/unit/plugin/payloads.h"

#define RANDOM_CASES 100000

static void test_peer_round_trip(void **state)
{
	struct mpib_peer p = peer(), back;
	uint8_t buf[MPIB_FRAME_PAYLOAD_MAX];

	(void)state;
	assert_int_equal(mpib_peer_encode(buf, &p), PEER_SIZE);
	assert_int_equal(buf[0], 77); /* the nonce is first */
	assert_int_equal(buf[8] | buf[9] << 8, 4711);
	/* Features, of which bits of later releases are kept, traffic classes, service level. */
	assert_memory_equal(buf + 14, "\x01\0\0\x80\x6a\xc0\x05", 8);
	assert_int_equal(buf[PEER_RAIL + PEER_RAIL_SIZE + 26] | buf[PEER_RAIL + PEER_RAIL_SIZE + 27]
									<< 8,
			 0x8004);
	for (size_t len = 0; len < PEER_SIZE; len++)
		assert_int_equal(decode_peer(buf, len, &back), -EBADMSG);
	assert_int_equal(decode_peer(buf, PEER_SIZE, &back), 0);
	assert_memory_equal(&back, &p, sizeof(p));
	assert_int_equal(decode_peer(buf, PEER_SIZE + 100, &back), 0);
}

static void test_peer_wrong_field(void **state)
{
	const size_t rail = PEER_RAIL, name = 28;
	const struct {
		const char *what;
		size_t at;
		uint8_t value;
	} rows[] = {
		{ "mode", 12, 2 },
		{ "prefix", 13, 33 },
		{ "service level", 20, 16 },
		{ "no QPs", rail, 0 },
		{ "17 QPs", rail, MPIB_QPS_MAX + 1 },
		{ "4 * 256 QPs", rail + 1, 4 },
		{ "MTU 0", rail + 22, 0 },
		{ "MTU 6", rail + 22, 6 },
		{ "empty name", rail + name, 0 },
		{ "a space in a name", rail + name + 1, ' ' },
		{ "a line end in a name", rail + name + 1, '\n' },
		{ "DEL in a name", rail + name + 1, 0x7f },
		{ "8 bits in a name", rail + name + 1, 0xc3 },
	};
	struct mpib_peer p = peer(), back;
	uint8_t good[MPIB_FRAME_PAYLOAD_MAX], buf[MPIB_FRAME_PAYLOAD_MAX];

	(void)state;
	(void)mpib_peer_encode(good, &p);
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		for (size_t r = 0; r < MPIB_RAIL_MAX; r++) {
			size_t at = rows[k].at + (rows[k].at >= rail ? r * PEER_RAIL_SIZE : 0);

			memcpy(buf, good, sizeof(buf));
			buf[at] = rows[k].value;
			if (decode_peer(buf, PEER_SIZE, &back) != -EBADMSG)
				fail_msg("%s on rail %zu is taken", rows[k].what, r);
		}
	}
	/* A partition without a number. */
	memcpy(buf, good, sizeof(buf));
	buf[rail + 26] = 0;
	assert_int_equal(decode_peer(buf, PEER_SIZE, &back), -EBADMSG);
	/* A name without its end. */
	memcpy(buf, good, sizeof(buf));
	memset(buf + rail + name, 'x', MPIB_HCA_NAME_MAX);
	assert_int_equal(decode_peer(buf, PEER_SIZE, &back), -EBADMSG);
}

static void test_peer_qps(void **state)
{
	const struct {
		const char *what;
		size_t at;
		uint8_t value;
	} rows[] = {
		{ "path 2", 0, 2 },
		{ "no rail", 1, 0 },
		{ "a third rail", 1, 4 },
		{ "a third rail beside", 1, 7 },
		{ "17 QPs", 2, MPIB_QPS_MAX + 1 },
		{ "256 QPs", 3, 1 },
		{ "a QP number of 25 bits", 2 + QPS_QPN + 3, 1 },
		{ "the last QP number", 2 + QPS_QPN + 4 * MPIB_QPS_MAX - 1, 1 },
		{ "QPs of SUP", 2 + QPS_RAIL_SIZE, MPIB_QPS_MAX + 1 },
	};
	struct mpib_peer_qps q = peer_qps(), back;
	uint8_t good[MPIB_FRAME_PAYLOAD_MAX], buf[MPIB_FRAME_PAYLOAD_MAX];

	(void)state;
	assert_int_equal(mpib_peer_qps_encode(good, &q), QPS_SIZE);
	assert_true(PEER_SIZE + QPS_SIZE <= MPIB_FRAME_PAYLOAD_MAX);
	for (size_t len = 0; len < QPS_SIZE; len++)
		assert_int_equal(decode_qps(good, len, &back), -EBADMSG);
	assert_int_equal(decode_qps(good, QPS_SIZE, &back), 0);
	assert_memory_equal(&back, &q, sizeof(q));
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		memcpy(buf, good, sizeof(buf));
		buf[rows[k].at] = rows[k].value;
		if (decode_qps(buf, QPS_SIZE, &back) != -EBADMSG)
			fail_msg("%s is taken", rows[k].what);
	}
}

static void test_hello_nonce(void **state)
{
	static const uint8_t bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	uint64_t nonce = 5;

	(void)state;
	for (size_t len = 0; len < 8; len++)
		assert_int_equal(mpib_hello_nonce(bytes, len, &nonce), -EBADMSG);
	assert_true(nonce == 5);
	assert_int_equal(mpib_hello_nonce(bytes, 8, &nonce), 0);
	assert_true(nonce == 0x0807060504030201u);
}

static void test_bye(void **state)
{
	uint8_t buf[MPIB_BYE_SIZE + 1] = { 0 };
	uint32_t rows = 7;

	(void)state;
	assert_int_equal(mpib_bye_encode(buf, 0xfffffffeu), MPIB_BYE_SIZE);
	assert_memory_equal(buf, "\xfe\xff\xff\xff", MPIB_BYE_SIZE);
	for (size_t len = 0; len < MPIB_BYE_SIZE; len++)
		assert_int_equal(mpib_bye_decode(buf, len, &rows), -EBADMSG);
	assert_int_equal(rows, 7);
	assert_int_equal(mpib_bye_decode(buf, MPIB_BYE_SIZE + 1, &rows), 0);
	assert_true(rows == 0xfffffffeu);
}

static void test_text(void **state)
{
	uint8_t bytes[MPIB_FRAME_PAYLOAD_MAX];
	char text[MPIB_TEXT_MAX + 1];

	(void)state;
	mpib_text_decode((const uint8_t *)"a\nb\033[31m\xc3\xa4z", 11, text);
	assert_string_equal(text, "a?b?[31m??z");
	mpib_text_decode(bytes, 0, text);
	assert_string_equal(text, "");
	memset(bytes, 'q', sizeof(bytes));
	mpib_text_decode(bytes, sizeof(bytes), text);
	assert_int_equal(strlen(text), MPIB_TEXT_MAX);
}

/* A text alone, as before there were kinds; with one; with one of a later release. */
static void test_fail(void **state)
{
	static const uint8_t later[] = { 'x', 0, 7 };
	uint8_t bytes[MPIB_FRAME_PAYLOAD_MAX];
	char text[MPIB_TEXT_MAX + 1];
	size_t len;

	(void)state;
	len = mpib_fail_encode(bytes, MPIB_FAIL_OTHER, "why");
	assert_int_equal(len, 3);
	assert_int_equal(mpib_fail_decode(bytes, len, text), MPIB_FAIL_OTHER);
	assert_string_equal(text, "why");
	len = mpib_fail_encode(bytes, MPIB_FAIL_DEVICE, "why");
	assert_int_equal(len, 5);
	assert_int_equal(mpib_fail_decode(bytes, len, text), MPIB_FAIL_DEVICE);
	assert_string_equal(text, "why");
	assert_int_equal(mpib_fail_decode(later, sizeof(later), text), MPIB_FAIL_OTHER);
	assert_string_equal(text, "x");
	assert_int_equal(mpib_fail_decode(bytes, 0, text), MPIB_FAIL_OTHER);
	assert_string_equal(text, "");
}

/* C16: nothing that a stranger sends is read past its end, and what is taken is in range. */
static void check_random(const uint8_t *bytes, size_t len)
{
	struct mpib_handle handle;
	struct mpib_peer_qps qps;
	struct mpib_peer p;
	char text[MPIB_TEXT_MAX + 1];
	uint64_t nonce;

	if (decode_handle(bytes, len, &handle) == 0) {
		assert_true(handle.addr.ss_family == AF_INET || handle.addr.ss_family == AF_INET6);
		assert_true(handle.prefix_len <= 32 && handle.mode <= 1);
	}
	if (decode_peer(bytes, len, &p) == 0)
		for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
			assert_in_range(p.qps[rail], 1, MPIB_QPS_MAX);
			assert_in_range(p.rail[rail].mtu, 1, 5);
			assert_true(strnlen(p.rail[rail].hca, MPIB_HCA_NAME_MAX) <
				    MPIB_HCA_NAME_MAX);
		}
	if (decode_qps(bytes, len, &qps) == 0)
		for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
			assert_true(qps.qps[rail] <= MPIB_QPS_MAX);
	mpib_text_decode(bytes, len, text);
	assert_true(strlen(text) <= MPIB_TEXT_MAX);
	if (mpib_hello_nonce(bytes, len, &nonce) == 0)
		assert_true(len >= 8);
}

static void test_random_input(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(16);
	uint8_t good[3][MPIB_FRAME_PAYLOAD_MAX], buf[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_handle handle = handle_v4();
	struct mpib_peer p = peer();
	struct mpib_peer_qps qps = peer_qps();

	(void)state;
	memset(good, 0, sizeof(good));
	mpib_handle_encode(good[0], &handle);
	(void)mpib_peer_encode(good[1], &p);
	(void)mpib_peer_qps_encode(good[2], &qps);
	for (unsigned int n = 0; n < RANDOM_CASES; n++) {
		size_t len = mpib_test_random_below(&random, 320);
		unsigned int base = (unsigned int)mpib_test_random_below(&random, 4);

		/* Every fourth is noise; the others are good ones with a few bytes changed. */
		for (size_t k = 0; k < len; k++)
			buf[k] =
				base == 3 ? (uint8_t)mpib_test_random_next(&random) : good[base][k];
		for (unsigned int k = 0; base < 3 && len && k < 3; k++)
			buf[mpib_test_random_below(&random, len)] =
				(uint8_t)mpib_test_random_next(&random);
		check_random(buf, len);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peer_round_trip),
		cmocka_unit_test(test_peer_wrong_field),
		cmocka_unit_test(test_peer_qps),
		cmocka_unit_test(test_hello_nonce),
		cmocka_unit_test(test_bye),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_fail),
		cmocka_unit_test(test_random_input),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
