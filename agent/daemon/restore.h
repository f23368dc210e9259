/* SPDX-License-Identifier: Apache-2.0 */
/* What an earlier incarnation of the agent handed out, brought back at the start. */
#ifndef MPIB_AGENT_RESTORE_H
#define MPIB_AGENT_RESTORE_H

#include "agent/clients/server.h"
#include "agent/flows/flows.h"

/* Brings back registrations of processes that live, slots, and shares set by hand; opens the state
 * file and the overrides of @flows, which stay NULL where memory is out. Nothing here fails a
 * start: what can't be told keeps its slot. @dir_fd stays the caller's. */
void mpib_restore(struct mpib_server *server, struct mpib_flows *flows, int dir_fd,
		  const char *dir);

#endif
