/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whatever descriptor a client passes, and whenever, the event loop doesn't sleep for it, nor does
 * the end of the agent. To close a file may take for ever (a file system in user space, unsent
 * data), and the kernel closes in the name of the process that reads the message, closes the last
 * descriptor of the socket, or ends with it open. So:
 *
 * - the loop looks before it reads: a message with descriptors is not read here;
 * - a second process, the keeper, holds each connection, too: no close here is a socket's last;
 * - the keeper has such messages read, and such sockets emptied, by children of its own, at most
 *   one at a time for a user. A child that sleeps keeps what its user sent waiting, nothing else.
 *
 * What comes back is the bytes, and at most one descriptor: a memfd of bounded size, checked by the
 * child. One thread; nothing here blocks.
 */
#ifndef MPIB_AGENT_KEEPER_H
#define MPIB_AGENT_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

struct mpib_keeper;

/* What was read for a connection. */
struct mpib_keeper_fetched {
	const uint8_t *bytes;
	ssize_t n;	/* bytes; a negative errno where the connection has to end */
	int table;	/* a sealed memfd, the callee's to close, or -1 */
	uint32_t n_fds; /* descriptors that came */
};

struct mpib_keeper_ops {
	/* Answers mpib_keeper_fetch(); called from the loop. */
	void (*fetched)(void *owner, const struct mpib_keeper_fetched *fetched);
	/* The keeper ended by itself; @user is as given to mpib_keeper_start(). */
	void (*gone)(void *user);
};

/* Forks the keeper. It keeps nothing open that is open now; what is opened later it never sees, so
 * this comes before the lock is taken. Negative errno. */
int mpib_keeper_new(struct mpib_keeper **ret);
/* Listens to the keeper. */
int mpib_keeper_start(struct mpib_keeper *keeper, sd_event *loop, const struct mpib_keeper_ops *ops,
		      void *user);
/* Lets the keeper end, which closes what it holds; waits for that, but not for long. */
struct mpib_keeper *mpib_keeper_free(struct mpib_keeper *keeper);

/* Sends what was asked of the keeper since the last time; called at the end of each turn of the
 * loop. */
void mpib_keeper_flush(struct mpib_keeper *keeper);

/* Has the keeper hold a socket of ours, connected or listening, with the user whose descriptors
 * may come by it. From now on it is closed by mpib_keeper_close() alone. */
void mpib_keeper_hold(struct mpib_keeper *keeper, int fd, uid_t uid);

/* Reads as recv() without waiting does, but leaves the bytes there; where descriptors come along
 * none are read and *ret_fds is true. Returns bytes, 0 at the end, or a negative errno. */
ssize_t mpib_keeper_peek(int fd, void *buf, size_t size, bool *ret_fds);
/* Takes so many bytes away that mpib_keeper_peek() returned. The kernel wakes the peer for it; who
 * has been sent an answer before is awake. */
void mpib_keeper_consume(int fd, size_t n);

/* Has up to @room bytes read from a socket that is held; @owner is told. One at a time for a
 * socket, and nobody else reads it meanwhile. Negative errno where it isn't held. */
int mpib_keeper_fetch(struct mpib_keeper *keeper, int fd, size_t room, void *owner);

/* Ends the connection for its peer at once, and closes @fd; whoever waits for a fetch isn't told.
 */
void mpib_keeper_close(struct mpib_keeper *keeper, int fd);

/* Descriptors given to mpib_keeper_close() that are still open, as the keeper is slow. */
uint32_t mpib_keeper_n_closing(const struct mpib_keeper *keeper);

#endif
