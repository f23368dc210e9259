/* SPDX-License-Identifier: Apache-2.0 */
/* Completion queues and channels, and the completions that the delay fault holds back. */
#include "tests/fabric/fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/fabric/counts.h"

#define YIELD_POLLS 128

/* --- channels --- */

FAB_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct fab_channel *ch = calloc(1, sizeof(*ch));

	if (!ch)
		return NULL;
	ch->channel.context = context;
	ch->channel.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (ch->channel.fd < 0) {
		free(ch);
		return NULL;
	}
	(void)pthread_mutex_init(&ch->lock, NULL);
	TAILQ_INIT(&ch->events);
	return &ch->channel;
}

FAB_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct fab_channel *ch = mpib_container_of(channel, struct fab_channel, channel);

	if (channel->refcnt)
		return EBUSY;
	(void)close(channel->fd);
	(void)pthread_mutex_destroy(&ch->lock);
	free(ch);
	return 0;
}

static void channel_push(struct fab_channel *ch, struct fab_cq *cq)
{
	struct fab_cq_event *event = calloc(1, sizeof(*event));
	uint64_t one = 1;

	if (!event)
		return;
	event->cq = &cq->cq;
	(void)pthread_mutex_lock(&ch->lock);
	TAILQ_INSERT_TAIL(&ch->events, event, node);
	(void)pthread_mutex_unlock(&ch->lock);
	(void)!write(ch->channel.fd, &one, sizeof(one));
}

/* Takes back the events of a CQ that goes away. Each has one count in the descriptor. */
static void channel_cancel(struct fab_channel *ch, struct ibv_cq *cq)
{
	struct fab_cq_event *event, *next;
	uint64_t count;

	(void)pthread_mutex_lock(&ch->lock);
	TAILQ_FOREACH_SAFE(event, &ch->events, node, next)
	{
		if (event->cq == cq) {
			TAILQ_REMOVE(&ch->events, event, node);
			(void)!read(ch->channel.fd, &count, sizeof(count));
			free(event);
		}
	}
	(void)pthread_mutex_unlock(&ch->lock);
}

FAB_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
				void **cq_context)
{
	struct fab_channel *ch = mpib_container_of(channel, struct fab_channel, channel);
	struct fab_cq_event *event;
	uint64_t count;

	do {
		if (read(channel->fd, &count, sizeof(count)) != sizeof(count))
			return -1;
		(void)pthread_mutex_lock(&ch->lock);
		event = TAILQ_FIRST(&ch->events);
		if (event)
			TAILQ_REMOVE(&ch->events, event, node);
		(void)pthread_mutex_unlock(&ch->lock);
	} while (!event);
	(void)pthread_mutex_lock(&event->cq->mutex);
	mpib_container_of(event->cq, struct fab_cq, cq)->events_out++;
	(void)pthread_mutex_unlock(&event->cq->mutex);
	*cq = event->cq;
	*cq_context = event->cq->cq_context;
	free(event);
	return 0;
}

FAB_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	(void)pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	(void)pthread_cond_signal(&cq->cond);
	(void)pthread_mutex_unlock(&cq->mutex);
}

/* --- queues --- */

FAB_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
					struct ibv_comp_channel *channel, int comp_vector)
{
	struct fab_context *ctx = fab_context_of(context);
	int err = fab_fault(ctx->dev, FAB_VERB_CREATE_CQ);
	struct fab_cq *cq;

	if (!err &&
	    (cqe < 1 || (uint32_t)cqe > fab_dev_conf(ctx->dev)->max_cqe || comp_vector < 0 ||
	     comp_vector >= context->num_comp_vectors || (channel && channel->context != context)))
		err = EINVAL;
	if (!err)
		err = fab_object_take(context, FAB_OBJECT_CQ);
	if (err) {
		errno = err;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (cq)
		cq->ring = calloc((size_t)cqe, sizeof(*cq->ring));
	if (!cq || !cq->ring) {
		fab_object_drop(context, FAB_OBJECT_CQ);
		free(cq);
		return NULL;
	}
	cq->cq.context = context;
	cq->cq.cq_context = cq_context;
	cq->cq.channel = channel;
	cq->cq.cqe = cqe;
	(void)pthread_mutex_init(&cq->cq.mutex, NULL);
	(void)pthread_cond_init(&cq->cq.cond, NULL);
	(void)pthread_mutex_init(&cq->lock, NULL);
	if (channel) {
		(void)pthread_mutex_lock(&context->mutex);
		channel->refcnt++;
		(void)pthread_mutex_unlock(&context->mutex);
	}
	return &cq->cq;
}

FAB_EXPORT int ibv_destroy_cq(struct ibv_cq *ibcq)
{
	struct fab_cq *cq = mpib_container_of(ibcq, struct fab_cq, cq);
	struct fab_context *ctx = fab_context_of(ibcq->context);
	int err = fab_fault(ctx->dev, FAB_VERB_DESTROY_CQ);

	if (err)
		return err;
	if (atomic_load(&cq->qps))
		return EBUSY;
	fab_engine_lock(); /* nobody pushes any more once we have it */
	fab_engine_unlock();
	fab_event_cancel(ctx, ibcq);
	if (ibcq->channel) {
		channel_cancel(mpib_container_of(ibcq->channel, struct fab_channel, channel), ibcq);
		(void)pthread_mutex_lock(&ibcq->context->mutex);
		ibcq->channel->refcnt--;
		(void)pthread_mutex_unlock(&ibcq->context->mutex);
	}
	(void)pthread_mutex_lock(&ibcq->mutex);
	while (ibcq->comp_events_completed != cq->events_out)
		(void)pthread_cond_wait(&ibcq->cond, &ibcq->mutex);
	(void)pthread_mutex_unlock(&ibcq->mutex);
	(void)pthread_mutex_destroy(&cq->lock);
	(void)pthread_mutex_destroy(&ibcq->mutex);
	(void)pthread_cond_destroy(&ibcq->cond);
	fab_object_drop(ibcq->context, FAB_OBJECT_CQ);
	free(cq->ring);
	free(cq);
	return 0;
}

FAB_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	(void)cq;
	(void)cqe;
	return EOPNOTSUPP;
}

