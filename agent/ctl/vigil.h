/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for an agent that may never answer, and looks meanwhile why it doesn't: one that is stopped
 * is found in half a second, one that hangs in three, one at work has its time. */
#ifndef MPIB_AGENT_VIGIL_H
#define MPIB_AGENT_VIGIL_H

#include <sys/types.h>

#include "agent/ctl/ctl.h"
#include "common/hint.h"

enum mpib_vigil_why {
	MPIB_VIGIL_LATE, /* it lives, and didn't answer in time */
	MPIB_VIGIL_STOPPED,
	MPIB_VIGIL_TRACED, /* held by a debugger */
	MPIB_VIGIL_HANGS,  /* no heartbeat, no answer, and not on a core */
};

struct mpib_vigil {
	const struct mpib_ctl *ctl;
	unsigned int limit_ms; /* for each part of the answer; 0: none once it has begun */
	pid_t pid;	       /* the agent's; 0: can't be told */
	long tracer;
	char state; /* the process's at the latest look, '?' where it can't be told */
	const struct mpib_hint_header *hints; /* for the heartbeat, or NULL */
	size_t hints_size;
	uint32_t beat;
	uint64_t began_ms;   /* when the wait for this part began */
	uint64_t alive_ms;   /* when it last showed life */
	unsigned int n_held; /* looks in a row that found it stopped or held */
	bool answered;	     /* something came */
	enum mpib_vigil_why why;
};

/* Opens the table for its heartbeat; end() closes it. */
void mpib_vigil_begin(struct mpib_vigil *vigil, const struct mpib_ctl *ctl, unsigned int limit_sec);
void mpib_vigil_end(struct mpib_vigil *vigil);

/* Whom it is about: the process at the other end of @fd, or the holder of the directory (@fd -1).
 */
void mpib_vigil_name(struct mpib_vigil *vigil, int fd);

/* True where the agent is stopped or held and stays so for some 0.3 s. */
bool mpib_vigil_held(struct mpib_vigil *vigil);
/* Waits for @events of @fd (poll(2)): 0, -ETIMEDOUT where nothing is to be waited for any more, or
 * the errno of poll. */
int mpib_vigil_wait(struct mpib_vigil *vigil, int fd, short events);
/* One look without waiting for anything: -ETIMEDOUT as above, otherwise 0. */
int mpib_vigil_look(struct mpib_vigil *vigil);
/* A part of the answer came. */
void mpib_vigil_heard(struct mpib_vigil *vigil);

/* Writes what was seen and what to do; the exit code for it. @change: it was asked to change
 * something. */
enum mpib_ctl_exit mpib_vigil_tell(const struct mpib_vigil *vigil, struct mpib_ctl *ctl,
				   bool change);

#endif
