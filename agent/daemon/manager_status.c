/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon says of itself: to the service manager, and to mpibctl. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/daemon/manager_impl.h"
#include "agent/journal/notify.h"
#include "agent/policy/config.h"

uint64_t mpib_manager_monotonic_usec(void)
{
	return mpib_clock_usec(CLOCK_MONOTONIC);
}

static void format_status(const struct mpib_manager *m, char *buf, size_t size)
{
	uint32_t flows = mpib_registry_n_flows(m->registry);
	uint32_t peers = mpib_server_n_processes(m->server);

	(void)snprintf(buf, size, "%u flow%s in %u slots, %u process%s%s%s", flows,
		       flows == 1 ? "" : "s", mpib_registry_entries(m->registry), peers,
		       peers == 1 ? "" : "es", m->error.text[0] ? "; reload refused: " : "",
		       m->error.text);
}

void mpib_manager_tell_ready(struct mpib_manager *m)
{
	format_status(m, m->status, sizeof(m->status));
	m->ready_due = !mpib_notify_ready(m->status);
}

void mpib_manager_update_status(struct mpib_manager *m)
{
	char status[sizeof(m->status)];

	if (m->ready_due) {
		mpib_manager_tell_ready(m);
		return;
	}

	format_status(m, status, sizeof(status));
	if (strcmp(status, m->status) != 0 && mpib_notify_status(status))
		memcpy(m->status, status, sizeof(status));
}

void mpib_manager_fill_status(void *user, struct mpib_admin_status *ret)
{
	const struct mpib_manager *m = user;

	*ret = (struct mpib_admin_status){
		.pid = (uint32_t)getpid(),
		.uid = geteuid(),
		.slots = mpib_registry_entries(m->registry),
		.flows = mpib_registry_n_flows(m->registry),
		.registrations = mpib_registry_n_regs(m->registry),
		.processes = mpib_server_n_processes(m->server),
		.clients = mpib_server_n_clients(m->server),
		.max_clients = mpib_server_max_clients(m->server),
		.generation = mpib_hints_generation(m->hints),
		.heartbeat = mpib_hints_heartbeat(m->hints),
		.policy_refused = m->error.text[0] != '\0',
		.start_usec = m->start_usec,
		.policy_usec = m->policy_usec,
		.registered = m->flows.n_registered,
		.deregistered = m->flows.n_deregistered,
		.refused = m->flows.n_refused,
		.reloads = m->n_reloads,
		.reloads_refused = m->n_reloads_refused,
		.entries_written = mpib_journal_written(m->journal),
		.entries_suppressed = mpib_journal_suppressed(m->journal),
		.beat_age_usec = mpib_manager_monotonic_usec() - m->beat_usec,
		.monitors = mpib_server_n_monitors(m->server),
		.events_missed = mpib_server_n_events_missed(m->server),
		.version = MPIB_VERSION,
		.unsaved = m->flows.unsaved.text[0] != '\0',
		.unsaved_registrations = m->flows.n_unsaved,
		.unclaimed = mpib_registry_n_unclaimed(m->registry),
		.policy_missing = m->policy_missing,
	};
	ret->config_file = 1u + (unsigned int)mpib_config_compare(
					m->args.config, mpib_shares_source(m->flows.shares),
					&ret->config_usec);
	ret->rails = mpib_session_rails(&m->flows.traffic.rail_state, &m->flows.traffic.rails);
	(void)snprintf(ret->unsaved_error, sizeof(ret->unsaved_error), "%.*s",
		       (int)sizeof(ret->unsaved_error) - 1, m->flows.unsaved.text);
	(void)snprintf(ret->config, sizeof(ret->config), "%s", m->args.config);
	(void)snprintf(ret->error, sizeof(ret->error), "%.*s", (int)sizeof(ret->error) - 1,
		       m->error.text);
}
