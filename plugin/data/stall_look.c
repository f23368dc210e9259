/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sender judges by its parts. That the other rail completes meanwhile tells a dead way from a
 * peer that is stopped, a network that is slow as a whole, and a process that gets no time; where
 * the other rail has nothing under way, a request without data asks it.
 *
 * A receiver has nothing under way but clear-to-sends, of which few ask for a completion, and that
 * no data comes may be the sender's wish. So a write without data asks, behind those of which it
 * isn't known that they have arrived: devices answer it, whatever the programs do.
 */
#include "plugin/connection/stall.h"
#include "plugin/data/comm_check.h"
#include "plugin/data/progress.h"
#include "plugin/data/rail_loss.h"

/* Looks that make up the bound. */
static uint32_t looks_of_bound(const struct mpib_comm *comm)
{
	const uint32_t interval = mpib_stall_interval_ms(comm);

	return ((uint32_t)comm->rails->env->rail_stall_ms + interval - 1) / interval;
}

/* One look more that found nothing. */
static void count(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_stall *stall = &comm->rails->stall;

	mpib_watch_assert_locked();
	if (++stall->looks[rail] < looks_of_bound(comm))
		return;
	stall->looks[rail] = 0;
	(void)mpib_rails_lose(comm, rail, MPIB_CAUSE_STALL);
}

/* The rail that has to be asked whether it is alive, or MPIB_RAIL_MAX. */
static unsigned int judge_sends(struct mpib_comm *comm)
{
	struct mpib_stall *stall = &comm->rails->stall;
	unsigned int ask = MPIB_RAIL_MAX;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		uint64_t completions = comm->counters->rail[rail].completions;

		stall->moved[rail] |= completions != stall->seen[rail];
		stall->seen[rail] = completions;
		if (stall->moved[rail] || !comm->polled[rail])
			stall->looks[rail] = 0;
	}
	if (!mpib_rail_usable(comm, MPIB_SOUT) || !mpib_rail_usable(comm, MPIB_SUP))
		return ask;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		if (stall->moved[rail] || !comm->polled[rail])
			continue;
		if (!comm->polled[!rail])
			ask = !rail;
		if (stall->moved[!rail])
			count(comm, rail);
	}
	return ask;
}

static int look_at_sends(struct mpib_comm *comm)
{
	unsigned int ask;

	mpib_watch_lock();
	ask = judge_sends(comm);
	mpib_watch_unlock();
	return ask == MPIB_RAIL_MAX ? 0 : mpib_send_ask(comm, ask);
}

static int ask(struct mpib_comm *comm)
{
	/* As a clear-to-send that asks for a completion, of the latest row. */
	struct ibv_send_wr wr = {
		.wr_id = comm->recv.tail - 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = comm->recv.cts_addr,
		.wr.rdma.rkey = comm->recv.cts_wr.wr.rdma.rkey,
	};
	int r = ibv_post_send(comm->recv.cts_qp, &wr, &comm->bad);

	return r ? mpib_comm_post_failed(comm, comm->recv.cts_rail, "ibv_post_send failed", r) : 0;
}

/* True where it has to be asked whether they get through. */
static bool judge_ctss(struct mpib_comm *comm)
{
	struct mpib_stall *stall = &comm->rails->stall;
	unsigned int rail = comm->recv.cts_rail;
	uint32_t limit = comm->recv.cts_limit, tail = comm->recv.tail;

	/* The helper thread may have seen it first. */
	if (stall->asking && (int32_t)(limit - stall->asked_limit) >= 0)
		stall->asking = false;
	if (limit != stall->seen_limit) {
		stall->seen_limit = limit;
		stall->looks[rail] = 0;
		return false;
	}
	if (!mpib_rail_usable(comm, MPIB_SOUT) || !mpib_rail_usable(comm, MPIB_SUP) ||
	    tail == limit - MPIB_CTS_DEPTH)
		return false;
	if (stall->asking) {
		count(comm, rail);
		return false;
	}
	/* A full queue has one that asks for a completion. */
	stall->asking = true;
	stall->looks[rail] = 0;
	stall->asked_limit = tail == limit ? limit + 1 : tail + MPIB_CTS_DEPTH;
	return tail != limit;
}

static int look_at_ctss(struct mpib_comm *comm)
{
	bool todo;

	mpib_watch_lock();
	todo = judge_ctss(comm);
	mpib_watch_unlock();
	return todo ? ask(comm) : 0;
}

/* Without a control connection nothing else tells that the peer is gone. A question that isn't
 * answered fails, and its rail is lost by that. */
static int ask_peer(struct mpib_comm *comm)
{
	struct ibv_send_wr wr = {
		.wr_id = MPIB_WR_MAIL,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	};
	unsigned int rails = 0;

	mpib_watch_lock();
	for (unsigned int rail = 0; comm->rails->box.ask && rail < MPIB_RAIL_MAX; rail++)
		rails |= mpib_rail_usable(comm, rail) ? mpib_rail_bit(rail) : 0;
	comm->rails->box.ask = false;
	mpib_watch_unlock();
	rails &= comm->use_mask; /* those that are polled */
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r = 0;

		if (!(rails & mpib_rail_bit(rail)))
			continue;
		if (comm->kind == MPIB_COUNTER_SEND) {
			r = comm->polled[rail] ? 0 : mpib_send_ask(comm, rail);
		} else {
			wr.wr.rdma.remote_addr = comm->recv.cts_addr;
			wr.wr.rdma.rkey = comm->remote_qps.ring_rkey[rail];
			r = ibv_post_send(comm->qp[rail][0], &wr, &comm->bad);
			if (r)
				r = mpib_comm_post_failed(comm, rail, "ibv_post_send failed", r);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

__attribute__((cold)) int mpib_stall_look(struct mpib_comm *comm)
{
	int r;

	if (atomic_fetch_and_explicit(&comm->flags, ~(unsigned int)MPIB_FLAG_LOOK,
				      memory_order_relaxed) &
	    MPIB_FLAGS_END)
		return 0;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		r = comm->polled[rail] ? mpib_poll_rail(comm, rail) : 0;
		if (r < 0)
			return r;
	}
	r = ask_peer(comm);
	if (r < 0 || !comm->rails->env->rail_stall_ms)
		return r;
	return comm->kind == MPIB_COUNTER_SEND ? look_at_sends(comm) : look_at_ctss(comm);
}
