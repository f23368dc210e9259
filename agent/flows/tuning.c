/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/flows/tuning.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/base/clock.h"
#include "common/macros.h"

/* A flow is looked at for so long after its latest bytes, or its beginning. */
#define MOVING_USEC (3u * MPIB_CLOCK_SECOND)

/* Counters may come a little later than the registration. */
#define PATIENCE_USEC (2u * MPIB_CLOCK_SECOND)

/* A connection that has lost a rail and hasn't posted for so long may be of a process that is
 * stopped, and won't see the rail come back: others of the flow are asked. */
#define STILL_USEC (5u * MPIB_CLOCK_SECOND)

/* Connections that are looked at in one tick, and of one flow. */
#define TICK_LOOKS 1024u
#define FLOW_LOOKS 512u

int mpib_tuning_init(struct mpib_tuning *tuning)
{
	TAILQ_INIT(&tuning->all);
	TAILQ_INIT(&tuning->moving);
	/* Pages that no slot touches cost nothing. */
	tuning->of_slot = calloc(MPIB_HINT_ENTRIES_MAX, sizeof(struct mpib_tuned *));
	return tuning->of_slot ? 0 : -ENOMEM;
}

void mpib_tuning_done(struct mpib_tuning *tuning)
{
	while (tuning->of_slot && !TAILQ_EMPTY(&tuning->all))
		mpib_tuning_end(tuning, TAILQ_FIRST(&tuning->all)->slot);
	free(tuning->of_slot);
	tuning->of_slot = NULL;
}

struct mpib_tuned *mpib_tuning_of(const struct mpib_tuning *tuning, uint32_t index)
{
	return tuning->of_slot[index];
}

/* ---- who is looked at ----------------------------------------------------------------------- */

static void start_moving(struct mpib_tuning *tuning, struct mpib_tuned *tuned, uint64_t now_usec)
{
	tuned->moved_usec = now_usec;
	if (tuned->is_moving)
		return;
	tuned->is_moving = true;
	tuned->looked_usec = 0;
	TAILQ_INSERT_TAIL(&tuning->moving, tuned, moving);
}

static void stop_moving(struct mpib_tuning *tuning, struct mpib_tuned *tuned)
{
	if (!tuned->is_moving)
		return;
	tuned->is_moving = false;
	TAILQ_REMOVE(&tuning->moving, tuned, moving);
}

bool mpib_tuning_is_due(const struct mpib_tuning *tuning)
{
	return !TAILQ_EMPTY(&tuning->moving);
}

static struct mpib_tuned *add(struct mpib_tuning *tuning, uint32_t index,
			      const struct mpib_balance_limits *limits, uint32_t start)
{
	struct mpib_tuned *tuned = calloc(1, sizeof(*tuned));

	if (!tuned)
		return NULL;
	tuned->slot = index;
	tuned->limits = *limits;
	tuned->balance.share = start;
	tuning->of_slot[index] = tuned;
	tuning->count++;
	TAILQ_INSERT_TAIL(&tuning->all, tuned, all);
	return tuned;
}

uint32_t mpib_tuning_begin(struct mpib_tuning *tuning, uint32_t index,
			   const struct mpib_balance_limits *limits, uint32_t start, bool restored)
{
	struct mpib_tuned *tuned = tuning->of_slot[index];
	uint64_t now = mpib_clock_usec(CLOCK_MONOTONIC);

	if (!tuned) {
		struct mpib_reg *reg;

		tuned = add(tuning, index, limits, start);
		if (!tuned)
			return start;
		tuned->restored = restored;
		tuned->begun_usec = now;
		LIST_FOREACH(reg, &mpib_registry_slot(tuning->registry, index)->regs, of_slot)
		{
			reg->times = (struct mpib_balance_seen){ 0 };
			reg->lost_posts_usec = 0;
		}
	}
	tuned->limits = *limits;
	(void)mpib_balance_put(&tuned->balance, limits, tuned->balance.share, MPIB_BALANCE_BOUNDS,
			       now);
	/* A connection that has just registered may send at once. */
	start_moving(tuning, tuned, now);
	return tuned->balance.share;
}

void mpib_tuning_end(struct mpib_tuning *tuning, uint32_t index)
{
	struct mpib_tuned *tuned = tuning->of_slot[index];

	if (!tuned)
		return;
	stop_moving(tuning, tuned);
	TAILQ_REMOVE(&tuning->all, tuned, all);
	tuning->of_slot[index] = NULL;
	tuning->count--;
	free(tuned);
}

/* ---- what is told --------------------------------------------------------------------------- */

