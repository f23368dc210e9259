/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl flows: each flow of this host, its share, the rule that gave it, and what went which way;
 * mpibctl top: the same each second, the busiest first. A share is about what a flow sends: it
 * stands beside those bytes, and received ones apart. */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/ctl/ctl.h"
#include "agent/ctl/flow_rails.h"
#include "agent/ctl/screen.h"
#include "common/ipv4.h"
#include "common/macros.h"
#include "common/share.h"

/* What is left out first where the table is too wide. */
static const struct mpib_output_rank ranks[] = {
	{ "LAST BYTE", 9 }, { "SLOT", 8 },  { "UID", 7 },     { "FROM", 6 },	{ "TO", 6 },
	{ "PID", 5 },	    { "CONNS", 4 }, { "TX-SUP%", 3 }, { "TREND", 3 },	{ "SOUT-GIVES", 3 },
	{ "SUP-GIVES", 3 }, { "KIND", 2 },  { "RULE", 2 },    { "RX-SOUT", 1 }, { "RX-SUP", 1 },
};

/* What is collected on the way. */
struct flows {
	bool rates; /* people read bytes a second, not bytes since the start */
	unsigned int peer_len;
	uint32_t peer_be;
	uint64_t count;
	uint64_t connections;
	struct mpib_admin_flow sum; /* bytes and rates */
};

/* "1.2GB", as people read bytes. */
static const char *format_bytes(uint64_t bytes, char *buf, size_t size)
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
	double value = (double)bytes;
	unsigned int unit = 0;

	while (value >= 999.95 && unit < MPIB_ARRAY_SIZE(units) - 1) {
		value /= 1000;
		unit++;
	}
	(void)snprintf(buf, size, unit ? "%.1f%s" : "%.0f%s", value, units[unit]);
	return buf;
}

/* One way on one rail: bytes since the start and in the latest second, of which people read one. */
static void add_rail(struct mpib_output *out, bool rates, const char *const keys[2],
		     const char *title, uint64_t bytes, uint64_t rate)
{
	char text[24];

	(void)format_bytes(rates ? rate : bytes, text, sizeof(text));
	mpib_output_shown(out, keys[0], rates ? NULL : title, bytes, text);
	mpib_output_shown(out, keys[1], rates ? title : NULL, rate, text);
}

static void add_traffic(struct mpib_output *out, const struct mpib_admin_flow *f, bool rates)
{
	static const char *const sout_sent[] = { "sout_sent", "sout_sent_rate" };
	static const char *const sup_sent[] = { "sup_sent", "sup_sent_rate" };
	static const char *const sout_received[] = { "sout_received", "sout_received_rate" };
	static const char *const sup_received[] = { "sup_received", "sup_received_rate" };
	uint64_t sent = f->sent_rate[0] + f->sent_rate[1];
	char text[24] = "-";

	if (sent)
		(void)snprintf(text, sizeof(text), "%.1f%%",
			       (double)f->sent_rate[1] * 100 / (double)sent);
	if (rates)
		mpib_output_note(out, "TX-SUP%", text);
	add_rail(out, rates, sout_sent, "TX-SOUT", f->sent[0], f->sent_rate[0]);
	add_rail(out, rates, sup_sent, "TX-SUP", f->sent[1], f->sent_rate[1]);
	add_rail(out, rates, sout_received, "RX-SOUT", f->received[0], f->received_rate[0]);
	add_rail(out, rates, sup_received, "RX-SUP", f->received[1], f->received_rate[1]);
	mpib_output_number(out, "rate", NULL, sent + f->received_rate[0] + f->received_rate[1]);
	/* Sent and received together, for scripts of before. */
	mpib_output_number(out, "sout_bytes", NULL, f->sent[0] + f->received[0]);
	mpib_output_number(out, "sup_bytes", NULL, f->sent[1] + f->received[1]);
}

