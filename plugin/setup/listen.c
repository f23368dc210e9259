/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The accepting side. The helper thread takes TCP connections, greets them and waits for a HELLO
 * with the listener's nonce; whoever has none in time is a stranger and dropped, without delay to
 * the peer that is expected. accept() goes on from there (accept.c).
 */
#include "plugin/setup/connect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/setup/comm_life.h"
#include "plugin/setup/listen_impl.h"
#include "plugin/verbs/async.h"
#include "plugin/verbs/port.h"
#include "plugin/wire/net.h"

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
	bool greeted;
	bool proven; /* it has the nonce: the peer, whom a later answer concerns */
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

	if (!listener->logged_stranger)
		MPIB_INFO("listener %s: dropped a connection that isn't the expected peer (%s); "
			  "later ones are dropped silently",
			  listener->address, why);
	listener->logged_stranger = true;
	candidate_free(listener, candidate);
}

/* Others are of no interest once the peer is there. One that proved to be the peer, too, is the
 * peer that tries again, and waits for what becomes of the first try. */
static void drop_others(struct mpib_listener *listener)
{
	struct candidate *next;

	for (struct candidate *c = listener->candidates; c; c = next) {
		next = c->next;
		if (!c->proven)
			candidate_free(listener, c);
	}
}

static void answer(struct candidate *candidate)
{
	struct mpib_listener *listener = candidate->listener;

	mpib_ctl_send_text(&candidate->ctl, listener->answer, listener->cause);
	candidate_free(listener, candidate);
}

void mpib_listener_fail(struct mpib_listener *listener, int error, uint16_t type, const char *cause)
{
	struct candidate *next;

	mpib_watch_lock();
	listener->error = error;
	listener->answer = type;
	(void)snprintf(listener->cause, sizeof(listener->cause), "%s", cause);
	mpib_listener_set_state(listener, ACCEPT_FAILED);
	for (struct candidate *c = listener->candidates; c; c = next) {
		next = c->next;
		if (c->proven)
			answer(c);
	}
	mpib_watch_unlock();
}

/* The expected peer, but no connection can come of it: accept() says so. */
static void refused(struct mpib_listener *listener, int error, uint16_t type, const char *text)
{
	mpib_listener_fail(listener, error, type, text);
	drop_others(listener);
}

static void take_peer(struct candidate *candidate, const struct mpib_peer *hello)
{
	struct mpib_listener *listener = candidate->listener;

	listener->hello = *hello;
	listener->ctl = candidate->ctl;
	candidate->ctl.fd = -1;
	mpib_watch_del(&candidate->watch);
	candidate_free(listener, candidate);
	drop_others(listener);
	mpib_listener_set_state(listener, ACCEPT_HAVE_PEER);
}

/* The peer says that it gave up. */
static void peer_gave_up(struct mpib_listener *listener, const struct mpib_frame *frame)
{
	bool failed = frame->type == MPIB_FRAME_FAIL;
	char reason[MPIB_TEXT_MAX + 1], text[MPIB_TEXT_MAX + 1];

	mpib_text_decode(frame->payload + 8, frame->payload_len - 8, reason);
	(void)snprintf(text, sizeof(text), "%s%.370s",
		       failed ? "" : "the connecting peer refused: ", reason);
	refused(listener, failed ? -ECONNABORTED : -MPIB_EUSAGE, frame->type, text);
}

/* The peer again, while or after something came of its first try. */
static void peer_again(struct candidate *candidate)
{
	candidate->proven = true;
	mpib_watch_del(&candidate->watch);
	if (mpib_listener_state(candidate->listener) == ACCEPT_FAILED)
		answer(candidate);
}

