/* SPDX-License-Identifier: Apache-2.0 */
/* A share that finds itself, on a modelled link: it gets there, follows, and keeps still. */
#include <math.h>

#include "common/macros.h"
#include "tests/unit/agent/flow_model.h"

static void it_finds_the_balance_from_equal_parts(void **state)
{
	static const double ratios[][2] = { { 1, 1 }, { 1, 2 }, { 1, 4 }, { 1, 8 }, { 8, 1 } };
	static const struct {
		double size;
		unsigned int window;
	} loads[] = { { 1 << 16, 1 },  { 1 << 16, 32 }, { 1 << 20, 1 },
		      { 1 << 20, 32 }, { 1 << 22, 4 },	{ 1 << 26, 2 } };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(ratios) * MPIB_ARRAY_SIZE(loads); k++) {
		const double *ratio = ratios[k % MPIB_ARRAY_SIZE(ratios)];
		size_t load = k / MPIB_ARRAY_SIZE(ratios);
		double sum = ratio[0] + ratio[1];
		/* 10 GB/s; a long message has to be through a few times */
		struct flow flow = make_flow(10000 * ratio[0] / sum, 10000 * ratio[1] / sum);
		double part;

		flow.link.latency = 0.01;
		flow.link.connection[0].size = loads[load].size;
		flow.link.connection[0].window = loads[load].window;
		ticks(&flow, 10);
		part = part_of_sum(&flow, 50);
		SHOULD(part >= 0.98, "%g:%g, messages of %g, window %u: share %u carries %.3f",
		       ratio[0], ratio[1], loads[load].size, loads[load].window, flow.balance.share,
		       part);
	}
}

static void it_keeps_still_where_it_is(void **state)
{
	struct flow flow = make_flow(500, 2000);
	double bytes, part;

	ticks(&flow, 20);
	bytes = link_bytes(&flow.link);
	/* A little to and fro, as the queues have it. */
	for (unsigned int n = 0; n < 1000; n++) {
		ticks(&flow, 1);
		assert_in_range(flow.balance.share, 819 - 13, 819 + 13);
	}
	part = (link_bytes(&flow.link) - bytes) / (1000 * TICK) / 2500;
	SHOULD(part >= 0.99, "share %u carries %.3f", flow.balance.share, part);
	assert_true(flow.balance.windows > 1000);
	assert_in_range(mpib_balance_rate(&flow.balance, 1) / 100000000, 18, 21);
}

static void a_step_is_followed_in_five_windows(void **state)
{
	/* 1:4 to 2:3, and back */
	struct flow flow = make_flow(500, 2000);
	double part;

	flow.link.noise = 0.05;
	ticks(&flow, 100);
	for (unsigned int n = 0; n < 2; n++) {
		flow.link.rate[0] = n ? 500 : 1000;
		flow.link.rate[1] = n ? 2000 : 1500;
		ticks(&flow, 5);
		assert_true(has_moved(&flow, MPIB_BALANCE_STEP));
		part = part_of_sum(&flow, 20);
		SHOULD(part >= 0.98, "share %u carries %.3f", flow.balance.share, part);
		ticks(&flow, 30);
	}
}

/* 10^6 looks at a noisy link, with a step now and then; with a sanitizer they take a minute. */
#if defined(__SANITIZE_ADDRESS__)
#define LOOKS 100000u
#else
#define LOOKS 1000000u
#endif

