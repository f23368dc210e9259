/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/manager.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <unistd.h>

#include "agent/adopt.h"
#include "agent/config.h"
#include "agent/dir.h"
#include "agent/flows.h"
#include "agent/hints.h"
#include "agent/journal.h"
#include "agent/notify.h"
#include "agent/past.h"
#include "agent/server.h"
#include "agent/traffic.h"
#include "common/cleanup.h"

#define BEAT_USEC 1000000u

struct mpib_manager {
	struct mpib_manager_args args;
	sd_event *loop;
	sd_event_source *signals[3];
	sd_event_source *beat;
	int dir_fd;
	int lock_fd;
	struct mpib_journal *journal;
	struct mpib_registry *registry;
	struct mpib_hints *hints;
	struct mpib_flows flows;
	struct mpib_server *server;
	uint64_t watchdog_usec; /* period of the signs of life, 0: none wanted */
	uint64_t watchdog_due;
	uint64_t beat_usec;   /* monotonic: the latest heartbeat */
	uint64_t start_usec;  /* since the epoch */
	uint64_t policy_usec; /* likewise */
	uint64_t n_reloads;
	uint64_t n_reloads_refused;
	char status[768];	 /* the latest that the service manager was told */
	bool ready_due;		 /* it took no READY yet: said again with each beat */
	struct mpib_cause error; /* of the latest reload, "" where it was good */
	bool started;
};

MPIB_DEFINE_CLEANUP(struct mpib_manager *, mpib_manager_free);

