/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange about a rail: each end moves its queue pairs to ERR, polls what they left, and says
 * RAIL_DOWN. What the other end's frame says is true from then on, and acted on. */
#include "tests/unit/plugin/failover_impl.h"

#include <string.h>

static void say(struct model *m, unsigned int end, const struct model_frame *frame)
{
	struct model_queue *queue = &m->to[!end];

	if (queue->len == MODEL_FRAMES)
		model_fail("the model has room for fewer frames");
	else
		queue->frame[queue->len++] = *frame;
}

/* The newest row of a slot; 1 and *ret_row, or 0. */
static int row_of(const struct model_config *config, const struct model *m, unsigned int slot,
		  unsigned int *ret_row)
{
	for (unsigned int row = m->tail; row-- > 0;)
		if (row % config->slots == slot) {
			*ret_row = row;
			return 1;
		}
	return 0;
}

static void say_down(const struct model_config *config, struct model *m, unsigned int end,
		     unsigned int rail)
{
	struct model_frame frame = {
		.type = MODEL_RAIL_DOWN,
		.rail = (uint8_t)rail,
		.epoch = m->rail[end][rail].epoch,
		.rows = end == MODEL_SENDER ? m->head : m->tail,
	};
	unsigned int row;

	for (unsigned int slot = 0; end == MODEL_RECEIVER && slot < config->slots; slot++)
		if (row_of(config, m, slot, &row))
			frame.arrived[slot] = m->done[row] ? 3 : m->arrived[row];
	m->said[end] = frame;
	say(m, end, &frame);
}

/* ---- acting on the peer's RAIL_DOWN ---------------------------------------------------------- */

/* A ring of fewer slots is one of MPIB_ROWS in which each row takes the place of several. */
static uint32_t real_row(const struct model_config *config, unsigned int row)
{
	return row * (MPIB_ROWS / config->slots);
}

static bool has_arrived(const struct model_config *config, const struct model_frame *frame,
			unsigned int row, unsigned int part)
{
	struct mpib_rail_down down = { .rows = real_row(config, frame->rows) -
					       (MPIB_ROWS / config->slots - 1) };
	unsigned int bits = frame->arrived[row % config->slots];

	if (config->fault == MODEL_ONE_BITMAP)
		part = frame->rail;
	if ((config->fault == MODEL_NEWER_ROWS && row >= frame->rows) ||
	    (config->fault == MODEL_OLDER_ROWS && frame->rows > row + config->slots))
		return bits & 1u << part;
	for (unsigned int k = 0; k < MODEL_PARTS; k++)
		if (bits & 1u << k)
			mpib_rail_down_mark(&down, real_row(config, row) % MPIB_ROWS, k);
	return mpib_rail_has_arrived(&down, real_row(config, row), part);
}

static void sender_settles(const struct model_config *config, struct model *m,
			   const struct model_frame *frame)
{
	for (unsigned int k = 0; k < MODEL_ROWS * MODEL_PARTS; k++) {
		unsigned int row = k / MODEL_PARTS, part = k % MODEL_PARTS;
		bool again = config->fault == MODEL_CREDITED_TWICE &&
			     m->part[row][part].state == MODEL_DONE && m->remaining[row];

		if ((m->part[row][part].state != MODEL_POSTED && !again) ||
		    m->part[row][part].rail != frame->rail)
			continue;
		if (has_arrived(config, frame, row, part)) {
			model_credit(m, row, part);
			continue;
		}
		m->part[row][part].state = MODEL_PENDING;
		m->part[row][part].rail = m->part[row][part].epoch = 0;
	}
}

/* Clear-to-sends that may have been lost are written again. */
static void receiver_settles(const struct model_config *config, struct model *m, unsigned int rail,
			     unsigned int head)
{
	bool all = config->fault == MODEL_CTS_OF_DONE_ROWS;

	if (config->fault == MODEL_NO_CTS_AGAIN)
		return;
	for (unsigned int row = head; row < m->tail; row++)
		if (m->cts_rail[row] == rail + 1 && (all || !m->done[row]))
			m->cts_wanted[row] = 1;
}