static void it_does_not_swing_in_many_windows(void **state)
{
	struct flow flow = make_flow(500, 2000);
	double lost = 0;
	uint64_t changes = 0;
	unsigned int sum_off = 0;

	flow.link.noise = 0.2;
	flow.link.connection[0].size = 8 << 20;
	flow.link.connection[0].window = 2;
	for (unsigned int n = 0; n < LOOKS; n++) {
		double right = flow.link.rate[1] / (flow.link.rate[0] + flow.link.rate[1]);
		double off;

		(void)tick(&flow);
		if (n % 10000 == 9999) {
			flow.link.rate[0] = 200 + 1800 * link_random(&flow.link);
			flow.link.rate[1] = 200 + 1800 * link_random(&flow.link);
		}
		if (n % 10000 < 100)
			continue;
		off = fabs(flow.balance.share / 1024.0 / right - 1);
		if (fabs((1 - flow.balance.share / 1024.0) / (1 - right) - 1) > off)
			off = fabs((1 - flow.balance.share / 1024.0) / (1 - right) - 1);
		lost += off;
		sum_off += off > 0.1;
		changes = flow.balance.changes;
	}
	/* On the average the smaller part is off by so much, and hardly ever by a tenth. */
	SHOULD(lost / LOOKS < 0.03, "off by %.4f on the average", lost / LOOKS);
	SHOULD(sum_off < LOOKS / 100, "%u windows were off by a tenth", sum_off);
	SHOULD(changes < LOOKS / 2, "%llu changes", (unsigned long long)changes);
	assert_int_equal(flow.lie, MPIB_BALANCE_TRUE);
}

/* What is too much for the slower one costs more. */
static void the_faster_rail_gets_a_little_more(void **state)
{
	static const struct {
		double rates[2];
		uint32_t least, most; /* 819, 205 and 512 are exact */
	} cases[] = { { { 500, 2000 }, 821, 828 },
		      { { 2000, 500 }, 196, 203 },
		      { { 1000, 1000 }, 509, 515 } };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		struct flow flow = make_flow(cases[k].rates[0], cases[k].rates[1]);

		ticks(&flow, 100);
		assert_in_range(flow.balance.share, cases[k].least, cases[k].most);
	}
}

static void several_connections_of_a_flow_settle(void **state)
{
	static const unsigned int windows[] = { 1, 2, 8 };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(windows); k++) {
		struct flow flow = make_flow(500, 4000);
		uint32_t least = 1024, most = 0;
		double bytes, part;

		flow.link.noise = 0.05;
		for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++)
			flow.link.connection[n] =
				(struct link_connection){ .size = (1 << 18) * (1 + n),
							  .window = windows[k] };
		ticks(&flow, 30);
		bytes = link_bytes(&flow.link);
		for (unsigned int n = 0; n < 1000; n++) {
			(void)tick(&flow);
			least = flow.balance.share < least ? flow.balance.share : least;
			most = flow.balance.share > most ? flow.balance.share : most;
		}
		part = (link_bytes(&flow.link) - bytes) / (1000 * TICK) / 4500;
		SHOULD(part >= 0.98, "window %u: shares about %u carry %.4f", windows[k],
		       flow.balance.share, part);
		/* 910 would be right. */
		SHOULD(least >= 895 && most <= 925, "window %u: %u to %u, %.4f", windows[k], least,
		       most, part);
	}
}

static void it_gives_way_to_another_flow_on_one_rail(void **state)
{
	struct flow flow = make_flow(1000, 1000);
	double before, part;

	ticks(&flow, 20);
	flow.others = 2;
	flow.link.connection[1] = (struct link_connection){
		.size = 1 << 20, .window = 4, .fixed = true, .share = 1024
	};
	ticks(&flow, 20);
	assert_true(flow.balance.share < 450);
	part = part_of_sum(&flow, 100);
	/* Equal times for its parts: the other one's queue is before both flows. */
	SHOULD(part >= 0.94, "both together: %.3f", part);
	flow.link.connection[1].window = 0;
	ticks(&flow, 10);
	before = link_bytes_of(&flow.link, 0);
	ticks(&flow, 50);
	part = (link_bytes_of(&flow.link, 0) - before) / (50 * TICK) / 2000;
	SHOULD(part >= 0.98, "alone again, share %u: %.3f", flow.balance.share, part);
}

