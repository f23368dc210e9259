/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that are being made, by the handle that NCCL calls with again and again. */
#include "plugin/setup/connect_impl.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "plugin/base/clock.h"
#include "plugin/setup/comm_life.h"

/* A lock of its own: whoever waits for a connection asks without end, and must not keep the helper
 * thread, which does the work, from the watch lock. */
static struct {
	pthread_mutex_t lock;
	struct connecting **slot;
	uint32_t count, used;
	uint32_t hint; /* where a free slot is likely: thousands of connects stay linear */
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Second half of the handle: who works on it. */
struct handle_state {
	uint64_t cookie;
	uint32_t index;
};

_Static_assert(MPIB_HANDLE_SIZE + sizeof(struct handle_state) <= MPIB_NCCL_HANDLE_SIZE,
	       "the state fits behind the wire part");

struct connecting *mpib_connecting_find(void *handle)
{
	struct connecting *found = NULL;
	struct handle_state state;

	memcpy(&state, (char *)handle + MPIB_HANDLE_SIZE, sizeof(state));
	(void)pthread_mutex_lock(&table.lock);
	if (state.index < table.count && table.slot[state.index] &&
	    table.slot[state.index]->handle == handle &&
	    table.slot[state.index]->cookie == state.cookie)
		found = table.slot[state.index];
	(void)pthread_mutex_unlock(&table.lock);
	return found;
}

int mpib_connecting_insert(struct connecting *c)
{
	struct handle_state state;
	uint32_t index;

	if (getrandom(&c->cookie, sizeof(c->cookie), 0) != sizeof(c->cookie))
		c->cookie = mpib_now_ms() << 20 ^ (uint64_t)(uintptr_t)c;

	(void)pthread_mutex_lock(&table.lock);
	if (table.used == table.count) {
		uint32_t count = table.count ? 2 * table.count : 64;
		struct connecting **grown =
			realloc(table.slot, count * sizeof(struct connecting *));

		if (!grown) {
			(void)pthread_mutex_unlock(&table.lock);
			return -ENOMEM;
		}
		memset(grown + table.count, 0, (count - table.count) * sizeof(struct connecting *));
		table.slot = grown;
		index = table.count;
		table.count = count;
	} else {
		for (index = table.hint % table.count; table.slot[index];)
			index = (index + 1) % table.count;
	}
	table.slot[index] = c;
	table.hint = index + 1;
	table.used++;
	c->index = index;
	(void)pthread_mutex_unlock(&table.lock);

	memset(&state, 0, sizeof(state));
	state.cookie = c->cookie;
	state.index = index;
	memcpy((char *)c->handle + MPIB_HANDLE_SIZE, &state, sizeof(state));
	return 0;
}

void mpib_connecting_free(struct connecting *c)
{
	(void)pthread_mutex_lock(&table.lock);
	if (c->index < table.count && table.slot[c->index] == c) {
		table.slot[c->index] = NULL;
		table.used--;
		table.hint = c->index;
	}
	(void)pthread_mutex_unlock(&table.lock);
	mpib_comm_free(c->comm);
	free(c);
}

void mpib_connect_free_all(void)
{
	mpib_listeners_free_all();
	for (uint32_t k = 0; k < table.count; k++)
		if (table.slot[k])
			mpib_connecting_free(table.slot[k]);
	free(table.slot);
	table.slot = NULL;
	table.count = table.used = 0;
}
