/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/daemon/manager.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/keeper/keeper.h"
#include "agent/clients/server.h"
#include "agent/daemon/manager_impl.h"
#include "agent/daemon/restore.h"
#include "agent/journal/notify.h"
#include "agent/policy/config.h"
#include "agent/state/adopt.h"
#include "agent/state/dir.h"
#include "common/cleanup.h"
#include "common/macros.h"

#define BEAT_USEC MPIB_CLOCK_SECOND
/* The loop may put the beat together with what else is due. */
#define BEAT_ACCURACY_USEC 50000u
#define TUNE_ACCURACY_USEC 1000u

MPIB_DEFINE_CLEANUP(struct mpib_manager *, mpib_manager_free);

/* ---- events --------------------------------------------------------------------------------- */

static int on_terminate(sd_event_source *source, const struct signalfd_siginfo *info, void *user)
{
	const struct mpib_manager *m = user;

	(void)source;
	(void)info;
	return sd_event_exit(m->loop, 0);
}

static void on_failed(void *user, int error, const char *why)
{
	struct mpib_manager *m = user;

	(void)mpib_cause_set(&m->failure, error, "%s", why);
	(void)sd_event_exit(m->loop, error);
}

void mpib_manager_work(void *user)
{
	struct mpib_manager *m = user;

	m->chores_due = true;
	(void)sd_event_source_set_enabled(m->chores, SD_EVENT_ON);
}

/* Shares that find themselves, while there is something to look at. */
static int on_tune(sd_event_source *source, uint64_t usec, void *user)
{
	struct mpib_manager *m = user;
	uint64_t now = mpib_manager_monotonic_usec();
	uint64_t next = usec + MPIB_TUNING_TICK_USEC;

	mpib_shares_tick(m->flows.shares, &m->flows.traffic, now);
	if (!mpib_shares_is_due(m->flows.shares))
		return sd_event_source_set_enabled(source, SD_EVENT_OFF);
	return sd_event_source_set_time(source, next < now ? now + MPIB_TUNING_TICK_USEC : next);
}

static int start_tuner(struct mpib_manager *m)
{
	int enabled;

	if (!mpib_shares_is_due(m->flows.shares) ||
	    (sd_event_source_get_enabled(m->tuner, &enabled) >= 0 && enabled != SD_EVENT_OFF))
		return 0;
	(void)sd_event_source_set_time(m->tuner,
				       mpib_manager_monotonic_usec() + MPIB_TUNING_TICK_USEC);
	return sd_event_source_set_enabled(m->tuner, SD_EVENT_ON);
}

/* One slice a turn: the event loop serves others before the next one. A descriptor that is always
 * readable queues up behind them; a defer source would not: it stays pending after its turn, and so
 * remains the oldest one, which the loop prefers, for as long as it is on. */
static int on_chores(sd_event_source *source, int fd, uint32_t revents, void *user)
{
	struct mpib_manager *m = user;
	bool more;

	(void)fd;
	(void)revents;
	m->chores_due = false;
	more = mpib_manager_reload_step(m);
	more = mpib_flows_step(&m->flows) || more;
	more = mpib_server_step(m->server) || more;
	(void)start_tuner(m);
	/* Each may have made work for the other. */
	return more || m->chores_due ? 0 : sd_event_source_set_enabled(source, SD_EVENT_OFF);
}

/* Once a second: the heartbeat, and all that can wait for it, so that an idle agent wakes for
 * nothing else. */
