/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl's view of the flows, frame by frame. */
#include <string.h>

#include "agent/clients/client_impl.h"
#include "common/macros.h"

static void fill_flow(const struct mpib_flows *flows, struct mpib_admin_flow *record,
		      uint32_t index, const struct mpib_slot *slot)
{
	const struct mpib_reg *reg = LIST_FIRST(&slot->regs);
	const struct mpib_verdict *verdict = mpib_shares_verdict(flows->shares, index);

	*record = (struct mpib_admin_flow){
		.slot = index,
		.src_be = slot->src_be,
		.dst_be = slot->dst_be,
		.share = verdict->share,
		.rule = verdict->rule,
		.line = verdict->line,
		.registrations = slot->n_regs - slot->n_unclaimed,
		.uid = slot->user ? slot->user->uid : 0,
		.pid = reg ? reg->peer->pid : 0,
		.seconds = mpib_shares_seconds_left(flows->shares, verdict, slot->src_be,
						    slot->dst_be),
	};
	for (unsigned int rail = 0; rail < 2; rail++) {
		record->sent[rail] = slot->bytes.sent[rail];
		record->received[rail] = slot->bytes.received[rail];
		record->sent_rate[rail] = slot->rate.sent[rail];
		record->received_rate[rail] = slot->rate.received[rail];
	}
	record->moved_usec = slot->moved_usec;
	memcpy(record->src_island, verdict->src_island, sizeof(record->src_island));
	memcpy(record->dst_island, verdict->dst_island, sizeof(record->dst_island));
}

/* Slots looked at for one frame: most may be free. */
#define FRAME_SLOTS 1024u

/* Registrations of one flow that are looked at for a process; a flow with more is shown. */
#define FLOW_REGS 1024u

/* What it looked at is taken off @left, down to 0. */
static bool is_held_by(const struct mpib_slot *slot, pid_t pid, uint32_t *left)
{
	const struct mpib_reg *reg;
	uint32_t n = 0;

	LIST_FOREACH(reg, &slot->regs, of_slot)
	{
		if (reg->peer->pid == pid || n++ == FLOW_REGS)
			break;
	}
	*left -= n < *left ? n : *left;
	return reg != NULL;
}

void mpib_client_dump_flows(struct mpib_client *client)
{
	struct mpib_registry *registry = client->flows->registry;
	struct mpib_admin_flow records[(MPIB_ADMIN_FRAME_MAX - sizeof(struct mpib_admin_records)) /
				       sizeof(struct mpib_admin_flow)];
	uint32_t left = FRAME_SLOTS;
	size_t count = 0;

	while (left-- > 0 && client->dump_cursor < mpib_registry_n_touched(registry) &&
	       count < MPIB_ARRAY_SIZE(records)) {
		uint32_t index = client->dump_cursor++;
		const struct mpib_slot *slot = mpib_registry_slot(registry, index);

		if (!mpib_slot_has_flow(slot) ||
		    (client->dump_pid && !is_held_by(slot, client->dump_pid, &left)))
			continue;
		fill_flow(client->flows, &records[count], index, slot);
		if (client->dump_pid)
			records[count].pid = client->dump_pid;
		count++;
	}

	if (count)
		mpib_client_put_records(client, records, sizeof(records[0]), count);
	else if (client->dump_cursor >= mpib_registry_n_touched(registry))
		mpib_client_put_end(client, MPIB_ADMIN_OK, "");
}
