/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rate = bytes completed / time that the rail was busy. With work waiting, the slower rail is
 * always busy and the faster one idles: both rates are right at any share that gives each rail
 * something, so one window leads to the balance.
 *
 * Of several connections the times overlap, and by how much isn't told. A rail that all of them
 * keep busy is measured exactly. The steps of a collective begin on both rails at once, so the
 * other one was busy for as much less as the sum of its times is less. At the balance these are
 * alike.
 *
 * Of a rail that has room that is too little: it is busy with the way there and back, too. So while
 * messages wait for the other rail, what is measured of it may raise its rate and not lower it, and
 * the rate creeps up until messages wait for both alike. They wait for the rail with more parts
 * under way, as a message has one on each. Where few are, it is the one that idles less.
 *
 * After a pause a rail may seem faster than it is, as it makes up in a burst for the time that it
 * idled: so what idled for most of the time is taken for no faster than what it carried by far, and
 * weighs less.
 */
#include "agent/policy/balance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/macros.h"
#include "common/mpib_agent_iface.h"

/* So long a window waits until each connection has completed a part on either rail: the times of
 * few say little of all. */
#define ALL_USEC 30000u

/* Two windows in a row that are so far off are a step. */
#define STEP_PART 0.2

/* In mpib_balance.off. */
#define FAR_FASTER(rail) (1u << (rail))
#define FAR_SLOWER(rail) (4u << (rail))

/* A few steps are taken at once, then one in so many windows: what looks like steps all the time is
 * noise, which the average is for. */
#define STEP_COST	  100u
#define STEPS_AT_ONCE_MAX (10u * STEP_COST)

/* One window that is so far off weighs so much of what others do, if it isn't long. */
#define LONE_WEIGHT 0.25

/* With so many parts under way at a look, on the average, they tell for which rail messages wait;
 * fewer say too little. What rails differ by at least: their queues, as a part of their sum, the
 * less the more parts there are, by the square root, up to QUEUE_LONG; and times of being busy, as
 * a part of the longer. QUEUE_NOTICED is that of one part on equal rails, QUEUE_NOTICED_LEAST what
 * is left of it where one rail is far slower. */
#define QUEUE_LEAST	    1.5
#define QUEUE_LONG	    16.0
#define QUEUE_NOTICED	    0.3
#define QUEUE_NOTICED_LEAST 0.15
#define IDLE_NOTICED	    0.01
#define ALWAYS_BUSY	    0.97
#define OFTEN_IDLE	    0.8

/* How fast a rate creeps, in a window, as its logarithm. A share shows in the queues only when what
 * waits there is through: so it creeps the slower the longer that takes, and the share goes ahead
 * of the rates by what the queues say at the moment, else it would go too far and swing. */
#define CREEP	   0.07
#define AHEAD_MOST 0.5

/* What chance says of the queues doesn't last. So after LASTING_LEAST windows in a row that say the
 * same the rate creeps faster: twice as fast after LASTING_FASTER more, and so on, up to
 * LASTING_FASTEST times. Where what waits takes several windows they are more by that. */
#define LASTING_LEAST	8.0
#define LASTING_FASTER	8.0
#define LASTING_FASTEST 4.0
#define LASTING_COUNTED 10000

/* Rates creep up only, as queues tell which rail is faster than it seems. Where they say now one
 * and now the other, both would go on and on: so many times what a window says is enough. */
#define RATES_BEYOND 16.0

/* A rail that gets nothing can't be measured any more: a share that finds itself leaves it that
 * much, of 1024, even where the limits don't. */
#define PART_LEAST 8u

/* A rail that was busy for a smaller part of the other's time than this is taken for as slow as if
 * it had been busy for that part. */
#define BUSY_PART_LEAST 0.4

/* The faster rail gets more than was measured: times (faster - slower) / (faster + slower), as a
 * part of its rate. Where the share is off, too much for the slower rail costs more than too much
 * for the faster one, by the ratio of both; on equal rails it is the same, and nothing is added. */
#define LEAN 0.05

/* ---- windows -------------------------------------------------------------------------------- */

