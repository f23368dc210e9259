/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/flows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config.h"

static void match(const struct mpib_flows *flows, uint32_t src_be, uint32_t dst_be,
		  struct mpib_verdict *ret)
{
	mpib_policy_match(flows->policy, src_be, dst_be, ret);
}

/* The share of a slot's flow under the policy in force, into slot and table. Returns the share
 * that was there before. */
static uint32_t apply(struct mpib_flows *flows, uint32_t index)
{
	struct mpib_slot *slot = mpib_registry_slot(flows->registry, index);
	uint32_t before = slot->verdict.share;

	match(flows, slot->src_be, slot->dst_be, &slot->verdict);
	mpib_hints_set(flows->hints, index, slot->verdict.share, slot->src_be, slot->dst_be);
	return before;
}

static void clear(struct mpib_flows *flows, uint32_t index)
{
	memset(&mpib_registry_slot(flows->registry, index)->verdict, 0,
	       sizeof(struct mpib_verdict));
	mpib_hints_set(flows->hints, index, 0, 0, 0);
}

/* ---- state file ----------------------------------------------------------------------------- */

static void note_adopt(struct mpib_flows *flows, int r)
{
	struct mpib_cause cause;

	if (r >= 0) {
		flows->adopt_failing = false;
		return;
	}
	if (flows->adopt_failing)
		return;

	flows->adopt_failing = true;
	(void)mpib_cause_set(&cause, r,
			     "the state file can't be written (%s): registrations work, but a "
			     "restart won't know the newest of them",
			     strerror(-r));
	mpib_journal_adopt(flows->journal, true, cause.text);
}

static void remember(struct mpib_flows *flows, struct mpib_reg *reg)
{
	const struct mpib_slot *slot = mpib_registry_slot(flows->registry, reg->slot);
	struct mpib_adopt_record record = {
		.slot = reg->slot,
		.pid = reg->peer->pid,
		.start_time = reg->peer->start_time,
		.uid = reg->peer->user->uid,
		.conn_id = reg->conn_id,
		.sout_src_be = slot->src_be,
		.sout_dst_be = slot->dst_be,
		.sup_src_be = reg->sup_src_be,
		.sup_dst_be = reg->sup_dst_be,
	};

	if (flows->adopt)
		note_adopt(flows, mpib_adopt_put(flows->adopt, &record, &reg->record));
}

static void forget(struct mpib_flows *flows, const struct mpib_reg *reg)
{
	if (flows->adopt && reg->record != MPIB_RECORD_NONE)
		note_adopt(flows, mpib_adopt_clear(flows->adopt, reg->record));
}

/* ---- registrations -------------------------------------------------------------------------- */

static uint8_t refuse(struct mpib_flows *flows, const struct mpib_peer *peer, uint32_t conn_id,
		      const struct mpib_addresses *addresses, int error)
{
	const char *why = "out of memory";
	uint8_t status = MPIB_STATUS_NO_SLOT;

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
		why = "no free slot; raise slots in [agent] and restart the agent (jobs go on)";
		break;
	case -EDQUOT:
		why = "no free slot in this user's part of the table; an eighth is kept for "
		      "others; raise slots in [agent] and restart the agent (jobs go on)";
		break;
	case -EUSERS:
		why = "too many registrations";
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
	if (r < 0)
		return refuse(flows, peer, conn_id, addresses, r);

	*ret_slot = reg->slot;
	if (r == 0)
		return MPIB_STATUS_OK;

	/* State before answer: what was promised survives a kill at any moment. */
	remember(flows, reg);
	(void)apply(flows, reg->slot);
	flows->n_registered++;
	mpib_journal_register(flows->journal, reg, mpib_registry_slot(flows->registry, reg->slot));
	return MPIB_STATUS_OK;
}

static void drop(struct mpib_flows *flows, struct mpib_reg *reg, const char *why)
{
	uint32_t index = reg->slot;

	mpib_journal_deregister(flows->journal, reg, mpib_registry_slot(flows->registry, index),
				why);
	forget(flows, reg);
	flows->n_deregistered++;
	if (mpib_registry_remove(flows->registry, reg))
		clear(flows, index);
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

	drop(flows, reg, "as asked");
	return MPIB_STATUS_OK;
}

void mpib_flows_peer_gone(struct mpib_flows *flows, struct mpib_peer *peer, const char *why)
{
	mpib_registry_peer_bury(peer);
	while (!LIST_EMPTY(&peer->regs))
		drop(flows, LIST_FIRST(&peer->regs), why);
}

