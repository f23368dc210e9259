/* SPDX-License-Identifier: Apache-2.0 */
/* What the helper thread hears of a mesh's peers once it is up: memory that they have registered,
 * and their end. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/base/watch.h"
#include "plugin/gin/gin_impl.h"

static void wake(struct mpib_gin *gin)
{
	const uint64_t one = 1;

	/* It can only fail where it is readable already. */
	if (write(gin->news_fd, &one, sizeof(one)) < 0)
		return;
}

void mpib_gin_over(struct mpib_gin_peer *peer, enum mpib_gin_over how, const char *text)
{
	mpib_watch_assert_locked();
	if (atomic_load_explicit(&peer->over, memory_order_relaxed) != MPIB_GIN_LIVE)
		return;
	(void)snprintf(peer->over_text, sizeof(peer->over_text), "%s", text);
	atomic_store_explicit(&peer->over, (int)how, memory_order_release);
	atomic_store_explicit(&peer->gin->news, 1, memory_order_release);
	wake(peer->gin);
}

/* A peer may be one registration ahead: it has all that it needs for its last one, and this end
 * waits for others. */
static void keep_memory(struct mpib_gin_peer *peer, const struct mpib_frame *frame)
{
	struct mpib_gin_memory_frame memory;
	unsigned int at;

	if (mpib_gin_memory_decode(frame->payload, frame->payload_len, &memory) < 0) {
		mpib_gin_over(peer, MPIB_GIN_GONE, "what it says of its memory can't be read");
		return;
	}
	at = memory.number & 1;
	if (peer->has_memory[at]) {
		mpib_gin_over(peer, MPIB_GIN_GONE, "it registers memory that other ranks don't");
		return;
	}
	peer->memory[at] = memory;
	peer->has_memory[at] = true;
	wake(peer->gin);
}

/* SUP is lost to the peer, and so it is here: it waits for that before it does anything again. */
static void lose(struct mpib_gin_peer *peer, const struct mpib_frame *frame)
{
	if (frame->payload_len != 1 || frame->payload[0] != MPIB_SUP || !peer->failover ||
	    !peer->intra) {
		mpib_gin_over(peer, MPIB_GIN_GONE, "it says that a rail is lost which can't be");
		return;
	}
	if (atomic_load_explicit(&peer->gin->sout.closed, memory_order_relaxed)) {
		mpib_gin_over(peer, MPIB_GIN_GONE, "SUP is lost, and SOUT is, too");
		return;
	}
	mpib_gin_say_lost(peer);
	atomic_store_explicit(&peer->told_lost, 1, memory_order_release);
	atomic_store_explicit(&peer->gin->news, 1, memory_order_release);
}

static void on_ctl(struct mpib_watch_item *item, uint32_t events)
{
	struct mpib_gin_peer *peer = mpib_container_of(item, struct mpib_gin_peer, watch);
	char reason[MPIB_TEXT_MAX + 1];
	struct mpib_frame frame;
	int r;

	mpib_watch_assert_locked();
	(void)events;
	while ((r = mpib_ctl_recv(&peer->ctl, &frame)) > 0) {
		if (frame.type == MPIB_GIN_FRAME_MEMORY) {
			keep_memory(peer, &frame);
		} else if (frame.type == MPIB_GIN_FRAME_LOST) {
			lose(peer, &frame);
		} else if (frame.type == MPIB_GIN_FRAME_CLOSED) {
			mpib_gin_sout_told(peer, &frame);
		} else if (frame.type == MPIB_FRAME_BYE) {
			mpib_gin_over(peer, MPIB_GIN_CLOSED, "it has closed");
		} else if (frame.type == MPIB_FRAME_FAIL) {
			mpib_text_decode(frame.payload, frame.payload_len, reason);
			mpib_gin_over(peer, MPIB_GIN_GONE, reason);
		}
	}
	if (r < 0) {
		mpib_watch_del(item);
		mpib_gin_over(peer, MPIB_GIN_GONE, "its process or host is gone");
	}
}

/* Whether a rail's port went down since the last look. */
static bool went_down(struct mpib_gin *gin, unsigned int rail)
{
	const uint32_t downs =
		atomic_load_explicit(&gin->dev->hca[rail].downs, memory_order_acquire);
	const bool went = gin->downs[rail] != downs;

	gin->downs[rail] = downs;
	return went;
}

/* A device whose end nobody was told of by a completion. */
static void on_tick(struct mpib_watch_tick *tick, uint64_t now_ms)
{
	struct mpib_gin *gin = mpib_container_of(tick, struct mpib_gin, tick);

	(void)now_ms;
	if (went_down(gin, MPIB_SUP)) {
		atomic_store_explicit(&gin->port_down, 1, memory_order_release);
		atomic_store_explicit(&gin->news, 1, memory_order_release);
	}
	if (went_down(gin, MPIB_SOUT) && !mpib_gin_sout_why_not(gin))
		mpib_gin_sout_close(gin, "its port is down");
	mpib_gin_sout_answer(gin);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (atomic_load_explicit(&gin->dev->hca[rail].fatal, memory_order_acquire))
			atomic_store_explicit(&gin->news, 1, memory_order_release);
}

void mpib_gin_watch_devices(struct mpib_gin *gin)
{
	mpib_watch_lock();
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		(void)went_down(gin, rail);
	gin->tick.on_tick = on_tick;
	mpib_watch_tick_add(&gin->tick);
	mpib_watch_unlock();
}

int mpib_gin_watch_peer(struct mpib_gin_peer *peer)
{
	int r;

	mpib_watch_lock();
	peer->watch.fd = peer->ctl.fd;
	peer->watch.on_event = on_ctl;
	r = mpib_watch_add(&peer->watch, EPOLLIN);
	if (r == 0)
		on_ctl(&peer->watch, EPOLLIN); /* what came together with the last frame */
	else
		MPIB_WARN("control connection to %s can't be watched: %s", peer->text,
			  strerror(-r));
	mpib_watch_unlock();
	return r;
}

void mpib_gin_unwatch(struct mpib_gin *gin)
{
	mpib_watch_tick_del(&gin->tick);
	for (uint32_t k = 0; gin->peer && k < gin->nranks; k++)
		mpib_watch_del(&gin->peer[k].watch);
}

bool mpib_gin_wait(struct mpib_gin *gin, bool (*ready)(struct mpib_gin *), uint64_t ms)
{
	uint64_t now = mpib_now_ms(), end = now + ms, wakes;
	struct pollfd p = { .fd = gin->news_fd, .events = POLLIN };
	bool is;

	for (;;) {
		mpib_watch_lock();
		is = ready(gin);
		mpib_watch_unlock();
		now = mpib_now_ms();
		if (is || now >= end)
			return is;
		(void)poll(&p, 1, (int)(end - now));
		if (read(gin->news_fd, &wakes, sizeof(wakes)) < 0 && errno != EAGAIN)
			return false;
	}
}