/* What a window says of a rail. */
struct estimate {
	double usec;  /* that it was busy */
	double busy;  /* the same as a part of the time that went by */
	double rate;  /* bytes a microsecond */
	double least; /* that it can be */
	double most;
	double weight; /* 0 to 1 */
};

static double rate_of(const struct mpib_balance_sum *sum, unsigned int rail)
{
	return sum->bytes[rail] / sum->usec[rail];
}

static bool says_enough(const struct mpib_balance_window *window)
{
	return window->bytes[0] > 0 && window->bytes[1] > 0 && window->busy_most_usec[0] > 0 &&
	       window->busy_most_usec[1] > 0 &&
	       window->bytes[0] + window->bytes[1] >= MPIB_BALANCE_WINDOW_BYTES;
}

/* Of each connection, or as many parts. */
static bool is_of_all(const struct mpib_balance_window *window)
{
	return window->done[0] >= window->connections && window->done[1] >= window->connections;
}

/* True where the open window is full. One that says nothing for too long is begun anew, unless a
 * part that it waits for is under way. */
static bool fill_window(struct mpib_balance *balance, const struct mpib_balance_look *look)
{
	struct mpib_balance_window *open = &balance->open;

	for (unsigned int rail = 0; rail < 2; rail++) {
		open->bytes[rail] += (double)look->bytes[rail];
		open->busy_usec[rail] += (double)look->busy_nsec[rail] / 1000;
		open->busy_most_usec[rail] += (double)look->busy_most_nsec[rail] / 1000;
		open->queued[rail] += look->queued[rail];
		open->done[rail] += look->done[rail];
	}
	open->usec += (double)look->usec;
	open->looks++;
	if (look->connections > open->connections)
		open->connections = look->connections;
	if (open->bytes[0] + open->bytes[1] <= 0) {
		open->usec = 0;
		return false;
	}
	if (says_enough(open))
		return open->usec >= (is_of_all(open) ? MPIB_BALANCE_WINDOW_USEC : ALL_USEC);
	if (open->usec >= MPIB_BALANCE_LONGEST_USEC &&
	    !(open->bytes[0] <= 0 && look->under_way[0]) &&
	    !(open->bytes[1] <= 0 && look->under_way[1])) {
		balance->unused++;
		memset(open, 0, sizeof(*open));
	}
	return false;
}

static double lesser(double a, double b)
{
	return a < b ? a : b;
}

static double greater(double a, double b)
{
	return a > b ? a : b;
}

static struct estimate estimate(const struct mpib_balance_window *window, unsigned int rail)
{
	double bytes = window->bytes[rail];
	double sum = window->busy_usec[rail];
	double one = window->busy_most_usec[rail];
	/* Time of before the window may be told in it. */
	double all = greater(window->usec, sum / (window->connections ? window->connections : 1));
	double usec;
	double ratio;

	one = lesser(one, all);
	/* Each is busy for `one`, there are sum / one of them, at any time. */
	usec = sum > one && one < all ? all * (1 - pow(1 - one / all, sum / one)) : one;
	ratio = one / lesser(all, sum);
	return (struct estimate){
		.usec = usec,
		.busy = usec / all,
		.rate = bytes / usec,
		.least = bytes / lesser(all, sum),
		.most = bytes / one,
		.weight = ratio,
	};
}

/* Connections work together rather than each by itself: so of the rail that idles more it is the
 * sum of their times, beside the other rail's, that tells for how long it was busy. Where few parts
 * completed the sum is of others than the bytes are. */
static void estimate_both(const struct mpib_balance_window *window, struct estimate both[2])
{
	unsigned int busier = window->busy_usec[1] > window->busy_usec[0];
	struct estimate *other = &both[!busier];
	double usec, whole;

	both[0] = estimate(window, 0);
	both[1] = estimate(window, 1);
	if (window->connections < 2)
		return;
	whole = lesser(window->done[0], window->done[1]) / window->connections;
	usec = both[busier].usec * window->busy_usec[!busier] / window->busy_usec[busier];
	usec = lesser(window->bytes[!busier] / other->least,
		      greater(window->bytes[!busier] / other->most, usec));
	usec = other->usec + lesser(1, whole) * (usec - other->usec);
	other->busy *= usec / other->usec;
	other->rate *= other->usec / usec;
	other->usec = usec;
}

