/* SPDX-License-Identifier: Apache-2.0 */
/* The engine moves the bytes: one lock, one thread a process, and passes that whoever holds the
 * lock may run. A program that polls does its own work; the thread serves those that don't, and
 * sleeps in epoll as long as nothing moves.
 *
 * Sleeping and ringing: a sender publishes, raises `activity` of the receiver's process, and rings
 * the link's socket if it finds (and clears) `armed`. The thread sets `armed`, looks at `activity`
 * again, and only then sleeps. All four steps are sequentially consistent, so one of the two sees
 * the other. While the program polls, the thread doesn't arm: it naps for LINGER_NS, and the bell
 * stays quiet. */
#include "tests/fabric/link.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#define LINGER_NS  500000 /* nap while the program polls by itself */
#define SPIN_NS	   20000  /* look again for this long before sleeping */
#define TURN_PARTS 4	  /* parts of messages that one QP sends in its turn */
#define PASSES_MAX 64	  /* one holder's share of the lock */

enum fab_sleep {
	FAB_AWAKE,
	FAB_NAPPING, /* will look again within LINGER_NS */
	FAB_SLEEPING /* until a bell or next_due */
};

/* --- passes --- */

void fab_engine_due(uint64_t due)
{
	if (due < atomic_load_explicit(&fab.next_due, memory_order_relaxed))
		atomic_store(&fab.next_due, due);
}

void fab_engine_activate(struct fab_qp *qp)
{
	if (!qp->active) {
		qp->active = true;
		TAILQ_INSERT_TAIL(&fab.active, qp, active_node);
	}
}

void fab_engine_collect(void)
{
	struct fab_qp *qp = atomic_exchange(&fab.inbox, NULL);

	while (qp) {
		struct fab_qp *next = qp->inbox_next;

		atomic_store(&qp->queued, false);
		fab_engine_activate(qp);
		qp = next;
	}
}

void fab_engine_post(struct fab_qp *qp)
{
	struct fab_qp *top;

	if (!atomic_exchange(&qp->queued, true)) {
		top = atomic_load(&fab.inbox);
		do {
			qp->inbox_next = top;
		} while (!atomic_compare_exchange_weak(&fab.inbox, &top, qp));
	}
	fab_engine_try();
}

void fab_engine_forget(struct fab_qp *qp)
{
	fab_engine_collect();
	if (qp->active)
		TAILQ_REMOVE(&fab.active, qp, active_node);
	if (qp->waiting)
		TAILQ_REMOVE(&fab.waiting, qp, wait_node);
	qp->active = qp->waiting = false;
	fab_held_drop(qp);
}

/* Each QP sends a few parts in its turn and goes to the end, so that QPs share a device fairly. */
static bool send_turn(void)
{
	struct fab_qp *last = TAILQ_LAST(&fab.active, fab_qp_list);
	struct fab_qp *qp = TAILQ_FIRST(&fab.active), *next;
	bool moved = false, end = !qp;

	for (; !end; qp = next) {
		unsigned int parts = 0;

		end = qp == last;
		next = TAILQ_NEXT(qp, active_node);
		while (parts < TURN_PARTS && fab_requester_send(qp))
			parts++;
		if (!parts)
			continue;
		moved = true;
		if (qp->active) {
			TAILQ_REMOVE(&fab.active, qp, active_node);
			TAILQ_INSERT_TAIL(&fab.active, qp, active_node);
		}
	}
	return moved;
}

static void run_timers(uint64_t now)
{
	struct fab_qp *qp, *next;

	TAILQ_FOREACH_SAFE(qp, &fab.waiting, wait_node, next)
	{
		if (qp->wait_due <= now)
			fab_requester_timer(qp, now);
		else
			fab_engine_due(qp->wait_due);
	}
	fab_held_release(now);
}

static bool run_pass(void)
{
	uint64_t now = fab_now();
	struct fab_link *link;
	bool moved = false;

	atomic_store(&fab.seen, atomic_load(&fab.self->activity));
	atomic_store(&fab.next_due, FAB_NEVER);
	fab_fault_log();
	fab_engine_collect();
	TAILQ_FOREACH(link, &fab.links, node)
	{
		if (link->responder)
			moved |= fab_responder_poll(link, now);
		if (link->requester)
			moved |= fab_requester_poll(link, now);
	}
	run_timers(now); /* before sending: a timer may have set a QP going again */
	moved |= send_turn();
	return moved;
}

/* Engine lock. Goes on while there is something to do, but gives way to waiting threads. */
static bool run_passes(unsigned int max)
{
	bool moved = false, more;

	do {
		more = run_pass();
		moved |= more;
	} while (more && --max && !atomic_load(&fab.waiters));
	atomic_store(&fab.more, more);
	return moved;
}

bool fab_engine_idle(void)
{
	uint64_t due = atomic_load_explicit(&fab.next_due, memory_order_relaxed);

	return !atomic_load_explicit(&fab.more, memory_order_relaxed) &&
	       !atomic_load_explicit(&fab.inbox, memory_order_relaxed) &&
	       atomic_load_explicit(&fab.seen, memory_order_relaxed) ==
		       atomic_load_explicit(&fab.self->activity, memory_order_acquire) &&
	       (due == FAB_NEVER || due > fab_now());
}

