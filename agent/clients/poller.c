/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel tells of each event once. From then on it waits here, in the queue of its user, and
 * users take turns: how much one of them has waiting is nothing to the others. */
#include "agent/clients/poller.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

/* Asked of the kernel at once, and how often in a row: it has no more than that between two turns
 * of users, some 100 us. */
#define BATCH	64
#define BATCHES 32u

/* How long a turn of the loop, and within it the turn of a user, may last. */
#define TURN_NSEC 500000u
#define USER_NSEC 100000u

#define USER_BUCKETS 256u
#define NSEC_PER_SEC 1000000000u

TAILQ_HEAD(item_queue, mpib_poll_item);
TAILQ_HEAD(user_queue, mpib_poll_user);
LIST_HEAD(user_list, mpib_poll_user);

struct mpib_poll_user {
	LIST_ENTRY(mpib_poll_user) bucket;
	TAILQ_ENTRY(mpib_poll_user) next;
	struct mpib_poller *poller;
	uint32_t uid;
	uint32_t n_items;
	struct item_queue due;
	bool queued;  /* waits for its turn */
	bool serving; /* has it, and lives until its end */
};

struct mpib_poller {
	int fd;
	sd_event *loop;
	bool loop_due; /* has something to do, or hasn't said yet until when it hasn't */
	struct user_queue due;
	struct user_list users[USER_BUCKETS];
};