/* By how much the rail that idles more is believed. */
static void doubt_idle(struct estimate window[2])
{
	for (unsigned int rail = 0; rail < 2; rail++) {
		double part = window[rail].busy / window[!rail].busy;

		if (part >= 1)
			continue;
		if (part < BUSY_PART_LEAST) {
			window[rail].usec *= BUSY_PART_LEAST / part;
			window[rail].rate *= part / BUSY_PART_LEAST;
			window[rail].least *= part / BUSY_PART_LEAST;
			part = BUSY_PART_LEAST;
		}
		window[rail].weight *= part;
	}
}

/* The rails that were faster than the average by far, and those that were slower. */
static uint8_t far_off(const struct estimate window[2], const struct mpib_balance_sum *average)
{
	unsigned int off = 0;

	for (unsigned int rail = 0; rail < 2; rail++) {
		double rate = rate_of(average, rail);

		if (window[rail].least > rate * (1 + STEP_PART))
			off |= FAR_FASTER(rail);
		if (window[rail].most < rate * (1 - STEP_PART))
			off |= FAR_SLOWER(rail);
	}
	return (uint8_t)off;
}

static void set(struct mpib_balance_sum *sum, const struct estimate window[2], uint32_t settle_usec)
{
	for (unsigned int rail = 0; rail < 2; rail++) {
		sum->usec[rail] = lesser(window[rail].usec, settle_usec);
		sum->bytes[rail] = window[rail].rate * sum->usec[rail];
	}
}

/* What was before loses as much as the window weighs. */
static void fade(struct mpib_balance_sum *average, const struct estimate window[2],
		 uint32_t settle_usec)
{
	for (unsigned int rail = 0; rail < 2; rail++) {
		double usec = window[rail].usec * window[rail].weight;
		double keep = settle_usec / (settle_usec + usec);

		average->usec[rail] = average->usec[rail] * keep + usec;
		average->bytes[rail] = average->bytes[rail] * keep + window[rail].rate * usec;
	}
}

/* How many parts are under way at a look, on the average: of more windows where they are few, since
 * a single look then says little. */
static void follow_queues(struct mpib_balance *balance)
{
	const struct mpib_balance_window *open = &balance->open;
	double sum = (open->queued[0] + open->queued[1]) / open->looks;
	double weight = lesser(0.5, greater(0.1, sum / QUEUE_LONG));

	for (unsigned int rail = 0; rail < 2; rail++)
		balance->queued[rail] +=
			(open->queued[rail] / open->looks - balance->queued[rail]) * weight;
}

static double beyond(double off, double noticed)
{
	return off - greater(-noticed, lesser(noticed, off));
}

static double parts_queued(const struct mpib_balance *balance)
{
	return balance->queued[0] + balance->queued[1];
}

/* By how much queues have to differ, for one part that is under way. Less if messages wait for the
 * slower rail: a share that is off to that side costs more, by the ratio of both. More if they seem
 * to wait for the faster one: its parts are longer, and under way for longer even where nothing
 * waits. */
static double queue_noticed(const struct mpib_balance *balance, unsigned int waited_for)
{
	double faster;

	if (!balance->measured)
		return QUEUE_NOTICED;
	faster = rate_of(&balance->average, waited_for) - rate_of(&balance->average, !waited_for);
	faster /= rate_of(&balance->average, 0) + rate_of(&balance->average, 1);
	return greater(QUEUE_NOTICED_LEAST, QUEUE_NOTICED * (1 + faster));
}

/* Above 0, up to 1: messages wait for SOUT, and SUP has room; below 0: the other way round; 0: they
 * wait for both alike, as far as can be told. */
static double uneven(const struct mpib_balance *balance, const struct estimate window[2])
{
	double parts = parts_queued(balance);
	double busiest = greater(window[0].busy, window[1].busy);
	double off;

	if (parts < QUEUE_LEAST)
		return beyond((window[0].busy - window[1].busy) / busiest, IDLE_NOTICED);
	off = (balance->queued[0] - balance->queued[1]) / parts;
	return beyond(off, queue_noticed(balance, off < 0) / sqrt(lesser(parts, QUEUE_LONG)));
}

