/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl flows: each flow of this host, its share and the rule that gave it. */
#include "agent/ctl.h"
#include "common/ipv4.h"
#include "common/share.h"

static void take_flow(struct mpib_ctl *ctl, const void *record)
{
	struct mpib_admin_flow f = *(const struct mpib_admin_flow *)record;
	struct mpib_output *out = ctl->output;
	char flow[MPIB_FLOW_TEXT_MAX];
	char percent[MPIB_SHARE_TEXT_MAX];
	char addr[MPIB_IPV4_TEXT_MAX];
	char rule[64];

	f.src_island[sizeof(f.src_island) - 1] = '\0';
	f.dst_island[sizeof(f.dst_island) - 1] = '\0';
	if (f.rule == MPIB_RULE_OVERRIDE)
		(void)snprintf(rule, sizeof(rule), f.seconds ? "override, %u s left" : "override",
			       f.seconds);
	else
		(void)snprintf(rule, sizeof(rule), f.line ? "%s, line %u" : "%s, default",
			       mpib_rule_name((enum mpib_rule)f.rule), f.line);

	mpib_output_row(out);
	mpib_output_number(out, "slot", "SLOT", f.slot);
	mpib_output_text(out, "flow", "FLOW", mpib_flow_format(f.src_be, f.dst_be, flow));
	mpib_output_text(out, "src", NULL, mpib_ipv4_format(f.src_be, addr));
	mpib_output_text(out, "dst", NULL, mpib_ipv4_format(f.dst_be, addr));
	mpib_output_number(out, "share", "SHARE", f.share);
	mpib_output_note(out, "SUP", mpib_share_format(f.share, percent));
	mpib_output_text(out, "rule", NULL, mpib_rule_name((enum mpib_rule)f.rule));
	mpib_output_number(out, "rule_line", NULL, f.line);
	mpib_output_note(out, "RULE", rule);
	mpib_output_text(out, "src_island", "FROM", f.src_island);
	mpib_output_text(out, "dst_island", "TO", f.dst_island);
	mpib_output_number(out, "connections", "CONNECTIONS", f.registrations);
	mpib_output_number(out, "uid", "UID", f.uid);
	mpib_output_number(out, "pid", "PID", f.pid > 0 ? (uint64_t)f.pid : 0);
	mpib_output_number(out, "seconds_left", NULL, f.seconds);
}

enum mpib_ctl_exit mpib_ctl_flows(struct mpib_ctl *ctl)
{
	struct mpib_admin_flow record;

	mpib_output_list(ctl->output, "flows", "no flows");
	return mpib_ctl_ask(ctl, MPIB_ADMIN_FLOWS, NULL, &record, sizeof(record), take_flow, 5);
}
