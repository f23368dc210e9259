/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one helper thread of the process: epoll over listeners, control connections, verbs async
 * events and the agent's socket, and a slow tick. It starts with the first reference and is gone
 * with the last, so none outlives finalize or an unload of the library.
 *
 * Callbacks run in that thread with the watch lock held. The lock is recursive and also guards what
 * the callbacks share with NCCL's service threads; the data path never takes it.
 */
#ifndef MPIB_PLUGIN_WATCH_H
#define MPIB_PLUGIN_WATCH_H

#include <stdint.h>

/* Interval of the tick in milliseconds. */
#define MPIB_WATCH_TICK_MS 200

/* Embedded in its owner; zero it before use. */
struct mpib_watch_item {
	int fd;
	void (*on_event)(struct mpib_watch_item *item, uint32_t events);
	uint64_t id; /* watch.c's; 0 while not watched */
};

struct mpib_watch_tick {
	void (*on_tick)(struct mpib_watch_tick *tick, uint64_t now_ms);
	struct mpib_watch_tick *next, **link; /* watch.c's; `link` NULL while not active */
};

/* A reference on the thread, which the first one starts. Negative errno where it can't be. */
int mpib_watch_get(void);
/* Gives it back; the last one ends the thread and waits for it. Never from a callback. */
void mpib_watch_put(void);

/* Ends the thread whatever references there are (unload of the library). */
void mpib_watch_stop(void);

/* Watches item->fd for @events (EPOLLIN and so on; level-triggered). */
int mpib_watch_add(struct mpib_watch_item *item, uint32_t events);
/* Stops watching; when this returns, no callback for @item runs or will run. Fine if not watched.
 * The descriptor stays open. */
void mpib_watch_del(struct mpib_watch_item *item);

/* Calls @tick about every MPIB_WATCH_TICK_MS until it is deleted. */
void mpib_watch_tick_add(struct mpib_watch_tick *tick);
void mpib_watch_tick_del(struct mpib_watch_tick *tick);

void mpib_watch_lock(void);
void mpib_watch_unlock(void);
/* The calling thread holds the lock. Nothing in builds without assertions. */
void mpib_watch_assert_locked(void);

/* Wakes the thread, so that it looks at its ticks at once. Any thread. */
void mpib_watch_wake(void);

/* Around a fork: the lock is held over it, and the child gets a lock and no thread. */
void mpib_watch_fork_prepare(void);
void mpib_watch_fork_parent(void);
void mpib_watch_fork_child(void);
/* The three are called at every fork from here on. */
void mpib_watch_forks_handled(void);

/* True in the process that started the thread, false in a forked child: there the thread doesn't
 * exist, and nothing of the parent's may be touched. */
int mpib_watch_is_owner(void);

#endif
