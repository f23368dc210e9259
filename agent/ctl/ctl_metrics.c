/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl metrics: counts and shares as OpenMetrics text, on stdout or put whole in the place of a
 * file. The labels are bounded: at most FLOWS_MAX flows are listed, the rest are a number. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/ctl/ctl.h"
#include "common/cleanup.h"
#include "common/ipv4.h"
#include "common/macros.h"
#include "common/share.h"
#include "common/versions.h"

#define FLOWS_MAX 512u

struct metric {
	const char *name; /* of a counter without its "_total" */
	const char *type;
	const char *help;
	size_t offset; /* in struct mpib_admin_status */
	bool wide;     /* 64 bits */
	double scale;  /* 0: as it is */
};

#define NARROW(field) offsetof(struct mpib_admin_status, field), false, 0
#define WIDE(field)   offsetof(struct mpib_admin_status, field), true, 0
#define USEC(field)   offsetof(struct mpib_admin_status, field), true, 1e-6

static const struct metric metrics[] = {
	{ "mpib_start_time_seconds", "gauge", "When the agent started.", USEC(start_usec) },
	{ "mpib_policy_load_time_seconds", "gauge", "When the policy in force was loaded.",
	  USEC(policy_usec) },
	{ "mpib_policy_refused", "gauge", "1 where the latest reload was refused.",
	  NARROW(policy_refused) },
	{ "mpib_policy_missing", "gauge", "1 where the agent runs without a policy file.",
	  NARROW(policy_missing) },
	{ "mpib_state_unsaved", "gauge", "1 where the state can't be saved at present.",
	  NARROW(unsaved) },
	{ "mpib_state_unsaved_connections", "gauge", "Registrations that the state lacks.",
	  NARROW(unsaved_registrations) },
	{ "mpib_unclaimed", "gauge", "Earlier registrations without a known process.",
	  NARROW(unclaimed) },
	{ "mpib_slots", "gauge", "Entries of the hint table.", NARROW(slots) },
	{ "mpib_flows", "gauge", "Flows that hold a slot.", NARROW(flows) },
	{ "mpib_connections", "gauge", "Registered connections.", NARROW(registrations) },
	{ "mpib_processes", "gauge", "Processes that are known.", NARROW(processes) },
	{ "mpib_clients", "gauge", "Open connections to the socket.", NARROW(clients) },
	{ "mpib_clients_limit", "gauge", "Room for connections and processes.",
	  NARROW(max_clients) },
	{ "mpib_monitors", "gauge", "Clients that watch events.", WIDE(monitors) },
	{ "mpib_generation", "gauge", "Incarnation of the agent in the hint table.",
	  NARROW(generation) },
	{ "mpib_heartbeat_age_seconds", "gauge", "Time since the heartbeat moved.",
	  USEC(beat_age_usec) },
	{ "mpib_registered", "counter", "Registrations granted.", WIDE(registered) },
	{ "mpib_deregistered", "counter", "Registrations ended.", WIDE(deregistered) },
	{ "mpib_refused", "counter", "Requests refused.", WIDE(refused) },
	{ "mpib_reloads", "counter", "Policies loaded by reloads.", WIDE(reloads) },
	{ "mpib_reloads_refused", "counter", "Reloads refused.", WIDE(reloads_refused) },
	{ "mpib_journal_entries", "counter", "Journal entries written.", WIDE(entries_written) },
	{ "mpib_journal_suppressed", "counter", "Journal entries only counted.",
	  WIDE(entries_suppressed) },
	{ "mpib_events_missed", "counter",
	  "Events that watching clients missed, reading too slowly.", WIDE(events_missed) },
};

/* ---- collecting ----------------------------------------------------------------------------- */

struct flow_list {
	struct mpib_admin_flow *flows;
	size_t count;
	size_t unlisted;
};

static void on_status(struct mpib_ctl *ctl, const void *record)
{
	ctl->status = *(const struct mpib_admin_status *)record;
}

static void on_flow(struct mpib_ctl *ctl, const void *record)
{
	struct flow_list *list = ctl->collected;

	if (list->count < FLOWS_MAX)
		list->flows[list->count++] = *(const struct mpib_admin_flow *)record;
	else
		list->unlisted++;
}

/* ---- text ----------------------------------------------------------------------------------- */

