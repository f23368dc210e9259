/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous events: one queue a context, with one byte in the context's pipe each. */
#include "tests/fabric/fabric.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void fab_event_push(struct fab_context *ctx, const struct ibv_async_event *event)
{
	struct fab_event *copy = calloc(1, sizeof(*copy));

	if (!copy)
		return;
	copy->event = *event;
	(void)pthread_mutex_lock(&ctx->event_lock);
	TAILQ_INSERT_TAIL(&ctx->events, copy, node);
	/* A program that reads none may fill the pipe: one byte more wouldn't tell it anything. */
	(void)!write(ctx->event_fd, "", 1);
	(void)pthread_mutex_unlock(&ctx->event_lock);
}

void fab_event_end(struct fab_context *ctx)
{
	(void)pthread_mutex_lock(&ctx->event_lock);
	if (ctx->event_fd >= 0)
		(void)close(ctx->event_fd);
	ctx->event_fd = -1;
	(void)pthread_mutex_unlock(&ctx->event_lock);
}

void fab_event_qp(struct fab_qp *qp, enum ibv_event_type type)
{
	struct ibv_async_event event = { .event_type = type };

	event.element.qp = &qp->qp;
	fab_event_push(fab_context_of(qp->qp.context), &event);
}

/* The object that an event is about, or NULL for ports and devices. */
static const void *object_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_WQ_FATAL:
		break;
	}
	return NULL;
}

FAB_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct fab_context *ctx = fab_context_of(context);
	struct fab_event *first;
	char byte;

	do {
		ssize_t n = read(context->async_fd, &byte, 1);

		if (n == 0)
			errno = EIO; /* as the kernel says it of a device that is gone */
		if (n != 1)
			return -1;
		(void)pthread_mutex_lock(&ctx->event_lock);
		first = TAILQ_FIRST(&ctx->events);
		if (first) {
			*event = first->event;
			TAILQ_REMOVE(&ctx->events, first, node);
			TAILQ_INSERT_TAIL(&ctx->taken, first, node);
		}
		(void)pthread_mutex_unlock(&ctx->event_lock);
	} while (!first);
	return 0;
}

/* The context isn't in the event, so all contexts of the process are searched. */
FAB_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct fab_context *ctx;
	bool found = false;

	fab_engine_lock();
	LIST_FOREACH(ctx, &fab.contexts, node)
	{
		struct fab_event *taken;

		(void)pthread_mutex_lock(&ctx->event_lock);
		TAILQ_FOREACH(taken, &ctx->taken, node)
		{
			found = taken->event.event_type == event->event_type &&
				taken->event.element.cq == event->element.cq;
			if (found)
				break;
		}
		if (taken) {
			TAILQ_REMOVE(&ctx->taken, taken, node);
			free(taken);
			(void)pthread_cond_broadcast(&ctx->event_cond);
		}
		(void)pthread_mutex_unlock(&ctx->event_lock);
		if (found)
			break;
	}
	fab_engine_unlock();
}

/* Before @object goes away: its waiting events vanish, those given out must be acknowledged. */
void fab_event_cancel(struct fab_context *ctx, const void *object)
{
	struct fab_event *event, *next;
	char byte;

	(void)pthread_mutex_lock(&ctx->event_lock);
	TAILQ_FOREACH_SAFE(event, &ctx->events, node, next)
	{
		if (object_of(&event->event) == object) {
			TAILQ_REMOVE(&ctx->events, event, node);
			(void)!read(ctx->verbs.context.async_fd, &byte, 1);
			free(event);
		}
	}
	event = TAILQ_FIRST(&ctx->taken);
	while (event) {
		if (object_of(&event->event) == object) {
			(void)pthread_cond_wait(&ctx->event_cond, &ctx->event_lock);
			event = TAILQ_FIRST(&ctx->taken);
			continue;
		}
		event = TAILQ_NEXT(event, node);
	}
	(void)pthread_mutex_unlock(&ctx->event_lock);
}
