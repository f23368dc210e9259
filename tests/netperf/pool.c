/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/netperf/pattern.h"

static size_t stride_of(const struct np_pool *pool)
{
	return pool->cap + 2 * (size_t)NP_PAGE;
}

int np_pool_open(struct np_pool *pool, size_t cap, unsigned int count)
{
	void *map;

	*pool = (struct np_pool){ .count = count };
	pool->cap = (cap + NP_PAGE - 1) / NP_PAGE * NP_PAGE;
	if (!pool->cap)
		pool->cap = NP_PAGE;
	pool->map_len = stride_of(pool) * count;
	pool->ring = calloc(count, sizeof(*pool->ring));
	if (!pool->ring)
		return -ENOMEM;
	map = mmap(NULL, pool->map_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED) {
		free(pool->ring);
		pool->ring = NULL;
		return -ENOMEM;
	}

	pool->map = map;
	np_guard_fill(map, pool->map_len);
	for (unsigned int n = 0; n < count; n++)
		pool->ring[n] = n;
	pool->ring_used = count;
	return 0;
}

void np_pool_close(struct np_pool *pool)
{
	if (!pool->map)
		return;
	(void)munmap(pool->map, pool->map_len);
	free(pool->ring);
	*pool = (struct np_pool){ 0 };
}

bool np_pool_get(struct np_pool *pool, unsigned int *ret_slot)
{
	if (!pool->ring_used)
		return false;
	*ret_slot = pool->ring[pool->ring_head];
	pool->ring_head = (pool->ring_head + 1) % pool->count;
	pool->ring_used--;
	return true;
}

void np_pool_put(struct np_pool *pool, unsigned int slot)
{
	pool->ring[(pool->ring_head + pool->ring_used) % pool->count] = slot;
	pool->ring_used++;
}

char *np_pool_data(const struct np_pool *pool, unsigned int slot)
{
	return pool->map + slot * stride_of(pool) + NP_PAGE;
}

bool np_pool_check(const struct np_pool *pool, unsigned int slot, size_t used, size_t room,
		   ptrdiff_t *ret_at)
{
	const char *data = np_pool_data(pool, slot);
	size_t len = room - used + NP_PAGE, at;

	at = np_guard_check(data - NP_PAGE, NP_PAGE);
	if (at < NP_PAGE) {
		*ret_at = (ptrdiff_t)at - (ptrdiff_t)NP_PAGE;
		return false;
	}
	at = np_guard_check(data + used, len);
	if (at < len) {
		*ret_at = (ptrdiff_t)(used + at);
		return false;
	}
	return true;
}

void np_pool_restore(struct np_pool *pool, unsigned int slot, size_t len)
{
	np_guard_fill(np_pool_data(pool, slot), len);
}