/* Some parts are on the way there and back at any time, on both rails. */
static void where_no_rail_idles_the_queues_tell(void **state)
{
	static const double rates[][2] = { { 100, 400 }, { 400, 100 }, { 250, 250 } };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rates); k++) {
		struct flow flow = make_flow(rates[k][0], rates[k][1]);
		double part;

		flow.link.latency = 500;
		flow.link.noise = 0.05;
		flow.link.connection[0].size = 1 << 16;
		flow.link.connection[0].window = 32;
		ticks(&flow, 40);
		part = part_of_sum(&flow, 400);
		SHOULD(part >= 0.93, "%g:%g: share %u carries %.3f", rates[k][0], rates[k][1],
		       flow.balance.share, part);
	}
}

/* Neither rail is busy all the time where messages wait for the way there and back, and yet the one
 * that is done earlier has more to give. */
static void rails_that_both_idle_are_compared(void **state)
{
	static const double rates[][2] = { { 42, 168 }, { 168, 42 } };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rates); k++) {
		struct flow flow = make_flow(rates[k][0], rates[k][1]);
		double part;

		flow.link.latency = 300;
		flow.link.noise = 0.05;
		flow.link.connection[0].size = 1 << 18;
		flow.link.connection[0].window = 8;
		ticks(&flow, 10);
		part = part_of_sum(&flow, 50);
		SHOULD(part >= 0.9, "%g:%g: share %u carries %.3f", rates[k][0], rates[k][1],
		       flow.balance.share, part);
	}
}

/* A queue that is as long as a window of looks goes on growing while the share comes back: who
 * follows its length alone swings. */
static void long_queues_of_short_parts_do_not_swing(void **state)
{
	static const double rates[][2] = { { 42, 168 }, { 168, 42 }, { 84, 126 } };
	static const double latencies[] = { 5, 20, 100 };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rates) * MPIB_ARRAY_SIZE(latencies); k++) {
		const double *rate = rates[k % MPIB_ARRAY_SIZE(rates)];
		struct flow flow = make_flow(rate[0], rate[1]);
		double right = rate[1] / (rate[0] + rate[1]);
		double off = 0, part;

		flow.link.latency = latencies[k / MPIB_ARRAY_SIZE(rates)];
		flow.link.noise = 0.05;
		flow.link.connection[0].size = 1 << 16;
		flow.link.connection[0].window = 32;
		ticks(&flow, 10);
		part = part_of_sum(&flow, 50);
		SHOULD(part >= 0.98, "%g:%g, latency %g: share %u carries %.3f", rate[0], rate[1],
		       flow.link.latency, flow.balance.share, part);
		for (unsigned int n = 0; n < 400; n++) {
			ticks(&flow, 1);
			off += fabs(flow.balance.share / 1024.0 - right);
		}
		SHOULD(off / 400 < 0.02, "%g:%g, latency %g: shares are off by %.4f", rate[0],
		       rate[1], flow.link.latency, off / 400);
	}
}

/* 100 and 400 Gb/s: a message takes less time on the wire than on the way there and back. */
static void it_finds_the_balance_of_rails_that_are_fast(void **state)
{
	static const double rates[][2] = { { 12500, 50000 }, { 25000, 50000 }, { 50000, 12500 } };
	static const struct {
		double size;
		unsigned int window;
	} loads[] = { { 1 << 18, 8 }, { 1 << 18, 32 }, { 1 << 20, 4 }, { 1 << 20, 16 } };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rates) * MPIB_ARRAY_SIZE(loads); k++) {
		const double *rate = rates[k % MPIB_ARRAY_SIZE(rates)];
		size_t load = k / MPIB_ARRAY_SIZE(rates);
		struct flow flow = make_flow(rate[0], rate[1]);
		double part;

		flow.link.latency = 10;
		flow.link.noise = 0.05;
		flow.link.connection[0].size = loads[load].size;
		flow.link.connection[0].window = loads[load].window;
		ticks(&flow, 40);
		part = part_of_sum(&flow, 100);
		SHOULD(part >= 0.95, "%g:%g, messages of %g, window %u: share %u carries %.3f",
		       rate[0], rate[1], loads[load].size, loads[load].window, flow.balance.share,
		       part);
	}
}