static void overflow(struct fab_cq *cq, struct fab_qp *qp, bool first)
{
	struct ibv_async_event event = { .event_type = IBV_EVENT_CQ_ERR };

	event.element.cq = &cq->cq;
	if (first)
		fab_event_push(fab_context_of(cq->cq.context), &event);
	if (atomic_load(&qp->state) != IBV_QPS_ERR) {
		fab_event_qp(qp, IBV_EVENT_QP_FATAL);
		fab_qp_set_state(qp, IBV_QPS_ERR);
	}
}

void fab_cq_push(struct fab_cq *cq, const struct fab_cqe *cqe)
{
	bool full, first = false, wake = false;

	(void)pthread_mutex_lock(&cq->lock);
	full = cq->overflown || cq->count == (uint32_t)cq->cq.cqe;
	if (full) {
		first = !cq->overflown;
		cq->overflown = true;
	} else {
		cq->ring[(cq->head + cq->count) % (uint32_t)cq->cq.cqe] = *cqe;
		cq->count++;
		if (cq->armed == 1 ||
		    (cq->armed == 2 && (cqe->solicited || cqe->wc.status != IBV_WC_SUCCESS))) {
			cq->armed = 0;
			wake = cq->cq.channel != NULL;
		}
	}
	(void)pthread_mutex_unlock(&cq->lock);
	if (full)
		overflow(cq, cqe->qp, first);
	if (wake)
		channel_push(mpib_container_of(cq->cq.channel, struct fab_channel, channel), cq);
}

void fab_cq_forget(struct fab_cq *cq, const struct fab_qp *qp, const struct fab_rq *rq)
{
	uint32_t kept = 0;

	(void)pthread_mutex_lock(&cq->lock);
	for (uint32_t k = 0; k < cq->count; k++) {
		struct fab_cqe *cqe = &cq->ring[(cq->head + k) % (uint32_t)cq->cq.cqe];

		if (cqe->qp == qp) {
			if (cqe->rq && cqe->rq != rq) /* an SRQ lives on */
				atomic_fetch_sub(&cqe->rq->in_use, 1);
			continue;
		}
		cq->ring[(cq->head + kept++) % (uint32_t)cq->cq.cqe] = *cqe;
	}
	cq->count = kept;
	(void)pthread_mutex_unlock(&cq->lock);
}

static int pop(struct fab_cq *cq, int num, struct ibv_wc *wc)
{
	int n;

	(void)pthread_mutex_lock(&cq->lock);
	for (n = 0; n < num && cq->count; n++) {
		struct fab_cqe *cqe = &cq->ring[cq->head];

		wc[n] = cqe->wc;
		if (cqe->kind == FAB_CQE_SEND)
			atomic_store_explicit(&cqe->qp->sq_free, cqe->sq_end, memory_order_release);
		else
			atomic_fetch_sub(&cqe->rq->in_use, 1);
		cq->head = (cq->head + 1) % (uint32_t)cq->cq.cqe;
		cq->count--;
	}
	if (!n && num && cq->overflown)
		n = -1;
	(void)pthread_mutex_unlock(&cq->lock);
	return n;
}

