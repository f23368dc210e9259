/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent/flow_model.h"

#include "agent/policy/balance_counts.h"

static const struct mpib_balance_limits wide = { .least = 31, .most = 993, .settle_usec = 100000 };

struct flow make_flow(double sout, double sup)
{
	struct flow flow = {
		.link = { .rate = { sout, sup }, .latency = 5, .random = 20251129 },
		.balance = { .share = 512 },
		.limits = wide,
	};

	flow.link.connection[0] = (struct link_connection){ .size = 1 << 20, .window = 4 };
	return flow;
}

enum mpib_balance_reason tick(struct flow *flow)
{
	struct mpib_balance_look look = { .usec = (uint64_t)TICK };

	link_run(&flow->link, flow->balance.share, TICK);
	for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++) {
		struct mpib_balance_counts counts = flow->link.connection[n].counts;
		enum mpib_balance_lie lie;

		if (flow->others & 1u << n)
			continue;
		counts.timed = 1;
		if (n == 0 && flow->alter)
			flow->alter(&counts, flow->n);
		lie = mpib_balance_see(&flow->seen[n], &counts, (uint64_t)flow->link.now, &look);
		if (lie)
			flow->lie = lie;
		flow->told += lie != MPIB_BALANCE_TRUE;
	}
	flow->n++;
	return mpib_balance_step(&flow->balance, &flow->limits, &look, flow->link.lost,
				 (uint64_t)flow->link.now);
}

void ticks(struct flow *flow, unsigned int n)
{
	while (n--)
		(void)tick(flow);
}

double part_of_sum(struct flow *flow, unsigned int n)
{
	double before = link_bytes(&flow->link);

	ticks(flow, n);
	return (link_bytes(&flow->link) - before) / (n * TICK) /
	       (flow->link.rate[0] + flow->link.rate[1]);
}

bool has_moved(const struct flow *flow, enum mpib_balance_reason reason)
{
	for (unsigned int n = 0; n < MPIB_BALANCE_MOVES; n++)
		if (flow->balance.moves[n].usec && flow->balance.moves[n].reason == reason)
			return true;
	return false;
}
