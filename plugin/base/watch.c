/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/base/watch.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "plugin/base/clock.h"
#include "plugin/base/lock.h"
#include "plugin/base/log.h"

#define EVENTS_PER_WAIT 32
#define WAKE_ID		0

/* A slot of the table that maps epoll's 64-bit data to an item. The generation makes an event that
 * was fetched before its item was deleted harmless. */
struct entry {
	struct mpib_watch_item *item; /* NULL: free */
	uint32_t generation;
};

static struct {
	pthread_mutex_t life; /* start and stop; taken before `lock`, never after it */
	pthread_mutex_t lock; /* recursive: callbacks add and delete items */
	pthread_once_t once;
	unsigned int references; /* under life */
	pthread_t thread;
	pid_t owner; /* 0 in a forked child */
	atomic_bool forks_handled;
	int epoll_fd;
	int wake_fd;
	atomic_bool stop;

	struct entry *entries; /* under lock, as all below */
	uint32_t capacity;
	uint32_t free_hint;
	struct mpib_watch_tick *ticks;
} watch = {
	.life = PTHREAD_MUTEX_INITIALIZER,
	.once = PTHREAD_ONCE_INIT,
	.epoll_fd = -1,
	.wake_fd = -1,
};

static _Thread_local unsigned int held; /* how often this thread has the lock */

static void init_lock(void)
{
	pthread_mutexattr_t attr;

	(void)pthread_mutexattr_init(&attr);
	(void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	(void)pthread_mutex_init(&watch.lock, &attr);
	(void)pthread_mutexattr_destroy(&attr);
}

void mpib_watch_lock(void)
{
	(void)pthread_once(&watch.once, init_lock);
	(void)pthread_mutex_lock(&watch.lock);
	held++;
}

void mpib_watch_unlock(void)
{
	held--;
	(void)pthread_mutex_unlock(&watch.lock);
}

void mpib_watch_assert_locked(void)
{
	assert(held);
}

/* connect and accept ask each time they are called, and a call waits for nothing: no system call
 * where it can be helped. */
int mpib_watch_is_owner(void)
{
	if (atomic_load_explicit(&watch.forks_handled, memory_order_relaxed))
		return watch.owner != 0;
	return watch.owner == getpid();
}

void mpib_watch_forks_handled(void)
{
	atomic_store_explicit(&watch.forks_handled, true, memory_order_relaxed);
}

static void dispatch(const struct epoll_event *events, int count)
{
	mpib_watch_assert_locked();
	for (int k = 0; k < count; k++) {
		uint64_t id = events[k].data.u64;
		uint32_t index = (uint32_t)id;
		struct mpib_watch_item *item;

		if (id == WAKE_ID) {
			uint64_t value;

			(void)!read(watch.wake_fd, &value, sizeof(value));
			continue;
		}
		if (index >= watch.capacity || watch.entries[index].generation != id >> 32)
			continue;
		item = watch.entries[index].item;
		if (item)
			item->on_event(item, events[k].events);
	}
}

static void run_ticks(uint64_t now_ms)
{
	struct mpib_watch_tick *next;

	mpib_watch_assert_locked();
	for (struct mpib_watch_tick *tick = watch.ticks; tick; tick = next) {
		next = tick->next; /* a tick may delete itself, nobody else */
		tick->on_tick(tick, now_ms);
	}
}

static void *watch_main(void *arg)
{
	struct epoll_event events[EVENTS_PER_WAIT];
	int timeout_ms = MPIB_WATCH_TICK_MS;
	uint64_t next_tick_ms = 0;
	bool logged = false;

	(void)arg;
	while (!atomic_load_explicit(&watch.stop, memory_order_acquire)) {
		int count = epoll_wait(watch.epoll_fd, events, EVENTS_PER_WAIT, timeout_ms);
		uint64_t now_ms;

		/* Whatever it is, the ticks go on, and it may go by. */
		if (count < 0 && errno != EINTR) {
			if (!logged)
				MPIB_INFO("helper thread: epoll_wait: %s; trying on",
					  strerror(errno));
			logged = true;
			(void)poll(NULL, 0, MPIB_WATCH_TICK_MS);
		}

		mpib_watch_lock();
		if (count > 0)
			dispatch(events, count);
		now_ms = mpib_now_ms();
		if (now_ms >= next_tick_ms) {
			run_ticks(now_ms);
			next_tick_ms = now_ms + MPIB_WATCH_TICK_MS;
		}
		timeout_ms = watch.ticks ? (int)(next_tick_ms - now_ms) : -1;
		mpib_watch_unlock();
	}

	return NULL;
}

/* Under life. */
static int start(void)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = WAKE_ID };
	sigset_t all, old;
	int r;

	watch.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	watch.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (watch.epoll_fd < 0 || watch.wake_fd < 0 ||
	    epoll_ctl(watch.epoll_fd, EPOLL_CTL_ADD, watch.wake_fd, &event) < 0) {
		r = -errno;
		goto fail;
	}

	/* The host program's signal handlers must never run here. */
	atomic_store_explicit(&watch.stop, false, memory_order_release);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&watch.thread, NULL, watch_main, NULL);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0)
		goto fail;

	(void)pthread_setname_np(watch.thread, "mpib-watch");
	watch.owner = getpid();
	return 0;

