/* SPDX-License-Identifier: Apache-2.0 */
/* The frames about a rail: known bytes, every truncation, what no peer sends, random input in
 * buffers of exactly its size; and what each frame asks in each state. */
#include "tests/unit/plugin/test.h"

#include <errno.h>
#include <stdlib.h>

#include "common/macros.h"
#include "plugin/wire/failover.h"
#include "tests/unit/common/random.h"

#define RANDOM_CASES 100000

static struct mpib_rail_down down_of_row(uint32_t rows)
{
	struct mpib_rail_down down;

	memset(&down, 0, sizeof(down));
	down.rail = MPIB_SUP;
	down.cause = MPIB_CAUSE_PORT;
	down.epoch = 0x01020304;
	down.rows = rows;
	return down;
}

static void test_down_known_bytes(void **state)
{
	static const uint8_t want[MPIB_RAIL_DOWN_RECEIVER] = {
		1,
		MPIB_CAUSE_PORT,
		0,
		0,
		4,
		3,
		2,
		1,
		0x78,
		0x56,
		0x34,
		0x12,
		[12] = 1,
		[12 + 31] = 0x80,
		[44 + 8] = 2,
	};
	struct mpib_rail_down down = down_of_row(0x12345678), back;
	uint8_t buf[MPIB_FRAME_PAYLOAD_MAX];

	(void)state;
	mpib_rail_down_mark(&down, 0, MPIB_SOUT);
	mpib_rail_down_mark(&down, 255, MPIB_SOUT);
	mpib_rail_down_mark(&down, 65, MPIB_SUP);
	assert_int_equal(mpib_rail_down_encode(buf, &down, true), sizeof(want));
	assert_memory_equal(buf, want, sizeof(want));
	assert_int_equal(mpib_rail_down_decode(buf, sizeof(want), true, &back), 0);
	assert_memory_equal(&back, &down, sizeof(down));

	/* From a sender: no parts, not even where bytes follow. */
	assert_int_equal(mpib_rail_down_encode(buf, &down, false), MPIB_RAIL_DOWN_SENDER);
	memset(down.arrived, 0, sizeof(down.arrived));
	assert_int_equal(mpib_rail_down_decode(buf, sizeof(want), false, &back), 0);
	assert_memory_equal(&back, &down, sizeof(down));
}

static struct mpib_rail_up up_of_sup(void)
{
	struct mpib_rail_up up;

	memset(&up, 0, sizeof(up));
	up.rail = MPIB_SUP;
	up.epoch = 7;
	up.qps.rail_mask = 2;
	up.qps.qps[MPIB_SUP] = 2;
	up.qps.qpn[MPIB_SUP][0] = 0x123456;
	up.qps.qpn[MPIB_SUP][1] = 2;
	up.qps.ring_rkey[MPIB_SUP] = 0xaabbccdd;
	up.qps.ring_addr = 0x7f0000001000;
	return up;
}

static void test_up_and_ready(void **state)
{
	static const uint8_t want[MPIB_RAIL_READY_SIZE] = { 1, 0, 0, 0, 7, 0, 0, 0 };
	struct mpib_rail_up up = up_of_sup(), back;
	uint8_t buf[MPIB_FRAME_PAYLOAD_MAX];
	unsigned int rail;
	uint32_t epoch;
	size_t len;

	(void)state;
	len = mpib_rail_up_encode(buf, &up);
	assert_int_equal(len, 174);
	assert_memory_equal(buf, want, sizeof(want));
	assert_int_equal(mpib_rail_up_decode(buf, len, &back), 0);
	assert_memory_equal(&back, &up, sizeof(up));

	assert_int_equal(mpib_rail_ready_encode(buf, MPIB_SUP, 7), sizeof(want));
	assert_memory_equal(buf, want, sizeof(want));
	assert_int_equal(mpib_rail_ready_decode(buf, sizeof(want), &rail, &epoch), 0);
	assert_int_equal(rail, MPIB_SUP);
	assert_int_equal(epoch, 7);
}

/* Decodes all three from a heap block of exactly @len bytes; bits of those that took it. */
static unsigned int decode_all(const uint8_t *bytes, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	struct mpib_rail_down down;
	struct mpib_rail_up up;
	unsigned int rail, good = 0;
	uint32_t epoch;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	good |= (mpib_rail_down_decode(copy, len, false, &down) == 0) << 0;
	good |= (mpib_rail_down_decode(copy, len, true, &down) == 0) << 1;
	good |= (mpib_rail_up_decode(copy, len, &up) == 0) << 2;
	good |= (mpib_rail_ready_decode(copy, len, &rail, &epoch) == 0) << 3;
	free(copy);
	return good;
}

