/* SPDX-License-Identifier: Apache-2.0 */
/* A file system of one file that doesn't answer what it should: closes that never return, as any
 * user can make them. */
#ifndef MPIB_TESTS_AGENT_BADFS_H
#define MPIB_TESTS_AGENT_BADFS_H

#include <stdbool.h>
#include <sys/types.h>

enum badfs_kind {
	BADFS_FLUSH, /* close(), and the end of the process, waits for ever */
	BADFS_DIRTY, /* the last reference of the file does, without any close() */
};

/* NULL where one can be made here, or why not. */
const char *badfs_missing(void);

/* Mounts one in a mount namespace for this process alone (call it in a child) and opens the file
 * twice. A descriptor of BADFS_FLUSH can't be closed. One of BADFS_DIRTY can, until a byte is
 * written to the other: pages belong to the file, whoever wrote them. *ret_server is the process to
 * kill first: that ends all waits. It ends by itself after two minutes, and at once where
 * @lifeline, a pipe's end to read from, or -1, comes to its end: nothing else can end the caller
 * then. Negative errno. */
int badfs_open(enum badfs_kind kind, int lifeline, int ret_fds[2], pid_t *ret_server);

#endif