static void add_last(struct mpib_output *out, uint64_t usec)
{
	time_t seconds = (time_t)(usec / 1000000u);
	struct tm parts;
	char text[32] = "-";

	if (usec && localtime_r(&seconds, &parts))
		(void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
	mpib_output_shown(out, "last_byte_usec", "LAST BYTE", usec, text);
}

/* "pair:12", "inter", "override:60s": the rule, and its line in the policy file or the time left.
 */
static void format_rule(const struct mpib_admin_flow *f, char *buf, size_t size)
{
	const char *name = mpib_rule_name((enum mpib_rule)f->rule);

	if (f->rule == MPIB_RULE_OVERRIDE)
		(void)snprintf(buf, size, f->seconds ? "%s:%us" : "%s", name, f->seconds);
	else
		(void)snprintf(buf, size, f->line ? "%s:%u" : "%s", name, f->line);
}

/* ---- shares that find themselves ------------------------------------------------------------ */

/* Looks that a trend shows, and flows that have one; others show none. */
#define LOOKS	  8u
#define FLOWS_MAX 256u

/* What each flow sent a second, the latest look last. */
static struct history {
	uint32_t src_be, dst_be;
	uint64_t rate[LOOKS];
} histories[FLOWS_MAX];

static struct history *history_of(const struct mpib_admin_flow *flow)
{
	for (unsigned int n = 0; n < FLOWS_MAX; n++) {
		struct history *h = &histories[n];

		if (!h->src_be)
			*h = (struct history){ .src_be = flow->src_be, .dst_be = flow->dst_be };
		if (h->src_be == flow->src_be && h->dst_be == flow->dst_be)
			return h;
	}
	return NULL;
}

/* A bar a look, against the highest of them. */
static void trend(const struct mpib_admin_flow *flow, char ret[LOOKS + 1])
{
	static const char levels[] = "_.:-=+*#";
	struct history *h = flow->src_be ? history_of(flow) : NULL;
	uint64_t most = 1;

	memset(ret, 0, LOOKS + 1);
	ret[0] = '-';
	if (!h)
		return;
	memmove(&h->rate[0], &h->rate[1], (LOOKS - 1) * sizeof(h->rate[0]));
	h->rate[LOOKS - 1] = flow->sent_rate[0] + flow->sent_rate[1];
	for (unsigned int n = 0; n < LOOKS; n++)
		most = h->rate[n] > most ? h->rate[n] : most;
	for (unsigned int n = 0; n < LOOKS; n++)
		ret[n] = levels[(unsigned int)((double)h->rate[n] / (double)most *
						       (sizeof(levels) - 2) +
					       0.5)];
}

static void add_rate(struct mpib_output *out, const char *key, const char *title, uint64_t rate)
{
	char text[24] = "-";

	if (rate)
		(void)snprintf(text, sizeof(text), "%.1fMB", (double)rate / 1e6);
	mpib_output_shown(out, key, title, rate, text);
}

static void add_auto(struct mpib_output *out, const struct mpib_admin_flow *flow, bool rates)
{
	char bars[LOOKS + 1];

	mpib_output_bool(out, "auto", NULL, mpib_share_is_auto(flow->tuning.given));
	add_rate(out, "sout_busy_rate", rates ? "SOUT-GIVES" : NULL, flow->tuning.rate[0]);
	add_rate(out, "sup_busy_rate", rates ? "SUP-GIVES" : NULL, flow->tuning.rate[1]);
	mpib_output_number(out, "share_changes", NULL, flow->tuning.changes);
	if (rates) {
		trend(flow, bars);
		mpib_output_note(out, "TREND", bars);
	}
}

static void add_flow(struct mpib_output *out, const struct mpib_admin_flow *f, bool rates)
{
	char flow[MPIB_FLOW_TEXT_MAX];
	char share[MPIB_RAILS_TEXT_MAX];
	char rails[MPIB_RAILS_TEXT_MAX];
	char addr[MPIB_IPV4_TEXT_MAX];
	char rule[64];

	format_rule(f, rule, sizeof(rule));
	mpib_output_row(out);
	mpib_output_text(out, "flow", "FLOW", mpib_flow_format(f->src_be, f->dst_be, flow));
	mpib_output_text(out, "src", NULL, mpib_ipv4_format(f->src_be, addr));
	mpib_output_text(out, "dst", NULL, mpib_ipv4_format(f->dst_be, addr));
	mpib_output_shown(out, "share", "SHARE", f->share,
			  mpib_rails_format_share(&f->rails, f->share, share));
	mpib_output_note(out, "RAILS", mpib_rails_format(&f->rails, rails));
	mpib_output_text(out, "rule", NULL, mpib_rule_name((enum mpib_rule)f->rule));
	mpib_output_number(out, "rule_line", NULL, f->line);
	mpib_output_number(out, "seconds_left", NULL, f->seconds);
	if (!rates)
		mpib_output_note(out, "RULE", rule);
	add_traffic(out, f, rates);
	if (rates)
		mpib_output_note(out, "RULE", rule);
	add_auto(out, f, rates);
	mpib_output_number(out, "connections", "CONNS", f->registrations);
	mpib_output_text(out, "kind", "KIND", mpib_gin_kind(&f->gin, f->registrations));
	mpib_gin_output(out, &f->gin);
	mpib_output_number(out, "pid", "PID", f->pid > 0 ? (uint64_t)f->pid : 0);
	mpib_output_text(out, "src_island", "FROM", f->src_island);
	mpib_output_text(out, "dst_island", "TO", f->dst_island);
	mpib_output_number(out, "uid", "UID", f->uid);
	mpib_output_number(out, "slot", "SLOT", f->slot);
	add_last(out, f->moved_usec);
	mpib_output_text(out, "rails", NULL, rails);
	mpib_output_number(out, "share_in_force", NULL, mpib_rails_share(&f->rails, f->share));
	mpib_rails_output(out, &f->rails);
}

static void add_total(struct mpib_output *out, const struct flows *flows)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "total %llu", (unsigned long long)flows->count);
	mpib_output_total(out);
	mpib_output_shown(out, "flows", "FLOW", flows->count, text);
	add_traffic(out, &flows->sum, flows->rates);
	mpib_rails_output(out, &flows->sum.rails);
	mpib_output_number(out, "connections", "CONNS", flows->connections);
	mpib_gin_output(out, &flows->sum.gin);
}

