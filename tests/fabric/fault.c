/* SPDX-License-Identifier: Apache-2.0 */
/* Faults made on purpose. Levels (a port is down, a verb is to fail) are read from the shared state
 * where they matter; one-time events come through its log and are acted on here. */
#include "tests/fabric/fabric.h"

#include <errno.h>
#include <time.h>

/* Claims one failure: see fab_fail_word. */
static int claim(fab_fail_word *word)
{
	uint64_t old = atomic_load_explicit(word, memory_order_relaxed), new_word;

	do {
		uint64_t skip = old >> 40, count = old >> 16 & 0xffffff;

		if (!count)
			return 0;
		new_word = skip ? old - (1ULL << 40) : old - (1ULL << 16);
	} while (!atomic_compare_exchange_weak(word, &old, new_word));
	return old >> 40 ? 0 : (int)(old & 0xffff);
}

static void be_slow(const struct fab_state_dev *state, enum fab_verb verb)
{
	uint64_t ns = atomic_load_explicit(&state->slow_ns[verb], memory_order_relaxed);
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000),
			      .tv_nsec = (long)(ns % 1000000000) };

	while (ns && nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

int fab_fault(uint32_t dev, enum fab_verb verb)
{
	struct fab_state_dev *state = fab_dev_state(dev);
	int err = claim(&state->fail[verb]);

	be_slow(state, verb);
	if (err)
		return err;
	if (!atomic_load_explicit(&state->dead, memory_order_relaxed))
		return 0;
	/* On a dead device things can still be polled and taken down. */
	switch (verb) {
	case FAB_VERB_DEALLOC_PD:
	case FAB_VERB_DEREG_MR:
	case FAB_VERB_DESTROY_CQ:
	case FAB_VERB_DESTROY_SRQ:
	case FAB_VERB_DESTROY_QP:
	case FAB_VERB_POLL_CQ:
	case FAB_VERB_POST_SEND:
	case FAB_VERB_POST_RECV:
	case FAB_VERB_POST_SRQ_RECV:
		return 0;
	default:
		break;
	}
	/* Whoever sees the device fail finds its event there, too. */
	fab_engine_lock();
	fab_fault_log();
	fab_engine_unlock();
	return EIO;
}

void fab_fault_cut(uint32_t dev)
{
	struct fab_state_dev *state = fab_dev_state(dev);
	uint64_t left = atomic_load_explicit(&state->cut_left, memory_order_relaxed);

	do {
		if (!left)
			return;
	} while (!atomic_compare_exchange_weak(&state->cut_left, &left, left - 1));
	if (left == 1)
		(void)fab_meeting_port(&fab.meeting, dev, false);
}

static void tell_contexts(uint32_t dev, enum ibv_event_type type)
{
	struct ibv_async_event event = { .event_type = type };
	struct fab_context *ctx;

	event.element.port_num = 1;
	LIST_FOREACH(ctx, &fab.contexts, node)
	if (ctx->dev == dev)
		fab_event_push(ctx, &event);
}

static void drop_qp(uint32_t qpn)
{
	struct fab_qp *qp = fab.qps[qpn % FAB_QP_INDEXES];

	if (!qp || qp->qp.qp_num != qpn || atomic_load(&qp->state) == IBV_QPS_RESET)
		return;
	fab_event_qp(qp, IBV_EVENT_QP_FATAL);
	fab_qp_to_error(qp);
}

static void end_events(uint32_t dev)
{
	struct fab_context *ctx;

	LIST_FOREACH(ctx, &fab.contexts, node)
	if (ctx->dev == dev)
		fab_event_end(ctx);
}

static void kill_device(uint32_t dev, enum fab_death how)
{
	if (how != FAB_VANISHED)
		tell_contexts(dev, IBV_EVENT_DEVICE_FATAL);
	if (how != FAB_KILLED)
		end_events(dev);
	for (uint32_t k = 0; fab.qp_count && k < FAB_QP_INDEXES; k++) {
		struct fab_qp *qp = fab.qps[k];

		if (qp && qp->dev == dev && atomic_load(&qp->state) != IBV_QPS_RESET)
			fab_qp_to_error(qp);
	}
}

static void act(const struct fab_state_log *entry)
{
	uint32_t dev = atomic_load(&entry->dev);

	if (dev >= fab.conf->devs)
		return;
	switch ((enum fab_log_kind)atomic_load(&entry->kind)) {
	case FAB_LOG_PORT:
		tell_contexts(dev, atomic_load(&entry->arg) ? IBV_EVENT_PORT_ACTIVE
							    : IBV_EVENT_PORT_ERR);
		break;
	case FAB_LOG_GID:
		tell_contexts(dev, IBV_EVENT_GID_CHANGE);
		break;
	case FAB_LOG_DEAD:
		kill_device(dev, (enum fab_death)atomic_load(&entry->arg));
		break;
	case FAB_LOG_DROP_QP:
		drop_qp(atomic_load(&entry->arg));
		break;
	case FAB_LOG_SETTINGS:
	case FAB_LOG_NONE:
		break;
	}
}

void fab_fault_log(void)
{
	struct fab_state *state = fab.meeting.state;
	uint64_t end = atomic_load_explicit(&state->log_end, memory_order_acquire);

	if (fab.log_seen == end)
		return;
	if (end - fab.log_seen > FAB_LOG_MAX)
		fab.log_seen = end - FAB_LOG_MAX;
	while (fab.log_seen != end) {
		const struct fab_state_log *entry = &state->log[fab.log_seen % FAB_LOG_MAX];

		if (atomic_load(&entry->seq) < fab.log_seen + 1)
			return; /* being written: the writer wakes us again */
		act(entry);
		fab.log_seen++;
	}
}