/* A rail with one part at a time waits for the way there and back with each, and seems slower than
 * it is while messages wait for the other one. */
static void a_rail_that_has_room_is_not_taken_for_slow(void **state)
{
	static const double rates[][2] = { { 2.45, 7.35 }, { 7.35, 2.45 }, { 1.1, 8.7 } };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rates) * 2; k++) {
		const double *rate = rates[k / 2];
		struct flow flow = make_flow(rate[0], rate[1]);
		double part;

		flow.link.latency = 1000;
		flow.link.noise = k % 2 ? 0.05 : 0.2;
		flow.link.connection[0].size = 1 << 16;
		flow.link.connection[0].window = 8;
		ticks(&flow, 50);
		part = part_of_sum(&flow, 300);
		SHOULD(part >= 0.98, "%g:%g, noise %g: share %u carries %.3f", rate[0], rate[1],
		       flow.link.noise, flow.balance.share, part);
	}
}

/* Parts take longer than windows, and the times that connections tell are of other windows. By
 * chance one link or the other does badly for a while. */
static void several_connections_with_long_parts_settle(void **state)
{
	static const double rates[][2] = { { 52.5, 157.5 }, { 157.5, 52.5 }, { 105, 105 } };
	static const unsigned int links = 10;

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rates) * 2; k++) {
		const double *rate = rates[k / 2];
		double sum = 0, worst = 1;

		for (unsigned int n = 0; n < links; n++) {
			struct flow flow = make_flow(rate[0], rate[1]);
			double part;

			flow.link.latency = 100;
			flow.link.noise = 0.05;
			flow.link.random = 77777 * (n + 1);
			for (unsigned int c = 0; c < LINK_CONNECTIONS_MAX; c++)
				flow.link.connection[c] =
					(struct link_connection){ .size = 4 << 20,
								  .window = 2,
								  .qps = { 1 + k % 2, 1 + k % 2 } };
			ticks(&flow, 100);
			part = part_of_sum(&flow, 400);
			sum += part;
			worst = fmin(worst, part);
		}
		/* Parts of two queue pairs share a rail, and take twice as long. */
		SHOULD(sum / links >= (k % 2 ? 0.93 : 0.98) && worst >= (k % 2 ? 0.86 : 0.96),
		       "%g:%g, %zu queue pairs: %.3f, once %.3f", rate[0], rate[1], 1 + k % 2,
		       sum / links, worst);
	}
}

/* All channels of a collective begin a step at once, on both rails, and the next when all are
 * through: the rail with room idles for all of them together. */
static void steps_of_a_collective_find_the_balance(void **state)
{
	static const double rates[][2] = { { 500, 2000 }, { 2000, 500 } };
	static const struct link_connection loads[] = { { .size = 1 << 16, .window = 4 },
							{ .size = 1 << 18, .window = 4 },
							{ .size = 1 << 20, .window = 2 } };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(loads) * 4; k++) {
		const double *rate = rates[k % 2];
		struct flow told = make_flow(rate[0], rate[1]), flow;
		double best, early, then;

		told.link.latency = 20;
		told.link.noise = 0.05;
		told.link.in_step = true;
		told.link.pause = k / 2 % 2 ? 200 : 0;
		for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++)
			told.link.connection[n] = loads[k / 4];
		flow = told;
		for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++) {
			told.link.connection[n].fixed = true;
			told.link.connection[n].share = k % 2 ? 205 : 819;
		}
		best = part_of_sum(&told, 100);
		ticks(&flow, 15);
		early = part_of_sum(&flow, 15) / best;
		then = part_of_sum(&flow, 30) / best;
		SHOULD(early >= 0.93 && then >= 0.97,
		       "%g:%g, messages of %g, pause %g: share %u carries %.3f and %.3f of it",
		       rate[0], rate[1], loads[k / 4].size, told.link.pause, flow.balance.share,
		       early, then);
	}
}

