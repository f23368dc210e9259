/* SPDX-License-Identifier: Apache-2.0 */
/* Many descriptors beside the loop. */
#include <sys/epoll.h>
#include <unistd.h>

#include "agent/clients/poller.h"
#include "tests/unit/agent/test.h"

#define ITEMS 200

/* Users: all but the last item are the first one's. */
#define CROWD 7u
#define OTHER (CROWD + 256u) /* in the same bucket of a hash */

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

/* One that is never through. */
static void count_again(void *user, uint32_t revents)
{
	(void)revents;
	calls[(struct mpib_poll_item *)user - items]++;
	mpib_poller_again(user);
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

static void turn(void)
{
	assert_int_equal(mpib_poller_turn(poller, false), 1);
}

/* However long the machine is at it. */
static void turn_until_done(void)
{
	while (mpib_poller_turn(poller, false) > 0)
		;
}

static void nothing_to_do(void)
{
	assert_int_equal(mpib_poller_turn(poller, false), 0);
}

static int set_up_with(void (*ready)(void *user, uint32_t revents))
{
	memset(items, 0, sizeof(items));
	memset(calls, 0, sizeof(calls));
	if (sd_event_new(&loop) < 0 || mpib_poller_new(loop, &poller) < 0)
		return -1;
	for (unsigned int n = 0; n < ITEMS; n++) {
		if (pipe(pipes[n]) < 0 || write(pipes[n][1], "x", 1) != 1 ||
		    mpib_poller_add(poller, n < ITEMS - 1 ? CROWD : OTHER, &items[n], pipes[n][0],
				    EPOLLIN, ready, &items[n]) < 0)
			return -1;
	}
	return 0;
}

static int set_up(void **state)
{
	(void)state;
	return set_up_with(count);
}

static int set_up_busy(void **state)
{
	(void)state;
	return set_up_with(count_again);
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

static void an_event_is_told_once(void **state)
{
	(void)state;
	turn_until_done();
	for (unsigned int n = 0; n < ITEMS; n++)
		assert_int_equal(calls[n], 1);
	assert_int_equal(write(pipes[3][1], "x", 1), 1);
	turn();
	assert_int_equal(calls[3], 2);
	assert_int_equal(sum(), ITEMS + 1);
}

/* However many of one user's are ready, and though each has more to do. */
static void all_get_their_turn(void **state)
{
	unsigned int least = 0;
	unsigned int most = 0;
	unsigned int turns = 0;

	(void)state;
	for (; !least && turns < 1000; turns++) {
		turn();
		least = UINT32_MAX;
		most = 0;
		for (unsigned int n = 0; n < ITEMS - 1; n++) {
			least = calls[n] < least ? calls[n] : least;
			most = calls[n] > most ? calls[n] : most;
		}
	}
	assert_true(least > 0);
	assert_true(most <= least + 1);
	/* the other user has nobody to wait for but the one before, who may end the turn */
	assert_true(2 * calls[ITEMS - 1] + 1 >= turns);
}

/* Also one whose event comes while the others have more to do than there are turns. */
static void a_new_event_waits_for_a_turn_of_each_user_at_most(void **state)
{
	(void)state;
	items[ITEMS - 1].ready = count;
	for (unsigned int n = 1; n <= 3; n++) {
		turn();
		if (calls[ITEMS - 1] < n)
			turn(); /* the other one's turn took all of that of the loop */
		assert_int_equal(calls[ITEMS - 1], n);
		assert_int_equal(write(pipes[ITEMS - 1][1], "x", 1), 1);
	}
}

static void what_is_to_be_done_again_is_not_forgotten_outside_of_a_turn(void **state)
{
	(void)state;
	turn_until_done();
	items[5].ready = count_again;
	mpib_poller_again(&items[5]);
	mpib_poller_again(&items[5]);
	turn();
	assert_true(calls[5] > 1);
	mpib_poller_remove(&items[5]);
	nothing_to_do();
}

static void what_was_removed_is_not_called_though_it_was_due(void **state)
{
	(void)state;
	turn();
	assert_int_equal(sum(), 1);
	nothing_to_do();
}

static void events_can_be_changed_and_ended_twice(void **state)
{
	(void)state;
	for (unsigned int n = 0; n < ITEMS; n++)
		assert_int_equal(mpib_poller_change(&items[n], 0), 0);
	nothing_to_do();
	assert_int_equal(mpib_poller_change(&items[7], EPOLLIN), 0);
	assert_int_equal(mpib_poller_change(&items[7], EPOLLIN), 0);
	turn();
	assert_int_equal(sum(), 1);
	assert_int_equal(calls[7], 1);
	mpib_poller_remove(&items[7]);
	mpib_poller_remove(&items[7]);
	nothing_to_do();
}

static int on_time(sd_event_source *source, uint64_t usec, void *user)
{
	(void)source;
	(void)usec;
	++*(unsigned int *)user;
	return 0;
}

static int on_defer(sd_event_source *source, void *user)
{
	(void)source;
	++*(unsigned int *)user;
	return 0;
}

/* A source that always has something to do, a timer, and clients that are never through. */
static void the_loop_gets_its_turn_and_gives_it_back(void **state)
{
	sd_event_source *defer = NULL;
	sd_event_source *timer = NULL;
	unsigned int fired = 0;
	unsigned int deferred = 0;

	(void)state;
	assert_true(sd_event_add_defer(loop, &defer, on_defer, &deferred) >= 0);
	assert_true(sd_event_source_set_enabled(defer, SD_EVENT_ON) >= 0);
	assert_true(sd_event_add_time_relative(loop, &timer, CLOCK_MONOTONIC, 1, 1, on_time,
					       &fired) >= 0);
	assert_true(sd_event_source_set_priority(timer, SD_EVENT_PRIORITY_IMPORTANT) >= 0);
	for (unsigned int n = 0; n < 5; n++) {
		unsigned int before = sum();

		turn();
		assert_true(sum() > before);
	}
	assert_int_equal(fired, 1);
	assert_int_equal(deferred, 4);
	(void)sd_event_source_unref(defer);
	(void)sd_event_source_unref(timer);
}

static void a_turn_waits_for_the_loop_as_well(void **state)
{
	sd_event_source *timer = NULL;
	unsigned int fired = 0;

	(void)state;
	assert_true(sd_event_add_time_relative(loop, &timer, CLOCK_MONOTONIC, 20000, 1, on_time,
					       &fired) >= 0);
	turn();
	while (!fired)
		assert_true(mpib_poller_turn(poller, true) >= 0);
	(void)sd_event_source_unref(timer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_event_is_told_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(all_get_their_turn, set_up_busy, tear_down),
		cmocka_unit_test_setup_teardown(a_new_event_waits_for_a_turn_of_each_user_at_most,
						set_up_busy, tear_down),
		cmocka_unit_test_setup_teardown(
			what_is_to_be_done_again_is_not_forgotten_outside_of_a_turn, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(what_was_removed_is_not_called_though_it_was_due,
						set_up_ending, tear_down),
		cmocka_unit_test_setup_teardown(events_can_be_changed_and_ended_twice, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(the_loop_gets_its_turn_and_gives_it_back,
						set_up_busy, tear_down),
		cmocka_unit_test_setup_teardown(a_turn_waits_for_the_loop_as_well, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
