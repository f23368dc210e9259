/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who connects to a listener, until its turn has come: greeted, told from strangers by the nonce,
 * and kept in the order of the HELLOs. Helper thread, with the watch lock; accept() comes in by
 * mpib_listener_next and mpib_listener_again.
 */
#include "plugin/setup/listen_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/wire/net.h"

#define CANDIDATES_MAX 256 /* the oldest makes room for a newer one */
/* A peer says HELLO in the connect call after the one that found TCP up, which a busy process may
 * make late. Those who wait here delay nobody. */
#define CANDIDATE_WAIT_MS 60000
/* How long a peer waits after a failed accept for another one, before it is told the cause. */
#define AGAIN_MS 300

struct candidate {
	struct mpib_listener *listener;
	struct mpib_ctl ctl;
	struct mpib_watch_item watch;
	uint64_t since_ms;
	bool greeted;
	uint64_t turn; /* it has the nonce, and came as the so many'th peer; 0: not yet */
	struct mpib_peer hello;
	/* Why no connection can come of it, or 0; it is gone then. */
	int error;
	uint16_t answer;
	char cause[MPIB_TEXT_MAX + 1];
	struct candidate *next;
};

static void candidate_free(struct mpib_listener *listener, struct candidate *candidate)
{
	struct candidate **at = &listener->candidates;

	while (*at != candidate)
		at = &(*at)->next;
	*at = candidate->next;
	mpib_watch_del(&candidate->watch);
	mpib_ctl_close(&candidate->ctl);
	free(candidate);
}

static void drop_stranger(struct candidate *candidate, const char *why)
{
	struct mpib_listener *listener = candidate->listener;

	if (!listener->logged_stranger)
		MPIB_INFO("listener %s: dropped a connection that isn't the expected peer (%s); "
			  "later ones are dropped silently",
			  listener->address, why);
	listener->logged_stranger = true;
	candidate_free(listener, candidate);
}

void mpib_listener_fail(struct mpib_listener *listener, int error, uint16_t type, const char *cause)
{
	mpib_watch_lock();
	listener->error = error;
	listener->answer = type;
	listener->told = false;
	listener->failed_ms = mpib_now_ms();
	(void)snprintf(listener->cause, sizeof(listener->cause), "%s", cause);
	mpib_listener_set_state(listener, ACCEPT_FAILED);
	mpib_watch_unlock();
}

static void take_peer(struct candidate *candidate)
{
	struct mpib_listener *listener = candidate->listener;

	listener->hello = candidate->hello;
	listener->ctl = candidate->ctl;
	candidate->ctl.fd = -1;
	candidate_free(listener, candidate);
	mpib_listener_set_state(listener, ACCEPT_HAVE_PEER);
}

static struct candidate *first_peer(const struct mpib_listener *listener)
{
	struct candidate *first = NULL;

	for (struct candidate *c = listener->candidates; c; c = c->next)
		if (c->turn && (!first || c->turn < first->turn))
			first = c;
	return first;
}

/* The next peer is accept()'s, where accept() has none. */
static void serve(struct mpib_listener *listener)
{
	struct candidate *first = first_peer(listener);

	if (!first || mpib_listener_state(listener) != ACCEPT_WAIT_HELLO)
		return;
	if (!first->error) {
		take_peer(first);
		return;
	}
	mpib_listener_fail(listener, first->error, first->answer, first->cause);
	candidate_free(listener, first);
}

void mpib_listener_next(struct mpib_listener *listener)
{
	mpib_watch_lock();
	mpib_listener_set_state(listener, ACCEPT_WAIT_HELLO);
	serve(listener);
	mpib_watch_unlock();
}

bool mpib_listener_again(struct mpib_listener *listener)
{
	bool came;

	mpib_watch_lock();
	came = listener->told && first_peer(listener);
	if (came)
		mpib_listener_next(listener);
	mpib_watch_unlock();
	return came;
}

/* The expected peer, but no connection can come of it: accept() says so in its turn. */
static void refuse(struct candidate *candidate, int error, uint16_t type, const char *text)
{
	candidate->error = error;
	candidate->answer = type;
	(void)snprintf(candidate->cause, sizeof(candidate->cause), "%s", text);
	mpib_watch_del(&candidate->watch);
	mpib_ctl_close(&candidate->ctl);
}

/* The peer says that it gave up. */
static void peer_gave_up(struct candidate *candidate, const struct mpib_frame *frame)
{
	bool failed = frame->type == MPIB_FRAME_FAIL;
	char reason[MPIB_TEXT_MAX + 1], text[MPIB_TEXT_MAX + 1];

	mpib_text_decode(frame->payload + 8, frame->payload_len - 8, reason);
	(void)snprintf(text, sizeof(text), "%s%.370s",
		       failed ? "" : "the connecting peer refused: ", reason);
	refuse(candidate, failed ? -ECONNABORTED : -MPIB_EUSAGE, frame->type, text);
}

static void refuse_hello(struct candidate *candidate, const char *text)
{
	mpib_ctl_send_text(&candidate->ctl, MPIB_FRAME_REFUSE, text);
	refuse(candidate, -MPIB_EUSAGE, MPIB_FRAME_REFUSE, text);
}

