/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl's view of the flows, frame by frame. */
#include <string.h>

#include "agent/admin/session_impl.h"
#include "agent/base/clock.h"
#include "common/macros.h"

struct mpib_admin_rails mpib_session_rails(const struct mpib_rail_state *state,
					   const struct mpib_rail_counts *counts)
{
	struct mpib_admin_rails rails = { .known = state->known };

	for (unsigned int rail = 0; rail < 2; rail++) {
		rails.up[rail] = state->up[rail];
		rails.lost[rail] = state->lost[rail];
		rails.losses[rail] = counts->losses[rail];
		rails.returns[rail] = counts->returns[rail];
		rails.parts_again[rail] = counts->parts_again[rail];
	}
	return rails;
}

static struct mpib_admin_tuning make_tuning(uint32_t given, const struct mpib_tuned *tuned)
{
	struct mpib_admin_tuning record = { .given = given };

	if (!tuned)
		return record;
	record.state = tuned->state;
	record.changes = tuned->balance.changes;
	for (unsigned int rail = 0; rail < 2; rail++)
		record.rate[rail] = mpib_balance_rate(&tuned->balance, rail);
	return record;
}

static struct mpib_admin_gin make_gin(const struct mpib_slot *slot)
{
	return (struct mpib_admin_gin){
		.connections = slot->n_gin,
		.puts = { slot->puts.count[0], slot->puts.count[1] },
		.bytes = { slot->puts.bytes[0], slot->puts.bytes[1] },
	};
}

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
	record->rails = mpib_session_rails(&slot->rail_state, &slot->rails);
	record->tuning = make_tuning(verdict->given, mpib_shares_tuned(flows->shares, index));
	record->gin = make_gin(slot);
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

void mpib_session_dump_flows(struct mpib_session *session)
{
	struct mpib_registry *registry = session->flows->registry;
	struct mpib_admin_flow records[(MPIB_ADMIN_FRAME_MAX - sizeof(struct mpib_admin_records)) /
				       sizeof(struct mpib_admin_flow)];
	uint32_t left = FRAME_SLOTS;
	size_t count = 0;

	while (left-- > 0 && session->dump_cursor < mpib_registry_n_touched(registry) &&
	       count < MPIB_ARRAY_SIZE(records)) {
		uint32_t index = session->dump_cursor++;
		const struct mpib_slot *slot = mpib_registry_slot(registry, index);

		if (!mpib_slot_has_flow(slot) ||
		    (session->dump_pid && !is_held_by(slot, session->dump_pid, &left)))
			continue;
		fill_flow(session->flows, &records[count], index, slot);
		if (session->dump_pid)
			records[count].pid = session->dump_pid;
		count++;
	}

	if (count)
		mpib_session_put_records(session, records, sizeof(records[0]), count);
	else if (session->dump_cursor >= mpib_registry_n_touched(registry))
		mpib_session_put_end(session, MPIB_ADMIN_OK, "");
}

/* The same in each record of a flow. */
static void fill_tuning(struct mpib_admin_rule *record, const struct mpib_tuned *tuned,
			const struct mpib_verdict *verdict)
{
	uint64_t now = mpib_clock_usec(CLOCK_MONOTONIC);

	record->tuning = make_tuning(verdict->given, tuned);
	if (!tuned)
		return;
	record->least = tuned->limits.least;
	record->most = tuned->limits.most;
	record->windows = tuned->balance.windows;
	record->unused_windows = tuned->balance.unused;
	for (unsigned int n = 0; n < MPIB_ADMIN_MOVES; n++) {
		const struct mpib_balance_move *move = &tuned->balance.moves[n];

		if (move->usec)
			record->moves[n] = (struct mpib_admin_move){
				.age_usec = now - move->usec + 1,
				.before = move->before,
				.after = move->after,
				.reason = move->reason,
			};
	}
}

static void fill_rule(struct mpib_admin_rule *record, unsigned int rule,
		      const struct mpib_candidate *candidate, const struct mpib_verdict *verdict,
		      const struct mpib_slot *slot, uint32_t index, uint32_t table_share)
{
	*record = (struct mpib_admin_rule){
		.rule = rule,
		.state = rule == verdict->rule ? MPIB_ADMIN_RULE_IN_FORCE
			 : candidate->applies  ? MPIB_ADMIN_RULE_APPLIES
					       : MPIB_ADMIN_RULE_NO,
		/* For a mpibctl of before, too. */
		.share = mpib_share_is_auto(candidate->share) ? verdict->share : candidate->share,
		.given = candidate->share,
		.line = candidate->line,
		.slot = index,
		.table_share = table_share,
		.registrations = slot ? slot->n_regs - slot->n_unclaimed : 0,
	};
	if (slot) {
		record->rails = mpib_session_rails(&slot->rail_state, &slot->rails);
		record->gin = make_gin(slot);
	}
	memcpy(record->src_island, verdict->src_island, sizeof(record->src_island));
	memcpy(record->dst_island, verdict->dst_island, sizeof(record->dst_island));
}

void mpib_session_explain(struct mpib_session *session,
			  const struct mpib_admin_flow_request *request)
{
	struct mpib_flows *flows = session->flows;
	const struct mpib_slot *slot =
		mpib_registry_find_flow(flows->registry, request->src_be, request->dst_be);
	uint32_t index =
		slot ? mpib_registry_slot_index(flows->registry, slot) : MPIB_ADMIN_NO_SLOT;
	struct mpib_candidate candidates[MPIB_RULE_MAX];
	struct mpib_admin_rule records[MPIB_RULE_MAX];
	uint32_t table_share = slot ? mpib_shares_verdict(flows->shares, index)->share : 0;
	struct mpib_verdict verdict;

	mpib_shares_judge(flows->shares, request->src_be, request->dst_be, candidates, &verdict);
	for (unsigned int n = 0; n < MPIB_RULE_MAX; n++) {
		/* The override, last of the rules by number, is the strongest. */
		unsigned int rule = n ? n - 1 : MPIB_RULE_OVERRIDE;

		fill_rule(&records[n], rule, &candidates[rule], &verdict, slot, index, table_share);
		records[n].seconds = mpib_shares_seconds_left(flows->shares, &verdict,
							      request->src_be, request->dst_be);
		fill_tuning(&records[n], slot ? mpib_shares_tuned(flows->shares, index) : NULL,
			    &verdict);
	}

	mpib_session_put_records(session, records, sizeof(records[0]), MPIB_RULE_MAX);
	mpib_session_put_end(session, MPIB_ADMIN_OK, "");
}
