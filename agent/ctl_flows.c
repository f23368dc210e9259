/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl flows: each flow of this host, its share and the rule that gave it. */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "agent/ctl.h"
#include "common/ipv4.h"
#include "common/share.h"

/* "1.2 GB", as people read bytes. */
static const char *format_bytes(uint64_t bytes, char *buf, size_t size)
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
	double value = (double)bytes;
	unsigned int unit = 0;

	while (value >= 999.95 && unit < 6) {
		value /= 1000;
		unit++;
	}
	(void)snprintf(buf, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return buf;
}

static void add_rail(struct mpib_output *out, const char *key, const char *title, uint64_t bytes,
		     uint64_t rate)
{
	char text[24];
	char rate_text[24];
	char both[64];

	mpib_output_number(out, key, NULL, bytes);
	(void)snprintf(both, sizeof(both), "%s, %s/s", format_bytes(bytes, text, sizeof(text)),
		       format_bytes(rate, rate_text, sizeof(rate_text)));
	mpib_output_note(out, title, both);
}

/* Sent and received together for people; apart in JSON. */
static void add_traffic(struct mpib_output *out, const struct mpib_admin_flow *f)
{
	time_t seconds = (time_t)(f->moved_usec / 1000000u);
	struct tm parts;
	char text[32] = "-";

	add_rail(out, "sout_bytes", "SOUT", f->sent[0] + f->received[0],
		 f->sent_rate[0] + f->received_rate[0]);
	add_rail(out, "sup_bytes", "SUP", f->sent[1] + f->received[1],
		 f->sent_rate[1] + f->received_rate[1]);
	mpib_output_number(out, "sout_sent", NULL, f->sent[0]);
	mpib_output_number(out, "sup_sent", NULL, f->sent[1]);
	mpib_output_number(out, "sout_received", NULL, f->received[0]);
	mpib_output_number(out, "sup_received", NULL, f->received[1]);
	mpib_output_number(out, "sout_sent_rate", NULL, f->sent_rate[0]);
	mpib_output_number(out, "sup_sent_rate", NULL, f->sent_rate[1]);
	mpib_output_number(out, "sout_received_rate", NULL, f->received_rate[0]);
	mpib_output_number(out, "sup_received_rate", NULL, f->received_rate[1]);
	if (f->moved_usec && localtime_r(&seconds, &parts))
		(void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
	mpib_output_number(out, "last_byte_usec", NULL, f->moved_usec);
	mpib_output_note(out, "LAST BYTE", text);
}

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
	add_traffic(out, &f);
}

enum mpib_ctl_exit mpib_ctl_flows(struct mpib_ctl *ctl)
{
	struct mpib_admin_flow record;

	mpib_output_list(ctl->output, "flows", "no flows");
	return mpib_ctl_ask(ctl, MPIB_ADMIN_FLOWS, NULL, &record, sizeof(record), take_flow, 5);
}

enum mpib_ctl_exit mpib_ctl_top(struct mpib_ctl *ctl)
{
	bool terminal = isatty(STDOUT_FILENO);
	struct mpib_output *outer = ctl->output;
	enum mpib_ctl_exit code = MPIB_CTL_OK;
	int r = 0;

	ctl->printed = true;
	for (bool first = true; code == MPIB_CTL_OK && r == 0; first = false) {
		/* The agent samples once a second. */
		if (!first)
			(void)sleep(1);
		if (mpib_output_new(&ctl->output) < 0) {
			code = mpib_ctl_fail(ctl, -ENOMEM, "memory");
			break;
		}
		code = mpib_ctl_flows(ctl);
		if (code == MPIB_CTL_OK && terminal && !ctl->json)
			(void)fputs("\033[H\033[2J", stdout);
		if (code == MPIB_CTL_OK)
			r = mpib_output_print(ctl->output, ctl->json, stdout);
		(void)mpib_output_free(ctl->output);
		if (ctl->count && --ctl->count == 0)
			break;
	}

	ctl->output = outer;
	return r < 0 ? MPIB_CTL_FAILURE : code;
}
