/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a connection: a fixed pool with a free list; progress thread only. */
#ifndef MPIB_PLUGIN_REQUEST_H
#define MPIB_PLUGIN_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "plugin/base/rail.h"
#include "plugin/verbs/depth.h"
#include "plugin/wire/cts.h"

struct mpib_comm;
struct mpib_mr;

/* `remaining` of what isn't counted by parts: a receive, a flush, and a message of a group. */
#define MPIB_REMAINING_ONE 4u

/* The first cache line is all that a message alone in its receive touches beside its work requests.
 *
 * A *part* of a message, or of a row, is what the split gave to a rail. How a message was divided,
 * and where its parts go, stays here until it is done, since a part that is lost goes again as it
 * was. */
struct mpib_request {
	struct mpib_comm *comm;
	/* Free list, or send: next message of the same group. */
	struct mpib_request *mate;
	/* What must still happen before the request is done; 0 = done. A message alone has the bits
	 * of its parts, a flush MPIB_REMAINING_ONE times those of its reads, all others
	 * that once. */
	uint32_t remaining;
	uint32_t imm; /* receive: the first immediate that came, 0 before it */
	uint16_t index;
	uint8_t count;	 /* messages whose sizes are reported: 1 for a send, 0 for a flush */
	uint8_t left;	 /* receive: parts whose immediate has not come yet */
	uint8_t element; /* send of a group: its place in the row */
	uint8_t rails;	 /* send, the group's first in the list: parts that are not done */
	uint8_t parts;	 /* the same: all parts of the row */
	/* Send of a message alone, and a group's first: parts that were posted on the other rail,
	 * and those that have to be posted again. 0 but while a rail is lost. */
	uint8_t elsewhere, pending;
	uint64_t size;		  /* of a single message: posted, or arrived so far */
	uint32_t row;		  /* send: its row; of a group in the first of the list alone */
	const struct mpib_mr *mr; /* send */

	union {
		_Alignas(64) struct {
			uint64_t room[MPIB_GROUP_MAX];	/* bytes posted */
			uint64_t sizes[MPIB_GROUP_MAX]; /* of a group: exact, valid when done */
			struct mpib_cts cts;		/* what irecv's fast path told the sender */
		};					/* receive */
		struct {
			/* Of a message alone in its row, by part: prepared once, a message fills in
			 * fields of the first line only. */
			struct ibv_send_wr wr[MPIB_RAIL_MAX];
			struct ibv_sge sge[MPIB_RAIL_MAX];
			/* Of one that isn't. */
			uint64_t addr;
			uint64_t sup_bytes;
		}; /* send */
	};
	uint64_t pad[16];
};

_Static_assert(sizeof(struct mpib_request) == 512, "a power of two: found by shifting its index");

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
