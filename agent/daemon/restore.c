/* SPDX-License-Identifier: Apache-2.0 */
/* Two witnesses: the table, which jobs read, and the state file. The table decides which flow has
 * which slot: it is written by plain stores, which can't fail, so it is never older than what jobs
 * were told. The state file decides who holds it, where it can be trusted to know all holders. */
#include "agent/daemon/restore.h"

#include <errno.h>
#include <string.h>

#include "agent/state/adopt.h"

#define SLOT_BYTES (MPIB_HINT_ENTRIES_MAX / 8u)

struct restore {
	struct mpib_server *server;
	struct mpib_flows *flows;
	struct mpib_adopt_result found;
	uint8_t released[SLOT_BYTES]; /* slots of which a record's process is known to be gone */
	uint8_t doubtful[SLOT_BYTES]; /* slots of which a record was refused */
	bool table_done;	      /* what the table shows has its holders */
	uint32_t gone;
	uint32_t kept;	  /* records whose process can't be told */
	uint32_t refused; /* records that contradict the table or each other */
};

enum fit {
	FIT_NONE, /* the table has another flow there, or no such slot */
	FIT_FREE, /* the slot is free: the record is written first, and a table that was made anew
		   * knows nothing */
	FIT_SAME,
};

static enum fit fit_table(const struct mpib_flows *flows, const struct mpib_adopt_record *record)
{
	uint32_t src_be;
	uint32_t dst_be;

	if (record->slot >= mpib_hints_entries(flows->hints))
		return FIT_NONE;
	if (!mpib_hints_flow(flows->hints, record->slot, &src_be, &dst_be))
		return FIT_FREE;
	return src_be == record->sout_src_be && dst_be == record->sout_dst_be ? FIT_SAME : FIT_NONE;
}

static void set_bit(uint8_t *slots, uint32_t index)
{
	slots[index / 8] |= (uint8_t)(1u << index % 8);
}

/* A record that contradicts the table or another one. Where it is the other one that is wrong, this
 * one's process holds the slot. */
static enum mpib_adopt_visit refuse(struct restore *restore, const struct mpib_adopt_record *record)
{
	restore->refused++;
	if (record->slot < MPIB_HINT_ENTRIES_MAX)
		set_bit(restore->doubtful, record->slot);
	return MPIB_ADOPT_GOES;
}

static enum mpib_adopt_visit restore_record(const struct mpib_adopt_record *record, uint32_t index,
					    void *user)
{
	struct restore *restore = user;
	bool named = record->pid > 0 && mpib_adopt_names_processes(&restore->found);
	enum fit fit = fit_table(restore->flows, record);
	int r = -ENOENT;

	if (fit == FIT_FREE && !restore->table_done)
		return MPIB_ADOPT_LATER;
	if (fit == FIT_NONE)
		return refuse(restore, record);

	if (named)
		r = mpib_server_adopt(restore->server, record, index);
	if (r == 0)
		return MPIB_ADOPT_STAYS;
	if (r == -ESRCH) {
		restore->gone++;
		set_bit(restore->released, record->slot);
		return MPIB_ADOPT_GOES;
	}
	if (r == -EEXIST || r == -EINVAL || r == -ERANGE)
		return refuse(restore, record);

	/* Its process can't be told: from elsewhere, or for want of descriptors. */
	if (mpib_flows_keep(restore->flows, record, record->pid ? MPIB_RECORD_NONE : index) < 0)
		return refuse(restore, record);
	restore->kept++;
	return record->pid == 0 ? MPIB_ADOPT_STAYS : MPIB_ADOPT_GOES;
}

static void report(const struct restore *restore, uint32_t shown)
{
	const struct mpib_flows *flows = restore->flows;
	const struct mpib_adopt_result *found = &restore->found;
	bool bad = found->error || found->damaged || found->unknown || found->n_damaged ||
		   found->incomplete || restore->refused;
	uint32_t kept = restore->kept + shown;
	struct mpib_cause text;

	if (found->missing && !kept)
		return;

	(void)mpib_cause_set(
		&text, 0,
		"state of an earlier agent%s%s: %u registrations of %u processes re-adopted, %u of "
		"ended processes dropped, %u damaged or contradictory, %u slots kept for flows "
		"that may come back",
		found->error	    ? " unreadable, "
		: found->missing    ? " missing"
		: found->damaged    ? " damaged"
		: found->unknown    ? " of another version"
		: found->foreign    ? " of another boot or pid namespace"
		: found->incomplete ? " incomplete, as its agent couldn't save it"
				    : "",
		found->error ? strerror(-found->error) : "",
		mpib_registry_n_regs(flows->registry) - kept,
		mpib_server_n_processes(restore->server), restore->gone,
		found->n_damaged + restore->refused, kept);
	mpib_journal_adopt(flows->journal, bad, text.text);
}

/* Slots that the table shows and whose holders aren't all known; how many are kept. */
static uint32_t settle_table(struct restore *restore)
{
	bool doubt = restore->found.incomplete || restore->found.n_damaged;

	/* Without all holders known, one that is gone says nothing about the others. */
	if (doubt || !mpib_adopt_names_processes(&restore->found))
		memset(restore->released, 0, sizeof(restore->released));
	for (size_t n = 0; n < SLOT_BYTES; n++)
		restore->released[n] &= (uint8_t)~restore->doubtful[n];
	restore->table_done = true;
	return mpib_flows_settle_slots(restore->flows, restore->released, doubt);
}

void mpib_restore(struct mpib_server *server, struct mpib_flows *flows, int dir_fd, const char *dir)
{
	struct restore restore = { .server = server, .flows = flows };
	struct mpib_cause cause;
	uint32_t shown;

	if (mpib_shares_open_overrides(flows->shares, dir_fd, dir, &cause) < 0)
		mpib_journal_adopt(flows->journal, true, cause.text);
	mpib_shares_expire(flows->shares);
	if (mpib_adopt_open(dir_fd, dir, &flows->adopt, &restore.found) < 0)
		restore.found.error = -ENOMEM;

	/* What the table shows comes first: a record that couldn't be erased must not take the flow
	 * or the connection of what followed it, not even where that couldn't be saved. */
	if (flows->adopt)
		mpib_adopt_each(flows->adopt, false, restore_record, &restore);
	shown = settle_table(&restore);
	if (flows->adopt)
		mpib_adopt_each(flows->adopt, true, restore_record, &restore);
	report(&restore, shown);
	do
		mpib_flows_save(flows);
	while (flows->save_more);
}
