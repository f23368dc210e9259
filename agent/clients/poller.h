/* SPDX-License-Identifier: Apache-2.0 */
/* The many descriptors, clients and their processes, in one epoll set of their own, of which the
 * event loop with all other sources is one: a turn serves many of them and asks the kernel once.
 * Users take turns, so that one with many descriptors waits for its own. One thread. */
#ifndef MPIB_AGENT_POLLER_H
#define MPIB_AGENT_POLLER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <systemd/sd-event.h>

struct mpib_poller;
struct mpib_poll_user;

/* One descriptor, a part of what its owner keeps for it. */
struct mpib_poll_item {
	struct mpib_poll_user *of; /* NULL: not watched */
	TAILQ_ENTRY(mpib_poll_item) next;
	bool due;	  /* waits for its turn */
	uint32_t revents; /* what came until then */
	uint32_t events;
	int fd;
	void (*ready)(void *user, uint32_t revents);
	void *user;
};

/* @loop is run by mpib_poller_turn() alone; its timers are set before the first turn, or by what it
 * calls. */
int mpib_poller_new(sd_event *loop, struct mpib_poller **ret);
/* Nothing is watched any more. */
struct mpib_poller *mpib_poller_free(struct mpib_poller *poller);

/* Serves those that are ready, some of them in the next turn where they are many, and then one
 * source of the loop; waits until something is to be done where @wait. 1 where there was something,
 * 0, or a negative errno of the loop. */
int mpib_poller_turn(struct mpib_poller *poller, bool wait);

/* Watches @fd, which stays the caller's, among those of @uid for @events, edge-triggered: @ready is
 * told what came since it was last called, and again only when more comes. @item lives until it is
 * removed. -ENOMEM, -ENOSPC. */
int mpib_poller_add(struct mpib_poller *poller, uint32_t uid, struct mpib_poll_item *item, int fd,
		    uint32_t events, void (*ready)(void *user, uint32_t revents), void *user);
/* Watches for other events; those that hold already come at once. */
int mpib_poller_change(struct mpib_poll_item *item, uint32_t events);
/* There is more to do: @ready is called once the others had their turn, though nothing came. */
void mpib_poller_again(struct mpib_poll_item *item);
/* Ends it, before the descriptor is closed; @ready isn't called any more, though it was due. May be
 * called from any @ready, and for an item that is not watched. */
void mpib_poller_remove(struct mpib_poll_item *item);

#endif