/* ---- filters -------------------------------------------------------------------------------- */

static bool is_wanted(const struct mpib_ctl *ctl, const struct mpib_admin_flow *f)
{
	const struct flows *flows = ctl->collected;

	if (ctl->peer && !mpib_ipv4_same_prefix(f->src_be, flows->peer_be, flows->peer_len) &&
	    !mpib_ipv4_same_prefix(f->dst_be, flows->peer_be, flows->peer_len))
		return false;
	return !ctl->island || strcmp(ctl->island, f->src_island) == 0 ||
	       strcmp(ctl->island, f->dst_island) == 0;
}

static void on_flow(struct mpib_ctl *ctl, const void *record)
{
	struct mpib_admin_flow f = *(const struct mpib_admin_flow *)record;
	struct flows *flows = ctl->collected;

	f.src_island[sizeof(f.src_island) - 1] = '\0';
	f.dst_island[sizeof(f.dst_island) - 1] = '\0';
	if (!is_wanted(ctl, &f))
		return;

	flows->count++;
	flows->connections += f.registrations;
	for (unsigned int rail = 0; rail < 2; rail++) {
		flows->sum.sent[rail] += f.sent[rail];
		flows->sum.received[rail] += f.received[rail];
		flows->sum.sent_rate[rail] += f.sent_rate[rail];
		flows->sum.received_rate[rail] += f.received_rate[rail];
	}
	mpib_rails_sum(&flows->sum.rails, &f.rails);
	mpib_gin_sum(&flows->sum.gin, &f.gin);
	add_flow(ctl->output, &f, flows->rates);
}

static enum mpib_ctl_exit parse_peer(struct mpib_ctl *ctl, struct flows *flows)
{
	flows->peer_len = MPIB_IPV4_BITS;
	if (!ctl->peer || mpib_ipv4_parse(ctl->peer, &flows->peer_be) == 0 ||
	    mpib_cidr_parse(ctl->peer, &flows->peer_be, &flows->peer_len) == 0)
		return MPIB_CTL_OK;

	(void)mpib_cause_set(&ctl->cause, -EINVAL,
			     "--peer %s: write a SOUT address or a subnet, as in 10.0.2.5 or "
			     "10.0.2.0/24",
			     ctl->peer);
	return MPIB_CTL_USAGE;
}

/* Before the agent is asked, on a row of zeros: the answer may have none. */
static enum mpib_ctl_exit check_sort(struct mpib_ctl *ctl, bool rates)
{
	static const struct mpib_admin_flow zero = { 0 };
	struct mpib_output *trial = NULL;
	char names[900];
	int r = mpib_output_new(&trial);

