/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/clients/poller.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

/* Asked of the kernel at once. It puts what is still ready at the end of its list, so that all get
 * their turn however many there are. */
#define BATCH 64

/* How long a turn of the loop, and within it the turn of a part, may last. What is left of a batch
 * comes first in the next one. */
#define TURN_NSEC 500000u
#define PART_NSEC 100000u

#define PART_BUCKETS 256u

LIST_HEAD(part_list, mpib_poller);

struct mpib_poller {
	int fd;
	struct epoll_event batch[BATCH];
	int n_batch;
	int next; /* of the batch to be served */

	/* the one that the loop knows */
	sd_event_source *source;
	struct part_list *parts;
	uint32_t n_parts;

	/* a part of it */
	LIST_ENTRY(mpib_poller) bucket;
	struct mpib_poller *whole;
	struct mpib_poll_item in_whole;
	uint32_t key;
	uint32_t n_items;
	bool serving;
};

#define NSEC_PER_SEC 1000000000u

static uint64_t now_nsec(void)
{
	struct timespec now = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
}

static void serve(struct mpib_poller *poller, uint64_t nsec)
{
	uint64_t start = now_nsec();
	bool asked = false;

	do {
		const struct epoll_event *event;
		const struct mpib_poll_item *item;

		if (poller->next >= poller->n_batch) {
			if (asked)
				return;
			asked = true;
			poller->next = 0;
			poller->n_batch = epoll_wait(poller->fd, poller->batch, BATCH, 0);
			if (poller->n_batch <= 0)
				return;
		}
		event = &poller->batch[poller->next++];
		item = event->data.ptr;
		if (item)
			item->ready(item->user, event->events);
	} while (now_nsec() - start < nsec);
}

static int on_ready(sd_event_source *source, int fd, uint32_t revents, void *user)
{
	(void)source;
	(void)fd;
	(void)revents;
	serve(user, TURN_NSEC);
	return 0;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static void free_part(struct mpib_poller *part)
{
	mpib_poller_remove(&part->in_whole);
	LIST_REMOVE(part, bucket);
	part->whole->n_parts--;
	(void)close(part->fd);
	free(part);
}

static void on_part_ready(void *user, uint32_t revents)
{
	struct mpib_poller *part = user;

	(void)revents;
	part->serving = true;
	serve(part, PART_NSEC);
	part->serving = false;
	if (!part->n_items)
		free_part(part);
}

/* The part of @key, made on first sight; it goes with its last item. */
static int get_part(struct mpib_poller *whole, uint32_t key, struct mpib_poller **ret)
{
	struct part_list *bucket = &whole->parts[key % PART_BUCKETS];
	struct mpib_poller *part;
	int r;

	LIST_FOREACH(part, bucket, bucket)
	{
		if (part->key == key) {
			*ret = part;
			return 0;
		}
	}

	part = calloc(1, sizeof(*part));
	if (!part)
		return -ENOMEM;
	part->whole = whole;
	part->key = key;
	part->fd = epoll_create1(EPOLL_CLOEXEC);
	r = part->fd < 0 ? -errno : 0;
	if (r >= 0)
		r = mpib_poller_add(whole, &part->in_whole, part->fd, EPOLLIN, on_part_ready, part);
	if (r < 0) {
		if (part->fd >= 0)
			(void)close(part->fd);
		free(part);
		return r;
	}
	LIST_INSERT_HEAD(bucket, part, bucket);
	whole->n_parts++;
	*ret = part;
	return 0;
}

uint32_t mpib_poller_n_parts(const struct mpib_poller *poller)
{
	return poller->n_parts;
}

int mpib_poller_add_part(struct mpib_poller *poller, uint32_t key, struct mpib_poll_item *item,
			 int fd, uint32_t events, void (*ready)(void *user, uint32_t revents),
			 void *user)
{
	struct mpib_poller *part = NULL;
	int r = get_part(poller, key, &part);

	if (r < 0)
		return r;
	r = mpib_poller_add(part, item, fd, events, ready, user);
	if (r < 0 && !part->n_items && !part->serving)
		free_part(part);
	return r;
}

/* ---- items ---------------------------------------------------------------------------------- */

int mpib_poller_new(sd_event *loop, struct mpib_poller **ret)
{
	struct mpib_poller *poller = calloc(1, sizeof(*poller));
	int r;

	if (!poller)
		return -ENOMEM;

	poller->parts = calloc(PART_BUCKETS, sizeof(*poller->parts));
	poller->fd = epoll_create1(EPOLL_CLOEXEC);
	r = !poller->parts ? -ENOMEM : poller->fd < 0 ? -errno : 0;
	if (r >= 0)
		r = sd_event_add_io(loop, &poller->source, poller->fd, EPOLLIN, on_ready, poller);
	if (r < 0) {
		(void)mpib_poller_free(poller);
		return r;
	}

	(void)sd_event_source_set_description(poller->source, "clients");
	*ret = poller;
	return 0;
}

struct mpib_poller *mpib_poller_free(struct mpib_poller *poller)
{
	if (!poller)
		return NULL;

	assert(!poller->n_parts);
	(void)sd_event_source_unref(poller->source);
	if (poller->fd >= 0)
		(void)close(poller->fd);
	free(poller->parts);
	free(poller);
	return NULL;
}

int mpib_poller_add(struct mpib_poller *poller, struct mpib_poll_item *item, int fd,
		    uint32_t events, void (*ready)(void *user, uint32_t revents), void *user)
{
	struct epoll_event event = { .events = events, .data.ptr = item };

	assert(!item->poller);
	if (epoll_ctl(poller->fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return -errno;

	*item = (struct mpib_poll_item){
		.poller = poller,
		.fd = fd,
		.events = events,
		.ready = ready,
		.user = user,
	};
	poller->n_items++;
	return 0;
}

int mpib_poller_change(struct mpib_poll_item *item, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = item };

	if (events == item->events)
		return 0;
	if (epoll_ctl(item->poller->fd, EPOLL_CTL_MOD, item->fd, &event) < 0)
		return -errno;

	item->events = events;
	return 0;
}

void mpib_poller_remove(struct mpib_poll_item *item)
{
	struct mpib_poller *poller = item->poller;

	if (!poller)
		return;

	(void)epoll_ctl(poller->fd, EPOLL_CTL_DEL, item->fd, NULL);
	for (int n = 0; n < poller->n_batch; n++) {
		if (poller->batch[n].data.ptr == item)
			poller->batch[n].data.ptr = NULL;
	}
	item->poller = NULL;
	poller->n_items--;
	if (poller->whole && !poller->n_items && !poller->serving)
		free_part(poller);
}
