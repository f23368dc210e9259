/* SPDX-License-Identifier: Apache-2.0 */
/* The socket that clients connect to: made in the agent's directory, or taken from the service
 * manager. */
#ifndef MPIB_AGENT_LISTEN_H
#define MPIB_AGENT_LISTEN_H

#include <sys/types.h>

#include "agent/base/cause.h"

struct mpib_listen {
	int fd;
	int dir_fd;   /* the caller's; -1 where the name isn't ours to remove */
	dev_t device; /* of the socket's name, so that only our own is removed */
	ino_t inode;
};

/* Listens at agent.sock in the directory, with the service manager's socket where it passed one.
 * A dead agent's socket is replaced; anything else at that name is left intact: -EEXIST.
 * -ENAMETOOLONG where a socket's address can't hold the path. @ret is written on success alone. */
int mpib_listen_open(int dir_fd, const char *dir, struct mpib_listen *ret,
		     struct mpib_cause *cause);

/* Closes it, and removes its name unless that is the service manager's or somebody else's by
 * now. */
void mpib_listen_close(struct mpib_listen *listen);

#endif
