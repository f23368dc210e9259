/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a connection: a fixed pool with a free list; progress thread only. */
#ifndef MPIB_PLUGIN_REQUEST_H
#define MPIB_PLUGIN_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "plugin/cts.h"
#include "plugin/rail.h"

/* NCCL_NET_MAX_REQUESTS (32) times the largest group. */
#define MPIB_REQUESTS_MAX 256u

struct mpib_comm;

struct mpib_request {
	struct mpib_comm *comm;
	/* What must still happen before the request is done; 0 = done. A send counts completions to
	 * come (and 1 while it waits for the rest of its group); a receive starts at 1 and learns
	 * from its first immediate how many rails to wait for. */
	uint32_t remaining;
	uint16_t index;
	uint8_t expected_mask; /* receive: rails named by the first immediate, 0 before it */
	uint8_t seen_mask;     /* receive */
	uint8_t count;	       /* receive: messages of the group; 0 for a flush */
	uint8_t active;	       /* 0 in the free list */
	uint16_t slot;
	uint32_t imm_size;	   /* receive: size field of the first immediate */
	struct mpib_request *mate; /* send: next message of the same group */
	size_t size;		   /* send: bytes; receive: bytes arrived */

	/* Send, while its group is collected and posted. */
	uint64_t addr;
	uint64_t remote_addr;
	size_t sup_bytes;
	uint32_t lkey[MPIB_RAIL_MAX];
	uint32_t rkey[MPIB_RAIL_MAX];
	/* Receive. */
	uint64_t room[MPIB_GROUP_MAX];
	uint64_t sizes[MPIB_GROUP_MAX]; /* exact, valid when done */
};

struct mpib_request_pool {
	uint32_t free_count;
	uint16_t free_list[MPIB_REQUESTS_MAX];
	struct mpib_request *requests;
};

/* NULL where all are in use: the caller answers "not now". */
static inline struct mpib_request *mpib_request_get(struct mpib_request_pool *pool)
{
	struct mpib_request *req;

	if (__builtin_expect(pool->free_count == 0, 0))
		return NULL;
	req = &pool->requests[pool->free_list[--pool->free_count]];
	req->active = 1;
	return req;
}

static inline void mpib_request_put(struct mpib_request_pool *pool, struct mpib_request *req)
{
	req->active = 0;
	pool->free_list[pool->free_count++] = req->index;
}

#endif
