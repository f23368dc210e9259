/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/clients/fd_budget.h"

#include <inttypes.h>
#include <sys/resource.h>

#include "agent/base/cause.h"

/* Descriptors for everything but clients and their processes: standard streams, three epolls,
 * timer, signal and chores, directory, lock, hints, state, socket, journal, keeper, and one or two
 * for the moment. */
#define RESERVED_FDS 18u

/* Connections and processes at once, whatever the descriptor limit says. */
#define BUDGET_MAX 32768u

#define INTERVAL_USEC (30u * 1000000u)

static uint32_t count_budget(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 2;

	/* The soft limit protects programs that use select(); this one doesn't. */
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	(void)getrlimit(RLIMIT_NOFILE, &limit);

	if (limit.rlim_cur >= BUDGET_MAX + RESERVED_FDS)
		return BUDGET_MAX;
	if (limit.rlim_cur < RESERVED_FDS + 2)
		return 2;
	return (uint32_t)limit.rlim_cur - RESERVED_FDS;
}

void mpib_room_measure(struct mpib_room *room)
{
	*room = (struct mpib_room){ .budget = count_budget() };
}

void mpib_room_say(struct mpib_room *room, struct mpib_journal *journal, uint64_t now_usec,
		   const char *what, uint32_t n_connections, uint32_t n_processes)
{
	struct mpib_cause text;

	room->n_unsaid++;
	if (room->said_usec && now_usec - room->said_usec < INTERVAL_USEC)
		return;

	(void)mpib_cause_set(&text, 0,
			     "%s (%u connections, %u processes, room for %u in all; met %" PRIu64
			     " times); raise LimitNOFILE= of the unit and restart it",
			     what, n_connections, n_processes, room->budget, room->n_unsaid);
	mpib_journal_limit(journal, text.text);
	room->said_usec = now_usec;
	room->n_unsaid = 0;
}