/* A part's way there and back takes as long as its time on the rail, or longer: both rails are busy
 * all the time then, and their rates follow the share. The queues tell. */
static void a_long_way_hides_no_balance(void **state)
{
	static const struct {
		double rates[2], latency;
		struct link_connection load;
		double early, then; /* of what the right share carries */
	} cases[] = {
		{ { 160, 40 }, 1000, { .size = 1 << 16, .window = 4 }, 0.68, 0.95 },
		{ { 22, 178 }, 1000, { .size = 1 << 16, .window = 32 }, 0.85, 0.98 },
		{ { 2000, 500 }, 100, { .size = 1 << 18, .window = 2 }, 0.7, 0.93 },
		{ { 278, 2222 }, 1000, { .size = 1 << 18, .window = 32 }, 0.85, 0.98 },
		{ { 2222, 278 }, 1000, { .size = 1 << 20, .window = 32 }, 0.85, 0.98 },
	};

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(cases); k++) {
		const double *rates = cases[k].rates;
		struct flow told = make_flow(rates[0], rates[1]), flow;
		double best, early, then;

		told.link.latency = cases[k].latency;
		told.link.noise = 0.05;
		told.link.connection[0] = cases[k].load;
		flow = told;
		told.link.connection[0].fixed = true;
		told.link.connection[0].share = (uint32_t)(1024 * rates[1] / (rates[0] + rates[1]));
		best = part_of_sum(&told, 150);
		ticks(&flow, 10);
		early = part_of_sum(&flow, 50) / best;
		then = part_of_sum(&flow, 150) / best;
		SHOULD(early >= cases[k].early && then >= cases[k].then,
		       "%g:%g, messages of %g, window %u: share %u carries %.3f and %.3f of it",
		       rates[0], rates[1], cases[k].load.size, cases[k].load.window,
		       flow.balance.share, early, then);
	}
}

/* What the first messages wait for can be told before it is done. */
static void the_first_messages_are_not_waited_for(void **state)
{
	static const double rates[][2] = { { 178, 22 }, { 22, 178 }, { 40, 160 } };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rates); k++) {
		const double *rate = rates[k];
		struct flow flow = make_flow(rate[0], rate[1]);
		double part;

		flow.link.connection[0].qps[0] = 2;
		flow.link.connection[0].qps[1] = 4;
		ticks(&flow, 10);
		part = part_of_sum(&flow, 20);
		SHOULD(part >= 0.75, "%g:%g: share %u carries %.3f", rate[0], rate[1],
		       flow.balance.share, part);
	}
}

/* A rail stands still for two looks, again and again. */
static void one_window_that_is_far_off_moves_little(void **state)
{
	struct flow flow = make_flow(500, 2000);
	double off = 0;

	flow.link.noise = 0.05;
	ticks(&flow, 50);
	for (unsigned int n = 0; n < 400; n++) {
		const unsigned int rail = n / 40 % 2;

		flow.link.rate[rail] = (rail ? 2000 : 500) * (n % 40 < 1 ? 0.001 : 1);
		ticks(&flow, 1);
		flow.link.rate[rail] = rail ? 2000 : 500;
		off += fabs(flow.balance.share - 819.0);
	}
	SHOULD(off / 400 < 16, "off by %.1f on the average", off / 400);
}

/* What was posted at equal parts waits for SUP for long, and says nothing of the share by then. */
static void the_queue_of_long_parts_is_no_reason(void **state)
{
	struct flow flow = make_flow(178, 22);

	flow.link.latency = 20;
	flow.link.noise = 0.05;
	ticks(&flow, 15);
	for (unsigned int n = 0; n < 100; n++) {
		ticks(&flow, 1);
		assert_in_range(flow.balance.share, 94, 130);
	}
}

