/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the manager: start, stop and events in manager.c, what it tells in
 * manager_status.c, a reload from the signal on in manager_reload.c. */
#ifndef MPIB_AGENT_MANAGER_IMPL_H
#define MPIB_AGENT_MANAGER_IMPL_H

#include <systemd/sd-event.h>

#include "agent/admin/admin.h"
#include "agent/keeper/keeper.h"
#include "agent/clients/server.h"
#include "agent/daemon/files.h"
#include "agent/daemon/manager.h"
#include "agent/journal/journal.h"
#include "agent/policy/config.h"
#include "agent/flows/flows.h"
#include "agent/state/hints.h"

struct mpib_manager {
	struct mpib_manager_args args;
	sd_event *loop;
	sd_event_source *signals[3];
	sd_event_source *beat;
	sd_event_source *tuner;	 /* on while shares that find themselves are looked at */
	int chores_fd;		 /* always readable */
	sd_event_source *chores; /* on while there is something to do in slices */
	bool chores_due;	 /* something was added since the latest slice began */
	struct mpib_files files;
	struct mpib_journal *journal;
	struct mpib_registry *registry;
	struct mpib_hints *hints;
	struct mpib_policy *policy; /* of the start, until the shares own it */
	struct mpib_flows flows;
	struct mpib_keeper *keeper;
	struct mpib_server *server;
	struct mpib_cause failure; /* why the loop ended with an error */
	uint64_t watchdog_usec;	   /* period of the signs of life, 0: none wanted */
	uint64_t watchdog_due;
	uint64_t beat_usec;   /* monotonic: the latest heartbeat */
	uint64_t start_usec;  /* since the epoch */
	uint64_t policy_usec; /* likewise */
	uint64_t n_reloads;
	uint64_t n_reloads_refused;
	char status[768];		     /* the latest that the service manager was told */
	bool ready_due;			     /* it took no READY yet: said again with each beat */
	bool reload_due;		     /* asked for, and not begun */
	struct mpib_config_loading *loading; /* begun: the file is parsed */
	bool reloading;			     /* the policy holds: shares follow */
	struct mpib_cause error;	     /* of the latest reload, "" where it was good */
	bool started;
	bool policy_missing; /* the defaults are in force */
};

uint64_t mpib_manager_monotonic_usec(void);

/* READY, with the status of now; said again with each beat until the service manager took it. */
void mpib_manager_tell_ready(struct mpib_manager *m);
/* Tells the service manager a status that has changed. */
void mpib_manager_update_status(struct mpib_manager *m);
/* The record that mpibctl asks for; @user is the manager. */
void mpib_manager_fill_status(void *user, struct mpib_admin_status *ret);

/* SIGHUP. */
int mpib_manager_on_hangup(sd_event_source *source, const struct signalfd_siginfo *info,
			   void *user);
/* Reads the policy file again, soon; see struct mpib_server_ops. */
void mpib_manager_reload(void *user);
/* A slice of that. True where more is to be done. */
bool mpib_manager_reload_step(struct mpib_manager *m);
/* There is something to do in slices. @user is the manager. */
void mpib_manager_work(void *user);
/* The table never shrinks under jobs: what the file asks for less than that is told, and what is in
 * force is what the policy says from then on. */
void mpib_manager_settle_slots(struct mpib_manager *m, struct mpib_policy *policy);
/* There was no policy file at the start. */
void mpib_manager_tell_missing(const struct mpib_manager *m);

#endif