static void print_head(FILE *out, const char *name, const char *type, const char *help)
{
	(void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void print_status(FILE *out, const struct mpib_admin_status *status)
{
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(metrics); n++) {
		const struct metric *m = &metrics[n];
		const char *base = (const char *)status + m->offset;
		uint32_t narrow = 0;
		uint64_t value = 0;

		if (m->wide)
			memcpy(&value, base, sizeof(value));
		else
			memcpy(&narrow, base, sizeof(narrow));
		value += narrow;

		print_head(out, m->name, m->type, m->help);
		(void)fprintf(out, "%s%s ", m->name, strcmp(m->type, "counter") ? "" : "_total");
		if (m->scale > 0)
			(void)fprintf(out, "%.6f\n", (double)value * m->scale);
		else
			(void)fprintf(out, "%" PRIu64 "\n", value);
	}
}

static void print_policy_file(FILE *out, const struct mpib_admin_status *status)
{
	int file = mpib_ctl_config_file(status);

	if (file < 0)
		return;
	print_head(out, "mpib_policy_file_differs", "gauge",
		   "Not 0 where the policy file isn't what is in force: 1 changed, 2 gone, 3 "
		   "unreadable.");
	(void)fprintf(out, "mpib_policy_file_differs %d\n", file);
}

static const char *const rails[2] = { "sout", "sup" };

static void print_rail_count(FILE *out, const char *name, const char *help, const uint64_t count[2])
{
	print_head(out, name, "counter", help);
	for (unsigned int rail = 0; rail < 2; rail++)
		(void)fprintf(out, "%s_total{rail=\"%s\"} %" PRIu64 "\n", name, rails[rail],
			      count[rail]);
}

/* Of all connections: flows come and go, and some have no labels. */
static void print_rails(FILE *out, const struct mpib_admin_rails *all)
{
	print_rail_count(out, "mpib_rail_losses", "Times that a connection lost the rail.",
			 all->losses);
	print_rail_count(out, "mpib_rail_returns", "Times that a connection had it again.",
			 all->returns);
	print_rail_count(out, "mpib_rail_parts_again",
			 "Parts of messages sent again on the other rail.", all->parts_again);
	print_head(out, "mpib_rail_lost_connections", "gauge",
		   "Connections that are without the rail, having lost it.");
	for (unsigned int rail = 0; rail < 2; rail++)
		(void)fprintf(out, "mpib_rail_lost_connections{rail=\"%s\"} %u\n", rails[rail],
			      all->lost[rail]);
}

static void print_flow_rails(FILE *out, const struct flow_list *list)
{
	char flow[MPIB_FLOW_TEXT_MAX];

	print_head(out, "mpib_flow_rails_up", "gauge",
		   "1 where all connections of the flow that tell have the rail.");
	for (size_t n = 0; n < list->count; n++) {
		const struct mpib_admin_flow *f = &list->flows[n];

		(void)mpib_flow_format(f->src_be, f->dst_be, flow);
		for (unsigned int rail = 0; f->rails.known && rail < 2; rail++)
			(void)fprintf(out, "mpib_flow_rails_up{flow=\"%s\",rail=\"%s\"} %d\n", flow,
				      rails[rail], f->rails.up[rail] == f->rails.known);
	}
}

static void print_traffic(FILE *out, const struct flow_list *list)
{
	char flow[MPIB_FLOW_TEXT_MAX];

	print_head(out, "mpib_flow_bytes", "counter",
		   "Payload of the flow, by its processes' counters.");
	for (size_t n = 0; n < list->count; n++) {
		const struct mpib_admin_flow *f = &list->flows[n];

		(void)mpib_flow_format(f->src_be, f->dst_be, flow);
		for (unsigned int rail = 0; rail < 2; rail++)
			(void)fprintf(out,
				      "mpib_flow_bytes_total{flow=\"%s\",rail=\"%s\",direction="
				      "\"sent\"} %" PRIu64 "\nmpib_flow_bytes_total{flow=\"%s\","
				      "rail=\"%s\",direction=\"received\"} %" PRIu64 "\n",
				      flow, rails[rail], f->sent[rail], flow, rails[rail],
				      f->received[rail]);
	}
}

/* Nothing where no flow has a mesh. */
static void print_puts(FILE *out, const struct flow_list *list)
{
	static const struct {
		const char *name, *help;
		size_t at;
	} counts[] = {
		{ "mpib_flow_puts",
		  "Puts of the flow's meshes; one that is divided counts on both rails.",
		  offsetof(struct mpib_admin_gin, puts) },
		{ "mpib_flow_put_bytes", "What they have put, part of what the flow has sent.",
		  offsetof(struct mpib_admin_gin, bytes) },
	};
	char flow[MPIB_FLOW_TEXT_MAX];

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(counts); k++) {
		print_head(out, counts[k].name, "counter", counts[k].help);
		for (size_t n = 0; n < 2 * list->count; n++) {
			const struct mpib_admin_flow *f = &list->flows[n / 2];
			uint64_t count[2];

			memcpy(count, (const char *)&f->gin + counts[k].at, sizeof(count));
			if (count[0] || count[1] || f->gin.connections)
				(void)fprintf(out,
					      "%s_total{flow=\"%s\",rail=\"%s\"} %" PRIu64 "\n",
					      counts[k].name,
					      mpib_flow_format(f->src_be, f->dst_be, flow),
					      rails[n % 2], count[n % 2]);
		}
	}
	print_head(out, "mpib_flow_gin_connections", "gauge",
		   "Of the flow's connections, those of meshes.");
	for (size_t n = 0; n < list->count; n++)
		if (list->flows[n].gin.connections)
			(void)fprintf(out, "mpib_flow_gin_connections{flow=\"%s\"} %u\n",
				      mpib_flow_format(list->flows[n].src_be, list->flows[n].dst_be,
						       flow),
				      list->flows[n].gin.connections);
}

