/* SPDX-License-Identifier: Apache-2.0 */
/* Windows: memory that each rank registers, and tells to all others. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/log.h"
#include "plugin/base/nccl_abi.h"
#include "plugin/base/result.h"
#include "plugin/base/watch.h"
#include "plugin/gin/gin_impl.h"

#define ACCESS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

static int register_here(struct mpib_gin *gin, const struct mpib_gin_memory *memory,
			 struct mpib_mr **ret)
{
	/* Signals come behind what they announce only where they may not overtake it. */
	unsigned int access = memory->strict ? ACCESS : ACCESS | IBV_ACCESS_RELAXED_ORDERING;
	bool peer_memory = memory->device && gin->dev->ptr_support & NCCL_PTR_CUDA;
	int r;

	if (memory->fd < 0)
		return mpib_mr_new(gin->dev, MPIB_RAILS_ALL, memory->addr, memory->size, access,
				   ret);
	r = mpib_mr_new_dmabuf_access(gin->dev, MPIB_RAILS_ALL, memory->addr, memory->size,
				      memory->offset, memory->fd, access, peer_memory, ret);
	if (r < 0 && peer_memory) {
		MPIB_INFO("%s: DMA-BUF refused (%s): using peer memory", gin->dev->name,
			  strerror(-r));
		r = mpib_mr_new(gin->dev, MPIB_RAILS_ALL, memory->addr, memory->size, access, ret);
	}
	return r;
}

static void far_of(struct mpib_gin_window *window, const struct mpib_gin_memory_frame *memory,
		   uint32_t rank)
{
	window->far[rank].addr = memory->addr;
	window->far[rank].size = memory->size;
	memcpy(window->far[rank].rkey, memory->rkey, sizeof(memory->rkey));
}

static int tell(struct mpib_gin *gin, const struct mpib_gin_memory_frame *memory)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	size_t len = mpib_gin_memory_encode(payload, memory);
	int r = 0;

	mpib_watch_lock();
	for (uint32_t k = 0; k < gin->nranks; k++) {
		struct mpib_gin_peer *peer = &gin->peer[k];
		int sent;

		if (peer->ctl.fd < 0)
			continue;
		sent = mpib_ctl_send(&peer->ctl, MPIB_GIN_FRAME_MEMORY, payload, len);
		if (sent < 0 && r == 0) {
			MPIB_WARN("%s can't be told of memory: %s", peer->text, strerror(-sent));
			r = sent;
		}
	}
	mpib_watch_unlock();
	return r;
}

/* Under the watch lock. What a full socket did not take goes out in between. */
static bool is_told(struct mpib_gin_peer *peer)
{
	unsigned int at = peer->gin->registrations & 1;

	if (peer->ctl.fd < 0)
		return true;
	(void)mpib_ctl_flush(&peer->ctl);
	return peer->has_memory[at];
}

static bool all_told(struct mpib_gin *gin)
{
	bool told = true;

	for (uint32_t k = 0; k < gin->nranks; k++) {
		if (is_told(&gin->peer[k]))
			continue;
		if (atomic_load_explicit(&gin->peer[k].over, memory_order_relaxed))
			return true; /* it never will */
		told = false;
	}
	return told;
}

/* One that has told nothing, rather one that is gone: others may still do so. NULL: all have. */
static const struct mpib_gin_peer *missing(const struct mpib_gin *gin)
{
	const struct mpib_gin_peer *found = NULL;

	for (uint32_t k = 0; k < gin->nranks; k++) {
		const struct mpib_gin_peer *peer = &gin->peer[k];

		if (peer->ctl.fd < 0 || peer->has_memory[gin->registrations & 1])
			continue;
		if (atomic_load_explicit(&peer->over, memory_order_relaxed))
			return peer;
		if (!found)
			found = peer;
	}
	return found;
}

