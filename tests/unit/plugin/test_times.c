/* SPDX-License-Identifier: Apache-2.0 */
/* Busy times of a sender's rails: kept where the hint asks for them, and of messages on both rails
 * alone. */
#include <poll.h>

#include "common/hint.h"
#include "common/split.h"
#include "plugin/base/counters.h"
#include "plugin/data/times.h"
#include "tests/unit/plugin/moved_pair.h"

static struct mpib_hint_entry hint;

static int set_up(void **state)
{
	int r = start_advanced(state);

	/* The clock's speed is known some milliseconds after the table was made. */
	(void)poll(NULL, 0, 15);
	memset(&hint, 0, sizeof(hint));
	atomic_store(&send_comm()->agent.hint, &hint);
	return r;
}

static int tear_down(void **state)
{
	atomic_store(&send_comm()->agent.hint, NULL);
	return finish(state);
}

static void ask(uint32_t share, bool timed)
{
	mpib_hint_write_timed(&hint, share, 1, 2, timed ? MPIB_HINT_TIMED : 0);
}

static void move(size_t size)
{
	assert_int_equal(pair_transfer(&p, size, PAIR_BUFFER), ncclSuccess);
}

static void nothing_is_kept_of_a_given_share(void **state)
{
	const struct mpib_counter_entry *c = send_comm()->counters;

	(void)state;
	ask(512, false);
	for (unsigned int n = 0; n < 10; n++)
		move(65536);
	assert_int_equal(c->timed, 0);
	assert_int_equal(c->completed[0] + c->completed[1] + c->busy[0] + c->busy[1], 0);
	assert_int_equal(c->since[0] + c->since[1], 0);
}

static void bytes_and_time_of_both_rails_are_kept(void **state)
{
	const struct mpib_counter_entry *c = send_comm()->counters;
	uint64_t before[2];

	(void)state;
	ask(768, true);
	move(65536); /* notices what is asked */
	assert_int_equal(c->timed, 1);
	before[0] = c->completed[0];
	before[1] = c->completed[1];
	for (unsigned int n = 0; n < 10; n++) {
		uint64_t busy[2] = { c->busy[0], c->busy[1] };

		move(65536);
		assert_true(c->busy[0] > busy[0] && c->busy[1] > busy[1]);
		assert_int_equal(c->since[0] + c->since[1], 0); /* nothing is under way */
	}
	assert_int_equal(c->completed[0] - before[0], 10 * 16384);
	assert_int_equal(c->completed[1] - before[1], 10 * 49152);

	/* The share changes, the rest goes on. */
	ask(256, true);
	move(65536);
	assert_int_equal(c->completed[0] - before[0], 10 * 16384 + 49152);
	assert_int_equal(c->timed, 1);
}

static void a_message_on_one_rail_tells_nothing(void **state)
{
	const struct mpib_counter_entry *c = send_comm()->counters;
	uint64_t busy;

	(void)state;
	ask(768, true);
	move(65536);
	move(65536);
	busy = c->busy[0] + c->busy[1];
	/* With nothing under way a short one isn't divided: it takes the larger part's rail. */
	for (unsigned int n = 0; n < 10; n++) {
		uint64_t sup = c->rail[1].bytes;

		move(n % 2 ? 8 : MPIB_SPLIT_MIN_IDLE - 1);
		assert_int_equal(c->rail[1].bytes - sup, n % 2 ? 8 : MPIB_SPLIT_MIN_IDLE - 1);
	}
	ask(1024, true);
	move(65536);
	ask(0, true);
	move(65536);
	move(0);
	assert_int_equal(c->busy[0] + c->busy[1], busy);
	ask(256, true);
	move(MPIB_SPLIT_MIN_IDLE - 1);
	assert_int_equal(c->busy[0] + c->busy[1], busy);
	move(MPIB_SPLIT_MIN_IDLE);
	assert_true(c->busy[0] + c->busy[1] > busy);
}

static void it_begins_anew_when_it_is_asked_for_again(void **state)
{
	const struct mpib_counter_entry *c = send_comm()->counters;
	uint64_t completed;

	(void)state;
	ask(512, true);
	move(65536);
	move(65536);
	ask(512, false);
	move(65536);
	completed = c->completed[0];
	for (unsigned int n = 0; n < 5; n++)
		move(65536);
	assert_int_equal(c->completed[0], completed);
	assert_int_equal(c->timed, 1);
	ask(512, true);
	move(65536);
	move(65536);
	assert_int_equal(c->timed, 2);
	assert_int_equal(c->completed[0], completed + 32768);

	/* Without a hint, as where a rail is lost or the agent is silent. */
	atomic_store(&send_comm()->agent.hint, NULL);
	move(65536);
	move(65536);
	assert_int_equal(c->completed[0], completed + 32768);
	atomic_store(&send_comm()->agent.hint, &hint);
	move(65536);
	assert_int_equal(c->timed, 3);
}

static void the_table_says_how_fast_the_clock_goes(void **state)
{
	uint64_t ticks, start = mpib_ticks();
	uint32_t speed;

	(void)state;
	ask(512, true);
	move(65536);
	mpib_watch_lock();
	speed = mpib_ticks_per_ms();
	mpib_watch_unlock();
	assert_true(speed >= 1000);
	(void)poll(NULL, 0, 20);
	ticks = mpib_ticks() - start;
	assert_in_range(ticks / speed, 15, 2000);
}

#define TIMED(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TIMED(nothing_is_kept_of_a_given_share),
		TIMED(bytes_and_time_of_both_rails_are_kept),
		TIMED(a_message_on_one_rail_tells_nothing),
		TIMED(it_begins_anew_when_it_is_asked_for_again),
		TIMED(the_table_says_how_fast_the_clock_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