fail:
	MPIB_WARN("helper thread can't start: %s", strerror(-r));
	if (watch.wake_fd >= 0)
		(void)close(watch.wake_fd);
	if (watch.epoll_fd >= 0)
		(void)close(watch.epoll_fd);
	watch.wake_fd = watch.epoll_fd = -1;
	return r;
}

int mpib_watch_get(void)
{
	int r = 0;

	(void)pthread_once(&watch.once, init_lock);
	(void)pthread_mutex_lock(&watch.life);
	if (watch.references == 0)
		r = start();
	if (r == 0)
		watch.references++;
	(void)pthread_mutex_unlock(&watch.life);
	return r;
}

/* Under life. */
static void stop(void)
{
	mpib_assert_locked(&watch.life);
	atomic_store_explicit(&watch.stop, true, memory_order_release);
	mpib_watch_wake();
	(void)pthread_join(watch.thread, NULL);
	(void)close(watch.wake_fd);
	(void)close(watch.epoll_fd);
	watch.wake_fd = watch.epoll_fd = -1;
	free(watch.entries);
	watch.entries = NULL;
	watch.capacity = 0;
	watch.free_hint = 0;
}

void mpib_watch_put(void)
{
	(void)pthread_mutex_lock(&watch.life);
	if (--watch.references == 0)
		stop();
	(void)pthread_mutex_unlock(&watch.life);
}

void mpib_watch_stop(void)
{
	(void)pthread_mutex_lock(&watch.life);
	if (watch.references) {
		watch.references = 0;
		stop();
	}
	(void)pthread_mutex_unlock(&watch.life);
}

void mpib_watch_fork_prepare(void)
{
	mpib_watch_lock();
}

void mpib_watch_fork_parent(void)
{
	mpib_watch_unlock();
}

/* The thread that held the lock doesn't exist here under its old id: make the lock anew. */
void mpib_watch_fork_child(void)
{
	init_lock();
	held = 0;
	watch.owner = 0;
	if (watch.wake_fd >= 0)
		(void)close(watch.wake_fd);
	if (watch.epoll_fd >= 0)
		(void)close(watch.epoll_fd);
	watch.wake_fd = watch.epoll_fd = -1;
}

void mpib_watch_wake(void)
{
	uint64_t one = 1;

	(void)!write(watch.wake_fd, &one, sizeof(one));
}

static int find_free(uint32_t *ret_index)
{
	uint32_t capacity = watch.capacity ? watch.capacity * 2 : 64;
	struct entry *entries;

	mpib_watch_assert_locked();
	for (uint32_t k = 0; k < watch.capacity; k++) {
		uint32_t index = (watch.free_hint + k) % watch.capacity;

		if (!watch.entries[index].item) {
			*ret_index = index;
			return 0;
		}
	}

	entries = realloc(watch.entries, capacity * sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	for (uint32_t k = watch.capacity; k < capacity; k++)
		entries[k] = (struct entry){ .generation = 1 };
	*ret_index = watch.capacity;
	watch.entries = entries;
	watch.capacity = capacity;
	return 0;
}

int mpib_watch_add(struct mpib_watch_item *item, uint32_t events)
{
	struct epoll_event event = { .events = events };
	uint32_t index = 0;
	int r;

	mpib_watch_lock();
	r = watch.epoll_fd < 0 ? -ESHUTDOWN : find_free(&index);
	if (r == 0) {
		event.data.u64 = (uint64_t)watch.entries[index].generation << 32 | index;
		if (epoll_ctl(watch.epoll_fd, EPOLL_CTL_ADD, item->fd, &event) < 0) {
			r = -errno;
		} else {
			watch.entries[index].item = item;
			watch.free_hint = index + 1;
			item->id = event.data.u64;
		}
	}
	mpib_watch_unlock();
	return r;
}

void mpib_watch_del(struct mpib_watch_item *item)
{
	uint32_t index = UINT32_MAX;

	mpib_watch_lock();
	if (item->id) {
		index = (uint32_t)item->id;
		item->id = 0;
	}
	/* After mpib_watch_stop the table is gone. */
	if (index < watch.capacity) {
		(void)epoll_ctl(watch.epoll_fd, EPOLL_CTL_DEL, item->fd, NULL);
		watch.entries[index].item = NULL;
		if (++watch.entries[index].generation == 0)
			watch.entries[index].generation = 1;
		watch.free_hint = index;
	}
	mpib_watch_unlock();
}

void mpib_watch_tick_add(struct mpib_watch_tick *tick)
{
	mpib_watch_lock();
	if (!tick->link) {
		tick->next = watch.ticks;
		tick->link = &watch.ticks;
		if (tick->next)
			tick->next->link = &tick->next;
		else
			mpib_watch_wake(); /* the thread waits for events alone */
		watch.ticks = tick;
	}
	mpib_watch_unlock();
}

void mpib_watch_tick_del(struct mpib_watch_tick *tick)
{
	mpib_watch_lock();
	if (tick->link) {
		*tick->link = tick->next;
		if (tick->next)
			tick->next->link = tick->link;
		tick->link = NULL;
	}
	mpib_watch_unlock();
}
