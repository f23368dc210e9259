/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/connection/rails.h"

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

void mpib_rails_say_down(struct mpib_comm *comm, unsigned int rail, struct mpib_rail_down *down)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];

	mpib_watch_assert_locked();
	down->rail = (uint8_t)rail;
	down->cause = loss->cause;
	down->epoch = loss->end.epoch;
	/* A socket that fails is the end of the connection, which the helper thread sees there. */
	(void)mpib_ctl_send(&comm->ctl, MPIB_FRAME_RAIL_DOWN, payload,
			    mpib_rail_down_encode(payload, down, comm->kind == MPIB_COUNTER_RECV));
	loss->end.state = MPIB_RAIL_SAID;
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

	return loss->stopped && loss->end.state < MPIB_RAIL_SAID;
}

/* Receivers that were busy when a rail was lost may be idle now, and never called again. */
static void on_tick(struct mpib_watch_tick *tick, uint64_t now_ms)
{
	bool again = false;

	(void)now_ms;
	for (struct mpib_comm *comm = mpib_comms_first(); comm; comm = comm->next) {
		if (!comm->rails || !comm->rails->live)
			continue;
		for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
			if (is_unsaid(comm, rail))
				say_for_progress(comm, rail);
			again |= is_unsaid(comm, rail);
		}
	}
	if (!again)
		mpib_watch_tick_del(tick);
}

static struct mpib_watch_tick tick = { .on_tick = on_tick };

static void stop(struct mpib_comm *comm, unsigned int rail, enum mpib_rail_cause cause)
{
	struct mpib_rail_loss *loss = &comm->rails->rail[rail];

	mpib_watch_assert_locked();
	mpib_rail_stop(comm, rail);
	loss->stopped = true;
	loss->cause = (uint8_t)cause;
	loss->stopped_ms = mpib_now_ms();
	say_for_progress(comm, rail);
	if (is_unsaid(comm, rail))
		mpib_watch_tick_add(&tick);
	mpib_comm_flag(comm, MPIB_FLAG_RAIL);
}

bool mpib_rails_lose(struct mpib_comm *comm, unsigned int rail, enum mpib_rail_cause cause)
{
	mpib_watch_assert_locked();
	if (!comm->rails || !comm->rails->live)
		return false;
	if (!mpib_rail_usable(comm, rail))
		return true;
	if (!mpib_rail_usable(comm, !rail))
		return false;
	stop(comm, rail, cause);
	return true;
}

static void on_down(struct mpib_comm *comm, const struct mpib_frame *frame)
{
	struct mpib_rails *rails = comm->rails;
	struct mpib_rail_loss *loss;
	struct mpib_rail_down down;
	int todo;

	mpib_watch_assert_locked();
	if (mpib_rail_down_decode(frame->payload, frame->payload_len,
				  comm->kind == MPIB_COUNTER_SEND, &down) < 0) {
		rails->wrong = "the peer's RAIL_DOWN can't be read";
		return;
	}
	loss = &rails->rail[down.rail];
	todo = mpib_rail_on_down(&loss->end, down.epoch);
	if (todo < 0)
		rails->wrong = "the peer's RAIL_DOWN is of queue pairs that don't exist yet";
	if (todo <= MPIB_TODO_NOTHING || loss->answered)
		return;
	loss->answered = true;
	loss->peer = down;
	if (!loss->stopped)
		stop(comm, down.rail, MPIB_CAUSE_PEER);
}

void mpib_rails_on_frame(struct mpib_comm *comm, const struct mpib_frame *frame)
{
	mpib_watch_assert_locked();
	if (!comm->rails || !comm->rails->live || comm->rails->wrong)
		return;
	if (frame->type == MPIB_FRAME_RAIL_DOWN)
		on_down(comm, frame);
	mpib_comm_flag(comm, MPIB_FLAG_RAIL);
}
