/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/flows/flows.h"

#include <errno.h>

#include "agent/flows/flows_impl.h"

/* Registrations of a process that ended, freed in one turn: each costs some microseconds, most of
 * them for its record in the state file. */
#define ENDS_A_TURN 32u

/* ---- registrations -------------------------------------------------------------------------- */

/* Ends a registration, also in table and state file. */
static void drop(struct mpib_flows *flows, struct mpib_reg *reg, const char *why)
{
	uint32_t record = mpib_flows_record(flows, reg);
	uint32_t index = reg->slot;

	mpib_traffic_last(&flows->traffic, reg);
	mpib_journal_deregister(flows->journal, reg, mpib_registry_slot(flows->registry, index),
				mpib_shares_verdict(flows->shares, index), why);
	flows->n_deregistered++;
	mpib_flows_pass(flows, reg);
	/* Table before state: a slot that is shown without a record has an unknown holder. */
	if (mpib_registry_remove(flows->registry, reg))
		mpib_shares_clear(flows->shares, index);
	mpib_flows_forget(flows, record);
}

void mpib_flows_refused(struct mpib_flows *flows, struct mpib_user *user, pid_t pid,
			enum mpib_good good, const char *why)
{
	uint32_t count = mpib_user_refuse(user, good);

	flows->n_refused++;
	if (mpib_journal_quota(flows->journal, pid, user->uid, good, count, why))
		mpib_user_refusals_told(user, good);
}

/* What is shared among users. False: the error is about something else. */
static bool refuse_share(struct mpib_flows *flows, const struct mpib_peer *peer, int error)
{
	enum mpib_good good = MPIB_GOOD_SLOTS;
	const char *why;

	switch (error) {
	case -EDQUOT:
		why = "no free slot in this user's part of the table; an eighth is kept for "
		      "others; raise slots in [agent] and reload (jobs go on)";
		break;
	case -EACCES:
		why = "no free slot but those kept for root, a sixteenth of the table; raise slots "
		      "in [agent] and reload (jobs go on)";
		break;
	case -EUSERS:
		why = "as many registrations as one user may have";
		good = MPIB_GOOD_REGISTRATIONS;
		break;
	default:
		return false;
	}

	mpib_flows_refused(flows, peer->user, peer->pid, good, why);
	return true;
}

static uint8_t refuse(struct mpib_flows *flows, const struct mpib_peer *peer, uint32_t conn_id,
		      const struct mpib_addresses *addresses, int error)
{
	const char *why = "out of memory";
	uint8_t status = MPIB_STATUS_NO_SLOT;

	if (refuse_share(flows, peer, error))
		return status;

	switch (error) {
	case -EINVAL:
		why = "a SOUT address is 0";
		status = MPIB_STATUS_INVALID;
		break;
	case -EEXIST:
		why = "this connection id of the process has another flow already";
		status = MPIB_STATUS_INVALID;
		break;
	case -ENOSPC:
		why = "no free slot; raise slots in [agent] and reload (jobs go on)";
		break;
	case -EIO:
		why = "the state file can't be written, marked or removed, so a restart could "
		      "give the slot away; mend the agent's directory";
		break;
	default:
		break;
	}

	flows->n_refused++;
	mpib_journal_refusal(flows->journal, peer, conn_id, addresses, why);
	return status;
}

uint8_t mpib_flows_register(struct mpib_flows *flows, struct mpib_peer *peer, uint32_t conn_id,
			    const struct mpib_addresses *addresses, uint32_t *ret_slot)
{
	struct mpib_reg *reg;
	int r;

	r = mpib_registry_add(flows->registry, peer, conn_id, addresses, &reg);
	if (r == -EEXIST && reg->adopted) {
		/* Its end couldn't be saved before the agent restarted. */
		drop(flows, reg, "its process has another flow by now");
		r = mpib_registry_add(flows->registry, peer, conn_id, addresses, &reg);
	}
	if (r < 0)
		return refuse(flows, peer, conn_id, addresses, r);

	*ret_slot = reg->slot;
	if (r == 0)
		return MPIB_STATUS_OK;

	/* State before table before answer: what was promised survives a kill at any moment. */
	if (mpib_flows_remember(flows, reg) < 0) {
		mpib_flows_pass(flows, reg);
		(void)mpib_registry_remove(flows->registry, reg);
		return refuse(flows, peer, conn_id, addresses, -EIO);
	}
	(void)mpib_shares_apply(flows->shares, reg->slot);
	if (mpib_shares_is_due(flows->shares) && flows->wake)
		flows->wake(flows->wake_user);
	mpib_flows_claim(flows, reg);
	flows->n_registered++;
	mpib_journal_register(flows->journal, reg, mpib_registry_slot(flows->registry, reg->slot),
			      mpib_shares_verdict(flows->shares, reg->slot));
	return MPIB_STATUS_OK;
}

