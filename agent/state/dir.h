/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's directory, which lies in /tmp where anybody may plant things: made or checked, never
 * through a link, and locked for one instance. */
#ifndef MPIB_AGENT_DIR_H
#define MPIB_AGENT_DIR_H

#include <stdbool.h>
#include <sys/stat.h>

#include "agent/base/cause.h"

/* Makes the directory (mode 0755) where it is missing, and opens it. Refuses a link, another
 * user's directory, and one that group or others may write: -ELOOP, -EPERM, -ENOTDIR or the errno
 * of the failed call; -EBUSY where such a one is served by another agent. The caller closes
 * *ret_fd. */
int mpib_dir_open(const char *path, int *ret_fd, struct mpib_cause *cause);

/* Takes the single-instance lock; it holds as long as *ret_fd is open. -EBUSY where another
 * instance has it (running or stopped). */
int mpib_dir_lock(int dir_fd, const char *path, int *ret_fd, struct mpib_cause *cause);

/* True while @path names the directory that is open as @dir_fd. */
bool mpib_dir_is(const char *path, int dir_fd);
/* True while the lock that is held by @lock_fd is the one that another instance would find. */
bool mpib_dir_has_lock(int dir_fd, int lock_fd);

/* Checks a file of ours in the directory, opened without following links: regular, one name, this
 * user's, not writable by others. -EPERM otherwise. */
int mpib_dir_check_file(const struct stat *st, const char *dir, const char *name,
			struct mpib_cause *cause);

#endif