/* A rail that has room is at least as fast as it was. */
static void believe_no_slower(struct estimate *window, double rate)
{
	window->rate = greater(window->rate, rate);
	window->least = lesser(window->least, window->rate);
	window->most = greater(window->most, window->rate);
}

/* It is far off by itself, and may tell time of before. */
static void believe_little(struct estimate *window, double usec)
{
	window->usec = lesser(window->usec, usec);
	window->weight *= LONE_WEIGHT;
}

static void step(struct mpib_balance *balance, const struct mpib_balance_limits *limits,
		 const struct estimate window[2])
{
	/* It may have come within the window before. */
	bool alike = !far_off(window, &balance->latest);

	set(&balance->average, window, limits->settle_usec);
	for (unsigned int rail = 0; rail < 2 && alike; rail++) {
		balance->average.bytes[rail] += balance->latest.bytes[rail];
		balance->average.usec[rail] += balance->latest.usec[rail];
	}
	balance->off = 0;
	balance->lasting = 0;
	balance->restless += STEP_COST;
}

/* The share at which both rails are measured to need the same time, whatever the limits. */
static uint32_t balanced(const struct mpib_balance *balance)
{
	double sout = rate_of(&balance->average, 0);
	double sup = rate_of(&balance->average, 1);

	sup *= (1 + LEAN * (sup - sout) / (sup + sout)) * exp(balance->ahead);
	return (uint32_t)(sup / (sout + sup) * MPIB_SHARE_MAX + 0.5);
}

/* How often the windows in a row have said the same as this one. */
static void count_lasting(struct mpib_balance *balance, double off)
{
	int most = off > 0 ? LASTING_COUNTED : -LASTING_COUNTED;

	if (off > 0 ? balance->lasting < 0 : balance->lasting > 0)
		balance->lasting = 0;
	if (balance->lasting != most)
		balance->lasting += off > 0 ? 1 : -1;
}

/* The rate of the rail that has room, unless the rates are at the limit already. The share in force
 * doesn't tell that: it may stand just within a limit for good, as the rest of the way isn't worth
 * a change. */
static void creep(struct mpib_balance *balance, const struct mpib_balance_limits *limits,
		  double off)
{
	const struct mpib_balance_window *open = &balance->open;
	/* in windows */
	double wait = parts_queued(balance) / greater(1, open->done[0] + open->done[1]);
	double faster;

	if (off > 0 ? balanced(balance) < limits->most
		    : off < 0 && balanced(balance) > limits->least)
		count_lasting(balance, off);
	else
		balance->lasting = 0;
	faster = greater(0, abs(balance->lasting) - LASTING_LEAST) /
		 (LASTING_FASTER * (1 + 4 * wait));
	if (balance->lasting)
		balance->average.bytes[off > 0] *=
			exp(CREEP * fabs(off) * lesser(LASTING_FASTEST, 1 + faster) / (1 + wait));
	balance->ahead = lesser(AHEAD_MOST, wait) * off;
}

/* What the rates have in common isn't asked for. */
static void hold_down(struct mpib_balance_sum *average, const double most[2])
{
	double beyond_most = lesser(rate_of(average, 0) / most[0], rate_of(average, 1) / most[1]);

	for (unsigned int rail = 0; rail < 2 && beyond_most > RATES_BEYOND; rail++)
		average->bytes[rail] *= RATES_BEYOND / beyond_most;
}

