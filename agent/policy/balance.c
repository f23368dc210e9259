/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rate = bytes completed / time that the rail was busy. With work waiting, the slower rail is
 * always busy and the faster one idles: both rates are right at any share that gives each rail
 * something, so one window leads to the balance.
 *
 * Of several connections the times overlap, and by how much isn't told. A rail that all of them
 * keep busy is measured exactly; for one that idles there are a least and a most, and between them
 * the estimate that they come and go independently, which weighs the less the further these are
 * apart. At the balance no rail idles.
 *
 * What a rail gives that idles is less certain than what one gives that doesn't. It is busy with
 * the way there and back, too, and seems slower than it is; or it makes up in bursts for the time
 * that it idled, and seems faster. So it is taken for a few times as fast as what it carried at
 * most, and weighs less. The share leans towards the one that idles more: parts of a message are
 * posted together, and where one is done earlier there was room for more.
 *
 * Where neither idles and yet one has the longer queue, the share leans away from that: parts wait
 * there, and on the other rail some are just on the way.
 */
#include "agent/policy/balance.h"

#include <math.h>
#include <string.h>

#include "common/macros.h"
#include "common/mpib_agent_iface.h"

/* Two windows in a row that are so far off are a step. */
#define STEP_PART 0.2

/* A few steps are taken at once, then one in so many windows: what looks like steps all the time is
 * noise, which the average is for. */
#define STEP_COST	  100u
#define STEPS_AT_ONCE_MAX (6u * STEP_COST)

/* A rail that is busy for less of the time idles; what the rails differ by at least to tell; and
 * how fast and how far the share leans then, as the logarithm of the rates' ratio. */
#define ALWAYS_BUSY  0.97
#define IDLE_NOTICED 0.01
#define PACE_START   0.1
#define PACE_MOST    0.02
#define PACE_LEAST   0.002
#define LEAN_MOST    4.0

/* The same by queues: of so many parts at least, and longer by so much of their sum. */
/* Only of parts that take no longer than this: what long ones wait for is the rail. */
#define SHORT_PART_USEC	 500.0
#define QUEUE_LEAST	 1.5
#define QUEUE_LONG	 16.0
#define QUEUE_NOTICED	 0.2
#define QUEUE_PACE_MOST	 0.1
#define QUEUE_PACE_LEAST 0.0005

/* A part that waits for as long as a window takes shows a change of the share a window later: the
 * pace is lower by so many times then, and what the queue grew or shrank by counts so much beside
 * its length. Else the share comes back only when the queue has, and goes too far. */
#define QUEUE_PACE_SLOWER 10.0
#define QUEUE_GROWTH	  0.3
#define WAIT_NOTICED	  0.02

/* A rail that was busy for a smaller part of the other's time than this is taken for as slow as if
 * it had been busy for that part. */
#define BUSY_PART_LEAST 0.4

/* Time that is told in one go may be a little more than went by: there are two clocks, and either
 * side may be kept from a processor between its clock and its counters. */
#define CLOCK_SLACK_USEC 1000000u
#define CLOCK_SLACK_PART 20u

/* Numbers of one moment are read one after the other, while they are written, or while their writer
 * waits for a processor. So a look that says what can't be is left out. Where the next ones are no
 * better the counters did jump, and count from where they are; so many looks that are as they
 * should be make up for it. What jumps more often than that is a lie. */
#define ODD_LOOKS_MAX	   3u
#define TIMELESS_LOOKS_MAX 3u
#define DOUBT		   100u
#define DOUBTS_MAX	   3u

/* ---- one connection's counters -------------------------------------------------------------- */

