/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/poller.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Served in one turn of the loop. The kernel puts what is still ready at the end of its list, so
 * that all get their turn however many there are. */
#define BATCH 64

struct mpib_poller {
	int fd;
	sd_event_source *source;
	struct epoll_event batch[BATCH];
	int n_batch; /* 0 outside a turn */
};

static int on_ready(sd_event_source *source, int fd, uint32_t revents, void *user)
{
	struct mpib_poller *poller = user;

	(void)source;
	(void)revents;
	poller->n_batch = epoll_wait(fd, poller->batch, BATCH, 0);
	for (int n = 0; n < poller->n_batch; n++) {
		const struct mpib_poll_item *item = poller->batch[n].data.ptr;

		if (item)
			item->ready(item->user, poller->batch[n].events);
	}

	poller->n_batch = 0;
	return 0;
}

int mpib_poller_new(sd_event *loop, struct mpib_poller **ret)
{
	struct mpib_poller *poller = calloc(1, sizeof(*poller));
	int r;

	if (!poller)
		return -ENOMEM;

	poller->fd = epoll_create1(EPOLL_CLOEXEC);
	r = poller->fd < 0 ? -errno : 0;
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

	(void)sd_event_source_unref(poller->source);
	if (poller->fd >= 0)
		(void)close(poller->fd);
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
}
