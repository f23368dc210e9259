/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/connection/stall.h"

/* The progress thread's own numbers, which it writes plainly. One that is old, or that the compiler
 * keeps back, is looked at once too often. */
#if defined(__clang__)
#define PEEK __attribute__((no_sanitize("thread"), noinline))
#else
#define PEEK __attribute__((no_sanitize_thread, noinline))
#endif

static PEEK uint64_t peek_64(const uint64_t *number)
{
	return *(const volatile uint64_t *)number;
}

static PEEK uint32_t peek_32(const uint32_t *number)
{
	return *(const volatile uint32_t *)number;
}

/* Whether requests are under way on a rail and none has completed since the last look. */
static bool sender_is_quiet(struct mpib_comm *comm)
{
	struct mpib_stall *stall = &comm->rails->stall;
	bool quiet = false;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		uint64_t completions = peek_64(&comm->counters->rail[rail].completions);

		stall->moved[rail] = completions != stall->seen[rail];
		stall->seen[rail] = completions;
		if (stall->moved[rail] || !peek_32(&comm->polled[rail]))
			stall->looks[rail] = 0;
		else
			quiet = true;
	}
	return quiet;
}

/* The same of its clear-to-sends. */
static bool receiver_is_quiet(struct mpib_comm *comm)
{
	struct mpib_stall *stall = &comm->rails->stall;
	uint32_t limit = peek_32(&comm->recv.cts_limit);
	bool moved = limit != stall->seen_limit;

	stall->seen_limit = limit;
	if (moved)
		stall->looks[MPIB_SOUT] = stall->looks[MPIB_SUP] = 0;
	return !moved &&
	       __atomic_load_n(&comm->recv.tail, __ATOMIC_RELAXED) != limit - MPIB_CTS_DEPTH;
}

static void look_at(struct mpib_comm *comm, uint64_t now_ms)
{
	struct mpib_stall *stall = &comm->rails->stall;

	if (now_ms < stall->due_ms)
		return;
	stall->due_ms = now_ms + mpib_stall_interval_ms(comm);
	if (comm->kind == MPIB_COUNTER_SEND ? sender_is_quiet(comm) : receiver_is_quiet(comm))
		mpib_comm_flag(comm, MPIB_FLAG_LOOK);
}

static void on_tick(struct mpib_watch_tick *tick, uint64_t now_ms)
{
	bool any = false;

	for (struct mpib_comm *comm = mpib_comms_first(); comm; comm = comm->next) {
		if (!comm->rails || !comm->rails->live || !comm->rails->env->rail_stall_ms)
			continue;
		any = true;
		look_at(comm, now_ms);
	}
	if (!any)
		mpib_watch_tick_del(tick);
}

void mpib_stall_watch(const struct mpib_comm *comm)
{
	static struct mpib_watch_tick tick = { .on_tick = on_tick };

	mpib_watch_assert_locked();
	if (comm->rails->env->rail_stall_ms)
		mpib_watch_tick_add(&tick);
}
