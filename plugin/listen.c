/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The accepting side. The helper thread takes TCP connections, greets them and waits for a HELLO
 * with the listener's nonce; whoever has none in time is a stranger and dropped, without delay to
 * the peer that is expected. accept() goes on from there (accept.c).
 */
#include "plugin/connect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/clock.h"
#include "plugin/listen_impl.h"
#include "plugin/log.h"
#include "plugin/net.h"
#include "plugin/result.h"

#define CANDIDATES_MAX	256 /* the oldest makes room for a newer one */
#define ACCEPTS_AT_ONCE 16
/* A peer says HELLO in the connect call after the one that found TCP up, which a busy process may
 * make late. Those who wait here delay nobody. */
#define CANDIDATE_WAIT_MS 60000

struct candidate {
	struct mpib_listener *listener;
	struct mpib_ctl ctl;
	struct mpib_watch_item watch;
	uint64_t since_ms;
	struct candidate *next;
};

static struct mpib_listener *all_listeners;

/* ---- helper thread -------------------------------------------------------------------------- */

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

	if (!listener->told_stranger)
		MPIB_INFO("listener %s: dropped a connection that isn't the expected peer (%s); "
			  "later ones are dropped silently",
			  listener->address, why);
	listener->told_stranger = true;
	candidate_free(listener, candidate);
}

/* The listener has what it waited for: nobody else is of interest. */
static void stop_listening(struct mpib_listener *listener)
{
	mpib_watch_del(&listener->watch);
	while (listener->candidates)
		candidate_free(listener, listener->candidates);
}

/* The expected peer, but no connection can come of it: accept() returns the error. */
static void refused(struct mpib_listener *listener, const char *text)
{
	MPIB_WARN("listener %s: %s", listener->address, text);
	listener->error = -MPIB_EUSAGE;
	stop_listening(listener);
	mpib_listener_set_state(listener, ACCEPT_FAILED);
}

static void take_peer(struct candidate *candidate, const struct mpib_peer *hello)
{
	struct mpib_listener *listener = candidate->listener;

	listener->hello = *hello;
	listener->ctl = candidate->ctl;
	candidate->ctl.fd = -1;
	mpib_watch_del(&candidate->watch);
	stop_listening(listener);
	mpib_listener_set_state(listener, ACCEPT_HAVE_PEER);
}

/* One frame from somebody; the candidate is gone afterwards. */
static void on_frame(struct candidate *candidate, const struct mpib_frame *frame)
{
	struct mpib_listener *listener = candidate->listener;
	char reason[MPIB_TEXT_MAX + 1], text[MPIB_TEXT_MAX + 1];
	struct mpib_peer hello;
	uint64_t nonce = 0;
	size_t used;

	if ((frame->type != MPIB_FRAME_HELLO && frame->type != MPIB_FRAME_REFUSE) ||
	    mpib_hello_nonce(frame->payload, frame->payload_len, &nonce) < 0 ||
	    nonce != listener->nonce) {
		drop_stranger(candidate, "no valid greeting");
		return;
	}

	if (frame->type == MPIB_FRAME_REFUSE) {
		mpib_text_decode(frame->payload + 8, frame->payload_len - 8, reason);
		(void)snprintf(text, sizeof(text), "the connecting peer refused: %.330s", reason);
		refused(listener, text);
	} else if (frame->version != MPIB_WIRE_VERSION) {
		(void)snprintf(text, sizeof(text),
			       "wire version differs: %u on the accepting side, %u on the "
			       "connecting side: install the same MPIB on every node",
			       MPIB_WIRE_VERSION, frame->version);
		mpib_ctl_send_text(&candidate->ctl, MPIB_FRAME_REFUSE, text);
		refused(listener, text);
	} else if (mpib_peer_decode(frame->payload, frame->payload_len, &hello, &used) < 0) {
		(void)snprintf(text, sizeof(text), "the connecting peer's settings can't be read");
		mpib_ctl_send_text(&candidate->ctl, MPIB_FRAME_REFUSE, text);
		refused(listener, text);
	} else {
		take_peer(candidate, &hello);
	}
}

static void on_candidate(struct mpib_watch_item *item, uint32_t events)
{
	struct candidate *candidate = mpib_container_of(item, struct candidate, watch);
	struct mpib_frame frame;
	int r;

	(void)events;
	r = mpib_ctl_recv(&candidate->ctl, &frame);
	if (r > 0)
		on_frame(candidate, &frame);
	else if (r < 0)
		drop_stranger(candidate, r == -EBADMSG ? "another protocol" : "closed early");
}

static void make_room(struct mpib_listener *listener)
{
	struct candidate *oldest = listener->candidates;
	unsigned int n = 0;

	for (struct candidate *c = listener->candidates; c; c = c->next) {
		oldest = c;
		n++;
	}
	if (n >= CANDIDATES_MAX)
		drop_stranger(oldest, "too many at once");
}

static void new_candidate(struct mpib_listener *listener, int fd)
{
	struct candidate *candidate = calloc(1, sizeof(*candidate));

	if (!candidate) {
		(void)close(fd);
		return;
	}
	make_room(listener);
	mpib_net_tune(fd);
	mpib_ctl_init(&candidate->ctl, fd);
	candidate->listener = listener;
	candidate->since_ms = mpib_now_ms();
	candidate->next = listener->candidates;
	listener->candidates = candidate;
	candidate->watch.fd = fd;
	candidate->watch.on_event = on_candidate;
	if (mpib_ctl_send(&candidate->ctl, MPIB_FRAME_GREETING, NULL, 0) < 0 ||
	    mpib_watch_add(&candidate->watch, EPOLLIN) < 0)
		candidate_free(listener, candidate);
}

