/* SPDX-License-Identifier: Apache-2.0 */
/* One ring of events and its readers: each gets all in order, and who is overtaken how many it
 * missed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/admin/event_ring.h"
#include "tests/unit/agent/test.h"

static struct mpib_event_ring ring;

static int set_up(void **state)
{
	(void)state;
	memset(&ring, 0, sizeof(ring));
	return mpib_event_ring_open(&ring);
}

static int tear_down(void **state)
{
	(void)state;
	mpib_event_ring_close(&ring);
	return 0;
}

static void put(unsigned int count)
{
	while (count--) {
		uint64_t number = ring.end;
		char text[32];

		(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
		mpib_event_fill(mpib_event_ring_add(&ring), 6, "test", text);
	}
}

static void expect_numbers(const struct mpib_admin_event *records, size_t count, uint64_t first)
{
	for (size_t n = 0; n < count; n++) {
		assert_string_equal(records[n].name, "test");
		assert_int_equal(strtoull(records[n].text, NULL, 10), first + n);
	}
}

static void readers_get_all_each_at_its_own_pace(void **state)
{
	struct mpib_admin_event records[7];
	uint64_t fast = 0;
	uint64_t slow = 0;

	(void)state;
	for (unsigned int n = 0; n < 3 * MPIB_EVENT_RING_SIZE; n++) {
		put(1);
		assert_int_equal(mpib_event_ring_take(&ring, &fast, records, 7), 1);
		expect_numbers(records, 1, n);
		if (n % 7 != 6)
			continue;
		assert_int_equal(mpib_event_ring_take(&ring, &slow, records, 7), 7);
		expect_numbers(records, 7, n - 6);
	}
	assert_int_equal(mpib_event_ring_take(&ring, &fast, records, 7), 0);
	assert_int_equal(ring.n_missed, 0);
}

static void a_full_ring_misses_nothing_and_one_more_event_misses_one(void **state)
{
	struct mpib_admin_event records[3];
	uint64_t a = 0;
	uint64_t b = 0;

	(void)state;
	put(MPIB_EVENT_RING_SIZE);
	assert_int_equal(mpib_event_ring_take(&ring, &a, records, 2), 2);
	expect_numbers(records, 2, 0);

	put(1);
	assert_int_equal(mpib_event_ring_take(&ring, &a, records, 2), 2);
	expect_numbers(records, 2, 2);
	assert_int_equal(mpib_event_ring_take(&ring, &b, records, 3), 3);
	assert_string_equal(records[0].name, "missed");
	assert_non_null(strstr(records[0].text, "1 events missed"));
	assert_int_equal(records[0].priority, 4);
	expect_numbers(records + 1, 2, 1);
	assert_int_equal(ring.n_missed, 1);
}

/* Overtaken again and again, by more than the ring holds: what it got and what it missed is all. */
static void what_comes_and_what_is_missed_is_all(void **state)
{
	struct mpib_admin_event records[7];
	uint64_t cursor = 0;
	uint64_t got = 0;
	uint64_t missed = 0;

	(void)state;
	for (unsigned int round = 0; round < 50; round++) {
		put(round * 97);
		for (unsigned int n = 0; n < 20; n++) {
			size_t count = mpib_event_ring_take(&ring, &cursor, records, 7);

			for (size_t k = 0; k < count; k++) {
				if (strcmp(records[k].name, "missed") == 0)
					missed += strtoull(records[k].text, NULL, 10);
				else
					assert_int_equal(strtoull(records[k].text, NULL, 10),
							 missed + got++);
			}
		}
	}
	while (mpib_event_ring_take(&ring, &cursor, records, 1)) {
		if (strcmp(records[0].name, "missed") == 0)
			missed += strtoull(records[0].text, NULL, 10);
		else
			got++;
	}
	assert_int_equal(got + missed, ring.end);
	assert_true(missed > 0);
	assert_int_equal(ring.n_missed, missed);
}

static void a_ring_that_opens_again_has_nothing_of_before(void **state)
{
	struct mpib_admin_event records[2];
	uint64_t cursor;

	(void)state;
	put(5);
	mpib_event_ring_close(&ring);
	assert_int_equal(mpib_event_ring_open(&ring), 0);
	cursor = ring.end;
	put(1);
	assert_int_equal(mpib_event_ring_take(&ring, &cursor, records, 2), 1);
	expect_numbers(records, 1, 5);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(readers_get_all_each_at_its_own_pace),
		T(a_full_ring_misses_nothing_and_one_more_event_misses_one),
		T(what_comes_and_what_is_missed_is_all),
		T(a_ring_that_opens_again_has_nothing_of_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
