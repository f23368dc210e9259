/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold at every moment, and the life and end of the model's directory. */
#include "tests/unit/agent/world.h"

#include "agent/flows/flows_impl.h"
#include "agent/journal/journal_socket.h"
#include "common/hint.h"
#include "tests/unit/agent/disk.h"

#define TABLE_MAX 64u

static struct mpib_hint_entry table[TABLE_MAX];
static uint32_t entries;

/* ---- holders -------------------------------------------------------------------------------- */

static bool share_is_shown(unsigned int flow, uint32_t share)
{
	for (unsigned int n = 0; n < WORLD_SHARES; n++) {
		if (world.shown[flow] & 1u << n && share == world_share(n))
			return true;
	}
	return false;
}

static void check_reg(const struct world_proc *proc, const struct world_reg *reg)
{
	const struct mpib_hint_entry *entry = &table[reg->slot];

	if (reg->slot >= entries)
		fail_msg("slot %u of %u slots", reg->slot, entries);
	/* An agent that died over it: its reader keeps what it read before. */
	if (entry->seq & 1 && !world.up)
		return;
	if (entry->src_ip != world_src(reg->flow) || entry->dst_ip != world_dst(reg->flow))
		fail_msg("slot %u, held by process %d for flow %u, has %08x-%08x", reg->slot,
			 proc->pid, reg->flow, entry->src_ip, entry->dst_ip);
	if (entry->seq & 1 || !share_is_shown(reg->flow, entry->sup_bw))
		fail_msg("slot %u, held by process %d for flow %u: share %u (seq %u), not of %x",
			 reg->slot, proc->pid, reg->flow, entry->sup_bw, entry->seq,
			 world.shown[reg->flow]);
}

static void check_holders(void)
{
	for (unsigned int n = 0; n < WORLD_PROCS; n++) {
		const struct world_proc *proc = &world.procs[n];

		for (unsigned int conn = 0; proc->alive && conn < WORLD_CONNS; conn++) {
			if (proc->regs[conn].hold == HOLD_TOLD)
				check_reg(proc, &proc->regs[conn]);
		}
	}
}

/* ---- slots ---------------------------------------------------------------------------------- */

static bool is_held(const struct mpib_hint_entry *entry)
{
	for (unsigned int n = 0; n < WORLD_PROCS; n++) {
		const struct world_proc *proc = &world.procs[n];

		for (unsigned int conn = 0; proc->alive && conn < WORLD_CONNS; conn++) {
			const struct world_reg *reg = &proc->regs[conn];

			if (reg->hold != HOLD_NONE && world_src(reg->flow) == entry->src_ip &&
			    world_dst(reg->flow) == entry->dst_ip)
				return true;
		}
	}
	return false;
}

static void check_slots(void)
{
	for (uint32_t slot = 0; slot < entries; slot++) {
		const struct mpib_hint_entry *entry = &table[slot];

		if (!entry->src_ip)
			continue;
		if (world.sure && !is_held(entry))
			fail_msg("slot %u is held by nobody: flow %08x-%08x", slot, entry->src_ip,
				 entry->dst_ip);
		for (uint32_t other = 0; other < slot; other++) {
			if (table[other].src_ip == entry->src_ip &&
			    table[other].dst_ip == entry->dst_ip)
				fail_msg("slots %u and %u have one flow", other, slot);
		}
	}
}

/* A save that goes on in slices ends when nothing is missing, so what is missing is counted right
 * whatever happens between two of them. */
static void check_unsaved(void)
{
	const struct mpib_flows *flows = &world.flows;
	uint32_t missing = 0;

	for (uint32_t n = 0; n < mpib_registry_entries(flows->registry); n++) {
		const struct mpib_reg *reg;

		LIST_FOREACH(reg, &mpib_registry_slot(flows->registry, n)->regs, of_slot)
		{
			missing += mpib_flows_record(flows, reg) == MPIB_RECORD_NONE;
		}
	}
	if (missing != flows->n_unsaved)
		fail_msg("%u registrations are not in the state file, and %u are called so",
			 missing, flows->n_unsaved);
}

void world_check(void)
{
	if (world.up && world.flows.adopt)
		check_unsaved();
	if (world.table_due)
		return;
	entries = disk_read_table(table, TABLE_MAX);
	check_holders();
	if (world.up)
		check_slots();
}

/* ---- journal -------------------------------------------------------------------------------- */

bool __wrap_mpib_journal_socket_put(struct mpib_journal_socket *sink, const struct iovec *fields,
				    int n_fields, const char *message);

/* Some entries a restart are too many for a log; MPIB_TEST_VERBOSE shows them. */
bool __wrap_mpib_journal_socket_put(struct mpib_journal_socket *sink, const struct iovec *fields,
				    int n_fields, const char *message)
{
	(void)sink;
	(void)fields;
	(void)n_fields;
	if (world.verbose)
		print_message("    agent: %s\n", message);
	return true;
}