static int on_beat(sd_event_source *source, uint64_t usec, void *user)
{
	struct mpib_manager *m = user;
	uint64_t now = mpib_manager_monotonic_usec();
	uint64_t next = usec + BEAT_USEC;

	mpib_hints_beat(m->hints);
	mpib_traffic_begin(&m->flows.traffic);
	mpib_manager_work(m);
	m->beat_usec = now;
	mpib_files_check(&m->files, &m->flows, m->hints, m->server);
	mpib_shares_expire(m->flows.shares);
	mpib_shares_beat(m->flows.shares, now);
	mpib_flows_save(&m->flows);
	mpib_server_tick(m->server);
	mpib_journal_tick(m->journal);
	mpib_manager_update_status(m);
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

static int open_chores(struct mpib_manager *m)
{
	int r;

	m->chores_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->chores_fd < 0)
		return -errno;
	r = sd_event_add_io(m->loop, &m->chores, m->chores_fd, EPOLLIN, on_chores, m);
	if (r < 0)
		return r;
	(void)sd_event_source_set_description(m->chores, "chores");
	return sd_event_source_set_enabled(m->chores, SD_EVENT_OFF);
}

static int add_sources(struct mpib_manager *m, struct mpib_cause *cause)
{
	int r;

	r = add_signal(m, &m->signals[0], SIGTERM, on_terminate);
	if (r >= 0)
		r = add_signal(m, &m->signals[1], SIGINT, on_terminate);
	if (r >= 0)
		r = add_signal(m, &m->signals[2], SIGHUP, mpib_manager_on_hangup);
	if (r >= 0)
		r = sd_event_add_time(m->loop, &m->beat, CLOCK_MONOTONIC,
				      mpib_manager_monotonic_usec() + BEAT_USEC, BEAT_ACCURACY_USEC,
				      on_beat, m);
	if (r >= 0)
		r = sd_event_source_set_enabled(m->beat, SD_EVENT_ON);
	if (r >= 0)
		r = sd_event_add_time(m->loop, &m->tuner, CLOCK_MONOTONIC, 0, TUNE_ACCURACY_USEC,
				      on_tune, m);
	if (r >= 0)
		r = sd_event_source_set_enabled(m->tuner, SD_EVENT_OFF);
	/* Before whatever else is due. */
	if (r >= 0)
		r = sd_event_source_set_priority(m->beat, SD_EVENT_PRIORITY_IMPORTANT);
	if (r >= 0)
		r = open_chores(m);
	if (r < 0)
		return mpib_cause_set(cause, r, "can't set up the event loop: %s", strerror(-r));

	(void)sd_event_source_set_description(m->beat, "heartbeat");
	(void)sd_event_source_set_description(m->tuner, "tuner");
	m->flows.wake = mpib_manager_work;
	m->flows.wake_user = m;
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
	int r = mpib_dir_open(m->args.dir, &m->files.dir_fd, cause);

	if (r < 0) {
		*ret_exit = r == -EBUSY ? MPIB_AGENT_EXIT_BUSY : MPIB_AGENT_EXIT_CONFIG;
		return r;
	}

	r = mpib_dir_lock(m->files.dir_fd, m->args.dir, &m->files.lock_fd, cause);
	if (r < 0)
		*ret_exit = r == -EBUSY	  ? MPIB_AGENT_EXIT_BUSY
			    : r == -EPERM ? MPIB_AGENT_EXIT_CONFIG
					  : MPIB_AGENT_EXIT_FAILURE;
	return r;
}

static int open_hints(struct mpib_manager *m, uint32_t slots, enum mpib_agent_exit *ret_exit,
		      struct mpib_cause *cause)
{
	int r = mpib_hints_open(m->files.dir_fd, m->args.dir, slots, &m->hints, cause);

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
	static const struct mpib_server_ops ops = {
		.status = mpib_manager_fill_status,
		.reload = mpib_manager_reload,
		.failed = on_failed,
	};
	int r;

	m->flows.registry = m->registry;
	m->flows.hints = m->hints;
	m->flows.journal = m->journal;
	mpib_manager_settle_slots(m, m->policy);
	r = mpib_shares_new(m->registry, m->hints, m->journal, mpib_steal_ptr(m->policy),
			    &m->flows.shares);
	if (r < 0)
		return mpib_cause_set(cause, r, "out of memory");
	mpib_flows_init(&m->flows);
	r = mpib_server_new(m->loop, m->keeper, &m->flows, &ops, m, &m->server);
	if (r < 0)
		return mpib_cause_set(cause, r, "out of memory");

