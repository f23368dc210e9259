/* SPDX-License-Identifier: Apache-2.0 */
/* One function an event: its sentence and its fields. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include "agent/base/clock.h"
#include "agent/journal/journal_impl.h"
#include "common/ipv4.h"
#include "common/share.h"

static void add_process(struct mpib_entry *entry, pid_t pid, uid_t uid)
{
	if (pid > 0)
		mpib_entry_add(entry, "OBJECT_PID=%ld", (long)pid);
	mpib_entry_add(entry, "MPIB_UID=%u", uid);
}

static void add_slot(struct mpib_entry *entry, uint32_t index, const struct mpib_slot *slot,
		     const struct mpib_verdict *verdict)
{
	char flow[MPIB_FLOW_TEXT_MAX];

	mpib_entry_add(entry, "MPIB_FLOW=%s", mpib_flow_format(slot->src_be, slot->dst_be, flow));
	mpib_entry_add(entry, "MPIB_SLOT=%u", index);
	mpib_entry_add(entry, "MPIB_SHARE=%u", verdict->share);
	mpib_entry_add(entry, "MPIB_ISLAND_SRC=%s", verdict->src_island);
	mpib_entry_add(entry, "MPIB_ISLAND_DST=%s", verdict->dst_island);
	mpib_entry_add(entry, "MPIB_RULE=%s", mpib_rule_name(verdict->rule));
}

void mpib_journal_start(struct mpib_journal *journal, const char *dir, const char *config,
			uint32_t slots, uint32_t flows)
{
	struct mpib_entry entry;

	mpib_entry_start(&entry, MPIB_EVENT_START, LOG_INFO,
			 "started: mpib-agentd " MPIB_VERSION
			 " serves %s with %u slots, policy %s, %u flow%s "
			 "re-adopted",
			 dir, slots, config, flows, flows == 1 ? "" : "s");
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_stop(struct mpib_journal *journal, const char *dir, uint32_t flows)
{
	struct mpib_entry entry;

	mpib_entry_start(&entry, MPIB_EVENT_STOP, LOG_INFO,
			 "stopped: %u flow%s of %s keep their last shares", flows,
			 flows == 1 ? "" : "s", dir);
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_failure(struct mpib_journal *journal, const char *text)
{
	struct mpib_entry entry;

	mpib_entry_start(&entry, MPIB_EVENT_STOP, LOG_ERR, "%s", text);
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_adopt(struct mpib_journal *journal, bool warning, const char *text)
{
	struct mpib_entry entry;

	/* What fails again with each registration is told once. */
	if (warning && !mpib_journal_admit_cause(journal, MPIB_EVENT_ADOPT, text))
		return;

	mpib_entry_start(&entry, MPIB_EVENT_ADOPT, warning ? LOG_WARNING : LOG_INFO, "%s", text);
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_register(struct mpib_journal *journal, const struct mpib_reg *reg,
			   const struct mpib_slot *slot, const struct mpib_verdict *verdict)
{
	struct mpib_entry entry;
	char flow[MPIB_FLOW_TEXT_MAX];
	char percent[MPIB_SHARE_TEXT_MAX];

	if (!mpib_journal_admit(journal, MPIB_EVENT_REGISTER))
		return;

	mpib_entry_start(
		&entry, MPIB_EVENT_REGISTER, LOG_INFO,
		"flow %s registered by pid %ld: connection 0x%08x, slot %u, share %u (%s), "
		"island %s to %s, rule %s",
		mpib_flow_format(slot->src_be, slot->dst_be, flow), (long)reg->peer->pid,
		reg->conn_id, reg->slot, verdict->share, mpib_share_format(verdict->share, percent),
		verdict->src_island, verdict->dst_island, mpib_rule_name(verdict->rule));
	add_slot(&entry, reg->slot, slot, verdict);
	mpib_entry_add(&entry, "MPIB_CONN_ID=0x%08x", reg->conn_id);
	add_process(&entry, reg->peer->pid, reg->peer->user->uid);
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_deregister(struct mpib_journal *journal, const struct mpib_reg *reg,
			     const struct mpib_slot *slot, const struct mpib_verdict *verdict,
			     const char *why)
{
	struct mpib_entry entry;
	char flow[MPIB_FLOW_TEXT_MAX];

	if (!mpib_journal_admit(journal, MPIB_EVENT_DEREGISTER))
		return;

	mpib_entry_start(
		&entry, MPIB_EVENT_DEREGISTER, LOG_INFO,
		"flow %s deregistered: %sconnection 0x%08x of pid %ld, slot %u, %s; %u left",
		mpib_flow_format(slot->src_be, slot->dst_be, flow), reg->gin ? "GIN " : "",
		reg->conn_id, (long)reg->peer->pid, reg->slot, why, slot->n_regs - 1);
	add_slot(&entry, reg->slot, slot, verdict);
	mpib_entry_add(&entry, "MPIB_CONN_ID=0x%08x", reg->conn_id);
	mpib_entry_add(&entry, "MPIB_KIND=%s", reg->gin ? "gin" : "net");
	add_process(&entry, reg->peer->pid, reg->peer->user->uid);
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_hint(struct mpib_journal *journal, uint32_t index, const struct mpib_slot *slot,
		       const struct mpib_verdict *verdict, uint32_t share_before)
{
	struct mpib_entry entry;
	char flow[MPIB_FLOW_TEXT_MAX];
	char before[MPIB_SHARE_TEXT_MAX];
	char after[MPIB_SHARE_TEXT_MAX];

	if (!mpib_journal_admit(journal, MPIB_EVENT_HINT))
		return;

	mpib_entry_start(&entry, MPIB_EVENT_HINT, LOG_NOTICE,
			 "flow %s share %u (%s) -> %u (%s): slot %u, rule %s",
			 mpib_flow_format(slot->src_be, slot->dst_be, flow), share_before,
			 mpib_share_format(share_before, before), verdict->share,
			 mpib_share_format(verdict->share, after), index,
			 mpib_rule_name(verdict->rule));
	add_slot(&entry, index, slot, verdict);
	mpib_entry_add(&entry, "MPIB_SHARE_BEFORE=%u", share_before);
	(void)mpib_journal_emit(journal, &entry);
}

static double megabytes(const struct mpib_balance *balance, unsigned int rail)
{
	return (double)mpib_balance_rate(balance, rail) / 1e6;
}

void mpib_journal_found(struct mpib_journal *journal, uint32_t index, const struct mpib_slot *slot,
			const struct mpib_verdict *verdict, const struct mpib_balance *balance,
			uint32_t share_before, uint32_t changes)
{
	struct mpib_entry entry;
	char flow[MPIB_FLOW_TEXT_MAX];
	char before[MPIB_SHARE_TEXT_MAX];
	char after[MPIB_SHARE_TEXT_MAX];
	char rates[80] = "by the ports' speeds";

	if (!mpib_journal_admit(journal, MPIB_EVENT_HINT))
		return;

	if (balance->measured)
		(void)snprintf(rates, sizeof(rates), "SOUT gives %.1f MB/s, SUP %.1f",
			       megabytes(balance, 0), megabytes(balance, 1));
	mpib_entry_start(
		&entry, MPIB_EVENT_HINT, LOG_NOTICE,
		"flow %s share %u (%s) -> %u (%s) found by itself: %s; %s; %u change%s; "
		"slot %u, rule %s",
		mpib_flow_format(slot->src_be, slot->dst_be, flow), share_before,
		mpib_share_format(share_before, before), verdict->share,
		mpib_share_format(verdict->share, after),
		mpib_balance_reason_text((enum mpib_balance_reason)balance->moves[0].reason), rates,
		changes, changes == 1 ? "" : "s", index, mpib_rule_name(verdict->rule));
	add_slot(&entry, index, slot, verdict);
	mpib_entry_add(&entry, "MPIB_SHARE_BEFORE=%u", share_before);
	mpib_entry_add(&entry, "MPIB_CHANGES=%u", changes);
	mpib_entry_add(&entry, "MPIB_RATE_SOUT=%" PRIu64, mpib_balance_rate(balance, 0));
	mpib_entry_add(&entry, "MPIB_RATE_SUP=%" PRIu64, mpib_balance_rate(balance, 1));
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_not_found(struct mpib_journal *journal, uint32_t index,
			    const struct mpib_slot *slot, uint32_t share, const char *why)
{
	struct mpib_entry entry;
	char flow[MPIB_FLOW_TEXT_MAX];
	char percent[MPIB_SHARE_TEXT_MAX];

	if (!mpib_journal_admit(journal, MPIB_EVENT_HINT))
		return;

	mpib_entry_start(&entry, MPIB_EVENT_HINT, LOG_WARNING,
			 "flow %s can't find its share: %s; it stays at %u (%s)",
			 mpib_flow_format(slot->src_be, slot->dst_be, flow), why, share,
			 mpib_share_format(share, percent));
	mpib_entry_add(&entry, "MPIB_FLOW=%s", flow);
	mpib_entry_add(&entry, "MPIB_SLOT=%u", index);
	mpib_entry_add(&entry, "MPIB_SHARE=%u", share);
	(void)mpib_journal_emit(journal, &entry);
}

/* ---- rails ---------------------------------------------------------------------------------- */

static const char *const rail_names[2] = { "SOUT", "SUP" };

/* What the connections that have news are on now, for a sentence and for a field. */
static const struct {
	const char *sentence;
	const char *field;
} in_force[4] = {
	{ "no rail is left", "none" },
	{ "SOUT takes all", "sout" },
	{ "SUP takes all", "sup" },
	{ "both rails are in use", "both" },
};

static void tell_rail(struct mpib_journal *journal, enum mpib_event event, unsigned int rail,
		      uint32_t index, const struct mpib_slot *slot,
		      const struct mpib_verdict *verdict, const struct mpib_rail_news *news)
{
	bool lost = event == MPIB_EVENT_RAIL_LOST;
	uint64_t times = lost ? news->added.losses[rail] : news->added.returns[rail];
	uint32_t connections = lost ? news->lost_by[rail] : news->returned_to[rail];
	int priority = !lost ? LOG_NOTICE : news->up ? LOG_WARNING : LOG_ERR;
	struct mpib_entry entry;
	char flow[MPIB_FLOW_TEXT_MAX];
	char peer[MPIB_IPV4_TEXT_MAX];
	char percent[MPIB_SHARE_TEXT_MAX];

	if (!times || !mpib_journal_admit(journal, event))
		return;

	mpib_entry_start(&entry, event, priority,
			 "flow %s %s %s%s: %" PRIu64 " time%s on %u connection%s of pid %ld; %s; "
			 "share in the table %u (%s); %u of the flow's %u connections lack %s",
			 mpib_flow_format(slot->src_be, slot->dst_be, flow), lost ? "lost" : "has",
			 rail_names[rail], lost ? "" : " back", times, times == 1 ? "" : "s",
			 connections, connections == 1 ? "" : "s", (long)news->pid,
			 in_force[news->up].sentence, verdict->share,
			 mpib_share_format(verdict->share, percent), slot->rail_state.lost[rail],
			 slot->rail_state.known, rail_names[rail]);
	add_slot(&entry, index, slot, verdict);
	mpib_entry_add(&entry, "MPIB_RAIL=%s", rail ? "sup" : "sout");
	mpib_entry_add(&entry, "MPIB_IN_FORCE=%s", in_force[news->up].field);
	mpib_entry_add(&entry, "MPIB_PEER=%s", mpib_ipv4_format(slot->dst_be, peer));
	mpib_entry_add(&entry, "MPIB_TIMES=%" PRIu64, times);
	mpib_entry_add(&entry, "MPIB_PARTS_AGAIN=%" PRIu64, news->added.parts_again[rail]);
	add_process(&entry, news->pid, news->uid);
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_rails(struct mpib_journal *journal, uint32_t index, const struct mpib_slot *slot,
			const struct mpib_verdict *verdict, const struct mpib_rail_news *news)
{
	for (unsigned int rail = 0; rail < 2; rail++) {
		bool up = news->up >> rail & 1u;

		/* What came last is told last. */
		tell_rail(journal, up ? MPIB_EVENT_RAIL_LOST : MPIB_EVENT_RAIL_BACK, rail, index,
			  slot, verdict, news);
		tell_rail(journal, up ? MPIB_EVENT_RAIL_BACK : MPIB_EVENT_RAIL_LOST, rail, index,
			  slot, verdict, news);
	}
}

void mpib_journal_lie(struct mpib_journal *journal, const struct mpib_reg *reg, const char *why,
		      bool for_good)
{
	struct mpib_entry entry;

	if (!mpib_journal_admit(journal, MPIB_EVENT_CLIENT))
		return;

	mpib_entry_start(&entry, MPIB_EVENT_CLIENT, LOG_WARNING,
			 "counters of pid %ld (uid %u) say of connection 0x%08x what can't be: %s; "
			 "not believed %s",
			 (long)reg->peer->pid, reg->peer->user->uid, reg->conn_id, why,
			 for_good ? "from now on" : "until they have been plausible for a while");
	mpib_entry_add(&entry, "MPIB_CONN_ID=0x%08x", reg->conn_id);
	add_process(&entry, reg->peer->pid, reg->peer->user->uid);
	(void)mpib_journal_emit(journal, &entry);
}

/* ---- policy --------------------------------------------------------------------------------- */

void mpib_journal_override(struct mpib_journal *journal, const struct mpib_override *override,
			   const char *how, uint64_t usec, uid_t uid)
{
	struct mpib_entry entry;
	char flow[MPIB_FLOW_TEXT_MAX];
	char percent[MPIB_SHARE_TEXT_MAX];
	char share[MPIB_SHARE_RULE_TEXT_MAX + MPIB_SHARE_TEXT_MAX];
	char time[48] = "";

	if (usec)
		(void)snprintf(time, sizeof(time), " for %" PRIu64 " s",
			       (usec + MPIB_CLOCK_SECOND - 1) / MPIB_CLOCK_SECOND);
	if (mpib_share_is_auto(override->share))
		(void)mpib_share_rule_format(override->share, share);
	else
		(void)snprintf(share, sizeof(share), "%u (%s)", override->share,
			       mpib_share_format(override->share, percent));
	mpib_entry_start(
		&entry, MPIB_EVENT_OVERRIDE, LOG_NOTICE, "flow %s override %s %s%s by uid %u",
		mpib_flow_format(override->src_be, override->dst_be, flow), share, how, time, uid);
	mpib_entry_add(&entry, "MPIB_FLOW=%s", flow);
	mpib_entry_add(&entry, "MPIB_SHARE=%s", mpib_share_rule_format(override->share, share));
	mpib_entry_add(&entry, "MPIB_OVERRIDE=%s", how);
	mpib_entry_add(&entry, "MPIB_UID=%u", uid);
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_reload(struct mpib_journal *journal, const char *path, uint32_t flows,
			 uint32_t changed)
{
	struct mpib_entry entry;

	mpib_entry_start(&entry, MPIB_EVENT_RELOAD, LOG_NOTICE,
			 "policy reloaded from %s: %u of %u flow%s got another share", path,
			 changed, flows, flows == 1 ? "" : "s");
	mpib_entry_add(&entry, "MPIB_CHANGED=%u", changed);
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_policy(struct mpib_journal *journal, const char *text)
{
	struct mpib_entry entry;

	mpib_entry_start(&entry, MPIB_EVENT_RELOAD, LOG_WARNING, "%s", text);
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_reload_refused(struct mpib_journal *journal, const char *cause)
{
	struct mpib_entry entry;

	mpib_entry_start(&entry, MPIB_EVENT_RELOAD_REFUSED, LOG_ERR,
			 "reload refused, the old policy stays in force: %s", cause);
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_refusal(struct mpib_journal *journal, const struct mpib_peer *peer,
			  uint32_t conn_id, const struct mpib_addresses *addresses, const char *why)
{
	struct mpib_entry entry;
	char flow[MPIB_FLOW_TEXT_MAX] = "";

	if (!mpib_journal_admit(journal, MPIB_EVENT_REFUSAL))
		return;

	if (addresses)
		(void)mpib_flow_format(addresses->sout_src_be, addresses->sout_dst_be, flow);
	mpib_entry_start(&entry, MPIB_EVENT_REFUSAL, LOG_WARNING,
			 "refused connection 0x%08x of pid %ld (uid %u)%s%s: %s", conn_id,
			 (long)peer->pid, peer->user->uid, addresses ? ", flow " : "", flow, why);
	if (addresses)
		mpib_entry_add(&entry, "MPIB_FLOW=%s", flow);
	mpib_entry_add(&entry, "MPIB_CONN_ID=0x%08x", conn_id);
	add_process(&entry, peer->pid, peer->user->uid);
	(void)mpib_journal_emit(journal, &entry);
}

bool mpib_journal_quota(struct mpib_journal *journal, pid_t pid, uid_t uid, unsigned int good,
			uint32_t count, const char *why)
{
	struct mpib_entry entry;
	char cause[32];

	(void)snprintf(cause, sizeof(cause), "%u/%u", uid, good);
	if (!mpib_journal_admit_cause(journal, MPIB_EVENT_REFUSAL, cause))
		return false;

	mpib_entry_start(&entry, MPIB_EVENT_REFUSAL, LOG_WARNING,
			 "refused pid %ld (uid %u): %s (%u time%s)", (long)pid, uid, why, count,
			 count == 1 ? "" : "s");
	add_process(&entry, pid, uid);
	mpib_entry_add(&entry, "MPIB_REFUSED=%u", count);
	(void)mpib_journal_emit(journal, &entry);
	return true;
}

/* @end of the sentence: what becomes of the connection, and why. */
static void tell_client(struct mpib_journal *journal, pid_t pid, uid_t uid, const char *end,
			const char *why)
{
	struct mpib_entry entry;

	if (!mpib_journal_admit(journal, MPIB_EVENT_CLIENT))
		return;

	mpib_entry_start(&entry, MPIB_EVENT_CLIENT, LOG_WARNING,
			 "connection of pid %ld (uid %u) %s%s", (long)pid, uid, end, why);
	add_process(&entry, pid, uid);
	(void)mpib_journal_emit(journal, &entry);
}

void mpib_journal_client(struct mpib_journal *journal, pid_t pid, uid_t uid, const char *why)
{
	tell_client(journal, pid, uid, "closed: ", why);
}

void mpib_journal_descriptor(struct mpib_journal *journal, pid_t pid, uid_t uid)
{
	tell_client(journal, pid, uid, "passed a descriptor that is not a sealed memfd: ",
		    "dropped; the connection goes on");
}

void mpib_journal_limit(struct mpib_journal *journal, const char *text)
{
	struct mpib_entry entry;

	mpib_entry_start(&entry, MPIB_EVENT_LIMIT, LOG_WARNING, "%s", text);
	(void)mpib_journal_emit(journal, &entry);
}
