/* SPDX-License-Identifier: Apache-2.0 */
/* What one connection's counters add between two looks, and whether that can be. */
#include "agent/policy/balance_counts.h"

#include <math.h>
#include <string.h>

#include "common/macros.h"

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

/* No part of a connection was done for REST_USEC and REST_TIMES the longest wait of late: its
 * process may be stopped, by a signal or a debugger. Parts that wait for that would look like a
 * queue on a rail. A wait of more than WAIT_MOST_USEC teaches nothing, and of a new one so long is
 * expected. */
#define REST_USEC      1000000u
#define REST_TIMES     4u
#define WAIT_MOST_USEC 15000000u

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
	seen->done_usec = now_usec;
	seen->longest_wait_usec = WAIT_MOST_USEC;
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

static uint64_t waiting(const struct mpib_balance_seen *seen, const struct mpib_balance_counts *now,
			unsigned int rail)
{
	uint64_t gone = now->apart[rail] + seen->completed[rail];

	return now->bytes[rail] > gone ? now->bytes[rail] - gone : 0;
}

/* What isn't looked at may have done anything meanwhile, and without a part under way nothing is
 * waited for: neither is a wait. */
static void note_progress(struct mpib_balance_seen *seen, const struct mpib_balance_counts *now,
			  uint64_t now_usec)
{
	uint64_t wait = now_usec - seen->done_usec;
	bool is_done = now->done[0] != seen->counts.done[0] || now->done[1] != seen->counts.done[1];
	bool waits = now->posts[0] != now->done[0] || now->posts[1] != now->done[1];

	if (now_usec - seen->looked_usec > REST_USEC) {
		seen->done_usec = now_usec;
		return;
	}
	if (is_done) {
		seen->longest_wait_usec -= seen->longest_wait_usec / 8;
		if (wait > seen->longest_wait_usec)
			seen->longest_wait_usec = wait < WAIT_MOST_USEC ? wait : WAIT_MOST_USEC;
	}
	if (is_done || !waits)
		seen->done_usec = now_usec;
}

static bool rests(const struct mpib_balance_seen *seen, uint64_t now_usec)
{
	return now_usec - seen->done_usec > REST_USEC + REST_TIMES * seen->longest_wait_usec;
}

static void add(struct mpib_balance_look *look, const struct mpib_balance_seen *seen,
		const struct mpib_balance_counts *now, const uint64_t bytes[2])
{
	look->connections += busy_since(seen, now, 0) || busy_since(seen, now, 1) ||
			     now->under_way[0] || now->under_way[1];
	for (unsigned int rail = 0; rail < 2; rail++) {
		uint64_t busy = busy_since(seen, now, rail);

		look->bytes[rail] += bytes[rail];
		look->busy_nsec[rail] += busy;
		if (busy > look->busy_most_nsec[rail])
			look->busy_most_nsec[rail] = busy;
		look->under_way[rail] |= now->under_way[rail];
		look->queued[rail] += now->posts[rail] - now->done[rail];
		look->waiting[rail] += waiting(seen, now, rail);
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
	note_progress(seen, now, now_usec);
	if (!seen->lie && !rests(seen, now_usec))
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