	mpib_restore(m->server, &m->flows, m->files.dir_fd, m->args.dir);
	r = add_sources(m, cause);
	if (r < 0)
		return r;

	r = mpib_server_listen(m->server, m->files.dir_fd, m->args.dir, cause);
	if (r == -EEXIST || r == -ENAMETOOLONG)
		*ret_exit = MPIB_AGENT_EXIT_CONFIG;
	return r;
}

static void announce(struct mpib_manager *m)
{
	m->beat_usec = mpib_manager_monotonic_usec();
	m->start_usec = mpib_clock_usec(CLOCK_REALTIME);
	m->policy_usec = m->start_usec;
	m->watchdog_usec = mpib_notify_watchdog_usec();
	m->started = true;
	mpib_journal_start(m->journal, m->args.dir, m->args.config,
			   mpib_registry_entries(m->registry), mpib_registry_n_flows(m->registry));
	if (m->policy_missing)
		mpib_manager_tell_missing(m);
	mpib_manager_tell_ready(m);
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
	m->files.path = args->dir;
	m->files.dir_fd = -1;
	m->files.lock_fd = -1;
	m->chores_fd = -1;
	(void)umask(0022);

	r = mpib_config_load(args->config, &m->policy, cause);
	if (r == -ENOENT && !args->config_named) {
		m->policy_missing = true;
		r = mpib_config_parse(args->config, "", 0, &m->policy, cause);
	}
	if (r < 0) {
		*ret_exit = MPIB_AGENT_EXIT_CONFIG;
		return r;
	}

	r = block_signals();
	if (r >= 0)
		r = mpib_keeper_new(&m->keeper);
	if (r >= 0)
		r = sd_event_default(&m->loop);
	if (r >= 0)
		r = mpib_journal_new(mpib_manager_monotonic_usec, &m->journal);
	if (r < 0)
		return mpib_cause_set(cause, r, "can't set up: %s", strerror(-r));

	r = open_dir(m, ret_exit, cause);
	if (r < 0)
		return r;

	r = open_hints(m, m->policy->slots, ret_exit, cause);
	if (r < 0)
		return r;

	r = start_serving(m, ret_exit, cause);
	if (r < 0)
		return r;

	announce(m);
	*ret = mpib_steal_ptr(m);
	return 0;
}

int mpib_manager_run(struct mpib_manager *m, struct mpib_cause *cause)
{
	int code = 0;
	int r = 0;

	while (r >= 0 && sd_event_get_state(m->loop) != SD_EVENT_FINISHED) {
		mpib_keeper_flush(m->keeper);
		mpib_journal_flush(m->journal);
		r = mpib_server_turn(m->server);
	}
	if (r >= 0)
		r = sd_event_get_exit_code(m->loop, &code) < 0 ? 0 : code;

	if (r < 0 && m->failure.text[0])
		*cause = m->failure;
	else if (r < 0)
		(void)mpib_cause_set(cause, r, "%s", strerror(-r));
	return r;
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
	(void)mpib_keeper_free(m->keeper);
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(m->signals); n++)
		(void)sd_event_source_unref(m->signals[n]);
	(void)sd_event_source_unref(m->beat);
	(void)sd_event_source_unref(m->tuner);
	(void)sd_event_source_unref(m->chores);
	if (m->chores_fd >= 0)
		(void)close(m->chores_fd);
	(void)mpib_adopt_free(m->flows.adopt);
	mpib_flows_done(&m->flows);
	(void)mpib_config_loading_free(m->loading);
	(void)mpib_policy_free(m->policy);
	(void)mpib_registry_free(m->registry);
	(void)mpib_hints_free(m->hints);
	(void)mpib_journal_free(m->journal);
	(void)sd_event_unref(m->loop);
	mpib_files_close(&m->files);
	free(m);
	return NULL;
}
