/* SPDX-License-Identifier: Apache-2.0 */
/* Frames about a rail that no peer in its right mind says: the connection fails with one line that
 * says so, and nothing is written into a receive. */
#include "tests/unit/plugin/test.h"

#include <string.h>

#include "common/macros.h"
#include "plugin/base/watch.h"
#include "plugin/connection/mail.h"
#include "plugin/wire/failover.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/pair.h"

#define ROOM   1000
#define LOOKS  3000
#define FILLER 0x5a

static struct pair p;

/* Its helper thread may be saying something, too. */
static void say(struct mpib_comm *liar, uint16_t type, const void *payload, size_t len)
{
	mpib_watch_lock();
	assert_int_equal(mpib_ctl_send(&liar->ctl, type, payload, len), 0);
	mpib_watch_unlock();
}

/* An end with a request under way, which the other one lies to. */
static void expect_failure(struct mpib_comm *liar, struct mpib_comm *victim, uint16_t type,
			   const void *payload, size_t len, const char *line)
{
	void *in = p.in, *request = NULL;
	size_t room = ROOM;
	int tag = 5, done = 0;
	ncclResult_t r = ncclSuccess;

	memset(p.in, FILLER, PAIR_BUFFER);
	test_log_clear();
	if (victim == p.recv)
		assert_int_equal(mpib_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &request),
				 ncclSuccess);
	say(liar, type, payload, len);
	for (unsigned int k = 0; r == ncclSuccess && k < LOOKS; k++) {
		r = victim == p.recv ? mpib_test(request, &done, NULL)
				     : mpib_isend(p.send, p.out, ROOM, tag, p.send_mr, &request);
		assert_int_equal(done, 0);
		(void)poll(NULL, 0, 1);
	}
	assert_int_not_equal(r, ncclSuccess);
	assert_logged(line);
	assert_int_equal(test_log_warnings(), 1);
	for (unsigned int k = 0; k < PAIR_BUFFER; k++)
		assert_int_equal(p.in[k], FILLER);
}

static int open_pair(void **state)
{
	(void)state;
	pair_env();
	(void)setenv("MPIB_MODE", "1", 1);
	(void)setenv("MPIB_AGENT_OPTIONAL", "1", 1);
	(void)setenv("MPIB_AGENT_DIR", "/nonexistent/mpib", 1);
	return pair_open(&p, test_logger, 0) == ncclSuccess ? 0 : -1;
}

static int close_pair(void **state)
{
	(void)state;
	pair_close(&p);
	return fake_live() == 0 ? 0 : -1;
}

static void test_too_short(void **state)
{
	static const uint8_t payload[4];

	(void)state;
	expect_failure(p.send, p.recv, MPIB_FRAME_RAIL_DOWN, payload, sizeof(payload),
		       "the peer's frame about a rail can't be read");
}

static void test_down_of_an_epoch_to_come(void **state)
{
	const struct mpib_rail_down down = { .rail = MPIB_SUP, .epoch = 5 };
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];

	(void)state;
	expect_failure(p.send, p.recv, MPIB_FRAME_RAIL_DOWN, payload,
		       mpib_rail_down_encode(payload, &down, false),
		       "RAIL_DOWN is of queue pairs that don't exist yet");
}

static void test_sender_has_matched_more_than_was_posted(void **state)
{
	const struct mpib_rail_down down = { .rail = MPIB_SUP, .rows = 1000 };
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];

	(void)state;
	expect_failure(p.send, p.recv, MPIB_FRAME_RAIL_DOWN, payload,
		       mpib_rail_down_encode(payload, &down, false),
		       "RAIL_DOWN names rows that can't be");
}

static void test_receiver_has_posted_too_many(void **state)
{
	const struct mpib_rail_down down = { .rail = MPIB_SOUT, .rows = 100000 };
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];

	(void)state;
	expect_failure(p.recv, p.send, MPIB_FRAME_RAIL_DOWN, payload,
		       mpib_rail_down_encode(payload, &down, true),
		       "RAIL_DOWN names rows that can't be");
}

static void test_ready_out_of_order(void **state)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];

	(void)state;
	expect_failure(p.send, p.recv, MPIB_FRAME_RAIL_READY, payload,
		       mpib_rail_ready_encode(payload, MPIB_SUP, 0), "RAIL_READY can't be");
}

