/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/connection/rails.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "plugin/base/log.h"

void mpib_rail_stop(struct mpib_comm *comm, unsigned int rail)
{
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_ERR;
	for (unsigned int k = 0; k < MPIB_QPS_MAX; k++)
		if (comm->qp[rail][k])
			(void)mpib_verbs_modify_qp(comm->qp[rail][k], &attr, IBV_QP_STATE);
}

/* A frame about @rail. */
static void say(struct mpib_comm *comm, unsigned int rail, uint16_t type, uint8_t *payload,
		size_t len)
{
	mpib_mailbox_say(&comm->rails->box, comm,
			 mpib_rail_usable(comm, !rail) ? !rail : MPIB_RAIL_MAX, type, payload, len);
}

void mpib_rails_say_down(struct mpib_comm *comm, unsigned int rail, struct mpib_rail_down *down)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];

	mpib_watch_assert_locked();
	down->rail = (uint8_t)rail;
	down->cause = loss->cause;
	down->epoch = loss->end.epoch;
	say(comm, rail, MPIB_FRAME_RAIL_DOWN, payload,
	    mpib_rail_down_encode(payload, down, comm->kind == MPIB_COUNTER_RECV));
	__atomic_store_n(&loss->end.state, MPIB_RAIL_SAID, __ATOMIC_RELAXED);
}

void mpib_rails_say_up(struct mpib_comm *comm, unsigned int rail, const struct mpib_peer_qps *qps)
{
	struct mpib_rail_up up = { .rail = (uint8_t)rail, .qps = *qps };
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];

	mpib_watch_assert_locked();
	up.epoch = comm->rails->rail[rail].end.epoch;
	say(comm, rail, MPIB_FRAME_RAIL_UP, payload, mpib_rail_up_encode(payload, &up));
}

void mpib_rails_say_ready(struct mpib_comm *comm, unsigned int rail)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];

	mpib_watch_assert_locked();
	say(comm, rail, MPIB_FRAME_RAIL_READY, payload,
	    mpib_rail_ready_encode(payload, rail, comm->rails->rail[rail].end.epoch));
}

static void say_port(struct mpib_comm *comm, unsigned int rail)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];

	say(comm, rail, MPIB_FRAME_RAIL_PORT, payload,
	    mpib_rail_ready_encode(payload, rail, comm->rails->rail[rail].end.epoch));
}

void mpib_rails_pause(struct mpib_rail_loss *loss)
{
	const struct mpib_env *env = loss->comm->rails->env;
	const uint32_t least = (uint32_t)env->rail_pause_min_ms;
	const uint32_t most = (uint32_t)env->rail_pause_max_ms;

	loss->pause_ms = loss->pause_ms && mpib_rails_any(loss->comm) ? 2 * loss->pause_ms : least;
	if (loss->pause_ms > most)
		loss->pause_ms = most;
	loss->try_ms = mpib_now_ms() + loss->pause_ms;
}

/* Whether all rows that were posted have arrived; then *ret_rows of them. The progress thread may
 * post another one meanwhile, which is no part of the answer: its clear-to-send goes out after it
 * is in its place. */
static bool is_idle(const struct mpib_comm *comm, uint32_t *ret_rows)
{
	uint32_t tail = __atomic_load_n(&comm->recv.tail, __ATOMIC_ACQUIRE);

	for (unsigned int slot = 0; slot < MPIB_ROWS; slot++)
		if (__atomic_load_n(&comm->recv.row[slot], __ATOMIC_ACQUIRE))
			return false;
	*ret_rows = tail;
	return __atomic_load_n(&comm->recv.tail, __ATOMIC_ACQUIRE) == tail;
}

/* After the queue pairs went to ERR. */
static void say_for_progress(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rail_down down;

	memset(&down, 0, sizeof(down));
	if (comm->kind == MPIB_COUNTER_SEND) {
		down.rows = __atomic_load_n(&comm->send.head, __ATOMIC_ACQUIRE);
	} else {
		if (!is_idle(comm, &down.rows))
			return;
		memset(down.arrived, 0xff, sizeof(down.arrived));
	}
	mpib_rails_say_down(comm, rail, &down);
}