static int not_told(const struct mpib_gin_peer *peer)
{
	int over = atomic_load_explicit(&peer->over, memory_order_acquire);

	if (over)
		MPIB_WARN("memory can't be registered with %s: %s", peer->text, peer->over_text);
	else
		MPIB_WARN("%s registers no memory within %d s (MPIB_CONNECT_TIMEOUT_SEC)",
			  peer->text, peer->gin->env.connect_timeout_sec);
	return over ? -ECONNRESET : -ETIMEDOUT;
}

/* Takes what each peer told of this registration. */
static int hear(struct mpib_gin *gin, struct mpib_gin_window *window)
{
	const struct mpib_gin_peer *absent = missing(gin);
	unsigned int at = gin->registrations & 1;
	int r = absent ? not_told(absent) : 0;

	for (uint32_t k = 0; k < gin->nranks && r == 0; k++) {
		struct mpib_gin_peer *peer = &gin->peer[k];

		if (peer->ctl.fd < 0)
			continue;
		if (peer->memory[at].number != gin->registrations) {
			MPIB_WARN("%s has registered memory %ju times and this rank %ju times",
				  peer->text, (uintmax_t)peer->memory[at].number,
				  (uintmax_t)gin->registrations);
			r = -MPIB_EUSAGE;
		} else if (peer->memory[at].failed) {
			MPIB_WARN("%s could not register its memory", peer->text);
			r = -ECONNABORTED;
		}
		far_of(window, &peer->memory[at], k);
	}
	return r;
}

static int exchange(struct mpib_gin *gin, struct mpib_gin_window *window, bool failed)
{
	struct mpib_gin_memory_frame mine = { .number = gin->registrations, .failed = failed };
	int r;

	/* What can't be registered need not even be memory. */
	if (!failed) {
		mine.addr = window->addr;
		mine.size = window->size;
		memcpy(mine.rkey, window->mr->rkey, sizeof(mine.rkey));
	}
	far_of(window, &mine, gin->rank);
	r = tell(gin, &mine);
	if (r < 0)
		return r;
	/* Also where this end has failed: what the others tell is of this registration, and not of
	 * a later one. */
	(void)mpib_gin_wait(gin, all_told, (uint64_t)gin->env.connect_timeout_sec * 1000);
	mpib_watch_lock();
	if (!failed)
		r = hear(gin, window);
	for (uint32_t k = 0; k < gin->nranks; k++)
		gin->peer[k].has_memory[gin->registrations & 1] = false;
	mpib_watch_unlock();
	return r;
}

static void window_free(struct mpib_gin_window *window)
{
	(void)mpib_mr_free(window->mr);
	free(window);
}

int mpib_gin_register(struct mpib_gin *gin, const struct mpib_gin_memory *memory,
		      struct mpib_gin_window **ret)
{
	struct mpib_gin_window *window;
	int r, told;

	*ret = NULL;
	if (gin->error || atomic_load_explicit(&gin->news, memory_order_acquire))
		if (mpib_gin_look(gin) < 0)
			return gin->error;
	window = calloc(1, sizeof(*window) + gin->nranks * sizeof(window->far[0]));
	if (!window)
		return -ENOMEM;
	window->gin = gin;
	window->addr = (uint64_t)(uintptr_t)memory->addr;
	window->size = memory->size;
	gin->registrations++;
	r = register_here(gin, memory, &window->mr);
	told = exchange(gin, window, r < 0);
	if (r == 0)
		r = told;
	if (r < 0) {
		window_free(window);
		return r;
	}
	memcpy(window->lkey, window->mr->lkey, sizeof(window->lkey));
	window->next = gin->windows;
	window->link = &gin->windows;
	if (gin->windows)
		gin->windows->link = &window->next;
	gin->windows = window;
	*ret = window;
	return 0;
}

int mpib_gin_deregister(struct mpib_gin *gin, struct mpib_gin_window *window)
{
	if (!window)
		return 0;
	if (window->gin != gin) {
		MPIB_WARN("memory of another mesh can't be deregistered in this one");
		return -MPIB_EARGUMENT;
	}
	*window->link = window->next;
	if (window->next)
		window->next->link = window->link;
	window_free(window);
	return 0;
}
