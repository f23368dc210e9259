/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/clients/fd_budget.h"

#include <inttypes.h>
#include <sys/resource.h>

#include "agent/base/cause.h"
#include "agent/base/clock.h"

/* Descriptors for everything but clients and their processes: standard streams, two epolls, timer,
 * signal, chores, directory, lock, hints, state, socket, journal, keeper, and one or two
 * for the moment. */
#define RESERVED_FDS 18u

/* Connections and processes at once, whatever the descriptor limit says. */
#define FDS_MAX 32768u

#define INTERVAL_USEC (30u * MPIB_CLOCK_SECOND)

static uint32_t count_fds(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return MPIB_FD_BUDGET_CLIENT;

	/* The soft limit protects programs that use select(); this one doesn't. */
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	(void)getrlimit(RLIMIT_NOFILE, &limit);

	if (limit.rlim_cur >= FDS_MAX + RESERVED_FDS)
		return FDS_MAX;
	if (limit.rlim_cur < RESERVED_FDS + MPIB_FD_BUDGET_CLIENT)
		return MPIB_FD_BUDGET_CLIENT;
	return (uint32_t)limit.rlim_cur - RESERVED_FDS;
}

void mpib_fd_budget_measure(struct mpib_fd_budget *budget)
{
	*budget = (struct mpib_fd_budget){ .fds = count_fds() };
}

void mpib_fd_budget_say(struct mpib_fd_budget *budget, struct mpib_journal *journal,
			uint64_t now_usec, const char *what, uint32_t n_connections,
			uint32_t n_processes)
{
	/* Above FDS_MAX a higher limit gives no more room. */
	const char *further =
		budget->fds < FDS_MAX ? ", or raise LimitNOFILE= of the unit and restart it" : "";
	struct mpib_cause text;

	budget->n_unsaid++;
	if (budget->said_usec && now_usec - budget->said_usec < INTERVAL_USEC)
		return;

	(void)mpib_cause_set(&text, 0,
			     "%s (%u connections, %u processes, room for %u in all; met %" PRIu64
			     " times); see whose they are: ss -xp%s",
			     what, n_connections, n_processes, budget->fds, budget->n_unsaid,
			     further);
	mpib_journal_limit(journal, text.text);
	budget->said_usec = now_usec;
	budget->n_unsaid = 0;
}
