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
	} else {
		mpib_output_note(out, "slot", "none: no process has registered this flow");
	}
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
	char share[16] = "-";
	char source[96];

	rule.src_island[sizeof(rule.src_island) - 1] = '\0';
	rule.dst_island[sizeof(rule.dst_island) - 1] = '\0';
	if (rule.state >= MPIB_ARRAY_SIZE(verdicts))
		rule.state = MPIB_ADMIN_RULE_NO;
	(void)snprintf(flow, sizeof(flow), "%s", ctl->arguments[0]);
	for (char *p = flow; *p; p++)
		*p = *p == '-' ? ' ' : *p;
	rule_source(&rule, flow, source, sizeof(source));
	if (has_share(&rule))
		(void)snprintf(share, sizeof(share), "%u", rule.share);

	if (rule.rule == MPIB_RULE_OVERRIDE)
		add_flow(ctl, &rule);
	mpib_output_row(out);
	mpib_output_text(out, "rule", "RULE", mpib_rule_name((enum mpib_rule)rule.rule));
	add_line(out, &rule);
	mpib_output_bool(out, "has_share", NULL, has_share(&rule));
	mpib_output_number(out, "share", NULL, rule.share);
	mpib_output_note(out, "SHARE", share);
	mpib_output_note(out, "SUP",
			 has_share(&rule) ? mpib_share_format(rule.share, percent) : "-");
	mpib_output_bool(out, "applies", NULL, rule.state != MPIB_ADMIN_RULE_NO);
	mpib_output_bool(out, "in_force", NULL, rule.state == MPIB_ADMIN_RULE_IN_FORCE);
	mpib_output_number(out, "seconds_left", NULL, rule.seconds);
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