static uint64_t now_nsec(void)
{
	struct timespec now = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void unqueue_user(struct mpib_poll_user *user)
{
	user->queued = false;
	TAILQ_REMOVE(&user->poller->due, user, next);
}

static void free_if_unused(struct mpib_poll_user *user)
{
	if (user->n_items || user->serving)
		return;
	LIST_REMOVE(user, bucket);
	free(user);
}

static void queue_user(struct mpib_poll_user *user)
{
	if (user->queued || user->serving)
		return;
	user->queued = true;
	TAILQ_INSERT_TAIL(&user->poller->due, user, next);
}

void mpib_poller_again(struct mpib_poll_item *item)
{
	if (item->due)
		return;
	item->due = true;
	TAILQ_INSERT_TAIL(&item->of->due, item, next);
	queue_user(item->of);
}

static void leave_queue(struct mpib_poll_item *item)
{
	item->due = false;
	TAILQ_REMOVE(&item->of->due, item, next);
}

/* What came, and what comes within @timeout_ms where nothing did. -1: whenever. */
static void collect(struct mpib_poller *poller, int timeout_ms)
{
	struct epoll_event batch[BATCH];
	int n = BATCH;

	for (unsigned int asked = 0; asked < BATCHES && n == BATCH; asked++) {
		n = epoll_wait(poller->fd, batch, BATCH, asked ? 0 : timeout_ms);
		for (int k = 0; k < n; k++) {
			struct mpib_poll_item *item = batch[k].data.ptr;

			if (!item) {
				poller->loop_due = true;
				continue;
			}
			item->revents |= batch[k].events;
			mpib_poller_again(item);
		}
	}
}

/* Returns the time. */
static uint64_t serve_user(struct mpib_poll_user *user, uint64_t start)
{
	uint64_t now = start;

	user->serving = true;
	while (!TAILQ_EMPTY(&user->due) && now - start < USER_NSEC) {
		struct mpib_poll_item *item = TAILQ_FIRST(&user->due);
		uint32_t revents = item->revents;

		leave_queue(item);
		item->revents = 0;
		item->ready(item->user, revents);
		now = now_nsec();
	}
	user->serving = false;
	if (!TAILQ_EMPTY(&user->due))
		queue_user(user);
	free_if_unused(user);
	return now;
}

static void serve(struct mpib_poller *poller)
{
	uint64_t start = now_nsec();
	uint64_t now = start;

	while (!TAILQ_EMPTY(&poller->due) && now - start < TURN_NSEC) {
		struct mpib_poll_user *user = TAILQ_FIRST(&poller->due);

		unqueue_user(user);
		now = serve_user(user, now);
		if (!TAILQ_EMPTY(&poller->due))
			collect(poller, 0);
	}
}

int mpib_poller_turn(struct mpib_poller *poller, bool wait)
{
	bool served;
	int r;

	collect(poller, wait && TAILQ_EMPTY(&poller->due) && !poller->loop_due ? -1 : 0);
	served = !TAILQ_EMPTY(&poller->due);
	serve(poller);
	if (!poller->loop_due)
		return served;

	/* Only when it did nothing its descriptor tells of what comes, its timers included. */
	r = sd_event_run(poller->loop, 0);
	poller->loop_due = r != 0;
	return r < 0 ? r : r > 0 || served;
}

/* ---- items ---------------------------------------------------------------------------------- */

/* The one of @uid, made on first sight; it goes with its last item. */
static struct mpib_poll_user *get_user(struct mpib_poller *poller, uint32_t uid)
{
	struct user_list *bucket = &poller->users[uid % USER_BUCKETS];
	struct mpib_poll_user *user;

	LIST_FOREACH(user, bucket, bucket)
	{
		if (user->uid == uid)
			return user;
	}

	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->poller = poller;
	user->uid = uid;
	TAILQ_INIT(&user->due);
	LIST_INSERT_HEAD(bucket, user, bucket);
	return user;
}

int mpib_poller_add(struct mpib_poller *poller, uint32_t uid, struct mpib_poll_item *item, int fd,
		    uint32_t events, void (*ready)(void *user, uint32_t revents), void *user)
{
	struct epoll_event event = { .events = events | EPOLLET, .data.ptr = item };
	struct mpib_poll_user *of = get_user(poller, uid);

	assert(!item->of);
	if (!of)
		return -ENOMEM;
	if (epoll_ctl(poller->fd, EPOLL_CTL_ADD, fd, &event) < 0) {
		int r = -errno;

		free_if_unused(of);
		return r;
	}

	*item = (struct mpib_poll_item){
		.of = of,
		.fd = fd,
		.events = events,
		.ready = ready,
		.user = user,
	};
	of->n_items++;
	return 0;
}

int mpib_poller_change(struct mpib_poll_item *item, uint32_t events)
{
	struct epoll_event event = { .events = events | EPOLLET, .data.ptr = item };

	if (events == item->events)
		return 0;
	if (epoll_ctl(item->of->poller->fd, EPOLL_CTL_MOD, item->fd, &event) < 0)
		return -errno;

	item->events = events;
	return 0;
}

void mpib_poller_remove(struct mpib_poll_item *item)
{
	struct mpib_poll_user *of = item->of;

	if (!of)
		return;

	(void)epoll_ctl(of->poller->fd, EPOLL_CTL_DEL, item->fd, NULL);
	if (item->due)
		leave_queue(item);
	if (of->queued && TAILQ_EMPTY(&of->due))
		unqueue_user(of);
	item->of = NULL;
	of->n_items--;
	free_if_unused(of);
}

/* ---- life ----------------------------------------------------------------------------------- */

int mpib_poller_new(sd_event *loop, struct mpib_poller **ret)
{
	struct epoll_event level = { .events = EPOLLIN };
	struct mpib_poller *poller = calloc(1, sizeof(*poller));
	int r = 0;

	if (!poller)
		return -ENOMEM;

	TAILQ_INIT(&poller->due);
	poller->loop = sd_event_ref(loop);
	poller->loop_due = true;
	poller->fd = epoll_create1(EPOLL_CLOEXEC);
	if (poller->fd < 0 ||
	    epoll_ctl(poller->fd, EPOLL_CTL_ADD, sd_event_get_fd(loop), &level) < 0)
		r = -errno;
	if (r < 0) {
		(void)mpib_poller_free(poller);
		return r;
	}

	*ret = poller;
	return 0;
}

struct mpib_poller *mpib_poller_free(struct mpib_poller *poller)
{
	if (!poller)
		return NULL;

	if (poller->fd >= 0)
		(void)close(poller->fd);
	(void)sd_event_unref(poller->loop);
	free(poller);
	return NULL;
}
