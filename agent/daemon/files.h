/* SPDX-License-Identifier: Apache-2.0 */
/* The names under which jobs and later agents find this one: directory, lock, table, socket and
 * state. Whoever deletes or replaces one of them under a running agent is answered with another,
 * within a second. */
#ifndef MPIB_AGENT_DAEMON_FILES_H
#define MPIB_AGENT_DAEMON_FILES_H

#include <stdbool.h>

#include "agent/clients/server.h"
#include "agent/flows/flows.h"

struct mpib_files {
	const char *path;  /* of the directory */
	int dir_fd;	   /* owned; -1: none */
	int lock_fd;	   /* likewise */
	bool move_due;	   /* clients have the table of before mapped */
	char failure[512]; /* the latest one, said once; "": none */
};

/* Compares each name with what is open behind it, and makes anew what isn't there any more: the
 * table with the same contents, after which all clients are disconnected, since a client that
 * connects again maps the table again. Called about once a second. */
void mpib_files_check(struct mpib_files *files, struct mpib_flows *flows, struct mpib_hints *hints,
		      struct mpib_server *server);
void mpib_files_close(struct mpib_files *files);

#endif