	if (r == 0) {
		add_flow(trial, &zero, rates);
		r = mpib_output_sort(trial, ctl->sort);
		mpib_output_columns(trial, names, sizeof(names));
	}
	(void)mpib_output_free(trial);
	if (r != -ENOENT)
		return r == 0 ? MPIB_CTL_OK : mpib_ctl_fail(ctl, r, "memory");

	/* More than a cause has room for. */
	(void)fprintf(stderr, "columns: %s\n", names);
	(void)mpib_cause_set(&ctl->cause, r,
			     "--sort %s: no such column; see above for those that there are (- "
			     "before one: the greatest first)",
			     ctl->sort);
	return MPIB_CTL_USAGE;
}

/* ---- commands ------------------------------------------------------------------------------- */

/* One look, into ctl->output. */
static enum mpib_ctl_exit look(struct mpib_ctl *ctl, bool rates)
{
	struct mpib_admin_flow_request about = { .pid = (uint32_t)ctl->pid };
	bool filtered = ctl->pid || ctl->peer || ctl->island;
	struct flows flows = { .rates = rates };
	struct mpib_admin_flow record;
	enum mpib_ctl_exit code = parse_peer(ctl, &flows);

	if (code != MPIB_CTL_OK)
		return code;
	ctl->collected = &flows;
	mpib_output_list(ctl->output, "flows", filtered ? "no such flows" : "no flows");
	mpib_output_ranks(ctl->output, ranks, MPIB_ARRAY_SIZE(ranks));
	code = mpib_ctl_ask(ctl, ctl->pid ? MPIB_ADMIN_FLOWS_OF : MPIB_ADMIN_FLOWS,
			    ctl->pid ? &about : NULL, &record, sizeof(record), on_flow,
			    MPIB_CTL_SECONDS);
	ctl->collected = NULL;
	if (code != MPIB_CTL_OK)
		return code;

	add_total(ctl->output, &flows);
	if (ctl->sort && mpib_output_sort(ctl->output, ctl->sort) == -ENOMEM)
		return mpib_ctl_fail(ctl, -ENOMEM, "memory");
	return MPIB_CTL_OK;
}

enum mpib_ctl_exit mpib_ctl_flows(struct mpib_ctl *ctl)
{
	enum mpib_ctl_exit code = ctl->sort ? check_sort(ctl, false) : MPIB_CTL_OK;

	return code == MPIB_CTL_OK ? look(ctl, false) : code;
}

/* Prints one look: on a terminal in place, and no more rows than it has lines. */
static int print_look(struct mpib_ctl *ctl)
{
	bool in_place = isatty(STDOUT_FILENO) && !ctl->json;
	struct mpib_screen screen = mpib_screen_get();

	if (in_place)
		(void)fputs("\033[H\033[2J", stdout);
	if (!ctl->json)
		(void)puts("Bytes a second, sent (TX) and received (RX); SHARE is of what is sent");
	/* Beside the rows: this line, titles, rows that aren't shown, total, columns likewise (2).
	 */
	mpib_output_fit(ctl->output, screen.columns,
			in_place && screen.lines > 8 ? screen.lines - 7 : 0);
	mpib_output_one_line(ctl->output);
	return mpib_output_print(ctl->output, ctl->json, stdout);
}

enum mpib_ctl_exit mpib_ctl_top(struct mpib_ctl *ctl)
{
	struct mpib_output *outer = ctl->output;
	enum mpib_ctl_exit code;

	if (!ctl->sort)
		ctl->sort = "-rate";
	code = check_sort(ctl, true);
	ctl->printed = true;
	for (bool first = true; code == MPIB_CTL_OK; first = false) {
		int r;

		/* The agent samples once a second. */
		if (!first)
			(void)sleep(1);
		if (mpib_output_new(&ctl->output) < 0) {
			code = mpib_ctl_fail(ctl, -ENOMEM, "memory");
			break;
		}
		code = look(ctl, true);
		r = code == MPIB_CTL_OK ? print_look(ctl) : 0;
		(void)mpib_output_free(ctl->output);
		if (r < 0)
			code = mpib_ctl_fail_output(ctl, r);
		if (ctl->count && --ctl->count == 0)
			break;
	}

	ctl->output = outer;
	return code;
}
