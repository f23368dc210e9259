/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gin/times.h"

#include "plugin/base/counters.h"
#include "plugin/base/ticks.h"

/* Numbers that the agent reads while they are written. */
static void set(uint64_t *to, uint64_t value)
{
	__atomic_store_n(to, value, __ATOMIC_RELEASE);
}

static bool has_span(const struct mpib_gin_peer *peer, unsigned int rail)
{
	return peer->counters->busy[rail] & 1;
}

void mpib_gin_times_follow(struct mpib_gin_peer *peer, bool asked)
{
	struct mpib_counter_entry *counters = peer->counters;

	if (asked && (counters == &peer->gin->uncounted || !mpib_counters_time()))
		return;
	peer->timed = asked;
	/* Small puts of a timed peer have more to do. */
	peer->now_max = asked ? 0 : peer->gin->max_msg[MPIB_SOUT];
	if (asked)
		__atomic_store_n(&counters->timed, counters->timed + 1, __ATOMIC_RELEASE);
}

void mpib_gin_times_both(struct mpib_gin_peer *peer)
{
	struct mpib_counter_entry *counters = peer->counters;
	uint64_t now;

	if (has_span(peer, MPIB_SOUT) && has_span(peer, MPIB_SUP))
		return;
	now = mpib_ticks();
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		if (has_span(peer, rail))
			continue;
		set(&counters->latest[rail], now);
		set(&counters->busy[rail], counters->busy[rail] - 2 * now + 1);
	}
	if (peer->in_span)
		return;
	peer->in_span = true;
	peer->next_span = peer->gin->spans;
	peer->gin->spans = peer;
	peer->gin->outstanding[MPIB_SUP]++; /* so that progress comes by */
}

/* What is outside of spans tells nothing of a rail's speed, and is done at once. It is done after
 * it is posted, whenever the agent looks. */
void mpib_gin_times_count(struct mpib_gin_peer *peer, unsigned int rail, uint64_t bytes)
{
	struct mpib_counter_entry *counters = peer->counters;
	bool alone = !has_span(peer, rail);

	if (alone)
		set(&counters->apart[rail], counters->apart[rail] + bytes);
	set(&counters->rail[rail].bytes, counters->rail[rail].bytes + bytes);
	set(&counters->rail[rail].requests, counters->rail[rail].requests + 1);
	if (alone)
		set(&counters->rail[rail].completions, counters->rail[rail].completions + 1);
}

static void look(struct mpib_gin_peer *peer, unsigned int rail)
{
	struct mpib_counter_entry *counters = peer->counters;
	uint64_t under_way = MPIB_GIN_SQ_DEPTH - peer->room[rail], now;
	uint64_t done = counters->rail[rail].requests;

	done = done > under_way ? done - under_way : 0;
	if (under_way && done <= counters->rail[rail].completions)
		return;
	now = mpib_ticks();
	if (done > counters->rail[rail].completions)
		set(&counters->rail[rail].completions, done);
	if (under_way)
		set(&counters->latest[rail], now);
	else
		set(&counters->busy[rail], counters->busy[rail] + 2 * now - 1);
}

void mpib_gin_times_step(struct mpib_gin *gin)
{
	struct mpib_gin_peer **at = &gin->spans, *peer;

	while ((peer = *at)) {
		for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
			if (has_span(peer, rail))
				look(peer, rail);
		if (has_span(peer, MPIB_SOUT) || has_span(peer, MPIB_SUP)) {
			at = &peer->next_span;
			continue;
		}
		*at = peer->next_span;
		peer->in_span = false;
		gin->outstanding[MPIB_SUP]--;
	}
}
