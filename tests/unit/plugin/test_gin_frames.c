/* SPDX-License-Identifier: Apache-2.0 */
/* The frames that set up a mesh, byte by byte, and the places in NCCL's tables for it. */
#include "tests/unit/plugin/test.h"

#include <errno.h>

#include "plugin/base/nccl_gin_abi.h"
#include "plugin/gin/frames.h"
#include "tests/unit/common/random.h"

static const struct mpib_gin_join join = { .version = MPIB_GIN_VERSION,
					   .nranks = 0x01020304,
					   .rank = 7,
					   .qpn = { 0x112233, 0 },
					   .reads = { 16, 0 } };
static const uint8_t join_bytes[] = { 2,    0,	  4,	3, 2,  1, 7, 0, 0, 0,
				      0x33, 0x22, 0x11, 0, 16, 0, 0, 0, 0, 0 };

static void test_join(void **state)
{
	uint8_t buf[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_gin_join got;

	(void)state;
	assert_int_equal(mpib_gin_join_encode(buf, &join), sizeof(join_bytes));
	assert_memory_equal(buf, join_bytes, sizeof(join_bytes));
	assert_int_equal(mpib_gin_join_decode(buf, sizeof(join_bytes), &got), 0);
	assert_memory_equal(&got, &join, sizeof(got));
	for (size_t len = 0; len < sizeof(join_bytes); len++)
		assert_int_equal(mpib_gin_join_decode(buf, len, &got), -EBADMSG);
}

/* Of a later version the number alone is read: the rest may be anything. */
static void test_join_of_another_version(void **state)
{
	const uint8_t later[] = { 9, 1 };
	struct mpib_gin_join got;

	(void)state;
	assert_int_equal(mpib_gin_join_decode(later, sizeof(later), &got), 0);
	assert_int_equal(got.version, 0x109);
}

static void test_join_without_sout(void **state)
{
	uint8_t buf[sizeof(join_bytes)];
	struct mpib_gin_join got;

	(void)state;
	memcpy(buf, join_bytes, sizeof(buf));
	memset(buf + 10, 0, 3); /* no QP */
	assert_int_equal(mpib_gin_join_decode(buf, sizeof(buf), &got), -EBADMSG);
	memcpy(buf, join_bytes, sizeof(buf));
	buf[13] = 1; /* a QP number of more than 24 bits */
	assert_int_equal(mpib_gin_join_decode(buf, sizeof(buf), &got), -EBADMSG);
	memcpy(buf, join_bytes, sizeof(buf));
	buf[14] = 0; /* no atomic at all */
	assert_int_equal(mpib_gin_join_decode(buf, sizeof(buf), &got), -EBADMSG);
}

/* A QP on SUP that takes no READ could never be pushed, and a signal would wait for ever. */
static void test_join_without_reads_on_sup(void **state)
{
	uint8_t buf[sizeof(join_bytes)];
	struct mpib_gin_join got;

	(void)state;
	memcpy(buf, join_bytes, sizeof(buf));
	buf[15] = 9; /* a QP */
	assert_int_equal(mpib_gin_join_decode(buf, sizeof(buf), &got), -EBADMSG);
	buf[19] = 1;
	assert_int_equal(mpib_gin_join_decode(buf, sizeof(buf), &got), 0);
}

static void test_memory(void **state)
{
	const struct mpib_gin_memory_frame memory = {
		.number = 5, .addr = 0x7000000000, .size = 1 << 30, .rkey = { 0xaabbccdd, 0x11 }
	};
	static const uint8_t bytes[] = { 5, 0,	  0,	0,    0,    0,	  0,	0, 0,	 0, 0,
					 0, 0x70, 0,	0,    0,    0,	  0,	0, 0x40, 0, 0,
					 0, 0,	  0xdd, 0xcc, 0xbb, 0xaa, 0x11, 0, 0,	 0, 0 };
	uint8_t buf[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_gin_memory_frame got = { 0 };

	(void)state;
	assert_int_equal(mpib_gin_memory_encode(buf, &memory), sizeof(bytes));
	assert_memory_equal(buf, bytes, sizeof(bytes));
	assert_int_equal(mpib_gin_memory_decode(buf, sizeof(bytes), &got), 0);
	assert_int_equal(got.number, 5);
	assert_int_equal(got.addr, memory.addr);
	assert_int_equal(got.size, memory.size);
	assert_int_equal(got.rkey[MPIB_SOUT], 0xaabbccdd);
	assert_int_equal(got.rkey[MPIB_SUP], 0x11);
	for (size_t len = 0; len < sizeof(bytes); len++)
		assert_int_equal(mpib_gin_memory_decode(buf, len, &got), -EBADMSG);
	/* What would end beyond all addresses. */
	memset(buf + 16, 0xff, 8);
	assert_int_equal(mpib_gin_memory_decode(buf, sizeof(bytes), &got), -EBADMSG);
}

static void test_closed(void **state)
{
	const struct mpib_gin_closed closed = { .packet = 0xabcdef, .counts = true };
	static const uint8_t bytes[] = { 0xef, 0xcd, 0xab, 0, 1 };
	uint8_t buf[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_gin_closed got = { 0 };

	(void)state;
	assert_int_equal(mpib_gin_closed_encode(buf, &closed), sizeof(bytes));
	assert_memory_equal(buf, bytes, sizeof(bytes));
	assert_int_equal(mpib_gin_closed_decode(buf, sizeof(bytes), &got), 0);
	assert_int_equal(got.packet, 0xabcdef);
	assert_true(got.counts);
	for (size_t len = 0; len < sizeof(bytes); len++)
		assert_int_equal(mpib_gin_closed_decode(buf, len, &got), -EBADMSG);
	buf[4] = 2;
	assert_int_equal(mpib_gin_closed_decode(buf, sizeof(bytes), &got), -EBADMSG);
	buf[4] = 0;
	buf[3] = 1; /* no packet has such a number */
	assert_int_equal(mpib_gin_closed_decode(buf, sizeof(bytes), &got), -EBADMSG);
}

/* Anything may come: it is decoded to what can be encoded again, or refused. */
static void test_random(void **state)
{
	struct mpib_gin_memory_frame memory, again;
	struct mpib_gin_join got, same;
	struct mpib_test_random random = { .state = 1 };

	(void)state;
	for (int n = 0; n < 20000; n++) {
		uint8_t payload[40], buf[MPIB_FRAME_PAYLOAD_MAX];
		size_t len = mpib_test_random_next(&random) % (sizeof(payload) + 1);

		for (size_t k = 0; k < len; k++)
			payload[k] = (uint8_t)(mpib_test_random_next(&random) >> 13);
		payload[0] = MPIB_GIN_VERSION;
		payload[1] = 0;
		if (mpib_gin_join_decode(payload, len, &got) == 0 && len >= 20) {
			assert_int_equal(
				mpib_gin_join_decode(buf, mpib_gin_join_encode(buf, &got), &same),
				0);
			assert_memory_equal(&got, &same, sizeof(got));
		}
		if (mpib_gin_memory_decode(payload, len, &memory) == 0) {
			assert_int_equal(mpib_gin_memory_decode(
						 buf, mpib_gin_memory_encode(buf, &memory), &again),
					 0);
			assert_true(memory.addr == again.addr && memory.size == again.size);
		}
	}
}

/* Functions by their places: a table has nothing but pointers. */
static void test_tables(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct mpib_nccl_gin_v11), 19 * 8);
	assert_int_equal(sizeof(struct mpib_nccl_gin_v12), 19 * 8);
	assert_int_equal(sizeof(struct mpib_nccl_gin_v13), 21 * 8);
	assert_int_equal(sizeof(struct mpib_nccl_rma_v14), 21 * 8);
	assert_int_equal(sizeof(struct mpib_nccl_rma_v15), 21 * 8);
	assert_int_equal(offsetof(struct mpib_nccl_gin_v11, createContext), 6 * 8);
	assert_int_equal(offsetof(struct mpib_nccl_gin_v11, closeListen), 12 * 8);
	assert_int_equal(offsetof(struct mpib_nccl_gin_v11, iput), 13 * 8);
	assert_int_equal(offsetof(struct mpib_nccl_gin_v11, test), 15 * 8);
	assert_int_equal(offsetof(struct mpib_nccl_gin_v13, iget), 15 * 8);
	assert_int_equal(offsetof(struct mpib_nccl_gin_v13, iflush), 16 * 8);
	assert_int_equal(offsetof(struct mpib_nccl_gin_v13, finalize), 20 * 8);
	assert_int_equal(offsetof(struct mpib_nccl_rma_v14, regMrSym), 7 * 8);
	assert_int_equal(offsetof(struct mpib_nccl_rma_v14, iflush), 16 * 8);
	assert_int_equal(offsetof(struct mpib_nccl_rma_v15, iget), 15 * 8);
	assert_int_equal(sizeof(struct mpib_nccl_gin_config_v13), 20);
	assert_int_equal(sizeof(struct mpib_nccl_rma_config_v14), 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_join_of_another_version),
		cmocka_unit_test(test_join_without_sout),
		cmocka_unit_test(test_join_without_reads_on_sup),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_closed),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