/* One frame from somebody; the candidate is gone or not watched any more afterwards. */
static void on_frame(struct candidate *candidate, const struct mpib_frame *frame)
{
	struct mpib_listener *listener = candidate->listener;
	char text[MPIB_TEXT_MAX + 1];
	struct mpib_peer hello;
	uint64_t nonce = 0;
	size_t used;

	if ((frame->type != MPIB_FRAME_HELLO && frame->type != MPIB_FRAME_REFUSE &&
	     frame->type != MPIB_FRAME_FAIL) ||
	    mpib_hello_nonce(frame->payload, frame->payload_len, &nonce) < 0 ||
	    nonce != listener->nonce) {
		drop_stranger(candidate, "no valid greeting");
		return;
	}

	if (mpib_listener_state(listener) != ACCEPT_WAIT_HELLO) {
		peer_again(candidate);
	} else if (frame->type != MPIB_FRAME_HELLO) {
		peer_gave_up(listener, frame);
	} else if (frame->version != MPIB_WIRE_VERSION) {
		(void)snprintf(text, sizeof(text),
			       "wire version differs: %u on the accepting side, %u on the "
			       "connecting side: install the same MPIB on every node",
			       MPIB_WIRE_VERSION, frame->version);
		candidate->proven = true;
		refused(listener, -MPIB_EUSAGE, MPIB_FRAME_REFUSE, text);
	} else if (mpib_peer_decode(frame->payload, frame->payload_len, &hello, &used) < 0) {
		(void)snprintf(text, sizeof(text), "the connecting peer's settings can't be read");
		candidate->proven = true;
		refused(listener, -MPIB_EUSAGE, MPIB_FRAME_REFUSE, text);
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
	else if (!candidate->watch.id && !candidate->proven)
		(void)mpib_watch_add(&candidate->watch, EPOLLIN);
}

static void new_candidate(struct mpib_listener *listener, struct candidate *candidate, int fd)
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

/* The connection waits in the kernel; the next tick looks for it. */
static void pause_listener(struct mpib_listener *listener, int error)
{
	if (!listener->logged_paused)
		MPIB_INFO("listener %s: can't take a connection: %s; trying on", listener->address,
			  strerror(error));
	listener->logged_paused = listener->paused = true;
	mpib_watch_del(&listener->watch);
}

/* The memory is there before the connection is taken: one that can't be served stays in the queue.
 */
static void on_listener(struct mpib_watch_item *item, uint32_t events)
{
	struct mpib_listener *listener = mpib_container_of(item, struct mpib_listener, watch);

	(void)events;
	for (int k = 0; k < ACCEPTS_AT_ONCE; k++) {
		struct candidate *candidate = calloc(1, sizeof(*candidate));
		int fd = -1;

		if (candidate)
			fd = accept4(item->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			new_candidate(listener, candidate, fd);
			continue;
		}
		if (!candidate)
			pause_listener(listener, ENOMEM);
		else if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED)
			pause_listener(listener, errno);
		free(candidate);
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
		else
			greet(c);
	}
	if (listener->paused && mpib_watch_add(&listener->watch, EPOLLIN) == 0)
		listener->paused = false;
}

/* ---- listen --------------------------------------------------------------------------------- */

static int choose_address(const struct mpib_env *env, uint32_t sout_ip_be,
			  struct sockaddr_storage *ret)
{
	const struct mpib_net_wanted wanted = {
		.interfaces = env->oob_if,
		.variable = mpib_env_variable(env, env->oob_if),
		.family = !env->oob_family[0]			     ? AF_UNSPEC
			  : strcmp(env->oob_family, "AF_INET6") == 0 ? AF_INET6
								     : AF_INET,
		.sout_ip_be = sout_ip_be,
	};

	return mpib_net_address(&wanted, ret);
}

int mpib_listen(struct mpib_device *dev, const struct mpib_env *env, void *handle,
		struct mpib_listener **ret)
{
	struct mpib_handle wire = { .version = MPIB_WIRE_VERSION };
	struct mpib_listener *listener;
	struct mpib_peer peer;
	struct mpib_source source;
	int r;

	if (mpib_hca_failed(&dev->hca[MPIB_SUP]))
		return -EIO;
	r = mpib_hca_describe(&dev->hca[MPIB_SOUT], env, &peer, &source);
	if (r < 0)
		return r;
	r = choose_address(env, source.gid.ipv4_be, &wire.addr);
	if (r < 0)
		return r;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	listener->dev = dev;
	listener->env = *env;
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
	if (mpib_watch_add(&listener->watch, EPOLLIN) < 0)
		listener->paused = true; /* the next tick tries again */
	mpib_watch_tick_add(&listener->tick);
	mpib_watch_unlock();

	wire.nonce = listener->nonce;
	wire.sout_ip_be = source.gid.ipv4_be;
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