static void test_up_of_a_rail_that_is_up(void **state)
{
	struct mpib_rail_up up = { .rail = MPIB_SUP, .epoch = 1 };
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];

	(void)state;
	up.qps.rail_mask = (uint8_t)mpib_rail_bit(MPIB_SUP);
	up.qps.qps[MPIB_SUP] = 4;
	for (unsigned int k = 0; k < 4; k++)
		up.qps.qpn[MPIB_SUP][k] = 100 + k;
	expect_failure(p.send, p.recv, MPIB_FRAME_RAIL_UP, payload,
		       mpib_rail_up_encode(payload, &up), "RAIL_UP can't be");
}

/* An older epoch, and the same one twice, are ignored. */
static void test_older_is_ignored(void **state)
{
	struct mpib_comm *send = p.send;
	const struct mpib_rail_down down = { .rail = MPIB_SUP, .epoch = (uint32_t)-1 };
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	size_t len = mpib_rail_down_encode(payload, &down, false);

	(void)state;
	test_log_clear();
	for (unsigned int k = 0; k < 3; k++)
		say(send, MPIB_FRAME_RAIL_DOWN, payload, len);
	for (unsigned int k = 0; k < 20; k++)
		assert_int_equal(pair_transfer(&p, 5000, PAIR_BUFFER), ncclSuccess);
	assert_int_equal(test_log_warnings(), 0);
}

/* What stands in the victim's mailbox, as the peer wrote it; a receive is under way. */
static ncclResult_t mailed(const struct mpib_mail_slot *slot, unsigned int looks)
{
	struct mpib_comm *recv = p.recv;
	void *in = p.in, *request = NULL;
	ncclResult_t r = ncclSuccess;
	size_t room = ROOM;
	int tag = 5, done = 0;

	test_log_clear();
	assert_int_equal(mpib_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &request),
			 ncclSuccess);
	mpib_watch_lock();
	memcpy((void *)(uintptr_t)&recv->rails->box.in[0], slot, sizeof(*slot));
	mpib_watch_unlock();
	for (unsigned int k = 0; r == ncclSuccess && k < looks; k++) {
		r = mpib_test(request, &done, NULL);
		assert_int_equal(done, 0);
		(void)poll(NULL, 0, 1);
	}
	return r;
}

static uint32_t sum_of(const struct mpib_mail_slot *slot)
{
	uint8_t bytes[MPIB_MAIL_SLOT] = { 0 };
	uint32_t sum = 2166136261u;

	memcpy(bytes, slot, sizeof(*slot));
	for (size_t k = 0; k < sizeof(bytes); k++)
		if (k < 248 || k >= 252)
			sum = (sum ^ bytes[k]) * 16777619u;
	return sum;
}

static void test_torn_mail_is_no_mail(void **state)
{
	struct mpib_mail_slot slot = { .type = MPIB_FRAME_RAIL_DOWN, .len = 4, .turn = 1 };

	(void)state;
	slot.sum = sum_of(&slot) + 1;
	assert_int_equal(mailed(&slot, 300), ncclSuccess);
	assert_int_equal(test_log_warnings(), 0);
}

static void test_mail_of_another_type(void **state)
{
	struct mpib_mail_slot slot = { .type = MPIB_FRAME_BYE, .len = 4, .turn = 1 };

	(void)state;
	slot.sum = sum_of(&slot);
	assert_int_not_equal(mailed(&slot, LOOKS), ncclSuccess);
	assert_logged("the mailbox has what is no frame about a rail");
}

static void test_mail_that_is_too_short(void **state)
{
	struct mpib_mail_slot slot = { .type = MPIB_FRAME_RAIL_UP, .len = 4, .turn = 1 };

	(void)state;
	slot.sum = sum_of(&slot);
	assert_int_not_equal(mailed(&slot, LOOKS), ncclSuccess);
	assert_logged("the peer's frame about a rail can't be read");
}

/* Numbered as if one had been said before it. */
static void test_frame_before_is_missing(void **state)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	size_t len = mpib_rail_ready_encode(payload, MPIB_SUP, 0);

	(void)state;
	payload[2] = 1;
	expect_failure(p.send, p.recv, MPIB_FRAME_RAIL_READY, payload, len,
		       "a frame about a rail is missing before the peer's");
}

#define LIAR(test) cmocka_unit_test_setup_teardown(test, open_pair, close_pair)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIAR(test_too_short),
		LIAR(test_down_of_an_epoch_to_come),
		LIAR(test_sender_has_matched_more_than_was_posted),
		LIAR(test_receiver_has_posted_too_many),
		LIAR(test_ready_out_of_order),
		LIAR(test_up_of_a_rail_that_is_up),
		LIAR(test_older_is_ignored),
		LIAR(test_torn_mail_is_no_mail),
		LIAR(test_mail_of_another_type),
		LIAR(test_mail_that_is_too_short),
		LIAR(test_frame_before_is_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