/* ---- one end --------------------------------------------------------------------------------- */

/* Before the receiver says that its rail is lost, the rows that are not done have a receive more on
 * the other one; before it says that its rail is back, two there: a part that waits for the other
 * one may take this one, though that comes back, too. */
static void reserve(const struct model_config *config, struct model *m, unsigned int rail,
		    bool lost)
{
	const bool few =
		config->fault == MODEL_FEW_ON_RETURN || config->fault == MODEL_NO_MORE_RECEIVES;

	for (unsigned int row = 0; row < m->tail; row++) {
		if (m->done[row])
			continue;
		m->reserved[row][rail] = lost || few ? model_receives(config, m, rail, false) : 2;
		if (lost && m->rail[MODEL_RECEIVER][!rail].state <= MPIB_RAIL_MADE &&
		    config->fault != MODEL_NO_MORE_RECEIVES)
			m->reserved[row][!rail]++;
	}
}

static void go_down(const struct model_config *config, struct model *m, unsigned int end,
		    unsigned int rail)
{
	const enum model_fault fault = config->fault;
	struct model_rail *r = &m->rail[end][rail];
	struct model_frame nothing = { .rail = (uint8_t)rail };

	if (fault == (end == MODEL_SENDER ? MODEL_SENDER_SAYS_FIRST : MODEL_RECEIVER_SAYS_FIRST) &&
	    r->state == MPIB_RAIL_UP)
		r->late = 1;
	r->state = MPIB_RAIL_SAID;
	r->probing = 0;
	if (end == MODEL_RECEIVER && fault != MODEL_BEFORE_POLLING)
		model_poll(config, m, rail);
	if (end == MODEL_RECEIVER)
		reserve(config, m, rail, true);
	say_down(config, m, end, rail);
	if (end == MODEL_SENDER && fault == MODEL_SENDER_DOESNT_WAIT)
		sender_settles(config, m, &nothing);
	if (end == MODEL_RECEIVER && fault == MODEL_RECEIVER_DOESNT_WAIT)
		receiver_settles(config, m, rail, 0);
	model_tidy(config, m);
}

static struct mpib_rail_end real_end(const struct model_rail *r)
{
	return (struct mpib_rail_end){ .state = r->state, .epoch = r->epoch };
}

static void on_down(const struct model_config *config, struct model *m, unsigned int end,
		    const struct model_frame *frame)
{
	struct model_rail *r = &m->rail[end][frame->rail];
	struct mpib_rail_end real = real_end(r);
	int todo = mpib_rail_on_down(&real, frame->epoch);

	if (todo < 0)
		model_fail("RAIL_DOWN out of order");
	if (todo <= MPIB_TODO_NOTHING)
		return;
	if (todo == MPIB_TODO_STOP_AND_SETTLE && config->fault == MODEL_ONE_SIDED)
		say_down(config, m, end, frame->rail);
	else if (todo == MPIB_TODO_STOP_AND_SETTLE)
		go_down(config, m, end, frame->rail);
	if (end == MODEL_SENDER)
		sender_settles(config, m, frame);
	else
		receiver_settles(config, m, frame->rail, frame->rows);
	if (r->state == MPIB_RAIL_SAID)
		r->state = MPIB_RAIL_LOST;
	model_tidy(config, m);
}

static void on_up(const struct model_config *config, struct model *m, unsigned int end,
		  const struct model_frame *frame)
{
	struct model_rail *r = &m->rail[end][frame->rail];
	struct mpib_rail_end real = real_end(r);
	struct model_frame answer = *frame;
	int todo;

	if (config->fault == MODEL_EPOCH_AGAIN)
		real.epoch -= end == MODEL_RECEIVER;
	todo = mpib_rail_on_up(&real, end == MODEL_RECEIVER, frame->epoch);
	if (todo < 0)
		model_fail("RAIL_UP out of order");
	if (todo <= MPIB_TODO_NOTHING)
		return;
	if (todo == MPIB_TODO_CONNECT) {
		r->probing = 1;
		return;
	}
	r->state = MPIB_RAIL_MADE;
	r->epoch = frame->epoch;
	reserve(config, m, frame->rail, false);
	say(m, end, &answer);
	model_tidy(config, m);
}

