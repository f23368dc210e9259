/* SPDX-License-Identifier: Apache-2.0 */
/* What counters add to a look: bytes and times of parts that are done, and no lie where an honest
 * process seems to tell one. What lies do to a share is in test_balance.c. */
#include "agent/policy/balance_counts.h"

#include "tests/unit/agent/test.h"

/* A connection with @n parts of 1 MB under way on SOUT when times are asked for. */
static struct mpib_balance_counts with_parts_under_way(uint32_t n)
{
	return (struct mpib_balance_counts){ .timed = 1,
					     .bytes = { n * 1000000ull },
					     .posts = { n } };
}

static void parts_of_before_have_no_time_and_are_no_lie(void **state)
{
	struct mpib_balance_counts counts = with_parts_under_way(64);
	struct mpib_balance_seen seen = { 0 };
	struct mpib_balance_look look = { 0 };

	for (unsigned int n = 0; n <= 64; n++) {
		assert_int_equal(mpib_balance_see(&seen, &counts, 10000 * (n + 1), &look), 0);
		counts.done[0] += counts.done[0] < 64;
	}
	/* Nor are they bytes that a later time would count for. */
	assert_int_equal(look.bytes[0], 0);
	counts.bytes[0] += 1000000;
	counts.posts[0]++;
	counts.done[0]++;
	counts.busy_nsec[0] += 1000000;
	assert_int_equal(mpib_balance_see(&seen, &counts, 10000000, &look), 0);
	assert_int_equal(look.bytes[0], 1000000);
}

/* The process stands still between its completions and their time. */
static void a_process_without_a_processor_is_no_liar(void **state)
{
	struct mpib_balance_counts counts = with_parts_under_way(0);
	struct mpib_balance_seen seen = { 0 };
	struct mpib_balance_look look = { 0 };
	uint64_t usec = 0;

	assert_int_equal(mpib_balance_see(&seen, &counts, usec += 10000, &look), 0);
	counts.under_way[0] = true;
	for (unsigned int n = 1; n <= 100; n++) {
		counts.bytes[0] += 1000000;
		counts.posts[0]++;
		counts.done[0]++;
		for (unsigned int k = 0; k < 50; k++)
			assert_int_equal(mpib_balance_see(&seen, &counts, usec += 10000, &look), 0);
		assert_int_equal(look.bytes[0], (n - 1) * 1000000ull);
		counts.busy_nsec[0] += 500000000;
		assert_int_equal(mpib_balance_see(&seen, &counts, usec += 10000, &look), 0);
		assert_int_equal(look.bytes[0], n * 1000000ull);
	}
}

/* What is under way on it completes no more, and so isn't counted as posted any more. */
static void a_rail_that_comes_and_goes_is_no_lie(void **state)
{
	struct mpib_balance_counts counts = with_parts_under_way(100);
	struct mpib_balance_seen seen = { 0 };
	struct mpib_balance_look look = { 0 };

	counts.posts[0] = 108;
	counts.done[0] = 100;
	for (unsigned int n = 0; n < 100; n++) {
		counts.timed = n + 1;
		for (unsigned int k = 0; k < 10; k++)
			assert_int_equal(
				mpib_balance_see(&seen, &counts, 10000 * (20 * n + k + 1), &look),
				0);
		counts.timed = 0; /* while it is lost */
		counts.posts[0] = counts.done[0];
		for (unsigned int k = 10; k < 20; k++)
			assert_int_equal(
				mpib_balance_see(&seen, &counts, 10000 * (20 * n + k + 1), &look),
				0);
		counts.timed = n + 1; /* it is back, and times aren't kept yet */
		assert_int_equal(mpib_balance_see(&seen, &counts, 10000 * (20 * n + 20), &look), 0);
		counts.posts[0] += 8;
	}
}

static void a_long_part_may_tell_its_time_at_once(void **state)
{
	struct mpib_balance_counts counts = { .timed = 1,
					      .bytes = { 1 << 26, 1 << 26 },
					      .posts = { 1, 1 } };
	struct mpib_balance_seen seen = { 0 };
	struct mpib_balance_look look = { 0 };

	/* 20 s of silence, then 64 MiB and all of their time; again after 30 s. */
	for (unsigned int n = 0; n < 2; n++) {
		uint64_t start = n ? 50010000 : 10000;

		for (uint64_t usec = 0; usec < 20000000; usec += 10000)
			assert_int_equal(mpib_balance_see(&seen, &counts, start + usec, &look), 0);
		counts.done[1]++;
		counts.busy_nsec[1] += 20000000000u;
		assert_int_equal(mpib_balance_see(&seen, &counts, start + 20000000, &look), 0);
		counts.bytes[1] += 1 << 26;
		counts.posts[1]++;
	}
	assert_int_equal(look.bytes[1], 1 << 27);
}

/* Of parts of one size between two looks, each byte counts when its part is done; and what the
 * process posts while it is looked at changes nothing of that. */
