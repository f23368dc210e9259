/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl explain FLOW: which rule gave the share, and what each other rule would have given. */
#include <string.h>

#include "agent/ctl/ctl.h"
#include "agent/ctl/flow_rails.h"
#include "common/ipv4.h"
#include "common/macros.h"
#include "common/share.h"

/* How the policy file writes the rule of a flow between two islands. */
static void rule_source(const struct mpib_admin_rule *rule, const char *flow, char *buf,
			size_t size)
{
	bool named = !strchr(rule->src_island, '/') && !strchr(rule->dst_island, '/');

	if (!named && (rule->rule == MPIB_RULE_PAIR || rule->rule == MPIB_RULE_PAIR_REVERSE)) {
		(void)snprintf(buf, size, "[pair] (an island has no name)");
		return;
	}

	switch (rule->rule) {
	case MPIB_RULE_OVERRIDE:
		if (rule->state == MPIB_ADMIN_RULE_IN_FORCE && rule->seconds)
			(void)snprintf(buf, size, "mpibctl set, for another %u s", rule->seconds);
		else
			(void)snprintf(buf, size, "mpibctl set");
		return;
	case MPIB_RULE_FLOW:
		(void)snprintf(buf, size, "[flow %s]", flow);
		return;
	case MPIB_RULE_PAIR:
		(void)snprintf(buf, size, "[pair %s %s]", rule->src_island, rule->dst_island);
		return;
	case MPIB_RULE_PAIR_REVERSE:
		(void)snprintf(buf, size, "[pair %s %s]", rule->dst_island, rule->src_island);
		return;
	default:
		(void)snprintf(buf, size, "[policy] %s",
			       mpib_rule_name((enum mpib_rule)rule->rule));
		return;
	}
}

/* True where the rule gives a share at all: those of [policy] do even where they don't apply. */
static bool has_share(const struct mpib_admin_rule *rule)
{
	return rule->state != MPIB_ADMIN_RULE_NO || rule->line || rule->rule == MPIB_RULE_INTRA ||
	       rule->rule == MPIB_RULE_INTER;
}

static void add_line(struct mpib_output *out, const struct mpib_admin_rule *rule)
{
	char text[24] = "-";

	if (rule->line)
		(void)snprintf(text, sizeof(text), "%u", rule->line);
	else if (rule->rule == MPIB_RULE_INTRA || rule->rule == MPIB_RULE_INTER)
		(void)snprintf(text, sizeof(text), "default");
	mpib_output_number(out, "rule_line", NULL, rule->line);
	mpib_output_note(out, "LINE", text);
}

/* "25.0 MB/s" */
static const char *format_rate(uint64_t rate, char *buf, size_t size)
{
	(void)snprintf(buf, size, rate ? "%.1f MB/s" : "not measured", (double)rate / 1e6);
	return buf;
}

/* What the flow's share went by, where it finds itself. */
static void add_tuning(struct mpib_output *out, const struct mpib_admin_rule *rule)
{
	static const char *const titles[MPIB_ADMIN_MOVES] = { "latest change", "the one before",
							      "before that", "before that" };
	const struct mpib_admin_tuning *tuning = &rule->tuning;
	char text[96];

	if (!mpib_share_is_auto(tuning->given) || rule->slot == MPIB_ADMIN_NO_SLOT)
		return;
	mpib_output_text(out, "auto_state", "auto",
			 mpib_balance_state_text((enum mpib_balance_state)tuning->state));
	mpib_output_shown(out, "sout_busy_rate", "SOUT gives", tuning->rate[0],
			  format_rate(tuning->rate[0], text, sizeof(text)));
	mpib_output_shown(out, "sup_busy_rate", "SUP gives", tuning->rate[1],
			  format_rate(tuning->rate[1], text, sizeof(text)));
	(void)snprintf(text, sizeof(text), "%u to %u", rule->least, rule->most);
	mpib_output_number(out, "least", NULL, rule->least);
	mpib_output_number(out, "most", NULL, rule->most);
	mpib_output_note(out, "bounds", text);
	(void)snprintf(text, sizeof(text), "%llu used, %llu said too little",
		       (unsigned long long)rule->windows, (unsigned long long)rule->unused_windows);
	mpib_output_number(out, "windows", NULL, rule->windows);
	mpib_output_number(out, "windows_unused", NULL, rule->unused_windows);
	mpib_output_note(out, "windows", text);
	mpib_output_number(out, "changes", "changes", tuning->changes);
	for (unsigned int n = 0; n < MPIB_ADMIN_MOVES && rule->moves[n].age_usec; n++) {
		const struct mpib_admin_move *move = &rule->moves[n];

		(void)snprintf(text, sizeof(text), "%u -> %u, %s, %.1f s ago", move->before,
			       move->after,
			       mpib_balance_reason_text((enum mpib_balance_reason)move->reason),
			       (double)move->age_usec / 1e6);
		mpib_output_note(out, titles[n], text);
	}
	if (rule->moves[0].age_usec) {
		mpib_output_text(
			out, "reason", NULL,
			mpib_balance_reason_text((enum mpib_balance_reason)rule->moves[0].reason));
		mpib_output_number(out, "changed_usec_ago", NULL, rule->moves[0].age_usec);
	}
}