/* Whether the rail's RAIL_DOWN has still to be said. */
static bool is_unsaid(const struct mpib_comm *comm, unsigned int rail)
{
	const struct mpib_rail_loss *loss = &comm->rails->rail[rail];

	return loss->in_err && loss->end.state < MPIB_RAIL_SAID;
}

/* Whether the progress thread of a sender has something to do about bringing the rail back. */
static bool is_due(const struct mpib_comm *comm, unsigned int rail, uint64_t now_ms)
{
	const struct mpib_rail_loss *loss = &comm->rails->rail[rail];

	if (comm->kind != MPIB_COUNTER_SEND || loss->work)
		return false;
	return loss->probing || (loss->end.state == MPIB_RAIL_LOST && now_ms >= loss->try_ms);
}

/* A rail that the connection has, and has lost. */
static bool is_away(const struct mpib_comm *comm, unsigned int rail)
{
	return comm->mem_mask & mpib_rail_bit(rail) &&
	       comm->rails->rail[rail].end.state != MPIB_RAIL_UP;
}

/* Receivers that were busy when a rail was lost may be idle now, and never called again. Senders
 * try to bring a rail back, for ever. */
static void on_tick(struct mpib_watch_tick *tick, uint64_t now_ms)
{
	bool again = false;

	for (struct mpib_comm *comm = mpib_comms_first(); comm; comm = comm->next) {
		if (!comm->rails || !comm->rails->live)
			continue;
		for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
			if (is_unsaid(comm, rail))
				say_for_progress(comm, rail);
			if (is_due(comm, rail, now_ms))
				mpib_comm_flag(comm, MPIB_FLAG_RAIL);
			again |= is_unsaid(comm, rail) ||
				 (comm->kind == MPIB_COUNTER_SEND && is_away(comm, rail));
		}
		if (comm->rails->none_ms) { /* messages wait, and fail in the end */
			mpib_comm_flag(comm, MPIB_FLAG_RAIL);
			again = true;
		}
	}
	if (!again)
		mpib_watch_tick_del(tick);
}

static struct mpib_watch_tick tick = { .on_tick = on_tick };

/* ---- the job --------------------------------------------------------------------------------- */

static void are_in_err(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];

	loss->in_err = true;
	loss->err_ms = mpib_now_ms();
	if (comm->rails->live)
		say_for_progress(comm, rail);
	mpib_watch_tick_add(&tick);
	mpib_comm_flag(comm, MPIB_FLAG_RAIL);
}

static void is_worked(struct mpib_comm *comm, unsigned int rail, int result)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];

	loss->worked = true;
	loss->result = result;
	mpib_comm_flag(comm, MPIB_FLAG_RAIL);
}

/* Without the watch lock. */
static int work(struct mpib_comm *comm, unsigned int rail)
{
	const struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	const struct mpib_rail_maker *maker = comm->rails->maker;
	int r = 0;

	if (loss->work != MPIB_WORK_CONNECT)
		r = maker->make(comm, rail);
	if (r == 0 && loss->work != MPIB_WORK_MAKE)
		r = maker->connect(comm, rail, &loss->peer);
	return r;
}

static bool is_to_stop(const struct mpib_rail_loss *loss)
{
	return loss->stopped && !loss->in_err;
}

static void run(struct mpib_job *job)
{
	struct mpib_rail_loss *loss = mpib_container_of(job, struct mpib_rail_loss, job);
	struct mpib_comm *comm = loss->comm;
	const unsigned int rail = loss->rail;

	/* What comes up meanwhile is done before it ends. */
	while (comm->rails->live && (is_to_stop(loss) || (loss->work && !loss->worked))) {
		bool stop = is_to_stop(loss);
		int r = 0;

		mpib_watch_unlock();
		if (stop)
			mpib_rail_stop(comm, rail);
		else
			r = work(comm, rail);
		mpib_watch_lock();
		if (stop)
			are_in_err(comm, rail);
		else
			is_worked(comm, rail, r);
	}
}