/* Nothing where no share finds itself. */
static void print_auto(FILE *out, const struct mpib_admin_flow *flows, size_t count)
{
	char flow[MPIB_FLOW_TEXT_MAX];
	bool any = false;

	for (size_t n = 0; n < count; n++)
		any |= mpib_share_is_auto(flows[n].tuning.given);
	if (!any)
		return;

	(void)fputs(
		"# HELP mpib_flow_rail_speed Bytes a second that the rail gives a flow whose share "
		"finds itself, while it is busy; 0 where not measured.\n"
		"# TYPE mpib_flow_rail_speed gauge\n",
		out);
	for (size_t n = 0; n < 2 * count; n++) {
		const struct mpib_admin_flow *f = &flows[n / 2];

		if (mpib_share_is_auto(f->tuning.given))
			(void)fprintf(out,
				      "mpib_flow_rail_speed{flow=\"%s\",rail=\"%s\"} %" PRIu64 "\n",
				      mpib_flow_format(f->src_be, f->dst_be, flow), rails[n % 2],
				      f->tuning.rate[n % 2]);
	}
	(void)fputs("# HELP mpib_flow_share_changes Changes of a share that finds itself.\n"
		    "# TYPE mpib_flow_share_changes counter\n",
		    out);
	for (size_t n = 0; n < count; n++)
		if (mpib_share_is_auto(flows[n].tuning.given))
			(void)fprintf(out,
				      "mpib_flow_share_changes_total{flow=\"%s\"} %" PRIu64 "\n",
				      mpib_flow_format(flows[n].src_be, flows[n].dst_be, flow),
				      flows[n].tuning.changes);
}

static void print_flows(FILE *out, const struct flow_list *list)
{
	char flow[MPIB_FLOW_TEXT_MAX];

	print_head(out, "mpib_flow_share", "gauge",
		   "SUP's part of each message of the flow, 0 to 1.");
	for (size_t n = 0; n < list->count; n++)
		(void)fprintf(out, "mpib_flow_share{flow=\"%s\",rule=\"%s\"} %.4f\n",
			      mpib_flow_format(list->flows[n].src_be, list->flows[n].dst_be, flow),
			      mpib_rule_name((enum mpib_rule)list->flows[n].rule),
			      list->flows[n].share / 1024.0);

	print_head(out, "mpib_flow_connections", "gauge", "Registered connections of the flow.");
	for (size_t n = 0; n < list->count; n++)
		(void)fprintf(out, "mpib_flow_connections{flow=\"%s\"} %u\n",
			      mpib_flow_format(list->flows[n].src_be, list->flows[n].dst_be, flow),
			      list->flows[n].registrations);

	print_traffic(out, list);
	print_flow_rails(out, list);
	print_puts(out, list);
	print_auto(out, list->flows, list->count);
	print_head(out, "mpib_flows_unlisted", "gauge", "Flows beyond those with labels here.");
	(void)fprintf(out, "mpib_flows_unlisted %zu\n", list->unlisted);
}

