/* SPDX-License-Identifier: Apache-2.0 */
/* Message buffers of one connection: equal slots in one mapping, each between guard bands of at
 * least a page, all of it one registration, so that a write astray shows in a band instead of
 * being refused. */
#ifndef MPIB_NETPERF_POOL_H
#define MPIB_NETPERF_POOL_H

#include <stdbool.h>
#include <stddef.h>

struct np_pool {
	char *map; /* NULL: not open */
	size_t map_len;
	size_t cap; /* bytes of a slot, whole pages */
	unsigned int count;
	void *mhandle;	    /* the plugin's, set by the owner */
	unsigned int *ring; /* free slots, first in first out */
	unsigned int ring_head, ring_used;
};

/* Every byte of the mapping is guard pattern afterwards. 0 or -ENOMEM. */
int np_pool_open(struct np_pool *pool, size_t cap, unsigned int count);
void np_pool_close(struct np_pool *pool);

/* False where all slots are taken. Slots come back in the order in which they were put. */
bool np_pool_get(struct np_pool *pool, unsigned int *ret_slot);
void np_pool_put(struct np_pool *pool, unsigned int slot);

char *np_pool_data(const struct np_pool *pool, unsigned int slot);

/* Looks at the band before a slot and at the bytes from @used to a page past @room. True where
 * they are whole; else *ret_at is the first wrong byte's offset from the slot's start. */
bool np_pool_check(const struct np_pool *pool, unsigned int slot, size_t used, size_t room,
		   ptrdiff_t *ret_at);

/* Makes the first @len bytes guard pattern again. */
void np_pool_restore(struct np_pool *pool, unsigned int slot, size_t len);

#endif