static bool less(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

static bool went_back(const struct mpib_balance_counts *before,
		      const struct mpib_balance_counts *now, unsigned int rail)
{
	return now->bytes[rail] < before->bytes[rail] || now->apart[rail] < before->apart[rail] ||
	       less(now->posts[rail], before->posts[rail]) ||
	       less(now->done[rail], before->done[rail]) ||
	       now->busy_nsec[rail] < before->busy_nsec[rail];
}

/* Bytes a part from the @n-th point to the next. */
static double slope(const struct mpib_balance_curve *curve, unsigned int n)
{
	return (double)(curve->at[n + 1].bytes - curve->at[n].bytes) /
	       (curve->at[n + 1].posts - curve->at[n].posts);
}

static void curve_forget(struct mpib_balance_curve *curve, unsigned int n)
{
	curve->n--;
	memmove(&curve->at[n], &curve->at[n + 1], (curve->n - n) * sizeof(curve->at[0]));
}

/* Where there is no room, the second one goes: what was before it is nearly done. */
static void curve_add(struct mpib_balance_curve *curve, uint32_t posts, uint64_t bytes)
{
	unsigned int last = curve->n - 1;

	if (curve->n && curve->at[last].posts == posts)
		return;
	/* The two are written one after the other. */
	if (curve->n && bytes < curve->at[last].bytes)
		bytes = curve->at[last].bytes;
	if (curve->n == MPIB_BALANCE_POINTS)
		curve_forget(curve, 1);
	curve->at[curve->n].bytes = bytes;
	curve->at[curve->n++].posts = posts;
	if (curve->n >= 3 && fabs(slope(curve, curve->n - 2) - slope(curve, curve->n - 3)) <=
				     slope(curve, curve->n - 3) / 64)
		curve_forget(curve, curve->n - 2);
}

/* Bytes of the first @done posts. Of those before the first point the mean is taken. */
static double curve_at(struct mpib_balance_curve *curve, uint32_t done)
{
	double mean;

	while (curve->n > 2 && !less(done, curve->at[1].posts))
		curve_forget(curve, 0);
	if (curve->n > 1)
		mean = slope(curve, 0);
	else
		mean = curve->at[0].posts ? (double)curve->at[0].bytes / curve->at[0].posts : 0;
	return (double)curve->at[0].bytes + (int32_t)(done - curve->at[0].posts) * mean;
}

/* Bytes that completed within spans beyond those that were seen before. */
static uint64_t completed_since(struct mpib_balance_seen *seen,
				const struct mpib_balance_counts *now, unsigned int rail)
{
	double bytes;

	curve_add(&seen->curve[rail], now->posts[rail],
		  now->bytes[rail] > now->apart[rail] ? now->bytes[rail] - now->apart[rail] : 0);
	bytes = curve_at(&seen->curve[rail], now->done[rail]) - (double)seen->completed[rail];
	return bytes > 0 ? (uint64_t)bytes : 0;
}

/* Counts from @now on. */
static void begin(struct mpib_balance_seen *seen, const struct mpib_balance_counts *now,
		  uint64_t now_usec)
{
	seen->counts = *now;
	seen->looked_usec = now_usec;
	seen->odd = 0;
	for (unsigned int rail = 0; rail < 2; rail++) {
		seen->timeless[rail] = 0;
		seen->curve[rail].n = 0;
		seen->completed[rail] = 0;
		seen->completed[rail] = completed_since(seen, now, rail);
	}
}

/* Busy time is told when a part completes, and may be of all the time since it was told before. */
static bool is_too_busy(const struct mpib_balance_seen *seen, unsigned int rail, uint64_t busy_usec,
			uint64_t now_usec)
{
	uint64_t since = now_usec - seen->told_usec[rail];

	return busy_usec > since + since / CLOCK_SLACK_PART + CLOCK_SLACK_USEC;
}

static uint64_t busy_since(const struct mpib_balance_seen *seen,
			   const struct mpib_balance_counts *now, unsigned int rail)
{
	return now->busy_nsec[rail] - seen->counts.busy_nsec[rail];
}

/* What can't be, if anything. */
static enum mpib_balance_lie odd_at(const struct mpib_balance_seen *seen,
				    const struct mpib_balance_counts *now, uint64_t now_usec)
{
	for (unsigned int rail = 0; rail < 2; rail++) {
		if (went_back(&seen->counts, now, rail))
			return MPIB_BALANCE_BACK;
		if (less(now->posts[rail], now->done[rail]))
			return MPIB_BALANCE_TOO_MANY;
		if (is_too_busy(seen, rail, busy_since(seen, now, rail) / 1000, now_usec))
			return MPIB_BALANCE_TOO_BUSY;
	}
	return MPIB_BALANCE_TRUE;
}

/* Bytes count with their time: a process that counted completions may be kept from a processor
 * before it tells that. Those that complete while no span goes on have none: they were under way
 * before times were kept, or the curve takes them for others. True where they come again and again
 * and no time does. */
static bool is_timeless(struct mpib_balance_seen *seen, const struct mpib_balance_counts *now,
			unsigned int rail, uint64_t *ret_bytes)
{
	uint64_t bytes = completed_since(seen, now, rail);
	bool has_time = busy_since(seen, now, rail) != 0;

	*ret_bytes = has_time ? bytes : 0;
	if (!has_time && now->under_way[rail] && bytes)
		return now->done[rail] != seen->counts.done[rail] &&
		       ++seen->timeless[rail] == TIMELESS_LOOKS_MAX;
	seen->completed[rail] += bytes;
	seen->timeless[rail] = 0;
	return false;
}

/* The counters did jump. MPIB_BALANCE_TRUE where that may be, or was told before. */
static enum mpib_balance_lie hold_against(struct mpib_balance_seen *seen, enum mpib_balance_lie lie)
{
	seen->doubt += DOUBT;
	if (seen->doubt <= (DOUBTS_MAX - 1) * DOUBT)
		return MPIB_BALANCE_TRUE;
	seen->doubt = DOUBTS_MAX * DOUBT;
	seen->lie = (uint8_t)lie;
	if (seen->told)
		return MPIB_BALANCE_TRUE;
	seen->told = true;
	return lie;
}

static void add(struct mpib_balance_look *look, const struct mpib_balance_seen *seen,
		const struct mpib_balance_counts *now, const uint64_t bytes[2])
{
	look->connections += busy_since(seen, now, 0) || busy_since(seen, now, 1);
	for (unsigned int rail = 0; rail < 2; rail++) {
		uint64_t busy = busy_since(seen, now, rail);

		look->bytes[rail] += bytes[rail];
		look->busy_nsec[rail] += busy;
		if (busy > look->busy_most_nsec[rail])
			look->busy_most_nsec[rail] = busy;
		look->under_way[rail] |= now->under_way[rail];
		look->queued[rail] += now->posts[rail] - now->done[rail];
		look->done[rail] += now->done[rail] - seen->counts.done[rail];
	}
}

/* @now is as it should be. */
static void keep(struct mpib_balance_seen *seen, const struct mpib_balance_counts *now,
		 uint64_t now_usec)
{
	bool has_time = false;

	for (unsigned int rail = 0; rail < 2; rail++) {
		if (!busy_since(seen, now, rail))
			continue;
		seen->told_usec[rail] = seen->looked_usec;
		has_time = true;
	}
	/* Numbers that don't move make up for nothing. */
	if (has_time && seen->doubt && --seen->doubt == 0)
		seen->lie = MPIB_BALANCE_TRUE;
	seen->odd = 0;
	seen->counts = *now;
	seen->looked_usec = now_usec;
}

static enum mpib_balance_lie judge(struct mpib_balance_seen *seen,
				   const struct mpib_balance_counts *now, uint64_t now_usec,
				   struct mpib_balance_look *look)
{
	enum mpib_balance_lie lie = odd_at(seen, now, now_usec);
	uint64_t bytes[2];

	if (lie && ++seen->odd < ODD_LOOKS_MAX)
		return MPIB_BALANCE_TRUE;
	for (unsigned int rail = 0; rail < 2 && !lie; rail++)
		if (is_timeless(seen, now, rail, &bytes[rail]))
			lie = MPIB_BALANCE_NO_TIME;
	if (lie) {
		begin(seen, now, now_usec);
		return hold_against(seen, lie);
	}
	if (!seen->lie)
		add(look, seen, now, bytes);
	keep(seen, now, now_usec);
	return MPIB_BALANCE_TRUE;
}

enum mpib_balance_lie mpib_balance_see(struct mpib_balance_seen *seen,
				       const struct mpib_balance_counts *counts, uint64_t now_usec,
				       struct mpib_balance_look *look)
{
	struct mpib_balance_counts now = *counts;
	bool is_new = now.timed != seen->counts.timed;

	if (!now.timed) {
		seen->counts.timed = 0;
		return MPIB_BALANCE_TRUE;
	}
	for (unsigned int rail = 0; rail < 2; rail++) {
		if (is_new) {
			/* A slip in counting, as a rail was lost: it is no lie for good. */
			seen->ahead[rail] = less(now.posts[rail], now.done[rail])
						    ? now.done[rail] - now.posts[rail]
						    : 0;
			/* What is told next may have begun before this look. */
			seen->told_usec[rail] = 0;
		}
		now.posts[rail] += seen->ahead[rail];
	}
	if (!is_new)
		return judge(seen, &now, now_usec, look);
	begin(seen, &now, now_usec);
	return MPIB_BALANCE_TRUE;
}

const char *mpib_balance_lie_text(enum mpib_balance_lie lie)
{
	static const char *const texts[MPIB_BALANCE_LIE_MAX] = {
		[MPIB_BALANCE_TRUE] = "its counters are plausible",
		[MPIB_BALANCE_BACK] = "its counters jumped back",
		[MPIB_BALANCE_TOO_BUSY] = "its rails were busy for longer than time went by",
		[MPIB_BALANCE_TOO_MANY] = "more of its parts completed than it posted",
		[MPIB_BALANCE_NO_TIME] = "its bytes complete in no time",
	};

	return lie < MPIB_BALANCE_LIE_MAX ? texts[lie] : "unknown";
}

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

static bool is_of_several(const struct mpib_balance_window *window)
{
	return window->busy_usec[0] > 1.05 * window->busy_most_usec[0] ||
	       window->busy_usec[1] > 1.05 * window->busy_most_usec[1];
}

/* Where connections tell the time of a long part at once, each has to come to it. */
static bool is_long_enough(const struct mpib_balance_window *window)
{
	if (window->usec < MPIB_BALANCE_WINDOW_USEC)
		return false;
	return window->longest_usec < 2 * MPIB_BALANCE_WINDOW_USEC || !is_of_several(window) ||
	       window->usec >= window->longest_usec;
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
		if ((double)look->busy_most_nsec[rail] / 1000 > open->longest_usec)
			open->longest_usec = (double)look->busy_most_nsec[rail] / 1000;
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
		return is_long_enough(open);
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
		.weight = ratio * ratio,
	};
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

/* Bits 0 and 1: the rails that were faster than the average by far, 2 and 3: slower. */
static uint8_t far_off(const struct estimate window[2], const struct mpib_balance_sum *average)
{
	unsigned int off = 0;

	for (unsigned int rail = 0; rail < 2; rail++) {
		double rate = rate_of(average, rail);

		off |= (window[rail].least > rate * (1 + STEP_PART)) << rail |
		       (window[rail].most < rate * (1 - STEP_PART)) << (rail + 2);
	}
	return (uint8_t)off;
}

static void set(struct mpib_balance_sum *sum, const struct estimate window[2])
{
	for (unsigned int rail = 0; rail < 2; rail++) {
		sum->usec[rail] = window[rail].usec;
		sum->bytes[rail] = window[rail].rate * window[rail].usec;
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

/* Steps get smaller where they go to and fro. */
static void lean(struct mpib_balance *balance, const struct estimate window[2])
{
	double most = greater(window[0].busy, window[1].busy);
	double idle = (window[0].busy - window[1].busy) / most; /* above 0: SUP idles more */
	double pace = fabs(balance->pace);
	double step;

	if (fabs(idle) < IDLE_NOTICED)
		return;
	pace = lesser(pace, PACE_MOST);
	pace = (balance->pace < 0) == (idle < 0) ? lesser(pace * 1.1, PACE_MOST)
						 : greater(pace / 2, PACE_LEAST);
	step = lesser(pace, fabs(idle) / 5);
	/* It leant too far, then. */
	if ((balance->lean < 0) != (idle < 0))
		balance->lean *= 1 - fabs(idle);
	balance->pace = idle < 0 ? -pace : pace;
	balance->lean =
		greater(-LEAN_MOST, lesser(LEAN_MOST, balance->lean + (idle < 0 ? -step : step)));
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

/* Above 0: more parts wait for SOUT, up to 1. 0 where they are few, or about as many for SUP. */
static double longer_queue(const struct mpib_balance *balance)
{
	double sum = balance->queued[0] + balance->queued[1];
	double longer;

	if (sum < QUEUE_LEAST)
		return 0;
	longer = (balance->queued[0] - balance->queued[1]) / sum;
	return fabs(longer) < QUEUE_NOTICED ? 0 : longer;
}

/* Neither rail idled, and yet parts wait for one of them: parts are short and many, so that some
 * are on the way there and back all the time, or the process polls seldom. The window says nothing
 * of rates, then: they would follow from the share, and let it drift. */
static bool says_nothing(const struct mpib_balance *balance, const struct estimate window[2])
{
	const struct mpib_balance_window *open = &balance->open;

	return window[0].busy >= ALWAYS_BUSY && window[1].busy >= ALWAYS_BUSY &&
	       lesser(open->done[0], open->done[1]) * SHORT_PART_USEC >= open->usec &&
	       fabs(longer_queue(balance)) > 0;
}

/* How long parts wait, as a part of the window, by how many do and how many came through. */
static double wait_part(const struct mpib_balance *balance)
{
	const struct mpib_balance_window *open = &balance->open;
	double wait = (balance->queued[0] + balance->queued[1]) / (open->done[0] + open->done[1]);

	return greater(0, lesser(1, wait) - WAIT_NOTICED);
}

/* The share leans away from it. It takes a while until a queue shows that: the pace grows slowly.
 */
static void lean_from_queue(struct mpib_balance *balance)
{
	double longer = longer_queue(balance);
	double wait = wait_part(balance);
	double most = QUEUE_PACE_MOST / (1 + QUEUE_PACE_SLOWER * wait);
	double pace = fabs(balance->pace);
	double step;

	pace *= (balance->pace < 0) == (longer < 0) ? 1.1 : 0.25;
	pace = lesser(most, greater(pace, QUEUE_PACE_LEAST));
	step = pace * longer + QUEUE_GROWTH * wait * (longer - balance->longer);
	balance->longer = longer;
	balance->pace = longer < 0 ? -pace : pace;
	balance->lean = greater(-LEAN_MOST, lesser(LEAN_MOST, balance->lean + step));
}

/* Takes the window into what is known: how. */
static enum mpib_balance_reason learn(struct mpib_balance *balance,
				      const struct mpib_balance_limits *limits)
{
	struct estimate window[2] = { estimate(&balance->open, 0), estimate(&balance->open, 1) };
	enum mpib_balance_reason reason = MPIB_BALANCE_AVERAGE;
	uint8_t before = balance->off;

	balance->restless -= balance->restless > 0;
	/* Before the first one is taken nothing better is known. */
	if (balance->measured)
		doubt_idle(window);
	follow_queues(balance);
	if (balance->measured && says_nothing(balance, window)) {
		balance->off = 0;
		lean_from_queue(balance);
		return MPIB_BALANCE_AVERAGE;
	}
	balance->off = balance->measured ? far_off(window, &balance->average) : 0;
	if (!balance->measured) {
		set(&balance->average, window);
		balance->measured = true;
		balance->lean = 0;
		balance->pace = PACE_START;
		reason = balance->returned ? MPIB_BALANCE_RETURN : MPIB_BALANCE_FIRST;
	} else if (balance->off & before && balance->restless + STEP_COST <= STEPS_AT_ONCE_MAX) {
		/* It may have come within the window before. */
		bool alike = !far_off(window, &balance->latest);

		set(&balance->average, window);
		for (unsigned int rail = 0; rail < 2 && alike; rail++) {
			balance->average.bytes[rail] += balance->latest.bytes[rail];
			balance->average.usec[rail] += balance->latest.usec[rail];
		}
		balance->off = 0;
		balance->lean = 0;
		balance->pace = PACE_START;
		balance->restless += STEP_COST;
		reason = MPIB_BALANCE_STEP;
	} else {
		fade(&balance->average, window, limits->settle_usec);
		lean(balance, window);
	}
	set(&balance->latest, window);
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

static uint32_t balanced(const struct mpib_balance *balance)
{
	double sout = rate_of(&balance->average, 0);
	double sup = rate_of(&balance->average, 1) * exp(balance->lean);

	return (uint32_t)(sup / (sout + sup) * MPIB_SHARE_MAX + 0.5);
}

enum mpib_balance_reason mpib_balance_step(struct mpib_balance *balance,
					   const struct mpib_balance_limits *limits,
					   const struct mpib_balance_look *look, unsigned int lost,
					   uint64_t now_usec)
{
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
	if (!fill_window(balance, look))
		return MPIB_BALANCE_NOTHING;

	reason = learn(balance, limits);
	balance->returned = false;
	balance->windows++;
	memset(&balance->open, 0, sizeof(balance->open));

	share = clamp(balanced(balance), limits);
	off = share > balance->share ? share - balance->share : balance->share - share;
	if (off < unnoticed(share))
		return MPIB_BALANCE_NOTHING;
	return mpib_balance_put(balance, limits, share, reason, now_usec);
}

uint64_t mpib_balance_rate(const struct mpib_balance *balance, unsigned int rail)
{
	if (!balance->measured)
		return 0;
	return (uint64_t)(rate_of(&balance->average, rail) * 1e6);
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