static void start_job(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	int r = loss->job.runs ? 0 : mpib_job_start(&loss->job);

	if (r == 0)
		return;
	MPIB_INFO("%s rail %s to %s: no thread: %s", mpib_rail_name(rail),
		  comm->dev->hca[rail].name, comm->peer_text, strerror(-r));
	/* The loss can't wait, an attempt to come back can. */
	if (is_to_stop(loss)) {
		mpib_rail_stop(comm, rail);
		are_in_err(comm, rail);
	}
	if (loss->work && !loss->worked)
		is_worked(comm, rail, r);
}

int mpib_rails_let(struct mpib_comm *comm, unsigned int rail, enum mpib_rail_work todo,
		   const struct mpib_peer_qps *peer)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];

	mpib_watch_assert_locked();
	if (!loss->work) {
		loss->work = (uint8_t)todo;
		loss->worked = false;
		if (peer)
			loss->peer = *peer;
		start_job(comm, rail);
	}
	if (!loss->worked)
		return -EINPROGRESS;
	loss->work = MPIB_WORK_NONE;
	return loss->result;
}

void mpib_rails_init(struct mpib_comm *comm)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		struct mpib_rail_loss *loss = &comm->rails->rail[rail];

		loss->job.run = run;
		loss->comm = comm;
		loss->rail = (uint8_t)rail;
		loss->was_up = comm->mem_mask & mpib_rail_bit(rail);
		if (loss->was_up)
			continue;
		/* One that the connection doesn't have is as one that never comes back. */
		loss->stopped = loss->in_err = true;
		loss->end.state = MPIB_RAIL_LOST;
		loss->try_ms = UINT64_MAX;
	}
}

void mpib_rails_end(struct mpib_comm *comm)
{
	mpib_watch_lock();
	if (comm->rails)
		comm->rails->live = false;
	mpib_watch_unlock();
}

void mpib_rails_free(struct mpib_comm *comm)
{
	if (!comm->rails)
		return;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		mpib_job_end(&comm->rails->rail[rail].job);
	free(comm->rails->env);
	free(comm->rails);
	comm->rails = NULL;
}

/* ---- losses and frames ----------------------------------------------------------------------- */

void mpib_rails_stop(struct mpib_comm *comm, unsigned int rail, enum mpib_rail_cause cause)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];

	mpib_watch_assert_locked();
	__atomic_store_n(&loss->stopped, true, __ATOMIC_RELAXED);
	loss->probing = false;
	loss->cause = (uint8_t)cause;
	loss->stopped_ms = mpib_now_ms();
	/* One that has been back for long is taken for sound. */
	if (loss->end.state == MPIB_RAIL_UP &&
	    (!loss->back_ms ||
	     loss->stopped_ms - loss->back_ms > (uint64_t)comm->rails->env->rail_pause_max_ms))
		loss->pause_ms = 0;
	if (!comm->rails->none_ms && !mpib_rails_any(comm))
		comm->rails->none_ms = loss->stopped_ms;
	mpib_rails_pause(loss);
	if (loss->again)
		loss->try_ms = loss->stopped_ms + MPIB_RAIL_RETRY_MS;
	loss->again = false;
	mpib_comm_flag(comm, MPIB_FLAG_RAIL);
	start_job(comm, rail);
}

bool mpib_rails_lose(struct mpib_comm *comm, unsigned int rail, enum mpib_rail_cause cause)
{
	mpib_watch_assert_locked();
	if (!comm->rails || !comm->rails->live)
		return false;
	if (comm->rails->rail[rail].stopped)
		return true;
	/* Devices try the requests of a last rail again, and a port may be up before they give up.
	 */
	if (comm->rails->rail[rail].end.state == MPIB_RAIL_UP && !mpib_rail_usable(comm, !rail) &&
	    (cause != MPIB_CAUSE_COMPLETION || !comm->rails->env->rail_wait_sec))
		return false;
	mpib_rails_stop(comm, rail, cause);
	return true;
}

void mpib_rails_port_down(struct mpib_comm *comm, unsigned int rail)
{
	mpib_watch_assert_locked();
	if (comm->rails)
		comm->rails->rail[rail].port_down = true;
	(void)mpib_rails_lose(comm, rail, MPIB_CAUSE_PORT);
}

