/* SPDX-License-Identifier: Apache-2.0 */
/* read() until all is there. */
#ifndef MPIB_AGENT_READ_H
#define MPIB_AGENT_READ_H

#include <stddef.h>
#include <sys/types.h>

/* Reads @len bytes, or fewer where the file ends before. How many, or a negative errno. */
ssize_t mpib_read_full(int fd, void *buf, size_t len);

#endif
