/* SPDX-License-Identifier: Apache-2.0 */
/* Many descriptors behind one source of the loop. */
#include <sys/epoll.h>
#include <unistd.h>

#include "agent/clients/poller.h"
#include "tests/unit/agent/test.h"

#define ITEMS 200

static struct mpib_poller *poller;
static struct mpib_poll_item items[ITEMS];
static int pipes[ITEMS][2];
static unsigned int calls[ITEMS];
static sd_event *loop;

static unsigned int sum(void)
{
	unsigned int total = 0;

	for (unsigned int n = 0; n < ITEMS; n++)
		total += calls[n];
	return total;
}

static void count(void *user, uint32_t revents)
{
	assert_true(revents & EPOLLIN);
	calls[(struct mpib_poll_item *)user - items]++;
}

/* The first that is called ends all others. */
static void end_the_others(void *user, uint32_t revents)
{
	count(user, revents);
	for (unsigned int n = 0; n < ITEMS; n++) {
		if (&items[n] != user)
			mpib_poller_remove(&items[n]);
	}
}

static int set_up_with(void (*ready)(void *user, uint32_t revents))
{
	memset(items, 0, sizeof(items));
	memset(calls, 0, sizeof(calls));
	if (sd_event_new(&loop) < 0 || mpib_poller_new(loop, &poller) < 0)
		return -1;
	for (unsigned int n = 0; n < ITEMS; n++) {
		if (pipe(pipes[n]) < 0 || write(pipes[n][1], "x", 1) != 1 ||
		    mpib_poller_add(poller, &items[n], pipes[n][0], EPOLLIN, ready, &items[n]) < 0)
			return -1;
	}
	return 0;
}

static int set_up(void **state)
{
	(void)state;
	return set_up_with(count);
}

static int set_up_ending(void **state)
{
	(void)state;
	return set_up_with(end_the_others);
}

static int tear_down(void **state)
{
	(void)state;
	for (unsigned int n = 0; n < ITEMS; n++) {
		mpib_poller_remove(&items[n]);
		(void)close(pipes[n][0]);
		(void)close(pipes[n][1]);
	}
	(void)mpib_poller_free(poller);
	(void)sd_event_unref(loop);
	return 0;
}

static void a_turn_of_the_loop_serves_many_and_all_get_their_turn(void **state)
{
	unsigned int turns = 0;
	unsigned int least = 0;

	(void)state;
	while (!least && turns < 100) {
		assert_true(sd_event_run(loop, 0) > 0);
		turns++;
		least = UINT32_MAX;
		for (unsigned int n = 0; n < ITEMS; n++)
			least = calls[n] < least ? calls[n] : least;
	}
	/* nothing was read, so that all stay ready: none is served again before the last was */
	assert_int_equal(least, 1);
	assert_true(turns <= 8);
	assert_true(sum() < 2 * ITEMS);
}

static void what_was_removed_is_not_called_though_it_was_due(void **state)
{
	(void)state;
	assert_true(sd_event_run(loop, 0) > 0);
	assert_int_equal(sum(), 1);
	assert_true(sd_event_run(loop, 0) > 0);
	assert_int_equal(sum(), 2); /* the one that stayed */
}

static void events_can_be_changed_and_ended_twice(void **state)
{
	(void)state;
	for (unsigned int n = 0; n < ITEMS; n++)
		assert_int_equal(mpib_poller_change(&items[n], 0), 0);
	assert_int_equal(sd_event_run(loop, 0), 0);
	assert_int_equal(mpib_poller_change(&items[7], EPOLLIN), 0);
	assert_int_equal(mpib_poller_change(&items[7], EPOLLIN), 0);
	assert_true(sd_event_run(loop, 0) > 0);
	assert_int_equal(sum(), 1);
	assert_int_equal(calls[7], 1);
	mpib_poller_remove(&items[7]);
	mpib_poller_remove(&items[7]);
	assert_int_equal(sd_event_run(loop, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_turn_of_the_loop_serves_many_and_all_get_their_turn, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_was_removed_is_not_called_though_it_was_due,
						set_up_ending, tear_down),
		cmocka_unit_test_setup_teardown(events_can_be_changed_and_ended_twice, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