static uint64_t clock_usec(clockid_t clock)
{
	struct timespec now = { 0 };

	(void)clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static uint64_t monotonic_usec(void)
{
	return clock_usec(CLOCK_MONOTONIC);
}

/* ---- status --------------------------------------------------------------------------------- */

static void format_status(const struct mpib_manager *m, char *buf, size_t size)
{
	uint32_t flows = mpib_registry_n_flows(m->registry);
	uint32_t peers = mpib_registry_n_peers(m->registry);

	(void)snprintf(buf, size, "%u flow%s in %u slots, %u process%s%s%s", flows,
		       flows == 1 ? "" : "s", mpib_registry_entries(m->registry), peers,
		       peers == 1 ? "" : "es", m->error.text[0] ? "; reload refused: " : "",
		       m->error.text);
}

static void tell_ready(struct mpib_manager *m)
{
	format_status(m, m->status, sizeof(m->status));
	m->ready_due = !mpib_notify_ready(m->status);
}

static void update_status(struct mpib_manager *m)
{
	char status[sizeof(m->status)];

	if (m->ready_due) {
		tell_ready(m);
		return;
	}

	format_status(m, status, sizeof(status));
	if (strcmp(status, m->status) != 0 && mpib_notify_status(status))
		memcpy(m->status, status, sizeof(status));
}

static void on_status(void *user, struct mpib_admin_status *ret)
{
	const struct mpib_manager *m = user;

	*ret = (struct mpib_admin_status){
		.pid = (uint32_t)getpid(),
		.uid = geteuid(),
		.slots = mpib_registry_entries(m->registry),
		.flows = mpib_registry_n_flows(m->registry),
		.registrations = mpib_registry_n_regs(m->registry),
		.processes = mpib_registry_n_peers(m->registry),
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
		.beat_age_usec = monotonic_usec() - m->beat_usec,
		.monitors = mpib_server_n_monitors(m->server),
		.monitors_dropped = mpib_server_n_monitors_dropped(m->server),
		.version = MPIB_VERSION,
	};
	(void)snprintf(ret->config, sizeof(ret->config), "%s", m->args.config);
	(void)snprintf(ret->error, sizeof(ret->error), "%.*s", (int)sizeof(ret->error) - 1,
		       m->error.text);
}

/* ---- reload --------------------------------------------------------------------------------- */

static int load_policy(struct mpib_manager *m, struct mpib_flow_change **ret_changes,
		       uint32_t *ret_n, struct mpib_cause *cause)
{
	struct mpib_policy *policy = NULL;
	int r;

	r = mpib_config_load(m->args.config, m->args.config_named, &policy, cause);
	if (r < 0)
		return r;

	r = mpib_hints_grow(m->hints, policy->slots, cause);
	if (r < 0) {
		(void)mpib_policy_free(policy);
		return r;
	}

	mpib_registry_grow(m->registry, mpib_hints_entries(m->hints));
	*ret_n = mpib_flows_set_policy(&m->flows, policy, ret_changes);
	m->policy_usec = clock_usec(CLOCK_REALTIME);
	return 0;
}

static int reload(void *user, struct mpib_flow_change **ret_changes, uint32_t *ret_n,
		  struct mpib_cause *cause)
{
	struct mpib_manager *m = user;
	int r;

	mpib_notify_reloading();
	r = load_policy(m, ret_changes, ret_n, cause);
	if (r < 0) {
		m->error = *cause;
		m->n_reloads_refused++;
		mpib_journal_reload_refused(m->journal, cause->text);
	} else {
		m->error.text[0] = '\0';
		m->n_reloads++;
		mpib_journal_reload(m->journal, m->args.config, mpib_registry_n_flows(m->registry),
				    *ret_n);
	}

	tell_ready(m);
	return r;
}

/* ---- events --------------------------------------------------------------------------------- */

static int on_hangup(sd_event_source *source, const struct signalfd_siginfo *info, void *user)
{
	struct mpib_cause cause;
	uint32_t n;

	(void)source;
	(void)info;
	(void)reload(user, NULL, &n, &cause);
	return 0;
}

static int on_terminate(sd_event_source *source, const struct signalfd_siginfo *info, void *user)
{
	const struct mpib_manager *m = user;

	(void)source;
	(void)info;
	return sd_event_exit(m->loop, 0);
}

/* Once a second: the heartbeat, and all that can wait for it, so that an idle agent wakes for
 * nothing else. */
static int on_beat(sd_event_source *source, uint64_t usec, void *user)
{
	struct mpib_manager *m = user;
	uint64_t now = monotonic_usec();
	uint64_t next = usec + BEAT_USEC;

	mpib_hints_beat(m->hints);
	mpib_traffic_look_all(m->registry);
	mpib_traffic_rate(m->registry, now - m->beat_usec);
	m->beat_usec = now;
	mpib_flows_tick(&m->flows);
	mpib_server_tick(m->server);
	mpib_journal_tick(m->journal);
	update_status(m);
	if (m->watchdog_usec && now >= m->watchdog_due && mpib_notify_watchdog())
		m->watchdog_due = now + m->watchdog_usec;

	/* After a stop of the process, don't run after what was missed. */
	if (next < now)
		next = now + BEAT_USEC;
	return sd_event_source_set_time(source, next);
}

static int add_signal(struct mpib_manager *m, sd_event_source **source, int number,
		      sd_event_signal_handler_t handler)
{
	return sd_event_add_signal(m->loop, source, number, handler, m);
}

static int add_sources(struct mpib_manager *m, struct mpib_cause *cause)
{
	int r;

	r = add_signal(m, &m->signals[0], SIGTERM, on_terminate);
	if (r >= 0)
		r = add_signal(m, &m->signals[1], SIGINT, on_terminate);
	if (r >= 0)
		r = add_signal(m, &m->signals[2], SIGHUP, on_hangup);
	if (r >= 0)
		r = sd_event_add_time(m->loop, &m->beat, CLOCK_MONOTONIC,
				      monotonic_usec() + BEAT_USEC, 50000, on_beat, m);
	if (r >= 0)
		r = sd_event_source_set_enabled(m->beat, SD_EVENT_ON);
	if (r < 0)
		return mpib_cause_set(cause, r, "can't set up the event loop: %s", strerror(-r));

	(void)sd_event_source_set_description(m->beat, "heartbeat");
	return 0;
}

/* ---- start ---------------------------------------------------------------------------------- */

static int block_signals(void)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigset_t set;

	if (sigemptyset(&set) < 0 || sigaddset(&set, SIGTERM) < 0 || sigaddset(&set, SIGINT) < 0 ||
	    sigaddset(&set, SIGHUP) < 0 || sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;

	/* A client that left and a file that may not grow are errors of a call, not our end. */
	if (sigaction(SIGPIPE, &ignore, NULL) < 0 || sigaction(SIGXFSZ, &ignore, NULL) < 0)
		return -errno;
	return 0;
}

static int open_dir(struct mpib_manager *m, enum mpib_agent_exit *ret_exit,
		    struct mpib_cause *cause)
{
	int r = mpib_dir_open(m->args.dir, &m->dir_fd, cause);

	if (r < 0) {
		*ret_exit = MPIB_AGENT_EXIT_CONFIG;
		return r;
	}

	r = mpib_dir_lock(m->dir_fd, m->args.dir, &m->lock_fd, cause);
	if (r < 0)
		*ret_exit = r == -EBUSY	  ? MPIB_AGENT_EXIT_BUSY
			    : r == -EPERM ? MPIB_AGENT_EXIT_CONFIG
					  : MPIB_AGENT_EXIT_FAILURE;
	return r;
}

static int open_hints(struct mpib_manager *m, uint32_t slots, enum mpib_agent_exit *ret_exit,
		      struct mpib_cause *cause)
{
	int r = mpib_hints_open(m->dir_fd, m->args.dir, slots, &m->hints, cause);

	if (r == -EPERM || r == -EBADMSG || r == -ELOOP)
		*ret_exit = MPIB_AGENT_EXIT_CONFIG;
	if (r < 0)
		return r;

	r = mpib_registry_new(mpib_hints_entries(m->hints), &m->registry);
	return r < 0 ? mpib_cause_set(cause, r, "out of memory") : 0;
}

static int start_serving(struct mpib_manager *m, enum mpib_agent_exit *ret_exit,
			 struct mpib_cause *cause)
{
	static const struct mpib_server_ops ops = { .status = on_status, .reload = reload };
	int r;

	m->flows.registry = m->registry;
	m->flows.hints = m->hints;
	m->flows.journal = m->journal;
	r = mpib_server_new(m->loop, &m->flows, &ops, m, &m->server);
	if (r < 0)
		return mpib_cause_set(cause, r, "out of memory");

	mpib_past_adopt(m->server, &m->flows, m->dir_fd, m->args.dir);
	r = add_sources(m, cause);
	if (r < 0)
		return r;

	r = mpib_server_listen(m->server, m->dir_fd, m->args.dir, cause);
	if (r == -EEXIST || r == -ENAMETOOLONG)
		*ret_exit = MPIB_AGENT_EXIT_CONFIG;
	return r;
}

static void announce(struct mpib_manager *m)
{
	m->beat_usec = monotonic_usec();
	m->start_usec = clock_usec(CLOCK_REALTIME);
	m->policy_usec = m->start_usec;
	m->watchdog_usec = mpib_notify_watchdog_usec();
	m->started = true;
	mpib_journal_start(m->journal, m->args.dir, m->args.config,
			   mpib_registry_entries(m->registry), mpib_registry_n_flows(m->registry));
	tell_ready(m);
}

int mpib_manager_new(const struct mpib_manager_args *args, struct mpib_manager **ret,
		     enum mpib_agent_exit *ret_exit, struct mpib_cause *cause)
{
	mpib_cleanup(mpib_manager_freep) struct mpib_manager *m = calloc(1, sizeof(*m));
	int r;

	*ret_exit = MPIB_AGENT_EXIT_FAILURE;
	if (!m)
		return mpib_cause_set(cause, -ENOMEM, "out of memory");

	m->args = *args;
	m->dir_fd = -1;
	m->lock_fd = -1;
	(void)umask(0022);

	r = mpib_config_load(args->config, args->config_named, &m->flows.policy, cause);
	if (r < 0) {
		*ret_exit = MPIB_AGENT_EXIT_CONFIG;
		return r;
	}

	r = block_signals();
	if (r >= 0)
		r = sd_event_default(&m->loop);
	if (r >= 0)
		r = mpib_journal_new(monotonic_usec, &m->journal);
	if (r < 0)
		return mpib_cause_set(cause, r, "can't set up: %s", strerror(-r));

	r = open_dir(m, ret_exit, cause);
	if (r < 0)
		return r;

	r = open_hints(m, m->flows.policy->slots, ret_exit, cause);
	if (r < 0)
		return r;

	r = start_serving(m, ret_exit, cause);
	if (r < 0)
		return r;

	announce(m);
	*ret = mpib_steal_ptr(m);
	return 0;
}

int mpib_manager_run(struct mpib_manager *m)
{
	return sd_event_loop(m->loop);
}

struct mpib_manager *mpib_manager_free(struct mpib_manager *m)
{
	if (!m)
		return NULL;

	if (m->started) {
		mpib_notify_stopping();
		mpib_journal_stop(m->journal, m->args.dir, mpib_registry_n_flows(m->registry));
	}

	(void)mpib_server_free(m->server);
	for (unsigned int n = 0; n < 3; n++)
		(void)sd_event_source_unref(m->signals[n]);
	(void)sd_event_source_unref(m->beat);
	(void)mpib_adopt_free(m->flows.adopt);
	mpib_flows_done(&m->flows);
	(void)mpib_registry_free(m->registry);
	(void)mpib_hints_free(m->hints);
	(void)mpib_journal_free(m->journal);
	(void)sd_event_unref(m->loop);
	if (m->lock_fd >= 0)
		(void)close(m->lock_fd);
	if (m->dir_fd >= 0)
		(void)close(m->dir_fd);
	free(m);
	return NULL;
}
