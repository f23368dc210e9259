/* SPDX-License-Identifier: Apache-2.0 */
/* The table says which flow has which slot, and is never older than what jobs were told; the state
 * file says who holds it. A slot is freed when all its holders are known to be gone. */
#include "agent/flows/flows_impl.h"

#include <errno.h>
#include <string.h>

#define UID_UNKNOWN ((uid_t)-1)

_Static_assert(MPIB_ADOPT_RECORDS_MAX >= MPIB_REGISTRY_MAX, "the state file holds all");

/* ---- saving --------------------------------------------------------------------------------- */

static struct mpib_adopt_record record_of(const struct mpib_flows *flows,
					  const struct mpib_reg *reg)
{
	const struct mpib_slot *slot = mpib_registry_slot(flows->registry, reg->slot);

	return (struct mpib_adopt_record){
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
}

uint32_t mpib_flows_record(const struct mpib_flows *flows, const struct mpib_reg *reg)
{
	return reg->file == flows->n_files ? reg->record : MPIB_RECORD_NONE;
}

static void set_record(const struct mpib_flows *flows, struct mpib_reg *reg, uint32_t record)
{
	reg->record = record;
	reg->file = flows->n_files;
}

static int put(struct mpib_flows *flows, struct mpib_reg *reg)
{
	struct mpib_adopt_record record = record_of(flows, reg);
	uint32_t index;
	int r = mpib_adopt_put(flows->adopt, &record, &index);

	if (r == 0)
		set_record(flows, reg, index);
	return r;
}

/* What is kept for a holder of before that comes back as @reg, or NULL. */
static struct mpib_reg *find_kept(const struct mpib_flows *flows, const struct mpib_reg *reg)
{
	const struct mpib_slot *slot = mpib_registry_slot(flows->registry, reg->slot);
	struct mpib_peer *peer;

	if (!slot->n_unclaimed)
		return NULL;

	/* As many as processes of before that chose the same id, and not all who hold the slot. */
	LIST_FOREACH(peer, &flows->unclaimed, bucket)
	{
		struct mpib_reg *kept = NULL;

		if (peer->user == reg->peer->user)
			kept = mpib_registry_find(flows->registry, peer, reg->conn_id);
		if (kept && kept->slot == reg->slot)
			return kept;
	}
	return NULL;
}

/* Over the record of what is kept for it: with a new place beside it a kill could leave both, of
 * which only one would ever be claimed. True where that worked. */
static bool put_over_kept(struct mpib_flows *flows, struct mpib_reg *reg)
{
	struct mpib_adopt_record record = record_of(flows, reg);
	struct mpib_reg *kept = find_kept(flows, reg);
	uint32_t index = kept ? mpib_flows_record(flows, kept) : MPIB_RECORD_NONE;

	if (index == MPIB_RECORD_NONE || mpib_adopt_replace(flows->adopt, &record, index) < 0)
		return false;
	set_record(flows, reg, index);
	set_record(flows, kept, MPIB_RECORD_NONE);
	flows->n_unsaved++; /* until it is claimed, which comes next */
	return true;
}

/* Said once, until everything is saved again. */
static void tell_unsaved(struct mpib_flows *flows, const char *why)
{
	bool said = flows->unsaved.text[0] != '\0';
	struct mpib_cause line;

	(void)mpib_cause_set(&flows->unsaved, 0, "%s", why);
	if (said)
		return;
	(void)mpib_cause_set(&line, 0,
			     "the state can't be saved (%.300s): jobs go on, the agent tries again "
			     "each second; a restart meanwhile keeps slots whose holders it can't "
			     "tell",
			     why);
	mpib_journal_adopt(flows->journal, true, line.text);
}

int mpib_flows_remember(struct mpib_flows *flows, struct mpib_reg *reg)
{
	int r;

	if (!flows->adopt || put_over_kept(flows, reg))
		return 0;

	r = put(flows, reg);
	if (r == 0)
		return 0;

	tell_unsaved(flows, strerror(-r));
	r = mpib_adopt_mark(flows->adopt, true);
	if (r == 0)
		flows->n_unsaved++;
	return r;
}

void mpib_flows_forget(struct mpib_flows *flows, uint32_t record)
{
	int r;

	if (!flows->adopt)
		return;
	if (record == MPIB_RECORD_NONE) {
		flows->n_unsaved--;
		return;
	}
	r = mpib_adopt_clear(flows->adopt, record);
	if (r < 0)
		tell_unsaved(flows, strerror(-r));
}

/* What one slice may cost, in slots passed; a look at a registration and a write of one are as
 * much as so many: 50 us or so. */
#define SLICE_COST 2048u
#define LOOK_COST  4u
#define PUT_COST   64u

/* The file was made anew: nothing is in it. */
static void call_all_unsaved(struct mpib_flows *flows)
{
	flows->n_files++;
	flows->n_unsaved = mpib_registry_n_regs(flows->registry);
	flows->save_slot = 0;
	flows->save_reg = NULL;
}

void mpib_flows_pass(struct mpib_flows *flows, const struct mpib_reg *reg)
{
	if (flows->save_reg == reg)
		flows->save_reg = LIST_NEXT(reg, of_slot);
}

/* The next registration of the walk, which begins anew at its end; NULL: none in this slot. */
static struct mpib_reg *next_reg(struct mpib_flows *flows)
{
	struct mpib_reg *reg = flows->save_reg;

	if (reg) {
		flows->save_reg = LIST_NEXT(reg, of_slot);
		return reg;
	}

	flows->save_slot++;
	if (flows->save_slot >= mpib_registry_entries(flows->registry))
		flows->save_slot = 0;
	flows->save_reg = LIST_FIRST(&mpib_registry_slot(flows->registry, flows->save_slot)->regs);
	return NULL;
}

/* A slice of it; a negative errno ends it until the next try. */
static int put_unsaved(struct mpib_flows *flows)
{
	uint32_t most = flows->save_slice ? flows->save_slice : SLICE_COST;
	uint32_t cost = 0;

	while (flows->n_unsaved && cost < most) {
		struct mpib_reg *reg = next_reg(flows);
		int r;

		cost += reg ? LOOK_COST : 1;
		if (!reg || mpib_flows_record(flows, reg) != MPIB_RECORD_NONE)
			continue;
		r = put(flows, reg);
		if (r < 0)
			return r;
		flows->n_unsaved--;
		cost += PUT_COST;
	}
	return 0;
}

/* 0: all is saved; 1: there is more to be done; a negative errno with @cause: it can't be done. */
static int save_some(struct mpib_flows *flows, struct mpib_cause *cause)
{
	bool incomplete = flows->n_unsaved > 0;
	bool made;
	int r = mpib_adopt_save(flows->adopt, incomplete, &made, cause);

	if (made)
		call_all_unsaved(flows);
	if (r != 0 || (!made && !incomplete))
		return r;

	r = put_unsaved(flows);
	if (r == 0 && flows->n_unsaved)
		return 1;
	if (r == 0)
		r = mpib_adopt_mark(flows->adopt, false);
	return r < 0 ? mpib_cause_set(cause, r, "%s", strerror(-r)) : 0;
}

void mpib_flows_save(struct mpib_flows *flows)
{
	struct mpib_cause cause;
	int r;

	if (!flows->adopt)
		return;

	r = save_some(flows, &cause);
	flows->save_more = r > 0;
	if (r > 0 && flows->wake)
		flows->wake(flows->wake_user);
	if (r < 0) {
		tell_unsaved(flows, cause.text);
	} else if (r == 0 && flows->unsaved.text[0]) {
		flows->unsaved.text[0] = '\0';
		mpib_journal_adopt(flows->journal, false, "the state is saved again, whole");
	}
}

/* ---- restart -------------------------------------------------------------------------------- */

static int adopt(struct mpib_flows *flows, struct mpib_peer *peer,
		 const struct mpib_adopt_record *record, struct mpib_reg **ret)
{
	struct mpib_addresses addresses = {
		.sout_src_be = record->sout_src_be,
		.sout_dst_be = record->sout_dst_be,
		.sup_src_be = record->sup_src_be,
		.sup_dst_be = record->sup_dst_be,
	};

	return mpib_registry_adopt(flows->registry, peer, record->conn_id, &addresses, record->slot,
				   ret);
}

/* In force, with the policy of today; and in the state file, where it already is at @index. */
static void settle(struct mpib_flows *flows, struct mpib_reg *reg, uint32_t index)
{
	const struct mpib_slot *slot = mpib_registry_slot(flows->registry, reg->slot);
	const struct mpib_verdict *verdict;
	uint32_t before;

	set_record(flows, reg, index);
	if (index == MPIB_RECORD_NONE && flows->adopt && put(flows, reg) < 0)
		flows->n_unsaved++;
	if (slot->n_regs > 1)
		return;

	/* The policy may have changed while no agent ran. */
	before = mpib_hints_share(flows->hints, reg->slot);
	(void)mpib_shares_apply(flows->shares, reg->slot);
	verdict = mpib_shares_verdict(flows->shares, reg->slot);
	if (before != verdict->share)
		mpib_journal_hint(flows->journal, reg->slot, slot, verdict, before);
}

int mpib_flows_adopt(struct mpib_flows *flows, struct mpib_peer *peer,
		     const struct mpib_adopt_record *record, uint32_t index)
{
	struct mpib_reg *reg;
	int r = adopt(flows, peer, record, &reg);

	if (r == 0)
		settle(flows, reg, index);
	return r;
}

/* A stand-in for holders of this user that has @conn_id to give. */
static struct mpib_peer *stand_in(struct mpib_flows *flows, uid_t uid, uint32_t conn_id)
{
	struct mpib_peer *peer;

	LIST_FOREACH(peer, &flows->unclaimed, bucket)
	{
		if (peer->user->uid == uid && !mpib_registry_find(flows->registry, peer, conn_id))
			return peer;
	}

	if (mpib_registry_peer_new(flows->registry, 0, 0, uid, &peer) < 0)
		return NULL;
	peer->unclaimed = true;
	flows->n_unclaimed_peers++;
	LIST_INSERT_HEAD(&flows->unclaimed, peer, bucket);
	return peer;
}

int mpib_flows_keep(struct mpib_flows *flows, const struct mpib_adopt_record *record,
		    uint32_t index)
{
	struct mpib_peer *peer = stand_in(flows, record->uid, record->conn_id);

	return peer ? mpib_flows_adopt(flows, peer, record, index) : -ENOMEM;
}

void mpib_flows_claim(struct mpib_flows *flows, const struct mpib_reg *reg)
{
	struct mpib_reg *kept = find_kept(flows, reg);
	uint32_t record;

	if (!kept)
		return;

	record = mpib_flows_record(flows, kept);
	mpib_flows_pass(flows, kept);
	(void)mpib_registry_remove(flows->registry, kept);
	mpib_flows_forget(flows, record);
}

void mpib_flows_forget_unclaimed(struct mpib_flows *flows)
{
	while (!LIST_EMPTY(&flows->unclaimed)) {
		struct mpib_peer *peer = LIST_FIRST(&flows->unclaimed);

		LIST_REMOVE(peer, bucket);
		flows->n_unclaimed_peers--;
		mpib_flows_forget_peer(flows, peer);
		(void)mpib_registry_peer_put(flows->registry, peer);
	}
}

static bool has_unknown_holder(const struct mpib_slot *slot)
{
	const struct mpib_reg *reg;

	LIST_FOREACH(reg, &slot->regs, of_slot)
	{
		if (reg->peer->unclaimed && reg->peer->user->uid == UID_UNKNOWN)
			return true;
	}
	return false;
}

/* A stand-in for whoever else may hold the slot. */
static bool keep_for_unknown(struct mpib_flows *flows, uint32_t index)
{
	struct mpib_adopt_record record = { .slot = index, .uid = UID_UNKNOWN, .conn_id = index };

	return mpib_hints_flow(flows->hints, index, &record.sout_src_be, &record.sout_dst_be) &&
	       mpib_flows_keep(flows, &record, MPIB_RECORD_NONE) == 0;
}

uint32_t mpib_flows_settle_slots(struct mpib_flows *flows, const uint8_t *released, bool doubt)
{
	uint32_t kept = 0;

	for (uint32_t index = 0; index < mpib_hints_entries(flows->hints); index++) {
		const struct mpib_slot *slot = mpib_registry_slot(flows->registry, index);
		bool held = mpib_slot_has_flow(slot);
		bool gone = released[index / 8] & 1u << index % 8;

		/* Known holders end; those whose record is missing may live on. */
		if (held ? doubt && !has_unknown_holder(slot) : !gone)
			kept += keep_for_unknown(flows, index);
		if (!mpib_slot_has_flow(slot))
			mpib_shares_clear(flows->shares, index);
	}

	return kept;
}
