/* SPDX-License-Identifier: Apache-2.0 */
/* Well-behaved clients beside an attack: how long their registrations take, and whether the
 * heartbeat keeps its interval. Waits of the agent and of the client for a core are taken off, and
 * what cores stood still for: they are the machine's matter. */
#ifndef MPIB_TESTS_AGENT_CALM_H
#define MPIB_TESTS_AGENT_CALM_H

#include "tests/agent/harness/harness.h"

#define CALM_CLIENTS 300u

struct calm;

struct calm_figures {
	unsigned int requests;
	unsigned int failed; /* not answered, or not with a slot */
	double p50_us;	     /* of a registration */
	double p99_us;
	double worst_us;
	double beat_gap_ms;   /* longest time without a heartbeat */
	double message_us;    /* what a message through a socket cost before: median */
	double agent_percent; /* of a core that the agent used */
};

/* CALM_CLIENTS processes, each with a connection of its own, register and deregister now and then.
 * Returns once all are connected. @agent runs and outlives them. */
struct calm *calm_start(const struct agent *agent);
/* Ends them; frees @calm. */
struct calm_figures calm_stop(struct calm *calm);
/* Prints the figures under a name. */
void calm_print(const char *what, const struct calm_figures *figures);
/* @p99_us, and on a machine where a message through a socket takes longer than on those that it's
 * promised for, as much longer, up to five times. */
double calm_scaled_bound(const struct calm_figures *figures, double p99_us);
/* Fails the test where a client wasn't served, or the heartbeat didn't come. */
void calm_judge(const struct calm_figures *figures);

#endif
