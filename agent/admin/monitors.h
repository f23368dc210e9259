/* SPDX-License-Identifier: Apache-2.0 */
/* The sessions that watch events as they happen (mpibctl monitor). An event is put into
 * one ring; the sessions get it in slices, between which others are served. */
#ifndef MPIB_AGENT_MONITORS_H
#define MPIB_AGENT_MONITORS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/admin/event_ring.h"
#include "agent/admin/session.h"
#include "agent/journal/journal.h"

struct mpib_monitors {
	struct mpib_session_list sessions;
	struct mpib_event_ring ring; /* open while there are any */
	struct mpib_session *next;   /* to be served in this round, or NULL */
	bool again;		     /* events came since the round began */
	uint32_t n;
};

enum mpib_admission {
	MPIB_ADMITTED,
	MPIB_ADMISSION_NO_MEMORY,
	MPIB_ADMISSION_TOO_MANY,
};

/* Lets @session watch, from now on. */
enum mpib_admission mpib_monitors_admit(struct mpib_monitors *monitors,
					struct mpib_session *session);
/* One event for all of them; mpib_monitors_step() has something to do then. */
void mpib_monitors_tell(struct mpib_monitors *monitors, enum mpib_event event, int priority,
			const char *flow, const char *message);
/* A slice of handing them out. True where more is to be done. */
bool mpib_monitors_step(struct mpib_monitors *monitors);
/* @session, which watched, is about to go. */
void mpib_monitors_left(struct mpib_monitors *monitors, struct mpib_session *session);

#endif
