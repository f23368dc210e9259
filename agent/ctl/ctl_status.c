/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl status: the agent's health and counts. */
#include <time.h>

#include "agent/ctl/ctl.h"
#include "agent/ctl/flow_rails.h"
#include "agent/policy/config.h"

static void add_time(struct mpib_output *output, const char *key, const char *title, uint64_t usec)
{
	time_t seconds = (time_t)(usec / 1000000u);
	struct tm parts;
	char text[64] = "";

	if (localtime_r(&seconds, &parts))
		(void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %Z", &parts);
	mpib_output_number(output, key, NULL, usec);
	mpib_output_note(output, title, text);
}

/* Whether what is in force is what the file says by now. */
static void add_file(struct mpib_output *output, const struct mpib_admin_status *s)
{
	time_t seconds = (time_t)(s->config_usec / 1000000u);
	int state = mpib_ctl_config_file(s);
	struct tm parts;
	char time[32] = "";
	char text[128];

	mpib_output_text(output, "policy_file", NULL,
			 mpib_config_file_name((enum mpib_config_file)state));
	mpib_output_number(output, "policy_file_usec", NULL, s->config_usec);
	switch (state) {
	case MPIB_CONFIG_FILE_CHANGED:
		if (localtime_r(&seconds, &parts))
			(void)strftime(time, sizeof(time), "%Y-%m-%d %H:%M:%S", &parts);
		(void)snprintf(text, sizeof(text),
			       "of %s, not in force: mpibctl check FILE, then mpibctl reload",
			       time);
		mpib_output_note(output, "policy file", text);
		break;
	case MPIB_CONFIG_FILE_GONE:
		mpib_output_note(
			output, "policy file",
			"gone: what was loaded from it stays in force, a reload is refused");
		break;
	case MPIB_CONFIG_FILE_UNREADABLE:
		mpib_output_note(output, "policy file", "can't be read by the agent any more");
		break;
	default:
		if (s->policy_missing)
			mpib_output_note(output, "policy file",
					 "missing: the defaults are in force");
		break;
	}
}

static void on_status(struct mpib_ctl *ctl, const void *record)
{
	struct mpib_admin_status s = *(const struct mpib_admin_status *)record;
	struct mpib_output *out = ctl->output;
	char rails[MPIB_RAILS_TEXT_MAX];

	s.version[sizeof(s.version) - 1] = '\0';
	s.config[sizeof(s.config) - 1] = '\0';
	s.error[sizeof(s.error) - 1] = '\0';

	mpib_output_text(out, "version", "agent", s.version);
	mpib_output_number(out, "pid", "pid", s.pid);
	mpib_output_number(out, "uid", NULL, s.uid);
	mpib_output_text(out, "directory", "directory", ctl->dir);
	add_time(out, "start_usec", "started", s.start_usec);
	mpib_output_text(out, "config", "policy", s.config);
	add_time(out, "policy_usec", "policy loaded", s.policy_usec);
	mpib_output_bool(out, "reload_refused", NULL, s.policy_refused != 0);
	mpib_output_text(out, "reload_error", s.policy_refused ? "reload refused" : NULL, s.error);
	mpib_output_bool(out, "policy_missing", NULL, s.policy_missing != 0);
	add_file(out, &s);
	s.unsaved_error[sizeof(s.unsaved_error) - 1] = '\0';
	mpib_output_bool(out, "state_unsaved", NULL, s.unsaved != 0);
	mpib_output_text(out, "state_error", s.unsaved ? "state not saved" : NULL, s.unsaved_error);
	mpib_output_number(out, "state_missing", s.unsaved ? "not in the state" : NULL,
			   s.unsaved_registrations);
	mpib_output_number(out, "unclaimed", s.unclaimed ? "unclaimed" : NULL, s.unclaimed);
	mpib_output_number(out, "slots", "slots", s.slots);
	mpib_output_number(out, "flows", "flows", s.flows);
	mpib_output_number(out, "registrations", "connections", s.registrations);
	mpib_output_text(out, "rails", s.rails.lost[0] || s.rails.lost[1] ? "rails" : NULL,
			 mpib_rails_format(&s.rails, rails));
	mpib_rails_output(out, &s.rails);
	mpib_output_number(out, "processes", "processes", s.processes);
	mpib_output_number(out, "clients", "clients", s.clients);
	mpib_output_number(out, "max_clients", "room for clients", s.max_clients);
	mpib_output_number(out, "generation", "generation", s.generation);
	mpib_output_number(out, "heartbeat", "heartbeat", s.heartbeat);
	mpib_output_number(out, "registered", "registered", s.registered);
	mpib_output_number(out, "deregistered", "deregistered", s.deregistered);
	mpib_output_number(out, "refused", "refused", s.refused);
	mpib_output_number(out, "reloads", "reloads", s.reloads);
	mpib_output_number(out, "reloads_refused", "reloads refused", s.reloads_refused);
	mpib_output_number(out, "entries_written", NULL, s.entries_written);
	mpib_output_number(out, "entries_suppressed", "entries suppressed", s.entries_suppressed);
}

enum mpib_ctl_exit mpib_ctl_status(struct mpib_ctl *ctl)
{
	struct mpib_admin_status record;

	return mpib_ctl_ask(ctl, MPIB_ADMIN_STATUS, NULL, &record, sizeof(record), on_status,
			    MPIB_CTL_SECONDS);
}