void mpib_flows_forget_peer(struct mpib_flows *flows, struct mpib_peer *peer)
{
	mpib_registry_peer_bury(peer);
	while (!LIST_EMPTY(&peer->regs))
		(void)mpib_registry_remove(flows->registry, LIST_FIRST(&peer->regs));
}

/* ---- the policy as a text ------------------------------------------------------------------- */

static void drop_text(struct mpib_flows *flows)
{
	free(flows->text);
	flows->text = NULL;
	flows->text_version++;
}

const char *mpib_flows_text(struct mpib_flows *flows, uint32_t *ret_version)
{
	size_t len = 0;
	FILE *memory;

	if (!flows->text) {
		memory = open_memstream(&flows->text, &len);
		if (!memory)
			return NULL;
		mpib_config_print(flows->policy, memory);
		if (fclose(memory)) {
			drop_text(flows);
			return NULL;
		}
	}

	*ret_version = flows->text_version;
	return flows->text;
}

void mpib_flows_done(struct mpib_flows *flows)
{
	drop_text(flows);
	flows->policy = mpib_policy_free(flows->policy);
}

void mpib_flows_judge(const struct mpib_flows *flows, uint32_t src_be, uint32_t dst_be,
		      struct mpib_candidate ret_candidates[MPIB_RULE_MAX], struct mpib_verdict *ret)
{
	mpib_policy_candidates(flows->policy, src_be, dst_be, ret_candidates);
	match(flows, src_be, dst_be, ret);
}

/* ---- policy --------------------------------------------------------------------------------- */

uint32_t mpib_flows_set_policy(struct mpib_flows *flows, struct mpib_policy *policy,
			       struct mpib_flow_change **ret_changes)
{
	uint32_t entries = mpib_registry_entries(flows->registry);
	struct mpib_flow_change *changes = NULL;
	uint32_t n_changed = 0;

	(void)mpib_policy_free(flows->policy);
	flows->policy = policy;
	drop_text(flows);
	if (ret_changes)
		changes = calloc(entries, sizeof(*changes));

	for (uint32_t index = 0; index < entries; index++) {
		const struct mpib_slot *slot = mpib_registry_slot(flows->registry, index);
		uint32_t before;

		if (!mpib_slot_has_flow(slot))
			continue;

		before = apply(flows, index);
		if (before == slot->verdict.share)
			continue;

		mpib_journal_hint(flows->journal, index, slot, before);
		if (changes)
			changes[n_changed] = (struct mpib_flow_change){
				.slot = index,
				.src_be = slot->src_be,
				.dst_be = slot->dst_be,
				.before = before,
				.after = slot->verdict.share,
			};
		n_changed++;
	}

	if (ret_changes)
		*ret_changes = changes;
	return n_changed;
}

/* ---- restart -------------------------------------------------------------------------------- */

int mpib_flows_adopt(struct mpib_flows *flows, struct mpib_peer *peer,
		     const struct mpib_adopt_record *record)
{
	struct mpib_addresses addresses = {
		.sout_src_be = record->sout_src_be,
		.sout_dst_be = record->sout_dst_be,
		.sup_src_be = record->sup_src_be,
		.sup_dst_be = record->sup_dst_be,
	};
	const struct mpib_slot *slot;
	struct mpib_reg *reg;
	uint32_t before;
	int r;

	r = mpib_registry_adopt(flows->registry, peer, record->conn_id, &addresses, record->slot,
				&reg);
	if (r < 0)
		return r;

	remember(flows, reg);
	slot = mpib_registry_slot(flows->registry, reg->slot);
	if (slot->n_regs > 1)
		return 0;

	/* The policy may have changed while no agent ran. */
	before = mpib_hints_share(flows->hints, reg->slot);
	(void)apply(flows, reg->slot);
	if (before != slot->verdict.share)
		mpib_journal_hint(flows->journal, reg->slot, slot, before);
	return 0;
}

uint32_t mpib_flows_settle_slots(struct mpib_flows *flows, bool keep)
{
	uint32_t kept = 0;

	for (uint32_t index = 0; index < mpib_hints_entries(flows->hints); index++) {
		const struct mpib_slot *slot = mpib_registry_slot(flows->registry, index);
		uint32_t src_be;
		uint32_t dst_be;

		if (mpib_slot_has_flow(slot)) {
			/* kept by the caller for a peer that may come back */
			if (slot->n_regs == 0)
				(void)apply(flows, index);
			continue;
		}

		if (keep && mpib_hints_flow(flows->hints, index, &src_be, &dst_be) &&
		    mpib_registry_keep(flows->registry, index, src_be, dst_be) == 0) {
			(void)apply(flows, index);
			kept++;
			continue;
		}

		clear(flows, index);
	}

	return kept;
}
