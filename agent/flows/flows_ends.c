/* SPDX-License-Identifier: Apache-2.0 */
/* How registrations end: as asked, or with their process. */
#include "agent/flows/flows_impl.h"

/* Registrations of a process that ended, freed in one turn: each costs some microseconds, most of
 * them for its record in the state file. */
#define ENDS_A_TURN 32u

void mpib_flows_drop(struct mpib_flows *flows, struct mpib_reg *reg, const char *why)
{
	uint32_t record = reg->record;
	uint32_t index = reg->slot;

	mpib_traffic_last(&flows->traffic, reg);
	mpib_journal_deregister(flows->journal, reg, mpib_registry_slot(flows->registry, index),
				why);
	flows->n_deregistered++;
	/* Table before state: a slot that is shown without a record has an unknown holder. */
	if (mpib_registry_remove(flows->registry, reg))
		mpib_flows_clear(flows, index);
	mpib_flows_forget(flows, record);
}

uint8_t mpib_flows_deregister(struct mpib_flows *flows, struct mpib_peer *peer, uint32_t conn_id)
{
	struct mpib_reg *reg = mpib_registry_find(flows->registry, peer, conn_id);

	if (!reg) {
		flows->n_refused++;
		mpib_journal_refusal(flows->journal, peer, conn_id, NULL,
				     "this process has no such connection to deregister");
		return MPIB_STATUS_INVALID;
	}

	mpib_flows_drop(flows, reg, "as asked");
	return MPIB_STATUS_OK;
}

/* False where some are left for another turn. */
static bool drop_some(struct mpib_flows *flows, struct mpib_peer *peer, const char *why)
{
	for (unsigned int n = 0; n < ENDS_A_TURN && !LIST_EMPTY(&peer->regs); n++)
		mpib_flows_drop(flows, LIST_FIRST(&peer->regs), why);
	return LIST_EMPTY(&peer->regs);
}

void mpib_flows_peer_gone(struct mpib_flows *flows, struct mpib_peer *peer, const char *why)
{
	mpib_registry_peer_bury(peer);
	if (drop_some(flows, peer, why))
		return;

	peer->refs++;
	peer->ending_why = why;
	TAILQ_INSERT_TAIL(&flows->ending, peer, ending);
	if (flows->wake)
		flows->wake(flows->wake_user);
}

/* Those that end take turns, too. */
static bool end_some(struct mpib_flows *flows)
{
	struct mpib_peer *peer = TAILQ_FIRST(&flows->ending);

	if (!peer)
		return false;

	TAILQ_REMOVE(&flows->ending, peer, ending);
	if (drop_some(flows, peer, peer->ending_why))
		(void)mpib_registry_peer_put(flows->registry, peer);
	else
		TAILQ_INSERT_TAIL(&flows->ending, peer, ending);
	return !TAILQ_EMPTY(&flows->ending);
}

bool mpib_flows_step(struct mpib_flows *flows)
{
	bool more = end_some(flows);

	return mpib_traffic_step(&flows->traffic) || more;
}

void mpib_flows_init(struct mpib_flows *flows)
{
	TAILQ_INIT(&flows->ending);
	mpib_traffic_init(&flows->traffic, flows->registry);
}

void mpib_flows_forget_ending(struct mpib_flows *flows)
{
	while (!TAILQ_EMPTY(&flows->ending)) {
		struct mpib_peer *peer = TAILQ_FIRST(&flows->ending);

		TAILQ_REMOVE(&flows->ending, peer, ending);
		mpib_flows_forget_peer(flows, peer);
		(void)mpib_registry_peer_put(flows->registry, peer);
	}
}

void mpib_flows_forget_peer(struct mpib_flows *flows, struct mpib_peer *peer)
{
	mpib_registry_peer_bury(peer);
	while (!LIST_EMPTY(&peer->regs))
		(void)mpib_registry_remove(flows->registry, LIST_FIRST(&peer->regs));
}