static void on_listener(struct mpib_watch_item *item, uint32_t events)
{
	struct mpib_listener *listener = mpib_container_of(item, struct mpib_listener, watch);

	(void)events;
	for (int k = 0; k < ACCEPTS_AT_ONCE && mpib_listener_state(listener) == ACCEPT_WAIT_HELLO;
	     k++) {
		int fd = accept4(item->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			new_candidate(listener, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			if (!listener->paused)
				MPIB_WARN("listener %s: can't take a connection: %s; trying on",
					  listener->address, strerror(errno));
			listener->paused = true;
			mpib_watch_del(item);
		}
		return;
	}
}

static void on_tick(struct mpib_watch_tick *tick, uint64_t now_ms)
{
	struct mpib_listener *listener = mpib_container_of(tick, struct mpib_listener, tick);
	struct candidate *next;

	for (struct candidate *c = listener->candidates; c; c = next) {
		next = c->next;
		if (now_ms - c->since_ms > CANDIDATE_WAIT_MS)
			drop_stranger(c, "silent");
	}
	if (listener->paused && mpib_listener_state(listener) == ACCEPT_WAIT_HELLO &&
	    !listener->watch.id) {
		if (mpib_watch_add(&listener->watch, EPOLLIN) == 0)
			listener->paused = false;
	}
}

/* ---- listen --------------------------------------------------------------------------------- */

int mpib_listen(struct mpib_device *dev, const struct mpib_env *env, int traffic_class,
		void *handle, struct mpib_listener **ret)
{
	struct mpib_handle wire = { .version = MPIB_WIRE_VERSION };
	struct mpib_listener *listener;
	struct mpib_peer peer;
	struct mpib_gid gid;
	int r;

	r = mpib_hca_describe(&dev->hca[MPIB_SOUT], env, &peer, &gid);
	if (r < 0)
		return r;
	r = mpib_net_address(env->oob_if, gid.ipv4_be, &wire.addr);
	if (r < 0)
		return r;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	listener->dev = dev;
	listener->env = *env;
	listener->traffic_class = traffic_class;
	listener->ctl.fd = -1;
	mpib_listener_set_state(listener, ACCEPT_WAIT_HELLO);

	r = mpib_net_listen(&wire.addr, &listener->watch.fd);
	(void)mpib_net_format(&wire.addr, listener->address);
	if (r < 0) {
		MPIB_WARN("can't listen on %s for control connections: %s", listener->address,
			  strerror(-r));
		free(listener);
		return r;
	}
	if (getrandom(&listener->nonce, sizeof(listener->nonce), 0) != sizeof(listener->nonce))
		listener->nonce = mpib_now_ms() ^ (uint64_t)(uintptr_t)listener;

	mpib_watch_lock();
	listener->next = all_listeners;
	listener->link = &all_listeners;
	if (all_listeners)
		all_listeners->link = &listener->next;
	all_listeners = listener;
	listener->watch.on_event = on_listener;
	listener->tick.on_tick = on_tick;
	r = mpib_watch_add(&listener->watch, EPOLLIN);
	mpib_watch_tick_add(&listener->tick);
	mpib_watch_unlock();
	if (r < 0) {
		MPIB_WARN("listener %s can't be watched: %s", listener->address, strerror(-r));
		mpib_listener_free(listener);
		return r;
	}

	wire.nonce = listener->nonce;
	wire.sout_ip_be = gid.ipv4_be;
	wire.mode = (uint8_t)env->mode;
	wire.prefix_len = (uint8_t)env->prefix_len;
	memset(handle, 0, MPIB_NCCL_HANDLE_SIZE);
	mpib_handle_encode(handle, &wire);
	*ret = listener;
	return 0;
}

void mpib_listener_free(struct mpib_listener *listener)
{
	if (!listener)
		return;
	mpib_watch_lock();
	*listener->link = listener->next;
	if (listener->next)
		listener->next->link = listener->link;
	while (listener->candidates)
		candidate_free(listener, listener->candidates);
	mpib_watch_tick_del(&listener->tick);
	mpib_watch_del(&listener->watch);
	mpib_watch_unlock();
	(void)close(listener->watch.fd);
	mpib_ctl_close(&listener->ctl);
	mpib_comm_free(listener->comm);
	free(listener);
}

void mpib_listeners_free_all(void)
{
	while (all_listeners)
		mpib_listener_free(all_listeners);
}

void mpib_listeners_fork_child(void)
{
	for (struct mpib_listener *listener = all_listeners; listener; listener = listener->next) {
		(void)close(listener->watch.fd);
		if (listener->ctl.fd >= 0)
			(void)close(listener->ctl.fd);
		for (struct candidate *c = listener->candidates; c; c = c->next) {
			(void)close(c->ctl.fd);
			c->ctl.fd = -1;
		}
		listener->watch.fd = listener->ctl.fd = -1;
	}
}

bool mpib_listeners_any(void)
{
	return all_listeners != NULL;
}