static void test_cut_short(void **state)
{
	struct mpib_rail_up up = up_of_sup();
	uint8_t buf[MPIB_FRAME_PAYLOAD_MAX];
	size_t whole = mpib_rail_up_encode(buf, &up);

	(void)state;
	for (size_t len = 0; len <= whole; len++) {
		unsigned int want = (len >= MPIB_RAIL_DOWN_SENDER) << 0 |
				    (len >= MPIB_RAIL_DOWN_RECEIVER) << 1 | (len == whole) << 2 |
				    (len >= MPIB_RAIL_READY_SIZE) << 3;

		assert_int_equal(decode_all(buf, len), want);
	}
}

static void test_out_of_range(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
		unsigned int good; /* as decode_all */
	} cases[] = {
		{ 0, 1, 15 },
		{ 0, 0, 11 }, /* the QPs are SUP's */
		{ 0, 2, 0 },
		{ 0, 255, 0 }, /* there are two rails */
		{ 8, 2, 11 },  /* path */
		{ 9, 0, 11 },
		{ 9, 1, 11 },
		{ 9, 3, 11 },
		{ 9, 4, 11 },  /* rail mask */
		{ 10, 1, 11 }, /* QPs of the other rail */
		{ 10 + 78, 0, 11 },
		{ 10 + 78, 17, 11 },	     /* number of QPs */
		{ 10 + 78, 3, 11 },	     /* one that has number 0 */
		{ 10 + 78 + 14 + 3, 1, 11 }, /* a number beyond 24 bits */
		{ 10 + 78 + 18, 1, 11 },     /* the connection manager's */
		{ 1, 200, 15 },		     /* a cause of another release */
	};
	struct mpib_rail_up up = up_of_sup();
	uint8_t buf[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_rail_down down;

	(void)state;
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		size_t len = mpib_rail_up_encode(buf, &up);
		unsigned int good;

		buf[cases[k].at] = cases[k].value;
		good = decode_all(buf, len);
		if (good != cases[k].good)
			fail_msg("case %zu: %u decode, not %u", k, good, cases[k].good);
	}
	assert_int_equal(mpib_rail_down_decode(buf, sizeof(buf), false, &down), 0);
	assert_int_equal(down.cause, MPIB_CAUSE_OTHER);
}

static void test_random_input(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(16);
	uint8_t bytes[200];

	(void)state;
	for (unsigned int n = 0; n < RANDOM_CASES; n++) {
		size_t len = mpib_test_random_below(&random, sizeof(bytes));

		for (size_t k = 0; k < len; k++)
			bytes[k] = (uint8_t)mpib_test_random_next(&random);
		if (len)
			bytes[0] &= 1;
		(void)decode_all(bytes, len);
	}
}

/* ---- states -------------------------------------------------------------------------------- */

/* What each frame asks of an end whose rail is at epoch 5. */
static void test_states(void **state)
{
	static const struct {
		uint8_t state;
		uint32_t epoch; /* the frame's */
		int down, up_sender, up_receiver, ready;
	} rows[] = {
		{ MPIB_RAIL_UP, 5, MPIB_TODO_STOP_AND_SETTLE, -EPROTO, -EPROTO, -EPROTO },
		{ MPIB_RAIL_MADE, 5, MPIB_TODO_STOP_AND_SETTLE, MPIB_TODO_CONNECT, -EPROTO,
		  MPIB_TODO_USE },
		{ MPIB_RAIL_SAID, 5, MPIB_TODO_SETTLE, 0, -EPROTO, 0 },
		{ MPIB_RAIL_LOST, 5, 0, 0, -EPROTO, 0 },
		{ MPIB_RAIL_UP, 4, 0, 0, -EPROTO, 0 },
		{ MPIB_RAIL_MADE, 4, 0, 0, -EPROTO, 0 },
		{ MPIB_RAIL_SAID, 4, 0, 0, -EPROTO, 0 },
		{ MPIB_RAIL_LOST, 4, 0, 0, -EPROTO, 0 },
		{ MPIB_RAIL_UP, 6, -EPROTO, -EPROTO, -EPROTO, -EPROTO },
		{ MPIB_RAIL_MADE, 6, -EPROTO, -EPROTO, -EPROTO, -EPROTO },
		{ MPIB_RAIL_SAID, 6, -EPROTO, -EPROTO, -EPROTO, -EPROTO },
		{ MPIB_RAIL_LOST, 6, -EPROTO, -EPROTO, MPIB_TODO_MAKE, -EPROTO },
		{ MPIB_RAIL_LOST, 7, -EPROTO, -EPROTO, -EPROTO, -EPROTO },
	};

	(void)state;
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rows); k++) {
		struct mpib_rail_end end = { .state = rows[k].state, .epoch = 5 };
		uint32_t epoch = rows[k].epoch;

		assert_int_equal(mpib_rail_on_down(&end, epoch), rows[k].down);
		assert_int_equal(mpib_rail_on_up(&end, false, epoch), rows[k].up_sender);
		assert_int_equal(mpib_rail_on_up(&end, true, epoch), rows[k].up_receiver);
		assert_int_equal(mpib_rail_on_ready(&end, true, epoch), rows[k].ready);
		assert_int_equal(mpib_rail_on_ready(&end, false, epoch), -EPROTO);
	}
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Row numbers go round at 2^32: the same answers wherever they are. */
static const uint32_t bases[] = { 0x1000, 0xffffff80, 0xffffffff, 0x7fffffff };

