/* SPDX-License-Identifier: Apache-2.0 */
/* A share that finds itself, on a modelled link: it gets there, follows, keeps still, and believes
 * nothing that can't be. */
#include "agent/policy/balance.h"

#include <math.h>

#include "common/macros.h"
#include "tests/unit/agent/link_model.h"
#include "tests/unit/agent/test.h"

#define TICK 10000.0 /* microseconds between looks */

static const struct mpib_balance_limits wide = { .least = 31, .most = 993, .settle_usec = 100000 };

/* A flow on a link, and how it goes about its share. */
struct flow {
	struct link link;
	struct mpib_balance balance;
	struct mpib_balance_limits limits;
	struct mpib_balance_seen seen[LINK_CONNECTIONS_MAX];
	unsigned int others; /* bits of connections that are another flow's */
	enum mpib_balance_lie lie;
	unsigned int told; /* lies */
	unsigned int n;	   /* looks */
	/* What becomes of connection 0's counters on the way to the @n-th look. */
	void (*alter)(struct mpib_balance_counts *counts, unsigned int n);
};

static struct flow make_flow(double sout, double sup)
{
	struct flow flow = {
		.link = { .rate = { sout, sup }, .latency = 5, .random = 20251129 },
		.balance = { .share = 512 },
		.limits = wide,
	};

	flow.link.connection[0] = (struct link_connection){ .size = 1 << 20, .window = 4 };
	return flow;
}

/* One look, and the decision. */
static enum mpib_balance_reason tick(struct flow *flow)
{
	struct mpib_balance_look look = { .usec = (uint64_t)TICK };

	link_run(&flow->link, flow->balance.share, TICK);
	for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++) {
		struct mpib_balance_counts counts = flow->link.connection[n].counts;
		enum mpib_balance_lie lie;

		if (flow->others & 1u << n)
			continue;
		counts.timed = 1;
		if (n == 0 && flow->alter)
			flow->alter(&counts, flow->n);
		lie = mpib_balance_see(&flow->seen[n], &counts, (uint64_t)flow->link.now, &look);
		if (lie)
			flow->lie = lie;
		flow->told += lie != MPIB_BALANCE_TRUE;
	}
	flow->n++;
	return mpib_balance_step(&flow->balance, &flow->limits, &look, flow->link.lost,
				 (uint64_t)flow->link.now);
}

static void ticks(struct flow *flow, unsigned int n)
{
	while (n--)
		(void)tick(flow);
}

/* What @n ticks from now on carry, as a part of what both rails can. */
static double part_of_sum(struct flow *flow, unsigned int n)
{
	double before = link_bytes(&flow->link);

	ticks(flow, n);
	return (link_bytes(&flow->link) - before) / (n * TICK) /
	       (flow->link.rate[0] + flow->link.rate[1]);
}

#define SHOULD(condition, ...)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail_msg(__VA_ARGS__);                                                     \
	} while (0)

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

/* One of the latest changes was for @reason. */
static bool has_moved(const struct flow *flow, enum mpib_balance_reason reason)
{
	for (unsigned int n = 0; n < MPIB_BALANCE_MOVES; n++)
		if (flow->balance.moves[n].usec && flow->balance.moves[n].reason == reason)
			return true;
	return false;
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

/* Parts take longer than windows, and the times that connections tell are of other windows. */
static void several_connections_with_long_parts_settle(void **state)
{
	static const double rates[][2] = { { 52.5, 157.5 }, { 157.5, 52.5 }, { 105, 105 } };

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rates) * 2; k++) {
		const double *rate = rates[k / 2];
		struct flow flow = make_flow(rate[0], rate[1]);
		double part;

		flow.link.latency = 100;
		flow.link.noise = 0.05;
		for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++)
			flow.link.connection[n] = (struct link_connection){
				.size = 4 << 20, .window = 2, .qps = { 1 + k % 2, 1 + k % 2 }
			};
		ticks(&flow, 100);
		part = part_of_sum(&flow, 400);
		SHOULD(part >= 0.93, "%g:%g, %zu queue pairs: share %u carries %.3f", rate[0],
		       rate[1], 1 + k % 2, flow.balance.share, part);
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

/* Nor is it where the share stands just below the bound, as what is missing isn't worth a change.
 */
static void no_rate_runs_away_just_below_a_bound(void **state)
{
	struct mpib_balance balance = { .share = 596 };
	const struct mpib_balance_limits limits = { .least = 102,
						    .most = 600,
						    .settle_usec = 100000 };
	/* Messages wait for SOUT. */
	const struct mpib_balance_look look = { .usec = 10000,
						.bytes = { 10000000, 14000000 },
						.busy_nsec = { 10000000, 10000000 },
						.busy_most_nsec = { 10000000, 10000000 },
						.connections = 1,
						.queued = { 9, 1 },
						.done = { 10, 10 } };

	for (unsigned int n = 0; n < 30000; n++)
		(void)mpib_balance_step(&balance, &limits, &look, 0, 1);
	assert_in_range(balance.share, 596, 600);
	assert_in_range(mpib_balance_rate(&balance, 1) / 1000000, 1390, 1600);
	assert_in_range(mpib_balance_rate(&balance, 0) / 1000000, 990, 1010);
}