static void bytes_are_those_of_the_parts_that_are_done(void **state)
{
	struct mpib_balance_counts counts = { .timed = 1 };
	struct mpib_balance_seen seen = { 0 };
	struct mpib_balance_look look = { 0 };
	uint64_t bytes_of[64] = { 0 };
	uint64_t done = 0;
	uint32_t size = 1000;

	(void)state;
	counts.posts[0] = counts.done[0] = UINT32_MAX - 20; /* it goes round */
	counts.bytes[0] = 12345678;
	assert_int_equal(mpib_balance_see(&seen, &counts, 10000, &look), MPIB_BALANCE_TRUE);
	for (unsigned int n = 0; n < 200; n++) {
		/* 1 to 3 of a size that may change with each look, and up to 8 under way */
		for (unsigned int k = 0; k <= n % 3 && counts.posts[0] - counts.done[0] < 8; k++) {
			bytes_of[counts.posts[0]++ % 64] = size;
			counts.bytes[0] += size;
		}
		if (n % 10 == 9)
			size = size == 1000 ? 3000 : 1000;
		while (counts.posts[0] - counts.done[0] > n % 5) {
			done += bytes_of[counts.done[0]++ % 64];
			counts.busy_nsec[0] += 1000;
		}
		assert_int_equal(mpib_balance_see(&seen, &counts, 10000 * (n + 2), &look),
				 MPIB_BALANCE_TRUE);
		assert_int_equal(look.bytes[0], done);
	}
	/* What is on one rail alone doesn't count. */
	counts.posts[0] += 5;
	counts.done[0] = counts.posts[0];
	counts.bytes[0] += 5000;
	counts.apart[0] += 5000;
	look.bytes[0] = 0;
	assert_int_equal(mpib_balance_see(&seen, &counts, 10000000, &look), MPIB_BALANCE_TRUE);
	assert_in_range(look.bytes[0], 0, 4 * 3000); /* of those that were under way */
}

/* A connection with two parts under way on SUP, looked at each 10 ms. */
struct connection {
	struct mpib_balance_counts counts;
	struct mpib_balance_seen seen;
	uint64_t now;
};

static void look_at(struct connection *conn, struct mpib_balance_look *ret)
{
	*ret = (struct mpib_balance_look){ 0 };
	assert_int_equal(mpib_balance_see(&conn->seen, &conn->counts, conn->now, ret), 0);
	assert_int_equal(ret->under_way[1], ret->connections);
	assert_int_equal(ret->queued[1], ret->connections ? 2 : 0);
	conn->now += 10000;
}

/* The first look adds nothing. */
static struct connection make_connection(void)
{
	struct connection conn = { .counts = { .timed = 1,
					       .bytes = { 0, 2000000 },
					       .posts = { 0, 2 },
					       .under_way = { false, true } },
				   .now = 10000 };
	struct mpib_balance_look look;

	look_at(&conn, &look);
	assert_int_equal(look.connections, 0);
	return conn;
}

/* A part is done, and another one posted. */
static void complete(struct connection *conn, uint64_t usec)
{
	conn->counts.bytes[1] += 1000000;
	conn->counts.posts[1]++;
	conn->counts.done[1]++;
	conn->counts.busy_nsec[1] += usec * 1000;
}

/* Looks for @usec at which nothing is done. Returns at how many of them the connection counted. */
static unsigned int hold_still(struct connection *conn, uint64_t usec)
{
	struct mpib_balance_look look;
	unsigned int n = 0;

	for (uint64_t end = conn->now + usec; conn->now < end;) {
		look_at(conn, &look);
		n += look.connections;
	}
	return n;
}

/* @n parts, of which one is done each @usec: the connection counts at every look. */
static void carry(struct connection *conn, uint64_t usec, unsigned int n)
{
	while (n--) {
		assert_int_equal(hold_still(conn, usec), usec / 10000);
		complete(conn, usec);
	}
}

/* Its process may be stopped, more than once: what it has under way waits for that, and not for a
 * rail. */
static void parts_of_a_connection_that_rests_do_not_count(void **state)
{
	struct connection conn = make_connection();

	(void)state;
	carry(&conn, 20000, 200);
	for (unsigned int n = 0; n < 3; n++) {
		assert_in_range(hold_still(&conn, 100000000), 100, 120);
		complete(&conn, 20000);
		carry(&conn, 20000, 200);
	}
}

static void a_process_that_was_stopped_before_counts_for_a_minute(void **state)
{
	struct connection conn = make_connection();

	(void)state;
	assert_in_range(hold_still(&conn, 100000000), 6000, 6200);
}

/* Nobody looks at a flow that is silent. */
static void nothing_is_waited_for_in_silence(void **state)
{
	struct connection conn = make_connection();

	(void)state;
	carry(&conn, 20000, 200);
	for (unsigned int n = 0; n < 2; n++) {
		conn.now += 3600000000u;
		carry(&conn, 20000, 2);
		assert_in_range(hold_still(&conn, 10000000), 100, 120);
		complete(&conn, 20000);
	}
}

/* Neither the first one nor one that takes longer than those before. */
static void long_parts_do_not_rest(void **state)
{
	struct connection conn = make_connection();

	(void)state;
	carry(&conn, 50000000, 1);
	carry(&conn, 5000000, 3);
	carry(&conn, 20000000, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_of_before_have_no_time_and_are_no_lie),
		cmocka_unit_test(a_process_without_a_processor_is_no_liar),
		cmocka_unit_test(a_rail_that_comes_and_goes_is_no_lie),
		cmocka_unit_test(a_long_part_may_tell_its_time_at_once),
		cmocka_unit_test(bytes_are_those_of_the_parts_that_are_done),
		cmocka_unit_test(parts_of_a_connection_that_rests_do_not_count),
		cmocka_unit_test(a_process_that_was_stopped_before_counts_for_a_minute),
		cmocka_unit_test(nothing_is_waited_for_in_silence),
		cmocka_unit_test(long_parts_do_not_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
