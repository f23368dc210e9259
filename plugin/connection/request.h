/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a connection: a fixed pool with a free list; progress thread only. */
#ifndef MPIB_PLUGIN_REQUEST_H
#define MPIB_PLUGIN_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "plugin/base/rail.h"
#include "plugin/verbs/depth.h"
#include "plugin/wire/cts.h"

struct mpib_comm;
struct mpib_mr;

/* The first cache line is all that a message alone in its receive touches. */
struct mpib_request {
	struct mpib_comm *comm;
	/* Free list, or send: next message of the same group. */
	struct mpib_request *mate;
	/* What must still happen before the request is done; 0 = done. A message alone counts
	 * completions to come; one of a group, and a receive, have 1 until all is done. */
	uint32_t remaining;
	uint32_t imm; /* receive: the first immediate that came, 0 before it */
	uint16_t index;
	uint8_t count;	 /* messages whose sizes are reported: 1 for a send, 0 for a flush */
	uint8_t left;	 /* receive: rails whose immediate has not come yet */
	uint8_t element; /* send of a group: its place in the row */
	uint8_t rails;	 /* send, the group's first in the list: rails that are not done */
	uint64_t size;	 /* of a single message: posted, or arrived so far */
	uint64_t room[MPIB_GROUP_MAX]; /* receive: bytes posted */

	uint64_t sizes[MPIB_GROUP_MAX]; /* receive of a group: exact, valid when done */
	/* Send, while its group is collected and posted. */
	uint64_t addr;
	uint64_t sup_bytes;
	const struct mpib_mr *mr;
	uint64_t pad1[8];
};

_Static_assert(sizeof(struct mpib_request) == 256, "a power of two: found by shifting its index");

struct mpib_request_pool {
	struct mpib_request *free;
	struct mpib_request *requests;
};

/* NULL where all are in use: the caller answers "not now". */
static inline struct mpib_request *mpib_request_get(struct mpib_request_pool *pool)
{
	struct mpib_request *req = pool->free;

	if (__builtin_expect(req != NULL, 1))
		pool->free = req->mate;
	return req;
}

static inline void mpib_request_put(struct mpib_request_pool *pool, struct mpib_request *req)
{
	req->mate = pool->free;
	pool->free = req;
}

#endif