/* Takes the window into what is known: how. */
static enum mpib_balance_reason learn(struct mpib_balance *balance,
				      const struct mpib_balance_limits *limits)
{
	struct estimate window[2];
	enum mpib_balance_reason reason = MPIB_BALANCE_AVERAGE;
	uint8_t before = balance->off;
	double most[2];
	double off;

	estimate_both(&balance->open, window);
	for (unsigned int rail = 0; rail < 2; rail++)
		most[rail] = window[rail].most;
	balance->restless -= balance->restless > 0;
	/* Before the first one is taken nothing better is known. */
	if (balance->measured)
		doubt_idle(window);
	follow_queues(balance);
	off = uneven(balance, window);
	if (balance->measured && off != 0 &&
	    (parts_queued(balance) >= QUEUE_LEAST ||
	     (window[off < 0].busy >= ALWAYS_BUSY && window[off > 0].busy < OFTEN_IDLE)))
		believe_no_slower(&window[off > 0], rate_of(&balance->average, off > 0));

	balance->ahead = 0;
	balance->off = balance->measured ? far_off(window, &balance->average) : 0;
	if (!balance->measured) {
		set(&balance->average, window, limits->settle_usec);
		balance->measured = true;
		balance->lasting = 0;
		reason = balance->returned ? MPIB_BALANCE_RETURN : MPIB_BALANCE_FIRST;
	} else if (balance->off & before && balance->restless + STEP_COST <= STEPS_AT_ONCE_MAX) {
		step(balance, limits, window);
		reason = MPIB_BALANCE_STEP;
	} else {
		for (unsigned int rail = 0; rail < 2; rail++)
			if (balance->off & ~before & (FAR_FASTER(rail) | FAR_SLOWER(rail)) &&
			    balance->open.usec < limits->settle_usec)
				believe_little(&window[rail], balance->open.usec);
		fade(&balance->average, window, limits->settle_usec);
		creep(balance, limits, off);
		hold_down(&balance->average, most);
	}
	set(&balance->latest, window, limits->settle_usec);
	return reason;
}

/* ---- shares --------------------------------------------------------------------------------- */

static uint32_t clamp(uint32_t share, const struct mpib_balance_limits *limits)
{
	if (share < limits->least)
		return limits->least;
	return share > limits->most ? limits->most : share;
}

/* What isn't worth a change: 1 % of 1024 at most, and near the ends what costs the smaller rail's
 * part of the time little. */
static uint32_t unnoticed(uint32_t share)
{
	uint32_t smaller = share < MPIB_SHARE_MAX / 2 ? share : MPIB_SHARE_MAX - share;

	return smaller / 64 > 0 ? smaller / 64 : 1;
}

enum mpib_balance_reason mpib_balance_put(struct mpib_balance *balance,
					  const struct mpib_balance_limits *limits, uint32_t share,
					  enum mpib_balance_reason reason, uint64_t now_usec)
{
	uint32_t before = balance->share;

	share = clamp(share, limits);
	if (share == before)
		return MPIB_BALANCE_NOTHING;

	memmove(&balance->moves[1], &balance->moves[0],
		(MPIB_BALANCE_MOVES - 1) * sizeof(balance->moves[0]));
	balance->moves[0] = (struct mpib_balance_move){
		.usec = now_usec,
		.before = (uint16_t)before,
		.after = (uint16_t)share,
		.reason = (uint8_t)reason,
	};
	balance->share = share;
	balance->changes++;
	return reason;
}

/* Nothing is measured, as one rail has completed nothing yet: it can't be faster than if it were
 * about to complete what is under way. So the messages that follow needn't be divided as badly as
 * the first ones. */
static enum mpib_balance_reason guess(struct mpib_balance *balance,
				      const struct mpib_balance_limits *limits,
				      const struct mpib_balance_look *look, uint64_t now_usec)
{
	const struct mpib_balance_window *open = &balance->open;
	unsigned int slow = open->bytes[0] > 0;
	double at_most, other;
	uint32_t share;

	if (balance->measured || open->bytes[slow] > 0 || !look->under_way[slow] ||
	    open->bytes[!slow] < MPIB_BALANCE_WINDOW_BYTES || open->busy_most_usec[!slow] <= 0 ||
	    open->usec < MPIB_BALANCE_WINDOW_USEC)
		return MPIB_BALANCE_NOTHING;
	at_most = (double)look->waiting[slow] / open->usec;
	other = open->bytes[!slow] / open->busy_most_usec[!slow];
	share = (uint32_t)((slow ? at_most : other) / (at_most + other) * MPIB_SHARE_MAX + 0.5);
	if (slow ? share >= balance->share : share <= balance->share)
		return MPIB_BALANCE_NOTHING;
	return mpib_balance_put(balance, limits, share, MPIB_BALANCE_START, now_usec);
}