/* The same of SOUT, just above the least share. */
static void no_rate_runs_away_just_above_a_bound(void **state)
{
	struct mpib_balance balance = { .share = 428 };
	const struct mpib_balance_limits limits = { .least = 424,
						    .most = 922,
						    .settle_usec = 100000 };
	const struct mpib_balance_look look = { .usec = 10000,
						.bytes = { 14000000, 10000000 },
						.busy_nsec = { 10000000, 10000000 },
						.busy_most_nsec = { 10000000, 10000000 },
						.connections = 1,
						.queued = { 1, 9 },
						.done = { 10, 10 } };

	for (unsigned int n = 0; n < 30000; n++)
		(void)mpib_balance_step(&balance, &limits, &look, 0, 1);
	assert_in_range(balance.share, 424, 428);
	assert_in_range(mpib_balance_rate(&balance, 0) / 1000000, 1390, 1600);
	assert_in_range(mpib_balance_rate(&balance, 1) / 1000000, 990, 1010);
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
		assert_in_range(flow.balance.share, 100, 125);
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
		(void)mpib_balance_step(&other.balance, &wide, &look, 0, (uint64_t)one.link.now);
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

static void small_changes_are_not_written(void **state)
{
	struct flow flow = make_flow(1000, 1000);
	struct mpib_balance_look look = { .usec = 10000,
					  .busy_nsec = { 10000000, 10000000 },
					  .busy_most_nsec = { 10000000, 10000000 } };

	look.bytes[0] = 10000000;
	look.bytes[1] = 10100000; /* 515 of 1024 */
	for (unsigned int n = 0; n < 100; n++)
		assert_int_equal(mpib_balance_step(&flow.balance, &wide, &look, 0, 1),
				 MPIB_BALANCE_NOTHING);
	look.bytes[1] = 10500000; /* 524 */
	assert_int_equal(mpib_balance_step(&flow.balance, &wide, &look, 0, 1),
			 MPIB_BALANCE_NOTHING);
	for (unsigned int n = 0; n < 100; n++)
		(void)mpib_balance_step(&flow.balance, &wide, &look, 0, 1);
	assert_int_equal(flow.balance.moves[0].reason, MPIB_BALANCE_AVERAGE);
	assert_in_range(flow.balance.share, 517, 525);
	assert_int_equal(flow.balance.changes, 1);
}

/* ---- counters that lie ---------------------------------------------------------------------- */

/* Each grows with each look. */
static void jump_back_done(struct mpib_balance_counts *counts, unsigned int n)
{
	counts->done[1] -= n * 1000;
}

static void jump_back_posts(struct mpib_balance_counts *counts, unsigned int n)
{
	counts->posts[1] -= n * 1000;
}

static void jump_back_bytes(struct mpib_balance_counts *counts, unsigned int n)
{
	counts->bytes[1] -= n * 1000000000ull;
}

static void jump_back_busy(struct mpib_balance_counts *counts, unsigned int n)
{
	counts->busy_nsec[1] -= n * 1000000000ull;
}

static void complete_too_many(struct mpib_balance_counts *counts, unsigned int n)
{
	counts->done[1] += n * 1000;
}

static void be_too_busy(struct mpib_balance_counts *counts, unsigned int n)
{
	counts->busy_nsec[1] += n * 3000000000ull;
}

static void take_no_time(struct mpib_balance_counts *counts, unsigned int n)
{
	(void)n;
	counts->busy_nsec[1] = 0;
	counts->under_way[1] = true;
}

static void counters_that_cannot_be_change_nothing_and_are_told_once(void **state)
{
	static const struct {
		enum mpib_balance_lie lie;
		void (*alter)(struct mpib_balance_counts *counts, unsigned int n);
	} lies[] = {
		{ MPIB_BALANCE_BACK, jump_back_done },
		{ MPIB_BALANCE_BACK, jump_back_posts },
		{ MPIB_BALANCE_BACK, jump_back_bytes },
		{ MPIB_BALANCE_BACK, jump_back_busy },
		{ MPIB_BALANCE_TOO_MANY, complete_too_many },
		{ MPIB_BALANCE_TOO_BUSY, be_too_busy },
		{ MPIB_BALANCE_NO_TIME, take_no_time },
	};

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(lies); k++) {
		struct flow flow = make_flow(500, 2000);
		uint32_t share;

		/* It has counted for long, so that there is something to jump back from. */
		flow.link.connection[0].counts.bytes[1] = 10000000000000;
		flow.link.connection[0].busy[1] = 10000000000;
		ticks(&flow, 50);
		share = flow.balance.share;
		flow.alter = lies[k].alter;
		flow.link.rate[1] = 500;
		ticks(&flow, 500);
		SHOULD(flow.balance.share == share, "lie %zu: %u to %u", k, share,
		       flow.balance.share);
		SHOULD(flow.lie == lies[k].lie, "lie %zu: %s", k, mpib_balance_lie_text(flow.lie));
		assert_int_equal(flow.told, 1);

		/* Who tells the truth again is believed again, after a while. */
		flow.alter = NULL;
		ticks(&flow, 100);
		assert_int_equal(flow.balance.share, share);
		ticks(&flow, 400);
		SHOULD(flow.balance.share > 490 && flow.balance.share < 535, "lie %zu: %u", k,
		       flow.balance.share);
		flow.alter = lies[k].alter;
		ticks(&flow, 500);
		assert_int_equal(flow.told, 1);
	}
}