/* The first frame from somebody. */
static void on_frame(struct candidate *candidate, const struct mpib_frame *frame)
{
	struct mpib_listener *listener = candidate->listener;
	char text[MPIB_TEXT_MAX + 1];
	uint64_t nonce = 0;
	size_t used;

	if ((frame->type != MPIB_FRAME_HELLO && frame->type != MPIB_FRAME_REFUSE &&
	     frame->type != MPIB_FRAME_FAIL) ||
	    mpib_hello_nonce(frame->payload, frame->payload_len, &nonce) < 0 ||
	    nonce != listener->nonce) {
		drop_stranger(candidate, "no valid greeting");
		return;
	}

	candidate->turn = ++listener->turns;
	candidate->since_ms = mpib_now_ms();
	if (frame->type != MPIB_FRAME_HELLO) {
		peer_gave_up(candidate, frame);
	} else if (frame->version != MPIB_WIRE_VERSION) {
		(void)snprintf(text, sizeof(text),
			       "wire version differs: %u on the accepting side, %u on the "
			       "connecting side: install the same MPIB on every node",
			       MPIB_WIRE_VERSION, frame->version);
		refuse_hello(candidate, text);
	} else if (mpib_peer_decode(frame->payload, frame->payload_len, &candidate->hello, &used) <
		   0) {
		refuse_hello(candidate, "the connecting peer's settings can't be read");
	}
	serve(listener);
}

static void on_candidate(struct mpib_watch_item *item, uint32_t events)
{
	struct candidate *candidate = mpib_container_of(item, struct candidate, watch);
	struct mpib_frame frame;
	int r;

	(void)events;
	r = mpib_ctl_recv(&candidate->ctl, &frame);
	if (r != 0 && candidate->turn)
		candidate_free(candidate->listener, candidate); /* it waits no longer */
	else if (r > 0)
		on_frame(candidate, &frame);
	else if (r < 0)
		drop_stranger(candidate, r == -EBADMSG ? "another protocol" : "closed early");
}

static void make_room(struct mpib_listener *listener)
{
	struct candidate *oldest = listener->candidates;
	unsigned int n = 0;

	for (struct candidate *c = listener->candidates; c; c = c->next) {
		if (!c->turn || oldest->turn)
			oldest = c;
		n++;
	}
	if (n >= CANDIDATES_MAX)
		drop_stranger(oldest, "too many at once");
}

/* What fails for want of memory is done again at the next tick. */
static void greet(struct candidate *candidate)
{
	if (!candidate->greeted) {
		if (mpib_ctl_send(&candidate->ctl, MPIB_FRAME_GREETING, NULL, 0) < 0) {
			candidate_free(candidate->listener, candidate);
			return;
		}
		candidate->greeted = true;
	}
	if (mpib_ctl_flush(&candidate->ctl) < 0)
		candidate_free(candidate->listener, candidate);
	else if (!candidate->watch.id)
		(void)mpib_watch_add(&candidate->watch, EPOLLIN);
}

void mpib_candidate_add(struct mpib_listener *listener, struct candidate *candidate, int fd)
{
	make_room(listener);
	mpib_net_tune(fd);
	mpib_ctl_init(&candidate->ctl, fd);
	candidate->listener = listener;
	candidate->since_ms = mpib_now_ms();
	candidate->next = listener->candidates;
	listener->candidates = candidate;
	candidate->watch.fd = fd;
	candidate->watch.on_event = on_candidate;
	greet(candidate);
}

/* A peer behind one that failed, and nobody calls accept() any more: it gets the same cause. */
static void tell_waiting(struct candidate *candidate, uint64_t now_ms)
{
	struct mpib_listener *listener = candidate->listener;

	if (mpib_listener_state(listener) != ACCEPT_FAILED || candidate->error ||
	    now_ms < candidate->since_ms + AGAIN_MS || now_ms < listener->failed_ms + AGAIN_MS)
		return;
	mpib_ctl_send_text(&candidate->ctl, listener->answer, listener->cause);
	candidate_free(listener, candidate);
}

struct candidate *mpib_candidate_new(void)
{
	return calloc(1, sizeof(struct candidate));
}

void mpib_candidates_tick(struct mpib_listener *listener, uint64_t now_ms)
{
	struct candidate *next;

	for (struct candidate *c = listener->candidates; c; c = next) {
		next = c->next;
		if (c->turn)
			tell_waiting(c, now_ms);
		else if (now_ms - c->since_ms > CANDIDATE_WAIT_MS)
			drop_stranger(c, "silent");
		else
			greet(c);
	}
}

void mpib_candidates_free(struct mpib_listener *listener)
{
	while (listener->candidates)
		candidate_free(listener, listener->candidates);
}

void mpib_candidates_fork_child(struct mpib_listener *listener)
{
	for (struct candidate *c = listener->candidates; c; c = c->next) {
		(void)close(c->ctl.fd);
		c->ctl.fd = -1;
	}
}
