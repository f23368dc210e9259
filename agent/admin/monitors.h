/* SPDX-License-Identifier: Apache-2.0 */
/* The sessions that watch events as they happen (mpibctl monitor). */
#ifndef MPIB_AGENT_MONITORS_H
#define MPIB_AGENT_MONITORS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/admin/session.h"
#include "agent/journal/journal.h"

struct mpib_monitors {
	struct mpib_session_list sessions;
	struct mpib_journal *journal; /* borrowed */
	uint32_t n;
	uint64_t n_dropped; /* cut off for reading too slowly */
};

/* True where @session may watch; it counts from now on. */
bool mpib_monitors_admit(struct mpib_monitors *monitors, struct mpib_session *session);
/* One event to all of them. */
void mpib_monitors_tell(struct mpib_monitors *monitors, enum mpib_event event, int priority,
			const char *flow, const char *message);
/* @session, which watched, is about to go. */
void mpib_monitors_left(struct mpib_monitors *monitors, struct mpib_session *session);

#endif
