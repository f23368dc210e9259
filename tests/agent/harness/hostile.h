/* SPDX-License-Identifier: Apache-2.0 */
/* What a hostile client does to the agent's socket. Each attack is one process (or more) of an
 * unprivileged user, where the test is root. */
#ifndef MPIB_TESTS_AGENT_HOSTILE_H
#define MPIB_TESTS_AGENT_HOSTILE_H

#include "tests/agent/harness/harness.h"

struct hostile {
	const char *name; /* of the case it is */
	const char *what; /* for people */
	/* Runs in a child until it is done or killed. 0, or a step that went wrong. */
	int (*run)(const struct agent *agent);
	unsigned int seconds; /* it is killed then; 0: it ends by itself */
	bool root;	      /* it is started as root, and becomes other users by itself */
};

extern const struct hostile hostiles[];
extern const unsigned int n_hostiles;

const struct hostile *hostile_find(const char *name);
/* Starts it as a child. */
pid_t hostile_start(const struct hostile *hostile, const struct agent *agent);
/* Waits for its end, kills it where its time since @started_ms is over; fails the test where it
 * went wrong. */
void hostile_end(const struct hostile *hostile, pid_t pid, uint64_t started_ms);

#endif