/* The rail that idled then seems as fast as one likes. */
static void it_is_not_misled_by_rails_that_make_up_for_idle_time(void **state)
{
	static const double rates[][2] = { { 100, 100 }, { 40, 160 }, { 22, 178 } };
	static const struct {
		double size;
		unsigned int window;
	} loads[] = { { 1 << 16, 1 }, { 1 << 16, 2 }, { 1 << 18, 1 }, { 1 << 18, 4 } };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rates) * MPIB_ARRAY_SIZE(loads); k++) {
		const double *rate = rates[k % MPIB_ARRAY_SIZE(rates)];
		size_t load = k / MPIB_ARRAY_SIZE(rates);
		struct flow flow = make_flow(rate[0], rate[1]);
		double part;

		flow.link.latency = 20;
		flow.link.noise = 0.05;
		flow.link.credit = 10000;
		flow.link.connection[0].size = loads[load].size;
		flow.link.connection[0].window = loads[load].window;
		ticks(&flow, 20);
		part = part_of_sum(&flow, 200);
		SHOULD(part >= 0.95, "%g:%g, messages of %g, window %u: share %u carries %.3f",
		       rate[0], rate[1], loads[load].size, loads[load].window, flow.balance.share,
		       part);
	}
}

static void two_flows_that_find_theirs_fill_both_rails(void **state)
{
	struct flow one = make_flow(500, 2000);
	struct flow other = one;
	double bytes = 0;

	other.balance.share = 100;
	/* Both on the link of `one`: the other's connection is its number 1. */
	one.link.connection[1] = one.link.connection[0];
	one.link.connection[1].fixed = true;
	one.others = 2;
	for (unsigned int n = 0; n < 1000; n++) {
		struct mpib_balance_look look = { .usec = (uint64_t)TICK };

		one.link.connection[1].share = other.balance.share;
		(void)tick(&one);
		one.link.connection[1].counts.timed = 1;
		(void)mpib_balance_see(&other.seen[1], &one.link.connection[1].counts,
				       (uint64_t)one.link.now, &look);
		(void)mpib_balance_step(&other.balance, &other.limits, &look, 0,
					(uint64_t)one.link.now);
		if (n == 99)
			bytes = link_bytes(&one.link);
	}
	bytes = (link_bytes(&one.link) - bytes) / (900 * TICK) / 2500;
	SHOULD(bytes >= 0.98, "shares %u and %u carry %.3f", one.balance.share, other.balance.share,
	       bytes);
}

static void a_lost_rail_is_no_measure_and_its_return_is_a_step(void **state)
{
	struct flow flow = make_flow(500, 2000);
	uint32_t share;
	uint64_t windows;

	ticks(&flow, 100);
	share = flow.balance.share;
	windows = flow.balance.windows;
	flow.link.lost = 2;
	ticks(&flow, 200);
	assert_int_equal(flow.balance.share, share);
	assert_int_equal(flow.balance.windows, windows);

	/* It comes back with another speed. */
	flow.link.lost = 0;
	flow.link.rate[1] = 1000;
	ticks(&flow, 5);
	/* Where the first window was of before, by a step. */
	assert_true(has_moved(&flow, MPIB_BALANCE_RETURN) || has_moved(&flow, MPIB_BALANCE_STEP));
	assert_in_range(flow.balance.share, 670, 695);
}

static void a_rail_that_stands_still_moves_nothing(void **state)
{
	struct flow flow = make_flow(500, 2000);
	uint32_t share;

	ticks(&flow, 50);
	flow.link.rate[1] = 1e-9;
	ticks(&flow, 2); /* what was under way */
	share = flow.balance.share;
	ticks(&flow, 500);
	assert_int_equal(flow.balance.share, share);
}

