/* SPDX-License-Identifier: Apache-2.0 */
/* The many descriptors, clients and their processes, in one epoll set of their own. To the event
 * loop it is one source, and a turn of the loop serves many of them: with a source each, every
 * turn would serve one and look at all that are ready. Parts of it (one a user) take turns, so that
 * one with many descriptors waits for its own. One thread. */
#ifndef MPIB_AGENT_POLLER_H
#define MPIB_AGENT_POLLER_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct mpib_poller;

/* One descriptor, a part of what its owner keeps for it. */
struct mpib_poll_item {
	struct mpib_poller *poller; /* NULL: not watched */
	int fd;
	uint32_t events;
	void (*ready)(void *user, uint32_t revents);
	void *user;
};

int mpib_poller_new(sd_event *loop, struct mpib_poller **ret);
/* Nothing is watched any more. */
struct mpib_poller *mpib_poller_free(struct mpib_poller *poller);

/* Watches @fd, which stays the caller's, for @events, level-triggered; @item lives until it is
 * removed. -ENOMEM, -ENOSPC. */
int mpib_poller_add(struct mpib_poller *poller, struct mpib_poll_item *item, int fd,
		    uint32_t events, void (*ready)(void *user, uint32_t revents), void *user);
/* The same in the part of @key, which is made where there is none. */
int mpib_poller_add_part(struct mpib_poller *poller, uint32_t key, struct mpib_poll_item *item,
			 int fd, uint32_t events, void (*ready)(void *user, uint32_t revents),
			 void *user);
/* Parts; each takes a descriptor of its own. */
uint32_t mpib_poller_n_parts(const struct mpib_poller *poller);
/* Watches for other events. */
int mpib_poller_change(struct mpib_poll_item *item, uint32_t events);
/* Ends it, before the descriptor is closed; @ready isn't called any more, though it was due. May be
 * called from any @ready, and for an item that is not watched. */
void mpib_poller_remove(struct mpib_poll_item *item);

#endif
