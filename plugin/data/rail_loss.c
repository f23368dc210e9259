/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/data/rail_loss.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/connection/mail.h"
#include "plugin/data/comm_error.h"
#include "plugin/verbs/port.h"

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

/* @moved: parts of messages, or rows whose clear-to-send, that took the other rail. */
static void tell_loss(const struct mpib_comm *comm, unsigned int rail,
		      const struct mpib_rail_down *peer, unsigned int moved)
{
	const struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	bool told = loss->cause == MPIB_CAUSE_PEER;
	char then[80];

	if (mpib_rail_usable(comm, !rail))
		(void)snprintf(then, sizeof(then), "%s takes over", mpib_rail_name(!rail));
	else
		(void)snprintf(then, sizeof(then),
			       "no rail is left, messages wait up to %d s for one",
			       comm->rails->env->rail_wait_sec);
	MPIB_WARN("%s rail %s is lost %s %s: %s%s; %s, with %u %s that were under way, after %llu "
		  "ms",
		  mpib_rail_name(rail), comm->dev->hca[rail].name,
		  comm->kind == MPIB_COUNTER_SEND ? "to" : "from", comm->peer_text,
		  told ? "the peer says: " : "", cause_text(loss->lost_by), then, moved,
		  comm->kind == MPIB_COUNTER_SEND ? "parts of messages" : "clear-to-sends",
		  (unsigned long long)(mpib_now_ms() - loss->stopped_ms));
}

/* At this end the rail is in use again. */
static void is_back(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];

	loss->end.state = MPIB_RAIL_UP;
	loss->was_up = true;
	loss->back_ms = mpib_now_ms();
	comm->counters->returns[rail]++;
	MPIB_WARN("%s rail %s is back %s %s after %llu ms", mpib_rail_name(rail),
		  comm->dev->hca[rail].name, comm->kind == MPIB_COUNTER_SEND ? "to" : "from",
		  comm->peer_text, (unsigned long long)(loss->back_ms - loss->lost_ms));
	mpib_rails_back(comm, rail);
}

static void use(struct mpib_comm *comm, unsigned int rail, bool on)
{
	const uint8_t bit = (uint8_t)mpib_rail_bit(rail);

	comm->rails->off = (uint8_t)(on ? comm->rails->off & ~bit : comm->rails->off | bit);
	comm->data_mask |= on ? bit : 0;
	comm->use_mask = (uint8_t)(on ? comm->use_mask | bit : comm->use_mask & ~bit);
	__atomic_store_n(&comm->counters->rails_up, comm->use_mask, __ATOMIC_RELAXED);
}

/* ---- a loss ---------------------------------------------------------------------------------- */

/* A vanilla connection that has lost SUP takes SOUT. */
static void take_reserve(struct mpib_comm *comm, unsigned int rail)
{
	use(comm, rail, true);
	if (comm->kind == MPIB_COUNTER_RECV)
		comm->polled[rail] = 1;
	/* Nobody was told of it while the rail carried nothing. */
	if (atomic_load_explicit(&comm->dev->hca[rail].fatal, memory_order_acquire))
		mpib_comm_flag(comm, MPIB_FLAG_DEVICE_FATAL);
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
		/* What was said for an idle end is true of its rows. */
		if (loss->end.state < MPIB_RAIL_SAID &&
		    mpib_now_ms() - loss->err_ms < MPIB_RAIL_DRAIN_MS)
			return 0;
		r = mpib_recv_leave_rail(comm, rail, &down);
		if (r <= 0)
			return r;
		if (loss->end.state < MPIB_RAIL_SAID)
			mpib_rails_say_down(comm, rail, &down);
	}
	use(comm, rail, false);
	if (mpib_rail_usable(comm, !rail) && !(comm->use_mask & mpib_rail_bit(!rail)))
		take_reserve(comm, !rail);
	return 1;
}

/* Both ends have said RAIL_DOWN. 1, or an error. */
static int settle(struct mpib_comm *comm, unsigned int rail, const struct mpib_rail_down *peer)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	bool sender = comm->kind == MPIB_COUNTER_SEND;
	int moved;

	if (sender ? !mpib_rail_rows_of_receiver(peer, comm->send.head)
		   : !mpib_rail_rows_of_sender(peer, comm->recv.tail))
		return mpib_comm_fail(comm, -EPROTO,
				      "the peer's RAIL_DOWN names rows that can't be");
	loss->end.state = MPIB_RAIL_LOST;
	loss->work = MPIB_WORK_NONE; /* an attempt ends by this */
	moved = sender ? (int)mpib_send_settle(comm, rail, peer)
		       : mpib_recv_settle(comm, rail, peer);
	if (moved < 0)
		return moved;
	if (!loss->was_up) /* a return that failed */
		return 1;
	loss->was_up = false;
	loss->lost_ms = loss->stopped_ms;
	loss->lost_by = loss->cause == MPIB_CAUSE_PEER ? peer->cause : loss->cause;
	comm->counters->losses[rail]++;
	tell_loss(comm, rail, peer, (unsigned int)moved);
	return 1;
}