/* A first request has come through, and the sender takes the rail. */
enum model_can model_do_probe(const struct model_config *config, struct model *m, unsigned int rail,
			      unsigned int b)
{
	struct model_rail *r = &m->rail[MODEL_SENDER][rail];
	struct model_frame ready = { .type = MODEL_RAIL_READY, .rail = (uint8_t)rail };

	(void)b;
	if (!r->probing || !model_lives(m, MODEL_RECEIVER, rail, r->epoch))
		return MODEL_CANT;
	r->probing = 0;
	r->state = MPIB_RAIL_UP;
	ready.epoch = r->epoch;
	say(m, MODEL_SENDER, &ready);
	model_tidy(config, m);
	return MODEL_MUST;
}

static void on_ready(struct model *m, const struct model_frame *frame)
{
	struct model_rail *r = &m->rail[MODEL_RECEIVER][frame->rail];
	struct mpib_rail_end real = real_end(r);
	int todo = mpib_rail_on_ready(&real, true, frame->epoch);

	if (todo < 0)
		model_fail("RAIL_READY out of order");
	if (todo == MPIB_TODO_USE)
		r->state = MPIB_RAIL_UP;
}

enum model_can model_do_frame(const struct model_config *config, struct model *m, unsigned int end,
			      unsigned int b)
{
	struct model_queue *queue = &m->to[end];
	struct model_frame frame = queue->frame[0];

	(void)b;
	if (!queue->len)
		return MODEL_CANT;
	queue->len--;
	memmove(queue->frame, queue->frame + 1, sizeof(frame) * (MODEL_FRAMES - 1));
	memset(&queue->frame[MODEL_FRAMES - 1], 0, sizeof(frame));
	if (frame.type == MODEL_RAIL_DOWN)
		on_down(config, m, end, &frame);
	else if (frame.type == MODEL_RAIL_UP)
		on_up(config, m, end, &frame);
	else
		on_ready(m, &frame);
	return MODEL_MUST;
}

enum model_can model_do_lose(const struct model_config *config, struct model *m, unsigned int end,
			     unsigned int rail)
{
	if (!m->losses || m->rail[end][rail].state > MPIB_RAIL_MADE)
		return MODEL_CANT;
	m->losses--;
	go_down(config, m, end, rail);
	return MODEL_MAY;
}

enum model_can model_do_late(const struct model_config *config, struct model *m, unsigned int end,
			     unsigned int rail)
{
	if (!m->rail[end][rail].late)
		return MODEL_CANT;
	m->rail[end][rail].late = 0;
	model_tidy(config, m);
	return MODEL_MUST;
}

/* An end has two threads, either of which may answer: a frame may come again, as late as can be. */
enum model_can model_do_repeat(const struct model_config *config, struct model *m, unsigned int end,
			       unsigned int b)
{
	(void)config;
	(void)b;
	if (!m->repeats || !m->said[end].type)
		return MODEL_CANT;
	m->repeats--;
	say(m, end, &m->said[end]);
	return MODEL_MAY;
}

/* The sender begins. The receiver's queue pairs can receive before it answers, the sender's before
 * it says RAIL_READY; each end posts only after that. */
enum model_can model_do_return(const struct model_config *config, struct model *m,
			       unsigned int rail, unsigned int b)
{
	struct model_rail *r = &m->rail[MODEL_SENDER][rail];
	struct model_frame frame = { .type = MODEL_RAIL_UP, .rail = (uint8_t)rail };
	bool needed = model_cut_off(m);

	(void)b;
	if (!m->returns || r->state != MPIB_RAIL_LOST)
		return MODEL_CANT;
	m->returns--;
	r->state = MPIB_RAIL_MADE;
	if (config->fault != MODEL_EPOCH_AGAIN)
		r->epoch++;
	frame.epoch = r->epoch;
	say(m, MODEL_SENDER, &frame);
	model_tidy(config, m);
	return needed ? MODEL_MUST : MODEL_MAY;
}