int fab_poll_cq(struct ibv_cq *ibcq, int num, struct ibv_wc *wc)
{
	struct fab_cq *cq = mpib_container_of(ibcq, struct fab_cq, cq);
	int n;

	if (fab_fault(fab_context_of(ibcq->context)->dev, FAB_VERB_POLL_CQ))
		return -1;
	n = pop(cq, num, wc);
	if (fab.conf->null) {
		mpib_fabric_counts.polls++;
		mpib_fabric_counts.empty_polls += n == 0;
		mpib_fabric_counts.completions += n > 0 ? (uint64_t)n : 0;
		return n;
	}
	if (n)
		return n;
	if (atomic_fetch_add_explicit(&fab.polls, 1, memory_order_relaxed) % YIELD_POLLS == 0)
		(void)sched_yield(); /* the peer may be waiting for this very processor */
	if (fab_engine_idle())
		return 0;
	fab_engine_try();
	return pop(cq, num, wc);
}

int fab_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct fab_cq *cq = mpib_container_of(ibcq, struct fab_cq, cq);
	int err = fab_fault(fab_context_of(ibcq->context)->dev, FAB_VERB_REQ_NOTIFY);

	if (err)
		return err;
	(void)pthread_mutex_lock(&cq->lock);
	if (cq->armed != 1)
		cq->armed = solicited_only ? 2 : 1;
	(void)pthread_mutex_unlock(&cq->lock);
	fab_engine_wake(); /* the program stops polling: the thread takes over */
	return 0;
}

/* --- held completions, engine lock --- */

static uint32_t next_random(struct fab_qp *qp)
{
	qp->random = qp->random * 1664525U + 1013904223U;
	return qp->random >> 8;
}

/* The next delay of a QP follows from the seed, the QP's place among those of its process and how
 * many the delay command has drawn for it: a program that does the same meets the same delays. */
static uint64_t draw_delay(struct fab_qp *qp, struct fab_state_dev *dev, uint64_t min, uint64_t max)
{
	uint32_t order = atomic_load(&dev->delay_order);
	uint64_t delay, mixed;

	if (qp->random_order != order) {
		qp->random = (atomic_load(&dev->delay_seed) + 1) * 2654435761U ^ qp->index;
		qp->random_order = order;
		qp->drawn = 0;
	}
	delay = min + (max > min ? next_random(qp) * (max - min) / (1U << 24) : 0);
	mixed = ((uint64_t)qp->index << 32 ^ qp->drawn++) * 0x9e3779b97f4a7c15U ^ delay;
	mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9U;
	(void)atomic_fetch_add(&dev->delay_digest, mixed ^ mixed >> 32);
	(void)atomic_fetch_add(&dev->delays, 1);
	return delay;
}

void fab_cq_complete(struct fab_cq *cq, const struct fab_cqe *cqe)
{
	struct fab_qp *qp = cqe->qp;
	struct fab_state_dev *dev = fab_dev_state(qp->dev);
	uint64_t min = atomic_load_explicit(&dev->delay_min_ns, memory_order_relaxed);
	uint64_t max = atomic_load_explicit(&dev->delay_max_ns, memory_order_relaxed);
	struct fab_held *held;
	uint64_t due;

	if (atomic_load_explicit(&dev->dead, memory_order_relaxed) > FAB_KILLED)
		return; /* nobody writes completions any more */
	if (!max && TAILQ_EMPTY(&qp->held)) {
		fab_cq_push(cq, cqe);
		return;
	}
	held = calloc(1, sizeof(*held));
	if (!held) {
		fab_cq_push(cq, cqe);
		return;
	}
	due = fab_now() + draw_delay(qp, dev, min, max);
	if (due < qp->held_due) /* never out of order within a QP */
		due = qp->held_due;
	qp->held_due = due;
	*held = (struct fab_held){ .cqe = *cqe, .cq = cq, .due = due };
	TAILQ_INSERT_TAIL(&qp->held, held, node);
	if (!qp->holding)
		TAILQ_INSERT_TAIL(&fab.holding, qp, held_node);
	qp->holding = true;
	fab_engine_due(due);
}

static void held_push(struct fab_qp *qp, struct fab_held *held)
{
	TAILQ_REMOVE(&qp->held, held, node);
	fab_cq_push(held->cq, &held->cqe);
	free(held);
}

void fab_held_release(uint64_t now)
{
	struct fab_qp *qp, *next;
	struct fab_held *held;

	TAILQ_FOREACH_SAFE(qp, &fab.holding, held_node, next)
	{
		/* Not followed by the checker: NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		while ((held = TAILQ_FIRST(&qp->held)) && held->due <= now)
			held_push(qp, held);
		if (held) {
			fab_engine_due(held->due);
			continue;
		}
		TAILQ_REMOVE(&fab.holding, qp, held_node);
		qp->holding = false;
	}
}

void fab_held_drop(struct fab_qp *qp)
{
	struct fab_held *held;

	while ((held = TAILQ_FIRST(&qp->held))) {
		TAILQ_REMOVE(&qp->held, held, node);
		if (held->cqe.rq && held->cqe.rq != &qp->rq)
			atomic_fetch_sub(&held->cqe.rq->in_use, 1);
		free(held);
	}
	if (qp->holding)
		TAILQ_REMOVE(&fab.holding, qp, held_node);
	qp->holding = false;
}
