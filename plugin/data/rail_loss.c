/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/data/rail_loss.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/data/comm_error.h"

static const char *cause_text(unsigned int cause)
{
	static const char *const texts[] = {
		[MPIB_CAUSE_OTHER] = "no cause told",
		[MPIB_CAUSE_PORT] = "its port is down",
		[MPIB_CAUSE_COMPLETION] = "a request failed",
		[MPIB_CAUSE_STALL] = "nothing of it completes",
		[MPIB_CAUSE_PEER] = "the peer says so",
		[MPIB_CAUSE_RETURN] = "it could not be brought back",
	};

	return texts[cause];
}

/* @moved: messages of which a part, or rows whose clear-to-send, took the other rail. */
static void tell(const struct mpib_comm *comm, unsigned int rail, unsigned int moved)
{
	const struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	bool told = loss->cause == MPIB_CAUSE_PEER;

	MPIB_WARN("%s rail %s is lost %s %s: %s%s; %s takes over, with %u %s that were under way, "
		  "after "
		  "%llu ms",
		  mpib_rail_name(rail), comm->dev->hca[rail].name,
		  comm->kind == MPIB_COUNTER_SEND ? "to" : "from", comm->peer_text,
		  told ? "the peer says: " : "", cause_text(told ? loss->peer.cause : loss->cause),
		  mpib_rail_name(!rail), moved,
		  comm->kind == MPIB_COUNTER_SEND ? "parts of messages" : "clear-to-sends",
		  (unsigned long long)(mpib_now_ms() - loss->stopped_ms));
}

/* This end uses the rail no more, and has said so. 1, 0 later, or an error. */
static int leave(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	struct mpib_rail_down down;
	int r;

	if (comm->kind == MPIB_COUNTER_SEND) {
		mpib_send_leave_rail(comm, rail);
	} else {
		/* What the helper thread has said for an idle end is true of its rows. */
		if (loss->end.state < MPIB_RAIL_SAID &&
		    mpib_now_ms() - loss->stopped_ms < MPIB_RAIL_DRAIN_MS)
			return 0;
		r = mpib_recv_leave_rail(comm, rail, &down);
		if (r <= 0)
			return r;
		if (loss->end.state < MPIB_RAIL_SAID)
			mpib_rails_say_down(comm, rail, &down);
	}
	comm->rails->off |= (uint8_t)mpib_rail_bit(rail);
	comm->use_mask &= (uint8_t)~mpib_rail_bit(rail);
	__atomic_store_n(&comm->counters->rails_up, comm->use_mask, __ATOMIC_RELAXED);
	return 1;
}

/* Both ends have said RAIL_DOWN. */
static int settle(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	bool sender = comm->kind == MPIB_COUNTER_SEND;
	int moved;

	if (sender ? !mpib_rail_rows_of_receiver(&loss->peer, comm->send.head)
		   : !mpib_rail_rows_of_sender(&loss->peer, comm->recv.tail))
		return mpib_comm_fail(comm, -EPROTO,
				      "the peer's RAIL_DOWN names rows that can't be");
	loss->end.state = MPIB_RAIL_LOST;
	loss->answered = false;
	moved = sender ? (int)mpib_send_settle(comm, rail, &loss->peer)
		       : mpib_recv_settle(comm, rail, &loss->peer);
	if (moved < 0)
		return moved;
	comm->counters->losses[rail]++;
	tell(comm, rail, (unsigned int)moved);
	return 0;
}

/* 1: the rail asks for nothing more, 0 later, or an error. */
static int step_rail(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];

	if (!loss->stopped)
		return 1;
	if (!(comm->rails->off & mpib_rail_bit(rail))) {
		int r = leave(comm, rail);

		if (r <= 0)
			return r;
	}
	if (loss->end.state == MPIB_RAIL_SAID && loss->answered) {
		int r = settle(comm, rail);

		if (r < 0)
			return r;
	}
	return 1;
}

static int step(struct mpib_comm *comm)
{
	struct mpib_rails *rails = comm->rails;
	int quiet = 1;

	if (comm->error)
		return comm->error;
	if (rails->wrong)
		return mpib_comm_fail(comm, -EPROTO, rails->wrong);
	if (rails->rail[MPIB_SOUT].stopped && rails->rail[MPIB_SUP].stopped)
		return mpib_comm_fail(comm, -EIO, "both rails are lost");
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r = step_rail(comm, rail);

		if (r < 0)
			return r;
		quiet &= r;
	}
	if (comm->kind == MPIB_COUNTER_SEND) {
		int r = mpib_send_again(comm);

		if (r < 0)
			return r;
		quiet &= r;
	}
	if (quiet)
		(void)atomic_fetch_and_explicit(&comm->flags, ~(unsigned int)MPIB_FLAG_RAIL,
						memory_order_relaxed);
	return 0;
}

__attribute__((cold)) int mpib_rails_step(struct mpib_comm *comm)
{
	int r;

	mpib_watch_lock();
	r = step(comm);
	mpib_watch_unlock();
	return r;
}

/* What comes of a way that is gone. Anything else says that one of the ends is wrong. */
static bool says_lost(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR ||
	       status == IBV_WC_RESP_TIMEOUT_ERR || status == IBV_WC_FATAL_ERR ||
	       status == IBV_WC_GENERAL_ERR;
}

__attribute__((cold)) bool mpib_rail_failed(struct mpib_comm *comm, unsigned int rail,
					    enum ibv_wc_status status)
{
	const unsigned int ends = MPIB_FLAG_PEER_BYE | MPIB_FLAG_PEER_GONE | MPIB_FLAG_PEER_FAIL |
				  MPIB_FLAG_DEVICE_FATAL | MPIB_FLAG_QP_FATAL;
	bool lost;

	if (!comm->rails || !says_lost(status))
		return false;
	mpib_watch_lock();
	lost = comm->rails->rail[rail].stopped ||
	       (!(atomic_load_explicit(&comm->flags, memory_order_acquire) & ends) &&
		mpib_rails_lose(comm, rail, MPIB_CAUSE_COMPLETION));
	mpib_watch_unlock();
	return lost;
}
