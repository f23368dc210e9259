/* SPDX-License-Identifier: Apache-2.0 */
/* A flow whose share finds itself, on a modelled link: a look every TICK microseconds, and the
 * decision. */
#ifndef MPIB_TESTS_UNIT_AGENT_FLOW_MODEL_H
#define MPIB_TESTS_UNIT_AGENT_FLOW_MODEL_H

#include "agent/policy/balance.h"
#include "tests/unit/agent/link_model.h"
#include "tests/unit/agent/test.h"

#define TICK 10000.0

#define SHOULD(condition, ...)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail_msg(__VA_ARGS__);                                                     \
	} while (0)

/* A flow on a link, and how it goes about its share. */
struct flow {
	struct link link;
	struct mpib_balance balance;
	struct mpib_balance_limits limits;
	struct mpib_balance_seen seen[LINK_CONNECTIONS_MAX];
	unsigned int others; /* bits of connections that are another flow's */
	enum mpib_balance_lie lie;
	unsigned int told; /* lies */
	unsigned int n;	   /* looks */
	/* What becomes of connection 0's counters on the way to the @n-th look. */
	void (*alter)(struct mpib_balance_counts *counts, unsigned int n);
};

/* One connection, messages of 1 MiB, 4 under way; rates in bytes a microsecond; from equal parts,
 * within bounds of 3 and 97 %. */
struct flow make_flow(double sout, double sup);
/* One look, and the decision. */
enum mpib_balance_reason tick(struct flow *flow);
void ticks(struct flow *flow, unsigned int n);
/* What @n ticks from now on carry, as a part of what both rails can. */
double part_of_sum(struct flow *flow, unsigned int n);
/* One of the latest changes was for @reason. */
bool has_moved(const struct flow *flow, enum mpib_balance_reason reason);

#endif
