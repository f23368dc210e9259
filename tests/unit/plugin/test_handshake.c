/* SPDX-License-Identifier: Apache-2.0 */
/* The listen handle and the payloads of the control connection: known bytes, every truncation,
 * every field out of its range, and random input in buffers of exactly its size. */
#include "tests/unit/plugin/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>

#include "plugin/wire/handshake.h"
#include "plugin/base/result.h"
#include "tests/unit/common/random.h"

#define RANDOM_CASES 100000

static struct mpib_handle handle_v4(void)
{
	struct mpib_handle handle;
	struct sockaddr_in *in4 = (void *)&handle.addr;

	memset(&handle, 0, sizeof(handle));
	handle.version = MPIB_WIRE_VERSION;
	handle.nonce = 0x1122334455667788u;
	in4->sin_family = AF_INET;
	in4->sin_port = htons(0x1234);
	in4->sin_addr.s_addr = htonl(0x0a000105);
	handle.sout_ip_be = htonl(0x0a000107);
	handle.mode = MPIB_MODE_ADVANCED;
	handle.prefix_len = 24;
	return handle;
}

static void test_handle_known_bytes(void **state)
{
	static const uint8_t want[MPIB_HANDLE_SIZE] = {
		0x4d, 0x50, 0x42, 0x43, 2,  0, 4,  0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
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

/* Decodes from a heap block of exactly @len bytes, where a sanitizer sees a read past it. */
static int decode_handle(const uint8_t *bytes, size_t len, struct mpib_handle *ret)
{
	uint8_t *copy = malloc(len ? len : 1);
	int r;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	r = mpib_handle_decode(copy, len, ret);
	free(copy);
	return r;
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

static struct mpib_peer peer(void)
{
	struct mpib_peer p;

	memset(&p, 0, sizeof(p));
	p.nonce = 77;
	p.pid = 4711;
	p.mode = MPIB_MODE_VANILLA;
	p.prefix_len = 16;
	p.features = 0x80000000u | MPIB_FEATURE_FAILOVER;
	p.traffic_class = 106;
	p.cts_traffic_class = 192;
	p.service_level = 5;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		p.qps[rail] = (uint16_t)(2 + 2 * rail);
		memset(p.rail[rail].gid, 0x10 + (int)rail, 16);
		p.rail[rail].ipv4_be = htonl(0x0a000001 + (rail << 8));
		p.rail[rail].mtu = 5;
		p.rail[rail].link_layer = 2;
		p.rail[rail].lid = 0x0102;
		p.rail[rail].pkey = (uint16_t)(0x8003 + rail);
		(void)snprintf(p.rail[rail].hca, sizeof(p.rail[rail].hca), "mlx5_%u:1", rail);
	}
	return p;
}

#define PEER_RAIL      22
#define PEER_RAIL_SIZE (2 + 16 + 4 + 1 + 1 + 2 + 2 + MPIB_HCA_NAME_MAX)
#define PEER_SIZE      (PEER_RAIL + 2 * PEER_RAIL_SIZE)

static int decode_peer(const uint8_t *bytes, size_t len, struct mpib_peer *ret)
{
	uint8_t *copy = malloc(len ? len : 1);
	size_t used = 0;
	int r;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	r = mpib_peer_decode(copy, len, ret, &used);
	free(copy);
	if (r == 0)
		assert_int_equal(used, PEER_SIZE);
	return r;
}

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

static struct mpib_peer_qps peer_qps(void)
{
	struct mpib_peer_qps q;

	memset(&q, 0, sizeof(q));
	q.path = 1;
	q.rail_mask = 3;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		q.qps[rail] = MPIB_QPS_MAX;
		q.ring_rkey[rail] = 0xaabb0000u + rail;
		q.ece[rail].vendor_id = 0x15b3;
		q.ece[rail].options = 0x30000001u + rail;
		for (unsigned int k = 0; k < MPIB_QPS_MAX; k++)
			q.qpn[rail][k] = 0xffff00u + rail * MPIB_QPS_MAX + k;
	}
	q.ring_addr = 0x7f0011223344u;
	return q;
}

#define QPS_QPN	      14 /* of a rail: behind count, key and ECE */
#define QPS_RAIL_SIZE (QPS_QPN + 4 * MPIB_QPS_MAX)
#define QPS_SIZE      (2 + 2 * QPS_RAIL_SIZE + 8)

static int decode_qps(const uint8_t *bytes, size_t len, struct mpib_peer_qps *ret)
{
	uint8_t *copy = malloc(len ? len : 1);
	size_t used = 0;
	int r;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	r = mpib_peer_qps_decode(copy, len, ret, &used);
	free(copy);
	if (r == 0)
		assert_int_equal(used, QPS_SIZE);
	return r;
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

static void expect_differs(const struct mpib_peer *local, const struct mpib_peer *remote,
			   const char *name, unsigned int here, unsigned int there)
{
	char text[MPIB_TEXT_MAX + 1] = "", want[128];

	assert_int_equal(mpib_peer_agree(local, remote, text, sizeof(text)), -MPIB_EUSAGE);
	(void)snprintf(want, sizeof(want), "%s differs: %u on the accepting side, %u on the conn",
		       name, here, there);
	if (!strstr(text, want))
		fail_msg("'%s' doesn't say '%s'", text, want);
}

static void test_agree_names_both_values(void **state)
{
	struct mpib_peer local = peer(), remote = peer();
	char text[MPIB_TEXT_MAX + 1];

	(void)state;
	remote.pid++;
	remote.rail[0].mtu = 3; /* each end may have its own */
	remote.rail[1].ipv4_be++;
	assert_int_equal(mpib_peer_agree(&local, &remote, text, sizeof(text)), 0);

	remote.prefix_len = 24;
	expect_differs(&local, &remote, "MPIB_ISLAND_PREFIX_LEN", 16, 24);
	remote.mode = MPIB_MODE_ADVANCED; /* the first difference is named */
	expect_differs(&local, &remote, "MPIB_MODE", 0, 1);
	remote = peer();
	remote.qps[MPIB_SOUT] = 1;
	expect_differs(&local, &remote, "MPIB_SOUT_QP", 2, 1);
	remote = peer();
	remote.qps[MPIB_SUP] = 16;
	expect_differs(&local, &remote, "MPIB_SUP_QP", 4, 16);
	remote = peer();
	remote.rail[MPIB_SUP].link_layer = 1;
	expect_differs(&local, &remote, "link layer of SUP", 2, 1);
	remote = peer();
	remote.traffic_class = 0;
	expect_differs(&local, &remote, "MPIB_IB_TC", 106, 0);
	remote = peer();
	remote.cts_traffic_class = 106;
	expect_differs(&local, &remote, "MPIB_IB_FIFO_TC", 192, 106);
	remote = peer();
	remote.service_level = 0;
	expect_differs(&local, &remote, "MPIB_IB_SL", 5, 0);
	remote = peer();
	remote.features = 0; /* what both have is in force */
	assert_int_equal(mpib_peer_agree(&local, &remote, text, sizeof(text)), 0);
}

/* A limited member of a partition reaches full ones, and no other partition's. */
static void test_agree_on_partitions(void **state)
{
	static const struct {
		uint16_t here, there;
		const char *refused; /* NULL: they meet */
	} rows[] = {
		{ 0xffff, 0xffff, NULL },
		{ 0x8003, 0x0003, NULL },
		{ 0x0003, 0x8003, NULL },
		{ 0x8003, 0xffff, "SUP differs: 0x8003 on the accepting side, 0xffff on the co" },
		{ 0x8003, 0x8004, "SUP differs: 0x8003 on the accepting side, 0x8004 on the co" },
		{ 0x0003, 0x0003, "0x0003 on the connecting side, both limited members" },
		{ 0x7fff, 0x7fff, "0x7fff on the connecting side, both limited members" },
	};
	struct mpib_peer local = peer(), remote = peer();
	char text[MPIB_TEXT_MAX + 1];

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		int r;

		local.rail[MPIB_SUP].pkey = rows[k].here;
		remote.rail[MPIB_SUP].pkey = rows[k].there;
		text[0] = '\0';
		r = mpib_peer_agree(&local, &remote, text, sizeof(text));
		assert_int_equal(r, rows[k].refused ? -MPIB_EUSAGE : 0);
		if (rows[k].refused && !strstr(text, rows[k].refused))
			fail_msg("'%s' doesn't say '%s'", text, rows[k].refused);
	}
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
		cmocka_unit_test(test_handle_known_bytes),
		cmocka_unit_test(test_handle_ipv6),
		cmocka_unit_test(test_handle_truncated),
		cmocka_unit_test(test_handle_wrong_field),
		cmocka_unit_test(test_handle_other_version),
		cmocka_unit_test(test_peer_round_trip),
		cmocka_unit_test(test_peer_wrong_field),
		cmocka_unit_test(test_peer_qps),
		cmocka_unit_test(test_hello_nonce),
		cmocka_unit_test(test_bye),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_fail),
		cmocka_unit_test(test_agree_names_both_values),
		cmocka_unit_test(test_agree_on_partitions),
		cmocka_unit_test(test_random_input),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
