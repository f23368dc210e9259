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

static uint64_t busy(unsigned int rail)
{
	const struct mpib_counter_entry *c = send_comm()->counters;

	return mpib_counter_busy(c->busy[rail], c->latest[rail]);
}

/* What an agent takes for parts under way is what is; and no span goes on where none is. */
static void should_be_even(void)
{
	const struct mpib_counter_entry *c = send_comm()->counters;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		assert_int_equal((uint32_t)(c->rail[rail].requests - c->rail[rail].completions) -
					 c->chained[rail],
				 send_comm()->polled[rail]);
		if (!send_comm()->polled[rail])
			assert_int_equal(c->busy[rail] & 1, 0);
	}
}

static void nothing_is_kept_of_a_given_share(void **state)
{
	const struct mpib_counter_entry *c = send_comm()->counters;

	(void)state;
	ask(512, false);
	for (unsigned int n = 0; n < 10; n++)
		move(65536);
	assert_int_equal(c->timed, 0);
	assert_int_equal(c->busy[0] | c->busy[1] | c->latest[0] | c->latest[1], 0);
	assert_int_equal(c->apart[0] | c->apart[1], 0);
	should_be_even();
}

static void time_of_both_rails_is_kept(void **state)
{
	const struct mpib_counter_entry *c = send_comm()->counters;

	(void)state;
	ask(768, true);
	move(65536); /* notices what is asked */
	assert_int_equal(c->timed, 1);
	for (unsigned int n = 0; n < 10; n++) {
		uint64_t before[2] = { busy(0), busy(1) };

		/* The share changes, the rest goes on. */
		ask(n < 5 ? 768 : 256, true);
		move(65536);
		assert_true(busy(0) > before[0] && busy(1) > before[1]);
		should_be_even();
	}
	assert_int_equal(c->apart[0] | c->apart[1], 0);
	assert_int_equal(c->timed, 1);
}

#define ROW 3

/* A row of messages, from its receive to its last post. */
struct row {
	void *recv, *send[ROW];
};

static struct row post_row(const size_t sizes[ROW])
{
	void *in[ROW], *mrs[ROW];
	size_t rooms[ROW];
	int tags[ROW];
	struct row row = { 0 };

	for (int k = 0; k < ROW; k++) {
		in[k] = p.in + (size_t)k * (PAIR_BUFFER / ROW);
		rooms[k] = PAIR_BUFFER / ROW;
		tags[k] = k;
		mrs[k] = p.recv_mr;
	}
	assert_int_equal(mpib_irecv(p.recv, ROW, in, rooms, tags, mrs, &row.recv), ncclSuccess);
	assert_non_null(row.recv);
	for (int k = 0; k < ROW; k++) {
		for (unsigned int n = 0; n < 1000 && !row.send[k]; n++)
			assert_int_equal(
				mpib_isend(p.send, p.out, sizes[k], k, p.send_mr, &row.send[k]),
				ncclSuccess);
		assert_non_null(row.send[k]);
	}
	return row;
}

static void finish_row(const struct row *row)
{
	for (int k = -1; k < ROW; k++) {
		int done = 0, sizes[ROW];

		for (unsigned int n = 0; n < 1000 && !done; n++)
			assert_int_equal(mpib_test(k < 0 ? row->recv : row->send[k], &done, sizes),
					 ncclSuccess);
		assert_true(done);
	}
}

static void move_row(const size_t sizes[ROW])
{
	const struct row row = post_row(sizes);

	finish_row(&row);
}

static const size_t row_sizes[ROW] = { 16384, 4096, 20000 };

