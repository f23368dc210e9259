/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a living agent serves a directory, whoever asks: before somebody is told that it is in
 * the way. */
#ifndef MPIB_AGENT_HOLDER_H
#define MPIB_AGENT_HOLDER_H

#include <stdbool.h>
#include <sys/types.h>

/* The name that an agent's process has. */
#define MPIB_AGENT_PROCESS "mpib-agentd"

/* True where another process than this one, running or stopped, holds the lock of @dir or listens
 * at its socket. *ret_pid is 0 where its pid can't be told. Never blocks. */
bool mpib_holder_find(const char *dir, pid_t *ret_pid);

/* The pid that the lock of @dir names, where that is a living agent; 0 otherwise, and where this
 * user may not read it. Takes no lock, so that an agent may start meanwhile. */
pid_t mpib_holder_pid(const char *dir);

#endif