/* A timer or unfinished work that the sleeping thread doesn't know of. Napping is soon enough. */
static void wake_if_needed(void)
{
	if (atomic_load(&fab.sleep) == FAB_SLEEPING &&
	    (atomic_load(&fab.more) || atomic_load(&fab.next_due) != FAB_NEVER))
		fab_engine_wake();
}

/* Who waits for the lock goes first, or a program that polls would keep it for ever; and passes on
 * what is pending when it gives the lock back. */
void fab_engine_try(void)
{
	atomic_store(&fab.pending, true);
	while (atomic_load(&fab.pending) && !atomic_load(&fab.waiters) &&
	       pthread_mutex_trylock(&fab.lock) == 0) {
		atomic_store(&fab.pending, false);
		if (atomic_load(&fab.running))
			(void)run_passes(4);
		(void)pthread_mutex_unlock(&fab.lock);
		wake_if_needed();
	}
}

void fab_engine_lock(void)
{
	atomic_fetch_add(&fab.waiters, 1);
	(void)pthread_mutex_lock(&fab.lock);
	atomic_fetch_sub(&fab.waiters, 1);
}

void fab_engine_unlock(void)
{
	(void)pthread_mutex_unlock(&fab.lock);
	if (atomic_load(&fab.pending))
		fab_engine_try();
}

void fab_engine_wake(void)
{
	uint64_t one = 1;

	if (fab.wake_fd >= 0)
		(void)!write(fab.wake_fd, &one, sizeof(one));
}

/* --- the thread --- */

static void handle_events(const struct epoll_event *events, int count)
{
	struct fab_link *link, *next;
	uint64_t drain;

	for (int k = 0; k < count; k++) {
		if (events[k].data.ptr == &fab.wake_fd)
			(void)!read(fab.wake_fd, &drain, sizeof(drain));
		else if (events[k].data.ptr == &fab.listen_fd)
			fab_link_accept();
		else
			fab_link_socket(events[k].data.ptr, events[k].events);
	}
	/* Only now: two events of one batch may belong to the same link. */
	TAILQ_FOREACH_SAFE(link, &fab.links, node, next)
	if (link->dead)
		fab_link_free(link);
}

/* Sleeps until the bell, a timer, or (napping) for a moment. Returns the number of events. */
static int thread_wait(struct epoll_event *events, int max, bool nap)
{
	uint64_t now = fab_now(), due;
	struct timespec ts;
	int n;

	atomic_store(&fab.sleep, nap ? FAB_NAPPING : FAB_SLEEPING);
	if (!nap)
		atomic_store(&fab.self->armed, 1);
	due = atomic_load(&fab.next_due);
	if (nap && due > now + LINGER_NS)
		due = now + LINGER_NS;
	if (atomic_load(&fab.more) || atomic_load(&fab.pending) || atomic_load(&fab.inbox) ||
	    atomic_load(&fab.seen) != atomic_load(&fab.self->activity) || due < now)
		due = now;
	ts.tv_sec = (time_t)((due - now) / 1000000000ULL);
	ts.tv_nsec = (long)((due - now) % 1000000000ULL);
	n = epoll_pwait2(fab.epoll_fd, events, max, due == FAB_NEVER ? NULL : &ts, NULL);
	if (n < 0 && errno == ENOSYS)
		n = epoll_wait(fab.epoll_fd, events, max,
			       due == FAB_NEVER ? -1 : (int)((due - now + 999999) / 1000000));
	atomic_store(&fab.self->armed, 0);
	atomic_store(&fab.sleep, FAB_AWAKE);
	return n < 0 ? 0 : n;
}

/* Programs may spin on memory on every processor while this thread has their bytes: ask for short
 * turns that come soon (Linux 6.12 honours it), and for priority where we may have it. */
static void ask_for_short_turns(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = { .size = 48, .policy = SCHED_OTHER, .nice = -10, .runtime = 100000 };

	if (syscall(SYS_sched_setattr, 0, &attr, 0) < 0) {
		attr.nice = getpriority(PRIO_PROCESS, 0);
		(void)syscall(SYS_sched_setattr, 0, &attr, 0);
	}
}

void *fab_engine_thread(void *arg)
{
	struct epoll_event events[32];
	uint32_t polls = atomic_load(&fab.polls);
	uint64_t spin_end = 0;

	(void)arg;
	(void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
	ask_for_short_turns();
	(void)pthread_setname_np(pthread_self(), "mpib-fabric");
	while (atomic_load(&fab.running)) {
		uint32_t polls_now = atomic_load(&fab.polls);
		bool moved, nap = polls_now != polls;
		int n;

		polls = polls_now;
		n = thread_wait(events, MPIB_ARRAY_SIZE(events), nap);
		do {
			(void)pthread_mutex_lock(&fab.lock);
			atomic_store(&fab.pending, false);
			handle_events(events, n);
			n = 0;
			moved = run_passes(PASSES_MAX);
			(void)pthread_mutex_unlock(&fab.lock);
			if (moved || atomic_load(&fab.waiters)) {
				spin_end = fab_now() + SPIN_NS;
				(void)sched_yield();
			}
		} while (moved || (atomic_load(&fab.pending) && atomic_load(&fab.running)) ||
			 fab_now() < spin_end);
	}
	return NULL;
}