static void tell_state(struct mpib_tuning *tuning, struct mpib_tuned *tuned, uint64_t now_usec)
{
	if (tuned->told_state || tuned->balance.measured ||
	    now_usec - tuned->begun_usec < PATIENCE_USEC ||
	    (tuned->state != MPIB_BALANCE_NO_COUNTERS && tuned->state != MPIB_BALANCE_OLD_PLUGIN))
		return;
	tuned->told_state = true;
	mpib_journal_not_found(tuning->journal, tuned->slot,
			       mpib_registry_slot(tuning->registry, tuned->slot),
			       tuned->balance.share, mpib_balance_state_text(tuned->state));
}

void mpib_tuning_beat(struct mpib_tuning *tuning, uint64_t now_usec)
{
	struct mpib_tuned *tuned;

	TAILQ_FOREACH(tuned, &tuning->all, all)
	{
		const struct mpib_slot *slot = mpib_registry_slot(tuning->registry, tuned->slot);

		if (slot->moved_usec != tuned->slot_moved_usec) {
			tuned->slot_moved_usec = slot->moved_usec;
			start_moving(tuning, tuned, now_usec);
		}
		tell_state(tuning, tuned, now_usec);
	}
}

/* ---- a look --------------------------------------------------------------------------------- */

/* Sum of a flow's connections. */
struct sum {
	struct mpib_balance_look look;
	enum mpib_balance_state state; /* the one that tells most */
	unsigned int lost;	       /* rails, as connections say that posted of late... */
	unsigned int lost_still;       /* ...and those that didn't, see STILL_USEC */
	bool has_both;		       /* one that is measured says that it has both rails */
	uint32_t speed[2];
	uint32_t looks;
};

static void note_state(struct sum *sum, enum mpib_balance_state state)
{
	/* In this order one connection that is measured is enough. */
	static const uint8_t rank[MPIB_BALANCE_STATE_MAX] = {
		[MPIB_BALANCE_NO_TRAFFIC] = 0,	[MPIB_BALANCE_ONE_RAIL] = 1,
		[MPIB_BALANCE_NO_COUNTERS] = 2, [MPIB_BALANCE_OLD_PLUGIN] = 3,
		[MPIB_BALANCE_LIES] = 4,	[MPIB_BALANCE_MEASURED] = 5,
	};

	if (rank[state] > rank[sum->state])
		sum->state = state;
}

static void note_lost(struct mpib_reg *reg, const struct mpib_counter_times *times,
		      uint64_t now_usec, struct sum *sum)
{
	uint32_t posts = times->posts[0] + times->posts[1];

	if (!reg->lost_posts_usec || posts != reg->lost_posts) {
		reg->lost_posts = posts;
		reg->lost_posts_usec = now_usec;
	}
	if (now_usec - reg->lost_posts_usec < STILL_USEC)
		sum->lost |= times->lost;
	else
		sum->lost_still |= times->lost;
}

static void look_at_times(struct mpib_tuning *tuning, struct mpib_reg *reg,
			  const struct mpib_counter_times *times, uint64_t now_usec,
			  struct sum *sum)
{
	const struct mpib_balance_counts counts = {
		/* Of what was under way on a lost rail nobody tells when it completed. */
		.timed = times->lost ? 0 : times->timed,
		.bytes = { times->bytes[0], times->bytes[1] },
		.apart = { times->apart[0], times->apart[1] },
		.posts = { times->posts[0], times->posts[1] },
		.done = { times->done[0], times->done[1] },
		.busy_nsec = { times->busy_nsec[0], times->busy_nsec[1] },
		.under_way = { times->under_way[0], times->under_way[1] },
	};
	enum mpib_balance_lie lie = mpib_balance_see(&reg->times, &counts, now_usec, &sum->look);

	if (lie)
		mpib_journal_lie(tuning->journal, reg, mpib_balance_lie_text(lie), false);
	if (reg->times.lie) {
		reg->lost_posts_usec = 0;
		note_state(sum, MPIB_BALANCE_LIES);
		return;
	}
	if (times->lost) {
		note_lost(reg, times, now_usec, sum);
	} else {
		reg->lost_posts_usec = 0;
		sum->has_both = sum->has_both || times->timed;
	}
	sum->speed[0] = times->speed[0];
	sum->speed[1] = times->speed[1];
	note_state(sum, times->timed ? MPIB_BALANCE_MEASURED : MPIB_BALANCE_NO_TRAFFIC);
}

static void look_at_reg(struct mpib_tuning *tuning, struct mpib_traffic *traffic,
			struct mpib_reg *reg, uint64_t now_usec, struct sum *sum)
{
	struct mpib_counter_times times;