/* ---- counters of honest processes that look like lies ---------------------------------------- */

/* Numbers of one moment are read one after the other while they are written, or their writer has no
 * processor between two of them: one look in ten has some of before, or some that are too high. */
static void tear(struct mpib_balance_counts *counts, unsigned int n)
{
	const unsigned int rail = n / 10 % 2;

	if (n % 10)
		return;
	switch (n / 20 % 6) {
	case 0:
		counts->posts[rail] += 7;
		break;
	case 1:
		counts->posts[rail] = counts->done[rail] - 7;
		break;
	case 2:
		counts->busy_nsec[rail] += 20000000;
		break;
	case 3:
		counts->busy_nsec[rail] -= 20000000;
		break;
	case 4:
		counts->bytes[rail] += 10000000;
		break;
	case 5:
		counts->done[rail] -= 30;
		break;
	}
}

static void a_torn_look_is_no_lie(void **state)
{
	struct flow flow = make_flow(500, 2000);
	double part;

	ticks(&flow, 50);
	flow.alter = tear;
	part = part_of_sum(&flow, 100000);
	assert_int_equal(flow.told, 0);
	SHOULD(part >= 0.98, "share %u carries %.3f", flow.balance.share, part);
	/* They were used, too. */
	flow.link.rate[1] = 500;
	ticks(&flow, 50);
	assert_in_range(flow.balance.share, 490, 535);
}

static void it_is_not_a_lie_to_begin_anew(void **state)
{
	struct flow flow = make_flow(500, 2000);
	struct mpib_balance_counts *counts = &flow.link.connection[0].counts;
	struct mpib_balance_look look = { 0 };
	struct mpib_balance_counts anew = { .timed = 2 };

	ticks(&flow, 50);
	assert_true(counts->done[0] > 0);
	assert_int_equal(
		mpib_balance_see(&flow.seen[0], &anew, (uint64_t)flow.link.now + 10000, &look),
		MPIB_BALANCE_TRUE);
	anew.timed = 0;
	assert_int_equal(
		mpib_balance_see(&flow.seen[0], &anew, (uint64_t)flow.link.now + 20000, &look),
		MPIB_BALANCE_TRUE);
	assert_int_equal(look.bytes[0] + look.bytes[1] + look.busy_nsec[0] + look.busy_nsec[1], 0);
}

static void everything_has_a_text(void **state)
{
	for (unsigned int n = 0; n < MPIB_BALANCE_LIE_MAX; n++)
		assert_string_not_equal(mpib_balance_lie_text((enum mpib_balance_lie)n), "unknown");
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
		cmocka_unit_test(the_first_messages_are_not_waited_for),
		cmocka_unit_test(a_rail_at_a_bound_is_not_taken_for_faster),
		cmocka_unit_test(no_rate_runs_away_just_below_a_bound),
		cmocka_unit_test(no_rate_runs_away_just_above_a_bound),
		cmocka_unit_test(one_window_that_is_far_off_moves_little),
		cmocka_unit_test(the_queue_of_long_parts_is_no_reason),
		cmocka_unit_test(it_is_not_misled_by_rails_that_make_up_for_idle_time),
		cmocka_unit_test(two_flows_that_find_theirs_fill_both_rails),
		cmocka_unit_test(a_lost_rail_is_no_measure_and_its_return_is_a_step),
		cmocka_unit_test(a_rail_that_stands_still_moves_nothing),
		cmocka_unit_test(what_is_bound_by_latency_says_nothing),
		cmocka_unit_test(it_stays_within_its_bounds),
		cmocka_unit_test(small_changes_are_not_written),
		cmocka_unit_test(counters_that_cannot_be_change_nothing_and_are_told_once),
		cmocka_unit_test(a_torn_look_is_no_lie),
		cmocka_unit_test(it_is_not_a_lie_to_begin_anew),
		cmocka_unit_test(everything_has_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