/* @limits, but for shares at which one rail can't be measured. */
static struct mpib_balance_limits measurable(const struct mpib_balance_limits *limits)
{
	struct mpib_balance_limits within = *limits;

	if (within.least < PART_LEAST)
		within.least = within.most < PART_LEAST ? within.most : PART_LEAST;
	if (within.most > MPIB_SHARE_MAX - PART_LEAST)
		within.most = within.least > MPIB_SHARE_MAX - PART_LEAST
				      ? within.least
				      : MPIB_SHARE_MAX - PART_LEAST;
	return within;
}

enum mpib_balance_reason mpib_balance_step(struct mpib_balance *balance,
					   const struct mpib_balance_limits *limits,
					   const struct mpib_balance_look *look, unsigned int lost,
					   uint64_t now_usec)
{
	const struct mpib_balance_limits within = measurable(limits);
	enum mpib_balance_reason reason;
	uint32_t share;
	uint32_t off;

	if (lost) {
		/* What is under way moves to the other rail: nothing of it is a measure. */
		balance->lost |= (uint8_t)lost;
		memset(&balance->open, 0, sizeof(balance->open));
		return MPIB_BALANCE_NOTHING;
	}
	if (balance->lost) {
		balance->lost = 0;
		balance->measured = false;
		balance->returned = true;
	}
	/* It may come from an agent that went to the end. */
	if (balance->share != clamp(balance->share, &within))
		return mpib_balance_put(balance, &within, balance->share, MPIB_BALANCE_BOUNDS,
					now_usec);
	if (!fill_window(balance, look))
		return guess(balance, &within, look, now_usec);

	reason = learn(balance, &within);
	balance->returned = false;
	balance->windows++;
	memset(&balance->open, 0, sizeof(balance->open));

	share = clamp(balanced(balance), &within);
	off = share > balance->share ? share - balance->share : balance->share - share;
	if (off < unnoticed(share))
		return MPIB_BALANCE_NOTHING;
	return mpib_balance_put(balance, &within, share, reason, now_usec);
}

uint64_t mpib_balance_rate(const struct mpib_balance *balance, unsigned int rail)
{
	if (!balance->measured)
		return 0;
	return rate_of(&balance->average, rail) < 1e12
		       ? (uint64_t)(rate_of(&balance->average, rail) * 1e6)
		       : (uint64_t)1e18;
}

const char *mpib_balance_reason_text(enum mpib_balance_reason reason)
{
	static const char *const texts[MPIB_BALANCE_REASON_MAX] = {
		[MPIB_BALANCE_NOTHING] = "no change",  [MPIB_BALANCE_START] = "start",
		[MPIB_BALANCE_FIRST] = "first window", [MPIB_BALANCE_AVERAGE] = "average",
		[MPIB_BALANCE_STEP] = "step",	       [MPIB_BALANCE_RETURN] = "rail is back",
		[MPIB_BALANCE_BOUNDS] = "bounds",
	};

	return reason < MPIB_BALANCE_REASON_MAX ? texts[reason] : "unknown";
}

const char *mpib_balance_state_text(enum mpib_balance_state state)
{
	static const char *const texts[MPIB_BALANCE_STATE_MAX] = {
		[MPIB_BALANCE_NO_TRAFFIC] = "no traffic so far that tells speeds",
		[MPIB_BALANCE_MEASURED] = "measured",
		[MPIB_BALANCE_NO_COUNTERS] = "its processes hand no counters over",
		[MPIB_BALANCE_OLD_PLUGIN] =
			"its processes' plugin is older and tells no busy times",
		[MPIB_BALANCE_LIES] = "its processes' counters say what can't be",
		[MPIB_BALANCE_ONE_RAIL] = "its connections have one rail",
	};

	return state < MPIB_BALANCE_STATE_MAX ? texts[state] : "unknown";
}
