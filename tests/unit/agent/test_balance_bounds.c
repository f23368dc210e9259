/* SPDX-License-Identifier: Apache-2.0 */
/* A share that finds itself within bounds, and numbers that stay numbers. */
#include "common/macros.h"
#include "tests/unit/agent/flow_model.h"

/* A bound that keeps a rail from its part is no reason to take it for faster and faster. */
static void a_rail_at_a_bound_is_not_taken_for_faster(void **state)
{
	struct flow flow = make_flow(500, 2000);

	flow.limits.most = 600;
	ticks(&flow, 500);
	assert_int_equal(flow.balance.share, 600);
	assert_in_range(mpib_balance_rate(&flow.balance, 1) / 100000000, 18, 21);
	flow.limits.most = 993;
	ticks(&flow, 3);
	assert_in_range(flow.balance.share, 800, 840);
}

/* Nor is it where the share stands just within the bound, as what is missing isn't worth a change.
 */
static void no_rate_runs_away_just_within_a_bound(void **state)
{
	/* Messages wait for SOUT, and for SUP. */
	static const struct mpib_balance_limits limits[] = {
		{ .least = 102, .most = 600, .settle_usec = 100000 },
		{ .least = 424, .most = 922, .settle_usec = 100000 },
	};
	static const uint32_t shares[] = { 596, 428 };

	for (unsigned int waited_for = 0; waited_for < 2; waited_for++) {
		struct mpib_balance balance = { .share = shares[waited_for] };
		struct mpib_balance_look look = { .usec = 10000,
						  .busy_nsec = { 10000000, 10000000 },
						  .busy_most_nsec = { 10000000, 10000000 },
						  .connections = 1,
						  .done = { 10, 10 } };

		look.bytes[waited_for] = 10000000;
		look.bytes[!waited_for] = 14000000;
		look.queued[waited_for] = 9;
		look.queued[!waited_for] = 1;
		for (unsigned int n = 0; n < 30000; n++)
			(void)mpib_balance_step(&balance, &limits[waited_for], &look, 0, 1);
		assert_in_range(balance.share, waited_for ? 424 : 596, waited_for ? 428 : 600);
		assert_in_range(mpib_balance_rate(&balance, !waited_for) / 1000000, 1390, 1600);
		assert_in_range(mpib_balance_rate(&balance, waited_for) / 1000000, 990, 1010);
	}
}

/* The queues say now one and now the other: each rail in turn has room, and is no slower then. */
static void no_rates_run_away_together(void **state)
{
	const struct mpib_balance_limits slow = { .least = 31,
						  .most = 993,
						  .settle_usec = 1000000 };
	struct mpib_balance balance = { .share = 512 };
	struct mpib_balance_look look = { .usec = 10000,
					  .bytes = { 10000000, 10000000 },
					  .busy_nsec = { 10000000, 10000000 },
					  .busy_most_nsec = { 10000000, 10000000 },
					  .connections = 1,
					  .done = { 10, 10 } };

	for (unsigned int n = 0; n < 100000; n++) {
		look.queued[n % 2] = 9;
		look.queued[!(n % 2)] = 1;
		(void)mpib_balance_step(&balance, &slow, &look, 0, 1);
	}
	/* The queues don't answer to the share, so it may be any. */
	assert_in_range(balance.share, 31, 993);
	assert_in_range(mpib_balance_rate(&balance, 0) / 1000000, 900, 1000000);
	assert_in_range(mpib_balance_rate(&balance, 1) / 1000000, 900, 1000000);
}

/* Where the limits allow it to give one rail nothing, it finds back all the same. */
static void no_rail_is_left_without_a_part(void **state)
{
	static const double rates[][2] = { { 2000, 7 }, { 7, 2000 } };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rates); k++) {
		struct flow flow = make_flow(rates[k][0], rates[k][1]);

		flow.link.latency = 20;
		flow.link.connection[0] = (struct link_connection){ .size = 1 << 18, .window = 32 };
		flow.limits = (struct mpib_balance_limits){ 0, 1024, 100000 };
		ticks(&flow, 300);
		assert_in_range(flow.balance.share, k ? 1000 : 8, k ? 1016 : 24);
		flow.link.rate[0] = flow.link.rate[1] = 1000;
		ticks(&flow, 300);
		assert_in_range(flow.balance.share, 450, 574);
	}
}

/* As an older agent may have left it. */
static void a_share_at_an_end_comes_back_from_there(void **state)
{
	for (unsigned int k = 0; k < 2; k++) {
		struct flow flow = make_flow(1000, 1000);

		flow.limits = (struct mpib_balance_limits){ 0, 1024, 100000 };
		flow.balance.share = k ? 1024 : 0;
		assert_int_equal(tick(&flow), MPIB_BALANCE_BOUNDS);
		assert_int_equal(flow.balance.share, k ? 1016 : 8);
		ticks(&flow, 300);
		assert_in_range(flow.balance.share, 500, 524);

		/* Who gives one rail nothing and leaves no other choice gets that. */
		flow.limits.least = flow.limits.most = k ? 1024 : 0;
		ticks(&flow, 1);
		assert_int_equal(flow.balance.share, k ? 1024 : 0);
		ticks(&flow, 10);
		assert_int_equal(flow.balance.share, k ? 1024 : 0);
	}
}

static void a_speed_that_cannot_be_is_a_number(void **state)
{
	struct flow flow = make_flow(1000, 1000);
	const struct mpib_balance_look look = { .usec = 10000,
						.bytes = { 1ull << 60, 1ull << 60 },
						.busy_nsec = { 1, 1 },
						.busy_most_nsec = { 1, 1 },
						.connections = 1,
						.done = { 1, 1 } };

	(void)mpib_balance_step(&flow.balance, &flow.limits, &look, 0, 1);
	assert_int_equal(mpib_balance_rate(&flow.balance, 0), 1000000000000000000u);
}

static void it_stays_within_its_bounds(void **state)
{
	struct flow flow = make_flow(100, 10000);

	flow.link.latency = 0.01;
	ticks(&flow, 50);
	assert_int_equal(flow.balance.share, 993);
	flow.limits = (struct mpib_balance_limits){ 102, 307, 100000 };
	assert_int_equal(mpib_balance_put(&flow.balance, &flow.limits, flow.balance.share,
					  MPIB_BALANCE_BOUNDS, 1),
			 MPIB_BALANCE_BOUNDS);
	assert_int_equal(flow.balance.share, 307);
	ticks(&flow, 50);
	assert_int_equal(flow.balance.share, 307);
	flow.link.rate[0] = 100000;
	ticks(&flow, 50);
	assert_int_equal(flow.balance.share, 102);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rail_at_a_bound_is_not_taken_for_faster),
		cmocka_unit_test(no_rate_runs_away_just_within_a_bound),
		cmocka_unit_test(no_rates_run_away_together),
		cmocka_unit_test(no_rail_is_left_without_a_part),
		cmocka_unit_test(a_share_at_an_end_comes_back_from_there),
		cmocka_unit_test(a_speed_that_cannot_be_is_a_number),
		cmocka_unit_test(it_stays_within_its_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