	if (!reg->sup_dst_be) {
		note_state(sum, MPIB_BALANCE_ONE_RAIL);
		return;
	}
	if (!reg->peer->counters) {
		note_state(sum, MPIB_BALANCE_NO_COUNTERS);
		return;
	}
	if (!mpib_traffic_find(traffic, reg))
		return;
	switch (mpib_counter_map_times(reg->peer->counters, reg->place, reg->conn_id, &times)) {
	case MPIB_COUNTER_TIMES:
		look_at_times(tuning, reg, &times, now_usec, sum);
		return;
	case MPIB_COUNTER_NO_FEATURE:
		note_state(sum, MPIB_BALANCE_OLD_PLUGIN);
		return;
	case MPIB_COUNTER_NO_SENDER:
		return;
	}
}

/* Of several users' processes those of the one count whose part of the table the slot is: nobody
 * else's counters move it. */
static void look_at_regs(struct mpib_tuning *tuning, struct mpib_traffic *traffic,
			 const struct mpib_slot *slot, uint64_t now_usec, struct sum *sum)
{
	struct mpib_reg *reg;

	LIST_FOREACH(reg, &slot->regs, of_slot)
	{
		if (sum->looks++ == FLOW_LOOKS)
			return;
		if (reg->peer->user == slot->user)
			look_at_reg(tuning, traffic, reg, now_usec, sum);
	}
}

/* Until there is a measure, the ports' speeds are the best guess. */
static enum mpib_balance_reason take_speeds(struct mpib_tuned *tuned, const struct sum *sum,
					    uint64_t now_usec)
{
	uint64_t all = (uint64_t)sum->speed[0] + sum->speed[1];

	if (tuned->balance.measured || tuned->restored || !sum->speed[0] || !sum->speed[1])
		return MPIB_BALANCE_NOTHING;
	tuned->restored = true; /* once */
	return mpib_balance_put(
		&tuned->balance, &tuned->limits,
		(uint32_t)((sum->speed[1] * (uint64_t)MPIB_SHARE_MAX + all / 2) / all),
		MPIB_BALANCE_START, now_usec);
}

/* Rails that only connections say are lost that didn't post of late. One that has both may not know
 * better, as it didn't post, either: it does once something has completed on the rail. */
static unsigned int lost_after_all(const struct mpib_tuned *tuned, const struct sum *sum)
{
	unsigned int carries = (sum->look.done[0] ? 1u : 0) | (sum->look.done[1] ? 2u : 0);

	if (!sum->has_both)
		return sum->lost_still;
	return tuned->balance.lost & sum->lost_still & ~carries;
}

static enum mpib_balance_reason look_at(struct mpib_tuning *tuning, struct mpib_traffic *traffic,
					struct mpib_tuned *tuned, uint64_t now_usec,
					uint32_t *ret_looks)
{
	struct sum sum = { .look.usec = tuned->looked_usec ? now_usec - tuned->looked_usec
							   : MPIB_TUNING_TICK_USEC };
	enum mpib_balance_reason reason;

	look_at_regs(tuning, traffic, mpib_registry_slot(tuning->registry, tuned->slot), now_usec,
		     &sum);
	*ret_looks = sum.looks + 1;
	sum.lost |= lost_after_all(tuned, &sum);
	tuned->looked_usec = now_usec;
	if (sum.look.bytes[0] | sum.look.bytes[1])
		tuned->moved_usec = now_usec;

	reason = take_speeds(tuned, &sum, now_usec);
	if (!reason)
		reason = mpib_balance_step(&tuned->balance, &tuned->limits, &sum.look, sum.lost,
					   now_usec);
	if (sum.state == MPIB_BALANCE_MEASURED && !tuned->balance.measured)
		sum.state = MPIB_BALANCE_NO_TRAFFIC;
	if (sum.state || !tuned->balance.measured)
		tuned->state = sum.state;
	return reason;
}

void mpib_tuning_tick(struct mpib_tuning *tuning, struct mpib_traffic *traffic, uint64_t now_usec,
		      void (*change)(void *user, struct mpib_tuned *tuned, uint32_t before,
				     enum mpib_balance_reason reason),
		      void *user)
{
	uint32_t left = TICK_LOOKS;
	struct mpib_tuned *tuned;

	/* The one after the last that fits is the first of the next tick. */
	while (left && (tuned = TAILQ_FIRST(&tuning->moving)) && tuned->looked_usec != now_usec) {
		uint32_t before = tuned->balance.share;
		enum mpib_balance_reason reason;
		uint32_t looks;

		TAILQ_REMOVE(&tuning->moving, tuned, moving);
		TAILQ_INSERT_TAIL(&tuning->moving, tuned, moving);
		reason = look_at(tuning, traffic, tuned, now_usec, &looks);
		left -= looks < left ? looks : left;
		if (reason) {
			tuning->changes++;
			change(user, tuned, before, reason);
		}
		if (now_usec - tuned->moved_usec > MOVING_USEC)
			stop_moving(tuning, tuned);
	}
}