/* ---- ends ----------------------------------------------------------------------------------- */

uint8_t mpib_flows_deregister(struct mpib_flows *flows, struct mpib_peer *peer, uint32_t conn_id)
{
	struct mpib_reg *reg = mpib_registry_find(flows->registry, peer, conn_id);

	if (!reg) {
		flows->n_refused++;
		mpib_journal_refusal(flows->journal, peer, conn_id, NULL,
				     "this process has no such connection to deregister");
		return MPIB_STATUS_INVALID;
	}

	drop(flows, reg, "as asked");
	return MPIB_STATUS_OK;
}

/* False where some are left for another turn. */
static bool drop_some(struct mpib_flows *flows, struct mpib_peer *peer, const char *why)
{
	for (unsigned int n = 0; n < ENDS_A_TURN && !LIST_EMPTY(&peer->regs); n++)
		drop(flows, LIST_FIRST(&peer->regs), why);
	return LIST_EMPTY(&peer->regs);
}

void mpib_flows_peer_gone(struct mpib_flows *flows, struct mpib_peer *peer, const char *why)
{
	mpib_registry_peer_bury(peer);
	if (drop_some(flows, peer, why))
		return;

	mpib_registry_peer_get(peer);
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

	if (flows->save_more)
		mpib_flows_save(flows);
	more = flows->save_more || more;
	return mpib_traffic_step(&flows->traffic) || more;
}

void mpib_flows_forget_peer(struct mpib_flows *flows, struct mpib_peer *peer)
{
	mpib_registry_peer_bury(peer);
	while (!LIST_EMPTY(&peer->regs)) {
		mpib_flows_pass(flows, LIST_FIRST(&peer->regs));
		(void)mpib_registry_remove(flows->registry, LIST_FIRST(&peer->regs));
	}
}

/* ---- life ----------------------------------------------------------------------------------- */

static void on_rails(void *user, uint32_t slot, const struct mpib_rail_news *news)
{
	const struct mpib_flows *flows = user;

	mpib_journal_rails(flows->journal, slot, mpib_registry_slot(flows->registry, slot),
			   mpib_shares_verdict(flows->shares, slot), news);
}

static void on_lie(void *user, const struct mpib_reg *reg, const char *why)
{
	const struct mpib_flows *flows = user;

	mpib_journal_lie(flows->journal, reg, why, true);
}

void mpib_flows_init(struct mpib_flows *flows)
{
	static const struct mpib_traffic_ops ops = { .rails = on_rails, .lie = on_lie };

	TAILQ_INIT(&flows->ending);
	mpib_traffic_init(&flows->traffic, flows->registry);
	flows->traffic.ops = &ops;
	flows->traffic.ops_user = flows;
}

/* Frees the memory of processes whose end isn't through, and nothing else: the next agent finds in
 * the state file that they are gone. */
static void forget_ending(struct mpib_flows *flows)
{
	while (!TAILQ_EMPTY(&flows->ending)) {
		struct mpib_peer *peer = TAILQ_FIRST(&flows->ending);

		TAILQ_REMOVE(&flows->ending, peer, ending);
		mpib_flows_forget_peer(flows, peer);
		(void)mpib_registry_peer_put(flows->registry, peer);
	}
}

void mpib_flows_done(struct mpib_flows *flows)
{
	forget_ending(flows);
	mpib_flows_forget_unclaimed(flows);
	flows->shares = mpib_shares_free(flows->shares);
}