static void what_is_bound_by_latency_says_nothing(void **state)
{
	struct flow flow = make_flow(500, 2000);

	/* 8 bytes go whole on the rail of the larger part, one at a time. */
	flow.link.latency = 20;
	flow.link.connection[0].size = 8;
	flow.link.connection[0].window = 1;
	ticks(&flow, 1000);
	assert_int_equal(flow.balance.share, 512);
	assert_int_equal(flow.balance.windows, 0);

	/* 256 bytes are divided, and a second of them is not a window. */
	flow.link.latency = 4000;
	flow.link.connection[0].size = 256;
	ticks(&flow, 1000);
	assert_int_equal(flow.balance.share, 512);
	assert_int_equal(flow.balance.windows, 0);
	assert_true(flow.balance.unused >= 5);
}

static void small_changes_are_not_written(void **state)
{
	struct flow flow = make_flow(1000, 1000);
	struct mpib_balance_look look = { .usec = 10000,
					  .busy_nsec = { 10000000, 10000000 },
					  .busy_most_nsec = { 10000000, 10000000 } };

	look.bytes[0] = 10000000;
	look.bytes[1] = 10100000; /* 515 of 1024 */
	for (unsigned int n = 0; n < 100; n++)
		assert_int_equal(mpib_balance_step(&flow.balance, &flow.limits, &look, 0, 1),
				 MPIB_BALANCE_NOTHING);
	look.bytes[1] = 10500000; /* 524 */
	assert_int_equal(mpib_balance_step(&flow.balance, &flow.limits, &look, 0, 1),
			 MPIB_BALANCE_NOTHING);
	for (unsigned int n = 0; n < 100; n++)
		(void)mpib_balance_step(&flow.balance, &flow.limits, &look, 0, 1);
	assert_int_equal(flow.balance.moves[0].reason, MPIB_BALANCE_AVERAGE);
	assert_in_range(flow.balance.share, 517, 525);
	assert_int_equal(flow.balance.changes, 1);
}

static void everything_has_a_text(void **state)
{
	for (unsigned int n = 0; n < MPIB_BALANCE_STATE_MAX; n++)
		assert_string_not_equal(mpib_balance_state_text((enum mpib_balance_state)n),
					"unknown");
	for (unsigned int n = 0; n < MPIB_BALANCE_REASON_MAX; n++)
		assert_string_not_equal(mpib_balance_reason_text((enum mpib_balance_reason)n),
					"unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_finds_the_balance_from_equal_parts),
		cmocka_unit_test(it_keeps_still_where_it_is),
		cmocka_unit_test(a_step_is_followed_in_five_windows),
		cmocka_unit_test(it_does_not_swing_in_many_windows),
		cmocka_unit_test(the_faster_rail_gets_a_little_more),
		cmocka_unit_test(several_connections_of_a_flow_settle),
		cmocka_unit_test(it_gives_way_to_another_flow_on_one_rail),
		cmocka_unit_test(where_no_rail_idles_the_queues_tell),
		cmocka_unit_test(rails_that_both_idle_are_compared),
		cmocka_unit_test(long_queues_of_short_parts_do_not_swing),
		cmocka_unit_test(it_finds_the_balance_of_rails_that_are_fast),
		cmocka_unit_test(a_rail_that_has_room_is_not_taken_for_slow),
		cmocka_unit_test(several_connections_with_long_parts_settle),
		cmocka_unit_test(steps_of_a_collective_find_the_balance),
		cmocka_unit_test(a_long_way_hides_no_balance),
		cmocka_unit_test(the_first_messages_are_not_waited_for),
		cmocka_unit_test(one_window_that_is_far_off_moves_little),
		cmocka_unit_test(the_queue_of_long_parts_is_no_reason),
		cmocka_unit_test(it_is_not_misled_by_rails_that_make_up_for_idle_time),
		cmocka_unit_test(two_flows_that_find_theirs_fill_both_rails),
		cmocka_unit_test(a_lost_rail_is_no_measure_and_its_return_is_a_step),
		cmocka_unit_test(a_rail_that_stands_still_moves_nothing),
		cmocka_unit_test(what_is_bound_by_latency_says_nothing),
		cmocka_unit_test(small_changes_are_not_written),
		cmocka_unit_test(everything_has_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