/* Of rows too; and while several are under way one span goes on. */
static void a_span_lasts_as_long_as_something_is_under_way(void **state)
{
	const struct mpib_counter_entry *c = send_comm()->counters;
	uint64_t open, before, bytes;
	struct row rows[2];

	(void)state;
	ask(512, true);
	move_row(row_sizes); /* notices what is asked */
	assert_int_equal(c->timed, 1);
	move_row(row_sizes);
	should_be_even();
	before = busy(0);
	assert_true(before > 0 && busy(1) > 0);
	rows[0] = post_row(row_sizes);
	open = c->busy[0];
	assert_int_equal(c->busy[0] & c->busy[1] & 1, 1);
	assert_int_equal(send_comm()->busy, MPIB_BUSY_TIMED);
	assert_int_equal(busy(0), before);
	rows[1] = post_row(row_sizes);
	assert_int_equal(c->busy[0], open);
	finish_row(&rows[0]);
	finish_row(&rows[1]);
	assert_true(busy(0) > before);
	should_be_even();
	assert_int_equal(c->apart[0] | c->apart[1], 0);

	/* On one rail alone. */
	ask(1024, true);
	bytes = c->rail[1].bytes;
	before = busy(1);
	move_row(row_sizes);
	assert_int_equal(c->apart[1], c->rail[1].bytes - bytes);
	assert_int_equal(busy(1), before);
	should_be_even();

	ask(512, false);
	move_row(row_sizes);
	before = busy(0);
	move_row(row_sizes);
	assert_int_equal(busy(0), before);
	assert_int_equal(send_comm()->busy, 0);
	should_be_even();
}

static void a_message_on_one_rail_is_apart(void **state)
{
	const struct mpib_counter_entry *c = send_comm()->counters;
	uint64_t before, apart;

	(void)state;
	ask(768, true);
	move(65536);
	move(65536);
	before = busy(0) + busy(1);
	/* With nothing under way a short one isn't divided: it takes the larger part's rail. */
	for (unsigned int n = 0; n < 10; n++) {
		uint64_t sup = c->rail[1].bytes;
		uint64_t size = n % 2 ? 8 : MPIB_SPLIT_MIN_IDLE - 1;

		apart = c->apart[1];
		move(size);
		assert_int_equal(c->rail[1].bytes - sup, size);
		assert_int_equal(c->apart[1] - apart, size);
	}
	ask(1024, true);
	move(65536);
	ask(0, true);
	move(65536);
	move(0);
	assert_int_equal(c->apart[0], 65536);
	assert_int_equal(busy(0) + busy(1), before);
	ask(256, true);
	move(MPIB_SPLIT_MIN_IDLE - 1);
	assert_int_equal(busy(0) + busy(1), before);
	apart = c->apart[0];
	move(MPIB_SPLIT_MIN_IDLE);
	assert_true(busy(0) + busy(1) > before);
	assert_int_equal(c->apart[0], apart);
	should_be_even();
}

static void it_begins_anew_when_it_is_asked_for_again(void **state)
{
	const struct mpib_counter_entry *c = send_comm()->counters;
	uint64_t before;

	(void)state;
	ask(512, true);
	move(65536);
	move(65536);
	ask(512, false);
	move(65536);
	before = busy(0);
	for (unsigned int n = 0; n < 5; n++)
		move(65536);
	assert_int_equal(busy(0), before);
	assert_int_equal(c->timed, 1);
	ask(512, true);
	move(65536);
	move(65536);
	assert_int_equal(c->timed, 2);
	assert_true(busy(0) > before);

	/* Without a hint, as where a rail is lost or the agent is silent. */
	atomic_store(&send_comm()->agent.hint, NULL);
	move(65536);
	before = busy(0);
	move(65536);
	assert_int_equal(busy(0), before);
	atomic_store(&send_comm()->agent.hint, &hint);
	move(65536);
	assert_int_equal(c->timed, 3);
	should_be_even();
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
		TIMED(time_of_both_rails_is_kept),
		TIMED(a_span_lasts_as_long_as_something_is_under_way),
		TIMED(a_message_on_one_rail_is_apart),
		TIMED(it_begins_anew_when_it_is_asked_for_again),
		TIMED(the_table_says_how_fast_the_clock_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