static void print_metrics(struct mpib_ctl *ctl, FILE *out, bool up, const struct flow_list *list)
{
	print_head(out, "mpib_build_info", "gauge",
		   "What is installed here; mpib_agent_info is what runs.");
	(void)fputs("mpib_build_info{version=\"" MPIB_VERSION "\",wire=\"" MPIB_WIRE_TEXT
		    "\",contract=\"" MPIB_CONTRACT_TEXT "\",state=\"" MPIB_STATE_TEXT "\"} 1\n",
		    out);
	print_head(out, "mpib_agent_up", "gauge", "1 where the agent answers.");
	(void)fprintf(out, "mpib_agent_up %d\n", up);
	if (up) {
		ctl->status.version[sizeof(ctl->status.version) - 1] = '\0';
		print_head(out, "mpib_agent_info", "gauge", "Version of the agent.");
		(void)fprintf(out, "mpib_agent_info{version=\"%s\"} 1\n", ctl->status.version);
		print_status(out, &ctl->status);
		print_policy_file(out, &ctl->status);
		print_rails(out, &ctl->status.rails);
		print_flows(out, list);
	}
	(void)fputs("# EOF\n", out);
}

/* ---- where it goes -------------------------------------------------------------------------- */

/* Whole or not at all: a collector may read at any moment. */
static int write_file(const char *path, const char *text)
{
	mpib_cleanup(mpib_freep) char *temporary = NULL;
	FILE *file;
	int fd;
	int r = 0;

	if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
		return -ENOMEM;
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	file = fdopen(fd, "w");
	if (!file) {
		r = -errno;
		(void)close(fd);
		(void)unlink(temporary);
		return r;
	}

	if (fputs(text, file) < 0 || fchmod(fd, 0644) < 0)
		r = -errno;
	if (fclose(file) && r == 0)
		r = -errno;
	if (r == 0 && rename(temporary, path) < 0)
		r = -errno;
	if (r < 0)
		(void)unlink(temporary);
	return r;
}

static enum mpib_ctl_exit collect(struct mpib_ctl *ctl, struct flow_list *list)
{
	struct mpib_admin_status status;
	struct mpib_admin_flow flow;
	enum mpib_ctl_exit code;

	code = mpib_ctl_ask(ctl, MPIB_ADMIN_STATUS, NULL, &status, sizeof(status), on_status,
			    MPIB_CTL_SECONDS);
	if (code != MPIB_CTL_OK)
		return code;

	ctl->collected = list;
	return mpib_ctl_ask(ctl, MPIB_ADMIN_FLOWS, NULL, &flow, sizeof(flow), on_flow,
			    MPIB_CTL_SECONDS);
}

enum mpib_ctl_exit mpib_ctl_metrics(struct mpib_ctl *ctl)
{
	mpib_cleanup(mpib_freep) struct mpib_admin_flow *flows = calloc(FLOWS_MAX, sizeof(*flows));
	struct flow_list list = { .flows = flows };
	mpib_cleanup(mpib_freep) char *text = NULL;
	enum mpib_ctl_exit code;
	size_t len = 0;
	FILE *memory;
	int r;

	if (ctl->json) {
		(void)mpib_cause_set(&ctl->cause, -EINVAL,
				     "metrics are OpenMetrics text; JSON has status and flows");
		return MPIB_CTL_USAGE;
	}
	memory = flows ? open_memstream(&text, &len) : NULL;
	if (!memory)
		return mpib_ctl_fail(ctl, -ENOMEM, "memory");

	code = collect(ctl, &list);
	print_metrics(ctl, memory, code == MPIB_CTL_OK, &list);
	if (fclose(memory))
		return mpib_ctl_fail(ctl, -ENOMEM, "memory");

	/* That no agent answers is worth a sample, too. */
	if (!ctl->file) {
		ctl->answered = true;
		mpib_output_whole(ctl->output, "metrics", text);
		return code;
	}

	r = write_file(ctl->file, text);
	if (r < 0) {
		(void)mpib_cause_set(&ctl->cause, r, "can't write %s: %s", ctl->file, strerror(-r));
		return MPIB_CTL_FAILURE;
	}
	ctl->printed = true;
	return code;
}
