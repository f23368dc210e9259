/* SPDX-License-Identifier: Apache-2.0 */
/* How many descriptors connections and processes may take, and what is said when that is not
 * enough. */
#ifndef MPIB_AGENT_FD_BUDGET_H
#define MPIB_AGENT_FD_BUDGET_H

#include <stdint.h>

#include "agent/journal/journal.h"

/* Of one client: its connection and its process. */
#define MPIB_FD_BUDGET_CLIENT 2u

struct mpib_fd_budget {
	uint32_t fds; /* connections and watched processes together; MPIB_FD_BUDGET_CLIENT at least
		       */
	uint64_t said_usec; /* when a limit was said last, 0: never */
	uint64_t n_unsaid;  /* how often one was met since */
};

/* Raises the soft limit of descriptors to the hard one, and takes what the agent itself needs off
 * it. */
void mpib_fd_budget_measure(struct mpib_fd_budget *budget);
/* @what was met at @now_usec: one line an interval, with a count, however often. */
void mpib_fd_budget_say(struct mpib_fd_budget *budget, struct mpib_journal *journal,
			uint64_t now_usec, const char *what, uint32_t n_connections,
			uint32_t n_processes);

#endif