/* Of a sender's rail that is lost, or is coming back: a port of it is up. */
static void try_soon(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	const uint64_t now = mpib_now_ms(), least = loss->tried_ms + MPIB_RAIL_RETRY_MS;

	loss->pause_ms = 0;
	loss->again = loss->end.state == MPIB_RAIL_MADE;
	if (loss->try_ms > now)
		loss->try_ms = least > now ? least : now;
	mpib_comm_flag(comm, MPIB_FLAG_RAIL);
}

void mpib_rails_port_up(struct mpib_comm *comm, unsigned int rail)
{
	mpib_watch_assert_locked();
	if (comm->rails)
		comm->rails->rail[rail].port_down = false;
	if (!comm->rails || !comm->rails->live || !(comm->mem_mask & mpib_rail_bit(rail)) ||
	    mpib_rail_usable(comm, rail))
		return;
	if (comm->kind == MPIB_COUNTER_SEND)
		try_soon(comm, rail);
	else
		say_port(comm, rail);
}

void mpib_rails_back(struct mpib_comm *comm, unsigned int rail)
{
	mpib_watch_assert_locked();
	comm->rails->none_ms = 0;
	comm->rails->rail[rail].again = false;
	if (comm->rails->rail[!rail].port_down)
		(void)mpib_rails_lose(comm, !rail, MPIB_CAUSE_PORT);
}

/* 0, or -EBADMSG. */
static int decode(const struct mpib_comm *comm, const struct mpib_frame *frame,
		  struct mpib_rail_frame *ret, unsigned int *ret_rail)
{
	int r = -EBADMSG;

	ret->type = frame->type;
	if (frame->type == MPIB_FRAME_RAIL_DOWN) {
		r = mpib_rail_down_decode(frame->payload, frame->payload_len,
					  comm->kind == MPIB_COUNTER_SEND, &ret->down);
		*ret_rail = ret->down.rail;
		ret->epoch = ret->down.epoch;
	} else if (frame->type == MPIB_FRAME_RAIL_UP) {
		r = mpib_rail_up_decode(frame->payload, frame->payload_len, &ret->up);
		*ret_rail = ret->up.rail;
		ret->epoch = ret->up.epoch;
	} else {
		r = mpib_rail_ready_decode(frame->payload, frame->payload_len, ret_rail,
					   &ret->epoch);
	}
	return r < 0 || comm->mem_mask & mpib_rail_bit(*ret_rail) ? r : -EBADMSG;
}

void mpib_rails_on_frame(struct mpib_comm *comm, const struct mpib_frame *frame)
{
	struct mpib_rails *rails = comm->rails;
	struct mpib_rail_frame new_frame;
	struct mpib_rail_loss *loss;
	unsigned int rail = 0;
	int r;

	mpib_watch_assert_locked();
	if (!rails || !rails->live || rails->wrong)
		return;
	r = mpib_mailbox_is_next(&rails->box, frame);
	if (r == 0)
		return;
	mpib_comm_flag(comm, MPIB_FLAG_RAIL);
	if (r < 0) {
		rails->wrong = "a frame about a rail is missing before the peer's";
		return;
	}
	if (decode(comm, frame, &new_frame, &rail) < 0) {
		rails->wrong = "the peer's frame about a rail can't be read";
		return;
	}
	loss = &rails->rail[rail];
	if (frame->type == MPIB_FRAME_RAIL_PORT) {
		if (comm->kind != MPIB_COUNTER_SEND)
			rails->wrong = "the peer's RAIL_PORT is for the other end";
		else if (!mpib_rail_usable(comm, rail))
			try_soon(comm, rail);
		return;
	}
	if (loss->waiting == MPIB_RAIL_FRAMES) {
		rails->wrong = "the peer says more about a rail than there is to say";
		return;
	}
	/* The answer of an end that nobody may call. A receiver that has read RAIL_UP and not made
	 * its queue pairs yet has nothing to say of them. */
	if (new_frame.type == MPIB_FRAME_RAIL_DOWN && !loss->stopped &&
	    new_frame.epoch == loss->end.epoch)
		mpib_rails_stop(comm, rail, MPIB_CAUSE_PEER);
	loss->frame[loss->waiting++] = new_frame;
}