static int on_down(struct mpib_comm *comm, unsigned int rail, const struct mpib_rail_down *peer)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	int todo = mpib_rail_on_down(&loss->end, peer->epoch);

	if (todo < 0)
		return mpib_comm_fail(
			comm, -EPROTO,
			"the peer's RAIL_DOWN is of queue pairs that don't exist yet");
	if (todo == MPIB_TODO_NOTHING)
		return 1;
	if (!loss->stopped)
		mpib_rails_stop(comm, rail, MPIB_CAUSE_PEER);
	if (!loss->in_err)
		return 0;
	if (!(comm->rails->off & mpib_rail_bit(rail))) {
		int r = leave(comm, rail);

		if (r <= 0)
			return r;
	}
	return settle(comm, rail, peer);
}

/* ---- its return ------------------------------------------------------------------------------ */

/* An attempt has failed at this end: said with the epoch that it was of. */
static void give_up(struct mpib_comm *comm, unsigned int rail)
{
	if (!comm->rails->rail[rail].stopped)
		mpib_rails_stop(comm, rail, MPIB_CAUSE_RETURN);
}

/* New queue pairs of this epoch are there. */
static void made(struct mpib_rail_loss *loss)
{
	loss->end.epoch++;
	loss->end.state = MPIB_RAIL_MADE;
	loss->stopped = loss->in_err = false;
}

/* The sender begins. */
static void begin_return(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	struct mpib_peer_qps qps;
	int r;

	if (!loss->work) {
		loss->tried_ms = mpib_now_ms();
		comm->rails->maker->leave(comm, rail);
	}
	r = mpib_rails_let(comm, rail, MPIB_WORK_MAKE, NULL);
	if (r == -EINPROGRESS)
		return;
	if (r < 0) {
		mpib_rails_pause(loss);
		return;
	}
	made(loss);
	comm->rails->made_head[rail] = comm->send.head;
	comm->rails->maker->describe(comm, rail, &qps);
	mpib_rails_say_up(comm, rail, &qps);
}

/* The receiver's answer. 1, or -EINPROGRESS. */
static int answer_return(struct mpib_comm *comm, unsigned int rail,
			 const struct mpib_peer_qps *peer)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	struct mpib_peer_qps qps;
	int r;

	if (!loss->work)
		comm->rails->maker->leave(comm, rail);
	r = mpib_rails_let(comm, rail, MPIB_WORK_ANSWER, peer);
	if (r == -EINPROGRESS)
		return r;
	if (r == 0 && !mpib_recv_take_rail(comm, rail))
		r = -ENOMEM;
	made(loss);
	if (r < 0) {
		give_up(comm, rail);
		return 1;
	}
	use(comm, rail, true);
	comm->rails->maker->describe(comm, rail, &qps);
	mpib_rails_say_up(comm, rail, &qps);
	return 1;
}

/* The sender's queue pairs are connected; whether anything comes through is found out before a
 * message depends on it. 1, or -EINPROGRESS. */
static int probe(struct mpib_comm *comm, unsigned int rail, const struct mpib_peer_qps *peer)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	int r = mpib_rails_let(comm, rail, MPIB_WORK_CONNECT, peer);

	if (r == -EINPROGRESS)
		return r;
	if (r == 0)
		r = mpib_send_probe(comm, rail);
	if (r < 0) {
		give_up(comm, rail);
		return 1;
	}
	loss->probing = true;
	loss->probe_ms = mpib_now_ms();
	return 1;
}

static void look_at_probe(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	struct ibv_wc wc;
	int n = ibv_poll_cq(comm->cq[rail], 1, &wc);

	if (n == 0)
		return;
	loss->probing = false;
	if (n < 0 || wc.status != IBV_WC_SUCCESS) {
		give_up(comm, rail);
		return;
	}
	mpib_rails_say_ready(comm, rail);
	loss->end.state = MPIB_RAIL_UP;
	mpib_send_take_rail(comm, rail);
	use(comm, rail, true);
	is_back(comm, rail);
}

static int on_up(struct mpib_comm *comm, unsigned int rail, const struct mpib_rail_frame *frame)
{
	const struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	bool receiver = comm->kind == MPIB_COUNTER_RECV;
	int todo = mpib_rail_on_up(&loss->end, receiver, frame->epoch);

	if (todo < 0 || frame->up.qps.qps[rail] != comm->nqps[rail] || loss->probing)
		return mpib_comm_fail(comm, -EPROTO, "the peer's RAIL_UP can't be");
	if (todo == MPIB_TODO_MAKE)
		return answer_return(comm, rail, &frame->up.qps);
	if (todo == MPIB_TODO_CONNECT && !loss->stopped)
		return probe(comm, rail, &frame->up.qps);
	return 1;
}

static int on_ready(struct mpib_comm *comm, unsigned int rail, uint32_t epoch)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	int todo = mpib_rail_on_ready(&loss->end, comm->kind == MPIB_COUNTER_RECV, epoch);

	if (todo < 0)
		return mpib_comm_fail(comm, -EPROTO, "the peer's RAIL_READY can't be");
	if (todo == MPIB_TODO_USE) {
		int r;

		loss->end.state = MPIB_RAIL_UP;
		r = loss->stopped ? 0 : mpib_recv_found_rail(comm, rail);
		if (r < 0)
			return r;
		is_back(comm, rail);
	}
	return 1;
}