static void add_flow(struct mpib_ctl *ctl, const struct mpib_admin_rule *rule)
{
	struct mpib_output *out = ctl->output;
	bool registered = rule->slot != MPIB_ADMIN_NO_SLOT;
	bool tells = rule->rails.known > 0;
	char rails[MPIB_RAILS_TEXT_MAX];

	mpib_output_text(out, "flow", "flow", ctl->arguments[0]);
	mpib_output_text(out, "src_island", "from island", rule->src_island);
	mpib_output_text(out, "dst_island", "to island", rule->dst_island);
	mpib_output_bool(out, "registered", NULL, registered);
	if (registered) {
		mpib_output_number(out, "slot", "slot", rule->slot);
		mpib_output_number(out, "share", "share in table", rule->table_share);
		mpib_output_number(out, "share_in_force", tells ? "share in force" : NULL,
				   mpib_rails_share(&rule->rails, rule->table_share));
		mpib_output_text(out, "rails", tells ? "rails" : NULL,
				 mpib_rails_format(&rule->rails, rails));
		mpib_rails_output(out, &rule->rails);
		mpib_output_number(out, "connections", "connections", rule->registrations);
		mpib_output_text(out, "kind", rule->gin.connections ? "kind" : NULL,
				 mpib_gin_kind(&rule->gin, rule->registrations));
		mpib_gin_output(out, &rule->gin);
	} else {
		mpib_output_note(out, "slot", "none: no process has registered this flow");
	}
	add_tuning(out, rule);
	mpib_output_list(out, "rules", "no rules");
}

static void on_rule(struct mpib_ctl *ctl, const void *record)
{
	static const char *const verdicts[] = {
		[MPIB_ADMIN_RULE_NO] = "no",
		[MPIB_ADMIN_RULE_APPLIES] = "yes, but weaker",
		[MPIB_ADMIN_RULE_IN_FORCE] = "in force",
	};
	struct mpib_admin_rule rule = *(const struct mpib_admin_rule *)record;
	struct mpib_output *out = ctl->output;
	char flow[2 * MPIB_IPV4_TEXT_MAX];
	char percent[MPIB_SHARE_TEXT_MAX];
	char share[MPIB_SHARE_RULE_TEXT_MAX] = "-";
	bool automatic;
	char source[96];

	rule.src_island[sizeof(rule.src_island) - 1] = '\0';
	rule.dst_island[sizeof(rule.dst_island) - 1] = '\0';
	if (rule.state >= MPIB_ARRAY_SIZE(verdicts))
		rule.state = MPIB_ADMIN_RULE_NO;
	(void)snprintf(flow, sizeof(flow), "%s", ctl->arguments[0]);
	for (char *p = flow; *p; p++)
		*p = *p == '-' ? ' ' : *p;
	rule_source(&rule, flow, source, sizeof(source));
	automatic = mpib_share_is_auto(rule.given);
	if (has_share(&rule))
		(void)mpib_share_rule_format(automatic ? rule.given : rule.share, share);

	if (rule.rule == MPIB_RULE_OVERRIDE)
		add_flow(ctl, &rule);
	mpib_output_row(out);
	mpib_output_text(out, "rule", "RULE", mpib_rule_name((enum mpib_rule)rule.rule));
	add_line(out, &rule);
	mpib_output_bool(out, "has_share", NULL, has_share(&rule));
	mpib_output_number(out, "share", NULL, rule.share);
	mpib_output_note(out, "SHARE", share);
	mpib_output_note(out, "SUP",
			 has_share(&rule) && !automatic ? mpib_share_format(rule.share, percent)
							: "-");
	mpib_output_bool(out, "applies", NULL, rule.state != MPIB_ADMIN_RULE_NO);
	mpib_output_bool(out, "in_force", NULL, rule.state == MPIB_ADMIN_RULE_IN_FORCE);
	mpib_output_number(out, "seconds_left", NULL, rule.seconds);
	mpib_output_bool(out, "auto", NULL, automatic);
	mpib_output_note(out, "APPLIES", verdicts[rule.state]);
	mpib_output_note(out, "WHERE", source); /* the longest: last, where it is broken */
}

enum mpib_ctl_exit mpib_ctl_explain(struct mpib_ctl *ctl)
{
	struct mpib_admin_flow_request about;
	struct mpib_admin_rule record;
	enum mpib_ctl_exit code = mpib_ctl_flow_argument(ctl, &about);

	if (code != MPIB_CTL_OK)
		return code;
	return mpib_ctl_ask(ctl, MPIB_ADMIN_EXPLAIN, &about, &record, sizeof(record), on_rule,
			    MPIB_CTL_SECONDS);
}
