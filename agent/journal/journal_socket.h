/* SPDX-License-Identifier: Apache-2.0 */
/* Where entries of the journal go, without ever waiting: a journal that stands still must not hold
 * the agent up, and through it a job. What finds no room waits here, in order and bounded. */
#ifndef MPIB_AGENT_JOURNAL_SOCKET_H
#define MPIB_AGENT_JOURNAL_SOCKET_H

#include <stdbool.h>
#include <sys/uio.h>

struct mpib_journal_socket;

/* Entries go to the journal's socket at @path, or as lines of text to @fd where @path is NULL. @fd
 * stays the caller's; @path lives as long as the result. -ENOMEM. */
int mpib_journal_socket_new(const char *path, int fd, struct mpib_journal_socket **ret);
/* Tries once more to send what waits, and drops the rest. */
struct mpib_journal_socket *mpib_journal_socket_free(struct mpib_journal_socket *js);

/* Takes an entry, to be sent with the next flush, with fields as "NAME=value" (no newline in a
 * value) for the journal and @message for a line of text. False where it is lost, there being no
 * more room. */
bool mpib_journal_socket_put(struct mpib_journal_socket *js, const struct iovec *fields,
			     int n_fields, const char *message);

/* Sends what waits, as far as it is taken. */
void mpib_journal_socket_flush(struct mpib_journal_socket *js);

#endif