/* No rail came back in time. */
static int waited_enough(struct mpib_comm *comm)
{
	char text[MPIB_TEXT_MAX + 1];
	size_t used;

	used = (size_t)snprintf(text, sizeof(text),
				"no rail is left since %llu ms "
				"(MPIB_RAIL_WAIT_SEC=%d)",
				(unsigned long long)(mpib_now_ms() - comm->rails->none_ms),
				comm->rails->env->rail_wait_sec);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (comm->mem_mask & mpib_rail_bit(rail) && used < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used,
						 "; %s rail %s: %s", mpib_rail_name(rail),
						 comm->dev->hca[rail].name,
						 cause_text(comm->rails->rail[rail].lost_by));
	return mpib_comm_fail(comm, -EREMOTEIO, text);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* 1: the frame is dealt with; 0: it has to wait; -EINPROGRESS: for the rail's job; or an error. */
static int on_frame(struct mpib_comm *comm, unsigned int rail, const struct mpib_rail_frame *frame)
{
	if (frame->type == MPIB_FRAME_RAIL_DOWN)
		return on_down(comm, rail, &frame->down);
	if (frame->type == MPIB_FRAME_RAIL_UP)
		return on_up(comm, rail, frame);
	return on_ready(comm, rail, frame->epoch);
}

/* 1: the rail asks for nothing more, 0 later, or an error. */
static int step_rail(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];

	/* The messages of a sender take the other rail from here on, and that is all that can be
	 * done until the rail's job has its queue pairs in ERR, and tells so. */
	if (loss->stopped && !loss->in_err) {
		if (comm->kind == MPIB_COUNTER_SEND && !(comm->rails->off & mpib_rail_bit(rail)))
			(void)leave(comm, rail);
		return 1;
	}
	if (loss->stopped && !(comm->rails->off & mpib_rail_bit(rail))) {
		int r = leave(comm, rail);

		if (r <= 0)
			return r;
	} else if (loss->stopped && loss->end.state < MPIB_RAIL_SAID) {
		/* A receiver whose attempt has failed: nothing has come on it. */
		struct mpib_rail_down down;

		mpib_recv_arrived(comm, &down);
		mpib_rails_say_down(comm, rail, &down);
	}
	while (loss->waiting) {
		const struct mpib_rail_frame frame = loss->frame[0];
		int r = on_frame(comm, rail, &frame);

		if (r == -EINPROGRESS)
			return 1;
		if (r <= 0)
			return r;
		loss->waiting--;
		memmove(loss->frame, loss->frame + 1, loss->waiting * sizeof(loss->frame[0]));
	}
	if (loss->probing) {
		look_at_probe(comm, rail);
		if (loss->probing && mpib_now_ms() - loss->probe_ms < MPIB_RAIL_PROBE_MS)
			return 0;
	}
	if (comm->kind == MPIB_COUNTER_SEND && loss->end.state == MPIB_RAIL_LOST &&
	    (loss->work || mpib_now_ms() >= loss->try_ms))
		begin_return(comm, rail);
	return 1;
}

static int step(struct mpib_comm *comm)
{
	struct mpib_rails *rails = comm->rails;
	int quiet = 1;

	if (comm->error)
		return comm->error;
	mpib_mail_look(comm);
	if (rails->wrong)
		return mpib_comm_fail(comm, -EPROTO, rails->wrong);
	if (rails->none_ms && rails->box.ctl_dead)
		return mpib_comm_fail(comm, -EREMOTEIO,
				      "neither a rail nor the control connection is left");
	if (rails->none_ms &&
	    mpib_now_ms() - rails->none_ms >= 1000 * (uint64_t)rails->env->rail_wait_sec)
		return waited_enough(comm);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r = comm->mem_mask & mpib_rail_bit(rail) ? step_rail(comm, rail) : 1;

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
static bool says_lost(const struct mpib_comm *comm, unsigned int rail, enum ibv_wc_status status)
{
	if (status == IBV_WC_LOC_QP_OP_ERR)
		return mpib_port_is_down(&comm->dev->hca[rail]);
	return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR ||
	       status == IBV_WC_RESP_TIMEOUT_ERR || status == IBV_WC_FATAL_ERR ||
	       status == IBV_WC_GENERAL_ERR;
}

__attribute__((cold)) bool mpib_rail_failed(struct mpib_comm *comm, unsigned int rail,
					    enum ibv_wc_status status)
{
	bool lost, says;

	if (!comm->rails)
		return false;
	says = says_lost(comm, rail, status);
	mpib_watch_lock();
	/* Whatever a request says on a rail whose loss is known: it is done again. */
	lost = comm->rails->rail[rail].stopped ||
	       (says &&
		!(atomic_load_explicit(&comm->flags, memory_order_acquire) & MPIB_FLAGS_END) &&
		mpib_rails_lose(comm, rail, MPIB_CAUSE_COMPLETION));
	mpib_watch_unlock();
	return lost;
}
