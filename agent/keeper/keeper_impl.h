/* SPDX-License-Identifier: Apache-2.0 */
/* Between the loop's side of the keeper, its process, and the children of that. */
#ifndef MPIB_AGENT_KEEPER_IMPL_H
#define MPIB_AGENT_KEEPER_IMPL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Bytes of one read, at most. */
#define MPIB_KEEPER_ROOM 4096u

/* Places of a table or queue that grows, at first. */
#define MPIB_KEEPER_PLACES 64u

/* Descriptors that one message can carry (SCM_MAX_FD of the kernel). */
#define MPIB_KEEPER_FDS 253u

/* A counter table's file may be this long; a longer one would take long to free. */
#define MPIB_KEEPER_TABLE_MAX (16u << 20)

enum mpib_keeper_type {
	/* to the keeper */
	MPIB_KEEPER_HOLD = 1, /* a socket comes along */
	MPIB_KEEPER_FETCH,
	MPIB_KEEPER_DROP, /* the loop holds it no longer */
	/* from the keeper */
	MPIB_KEEPER_FETCHED, /* bytes follow; a table may come along */
	MPIB_KEEPER_FAILED,
};

/* A packet to the keeper has up to so many messages, and a socket for each HOLD among them. */
#define MPIB_KEEPER_BATCH 16u

/* The head of a packet from the keeper, or one of a packet to it. The sender is this program:
 * nothing in it is in doubt. */
struct mpib_keeper_message {
	uint32_t type;	 /* enum mpib_keeper_type */
	int32_t id;	 /* of the socket: the loop's descriptor number */
	uint32_t serial; /* of the fetch: answers to a socket of before are told by it */
	uint32_t uid;	 /* HOLD */
	uint32_t room;	 /* FETCH */
	int32_t n;	 /* FETCHED: bytes, or a negative errno */
	uint32_t n_fds;	 /* FETCHED */
};

/* Work of a child. */
struct mpib_keeper_job {
	STAILQ_ENTRY(mpib_keeper_job) next;
	enum mpib_keeper_type type; /* FETCH or DROP */
	int fd;			    /* of the keeper's process */
	int32_t id;
	uint32_t serial;
	uint32_t room;
};

STAILQ_HEAD(mpib_keeper_jobs, mpib_keeper_job);

/* Sends one packet, with descriptors where there are any. Negative errno. */
int mpib_keeper_send(int channel, const struct iovec *parts, size_t n_parts, const int *fds,
		     size_t n_fds, int flags);
/* Receives one packet without waiting, and up to *@n_fds descriptors, which becomes how many came:
 * bytes, 0 at the end, or a negative errno. */
ssize_t mpib_keeper_receive(int channel, const struct iovec *parts, size_t n_parts, int *fds,
			    size_t *n_fds);

/* True where a socket that was shut down has nothing left to read, so that to close it closes
 * nothing else. */
bool mpib_keeper_is_empty(int fd);

/* The keeper's process: serves until the other end of @channel is closed, and ends. */
void mpib_keeper_serve(int channel) __attribute__((noreturn));

/* A child: does the jobs in their order. */
void mpib_keeper_work(int channel, const struct mpib_keeper_jobs *jobs);

#endif
