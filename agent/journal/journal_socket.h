/* SPDX-License-Identifier: Apache-2.0 */
/* Where entries of the journal go, without ever waiting: a journal that stands still must not hold
 * the agent up, and through it a job. What finds no room waits here, in order and bounded. */
#ifndef MPIB_AGENT_JOURNAL_SOCKET_H
#define MPIB_AGENT_JOURNAL_SOCKET_H

#include <stdbool.h>
#include <sys/uio.h>

struct mpib_sink;

/* Entries go to the journal's socket at @path, or as lines of text to @fd where @path is NULL. @fd
 * stays the caller's; @path lives as long as the sink. -ENOMEM. */
int mpib_sink_new(const char *path, int fd, struct mpib_sink **ret);
/* Tries once more to send what waits, and drops the rest. */
struct mpib_sink *mpib_sink_free(struct mpib_sink *sink);

/* Takes an entry, with fields as "NAME=value" (no newline in a value) for the journal and @message
 * for a line of text. False where it is lost, there being no more room. */
bool mpib_sink_put(struct mpib_sink *sink, const struct iovec *fields, int n_fields,
		   const char *message);

/* Sends what waits, as far as it is taken. */
void mpib_sink_flush(struct mpib_sink *sink);

#endif
