/* SPDX-License-Identifier: Apache-2.0 */
/* What an earlier incarnation of the agent handed out, taken over at the start. */
#ifndef MPIB_AGENT_PAST_H
#define MPIB_AGENT_PAST_H

#include "agent/flows.h"
#include "agent/server.h"

/* Brings back registrations of processes that live, slots, and shares set by hand; opens the state
 * file and the overrides of @flows, which stay NULL where that failed. Nothing here fails a start:
 * an agent without a past serves new jobs all the same. @dir_fd stays the caller's. */
void mpib_past_adopt(struct mpib_server *server, struct mpib_flows *flows, int dir_fd,
		     const char *dir);

#endif
