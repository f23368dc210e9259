/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/verbs/async.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/macros.h"
#include "plugin/base/log.h"

static const struct mpib_async_listener *listener; /* under the watch lock */

void mpib_async_listen(const struct mpib_async_listener *new_listener)
{
	mpib_watch_assert_locked();
	listener = new_listener;
}

static void tell_owner(const struct mpib_hca *hca, void *owner, const char *object,
		       const char *text)
{
	/* What nobody owns tells by its completions. */
	if (listener && owner)
		listener->on_object(hca, owner, object, text);
}

static void qp_event(const struct mpib_hca *hca, const struct ibv_qp *qp, const char *text)
{
	char object[24];

	(void)snprintf(object, sizeof(object), "QP 0x%x", qp->qp_num);
	tell_owner(hca, qp->qp_context, object, text);
}

/* The first reason stands. */
static void lost(struct mpib_hca *hca, const char *event, const char *text)
{
	mpib_watch_assert_locked();
	if (atomic_load_explicit(&hca->fatal, memory_order_relaxed))
		return;
	(void)snprintf(hca->lost_text, sizeof(hca->lost_text), "%s (%s)", event, text);
	MPIB_WARN("%s rail %s: %s: the device is lost to this process", mpib_rail_name(hca->rail),
		  hca->name, hca->lost_text);
	atomic_store_explicit(&hca->fatal, 1, memory_order_release);
	if (listener)
		listener->on_lost(hca);
}

/* The next connection searches the table anew. */
static void forget_gid(struct mpib_hca *hca, const struct ibv_async_event *event)
{
	if (event->element.port_num == (int)hca->port)
		atomic_store_explicit(&hca->gid_at, 0, memory_order_relaxed);
}

static void handle(struct mpib_hca *hca, const struct ibv_async_event *event)
{
	const char *text = mpib_verbs_event_text(event->event_type);
	const char *rail = mpib_rail_name(hca->rail);

	mpib_watch_assert_locked();
	switch (event->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		lost(hca, "IBV_EVENT_DEVICE_FATAL", text);
		break;
	case IBV_EVENT_CQ_ERR: /* say, more immediates from a broken peer than it has receives */
		tell_owner(hca, event->element.cq->cq_context, "CQ", text);
		break;
	case IBV_EVENT_SRQ_ERR:
		lost(hca, "IBV_EVENT_SRQ_ERR", text);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		qp_event(hca, event->element.qp, text);
		break;
	case IBV_EVENT_PORT_ERR:
		if (event->element.port_num != (int)hca->port)
			break;
		MPIB_WARN("%s rail %s: link down", rail, hca->name);
		(void)atomic_fetch_add_explicit(&hca->downs, 1, memory_order_release);
		if (listener)
			listener->on_port_down(hca);
		break;
	case IBV_EVENT_PORT_ACTIVE:
		forget_gid(hca, event);
		if (event->element.port_num != (int)hca->port)
			break;
		MPIB_INFO("%s rail %s: link up", rail, hca->name);
		if (listener)
			listener->on_port_up(hca);
		break;
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		forget_gid(hca, event);
		MPIB_DETAIL("%s rail %s: async event: %s", rail, hca->name, text);
		break;
	default:
		MPIB_DETAIL("%s rail %s: async event: %s", rail, hca->name, text);
		break;
	}
}

static void on_event(struct mpib_watch_item *item, uint32_t events)
{
	struct mpib_hca *hca = mpib_container_of(item, struct mpib_hca, async);
	struct ibv_async_event event;

	while (mpib_verbs_async_event(hca->ctx, &event) > 0) {
		handle(hca, &event);
		mpib_verbs_ack_event(&event);
	}
	/* So the kernel tells, for ever, that a device was taken away (ib_uverbs_event_poll). */
	if (events & (EPOLLERR | EPOLLHUP)) {
		mpib_watch_del(item);
		lost(hca, "no more events", "the device was taken away");
	}
}

void mpib_async_look(struct mpib_hca *hca)
{
	struct pollfd p = { .events = POLLIN };

	mpib_watch_lock();
	p.fd = hca->async.fd;
	if (hca->async.id && poll(&p, 1, 0) > 0) {
		if (p.revents & POLLNVAL) /* closed by somebody else */
			p.revents = POLLHUP;
		on_event(&hca->async, (uint32_t)p.revents);
	}
	mpib_watch_unlock();
}

bool mpib_hca_failed(struct mpib_hca *hca)
{
	mpib_async_look(hca);
	if (!atomic_load_explicit(&hca->fatal, memory_order_acquire))
		return false;
	MPIB_WARN("%s rail %s is lost to this process by %s: no connections; start the process "
		  "anew",
		  mpib_rail_name(hca->rail), hca->name, hca->lost_text);
	return true;
}

int mpib_async_watch(struct mpib_hca *hca)
{
	int flags = fcntl(hca->ctx->async_fd, F_GETFL);
	int r = 0;

	if (flags < 0 || fcntl(hca->ctx->async_fd, F_SETFL, flags | O_NONBLOCK) < 0)
		r = -errno;
	if (r == 0) {
		hca->async.fd = hca->ctx->async_fd;
		hca->async.on_event = on_event;
		r = mpib_watch_add(&hca->async, EPOLLIN);
	}
	if (r < 0)
		MPIB_WARN("%s rail %s: async events can't be watched: %s",
			  mpib_rail_name(hca->rail), hca->name, strerror(-r));
	return r;
}
