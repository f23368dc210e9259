/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon as a whole: what it owns, in which order it starts and stops, signals, reload. */
#ifndef MPIB_AGENT_MANAGER_H
#define MPIB_AGENT_MANAGER_H

#include <stdbool.h>

#include "agent/base/cause.h"

struct mpib_manager;

/* Exit codes of mpib-agentd, stable. */
enum mpib_agent_exit {
	MPIB_AGENT_EXIT_OK = 0,
	MPIB_AGENT_EXIT_FAILURE = 1,
	MPIB_AGENT_EXIT_USAGE = 2,
	MPIB_AGENT_EXIT_BUSY = 75,   /* another instance serves the directory */
	MPIB_AGENT_EXIT_CONFIG = 78, /* a person must act: policy file, directory, names in it */
};

struct mpib_manager_args {
	const char *dir;
	const char *config;
	bool config_named; /* given by a person: it must exist */
};

/* Starts everything up to READY. On failure @cause says why, *ret_exit how to exit. */
int mpib_manager_new(const struct mpib_manager_args *args, struct mpib_manager **ret,
		     enum mpib_agent_exit *ret_exit, struct mpib_cause *cause);
struct mpib_manager *mpib_manager_free(struct mpib_manager *manager);

/* Serves until a signal ends it: 0, or the negative errno that did, with @cause. */
int mpib_manager_run(struct mpib_manager *manager, struct mpib_cause *cause);

#endif