static void test_what_a_frame_says_of_a_row(void **state)
{
	(void)state;
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(bases); k++) {
		uint32_t rows = bases[k];
		struct mpib_rail_down none = down_of_row(rows), all = none, one = none;

		memset(all.arrived, 0xff, sizeof(all.arrived));
		mpib_rail_down_mark(&one, (rows - 3) % MPIB_ROWS, MPIB_SUP);
		/* Posted since, and posted over. */
		for (uint32_t n = 0; n < 600; n++)
			assert_false(mpib_rail_has_arrived(&all, rows + n, n % 2));
		for (uint32_t n = 257; n < 600; n++)
			assert_true(mpib_rail_has_arrived(&none, rows - n, n % 2));
		for (uint32_t n = 1; n <= MPIB_ROWS; n++) {
			assert_false(mpib_rail_has_arrived(&none, rows - n, n % 2));
			assert_true(mpib_rail_has_arrived(&all, rows - n, n % 2));
			assert_false(mpib_rail_has_arrived(&one, rows - n, MPIB_SOUT));
			assert_int_equal(mpib_rail_has_arrived(&one, rows - n, MPIB_SUP), n == 3);
		}
	}
}

static void test_rows_that_cant_be(void **state)
{
	(void)state;
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(bases); k++) {
		uint32_t rows = bases[k];
		struct mpib_rail_down down = down_of_row(rows);

		/* A sender has matched no more than was posted. */
		assert_true(mpib_rail_rows_of_sender(&down, rows));
		assert_true(mpib_rail_rows_of_sender(&down, rows + 10000));
		assert_false(mpib_rail_rows_of_sender(&down, rows - 1));
		/* A receiver hasn't posted a row whose slot isn't free. */
		assert_true(mpib_rail_rows_of_receiver(&down, rows + 10000));
		assert_true(mpib_rail_rows_of_receiver(&down, rows - MPIB_ROWS));
		assert_false(mpib_rail_rows_of_receiver(&down, rows - MPIB_ROWS - 1));
	}
}

/* Each mask that an immediate can have on a rail stands for one thing. */
static void test_masks(void **state)
{
	(void)state;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		unsigned int own = mpib_rail_bit(rail), other = mpib_rail_bit(!rail);

		assert_false(mpib_mask_is_replay(own, rail));
		assert_int_equal(mpib_mask_parts(own, rail), own);
		assert_false(mpib_mask_is_replay(3, rail));
		assert_int_equal(mpib_mask_parts(3, rail), 3);
		assert_true(mpib_mask_is_replay(mpib_replay_mask(!rail, true), rail));
		assert_int_equal(mpib_mask_parts(mpib_replay_mask(!rail, true), rail), other);
		assert_true(mpib_mask_is_replay(mpib_replay_mask(!rail, false), rail));
		assert_int_equal(mpib_mask_parts(mpib_replay_mask(!rail, false), rail), 3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_down_known_bytes),
		cmocka_unit_test(test_up_and_ready),
		cmocka_unit_test(test_cut_short),
		cmocka_unit_test(test_out_of_range),
		cmocka_unit_test(test_random_input),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_what_a_frame_says_of_a_row),
		cmocka_unit_test(test_rows_that_cant_be),
		cmocka_unit_test(test_masks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
