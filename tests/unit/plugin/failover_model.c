/* SPDX-License-Identifier: Apache-2.0 */
/* The two ends and what is between them; failover_exchange.c has the exchange about a rail. */
#include "tests/unit/plugin/failover_impl.h"

#include <string.h>

#define ALL_CELLS 3 /* a message is two cells */

static const char *wrong;

void model_fail(const char *text)
{
	if (!wrong)
		wrong = text;
}

const char *model_wrong(void)
{
	const char *text = wrong;

	wrong = NULL;
	return text;
}

bool model_lives(const struct model *m, unsigned int end, unsigned int rail, unsigned int epoch)
{
	const struct model_rail *r = &m->rail[end][rail];

	if (r->epoch != epoch)
		return false;
	return r->state == MPIB_RAIL_UP || r->late ||
	       (end == MODEL_RECEIVER && r->state == MPIB_RAIL_MADE);
}

/* Both ends take the rail for good: what is on it gets there. */
static bool is_good(const struct model *m, unsigned int rail, unsigned int epoch)
{
	return model_lives(m, MODEL_SENDER, rail, epoch) &&
	       model_lives(m, MODEL_RECEIVER, rail, epoch) && !m->rail[MODEL_SENDER][rail].late &&
	       !m->rail[MODEL_RECEIVER][rail].late;
}

static enum model_can on_rail(const struct model *m, unsigned int rail, unsigned int epoch)
{
	return is_good(m, rail, epoch) ? MODEL_MUST : MODEL_MAY;
}

static bool up(const struct model *m, unsigned int end, unsigned int rail)
{
	return m->rail[end][rail].state == MPIB_RAIL_UP;
}

/* Packets that nobody can take any more: fewer states to look at. */
void model_tidy(const struct model_config *config, struct model *m)
{
	for (unsigned int rail = 0; rail < MODEL_RAILS; rail++)
		for (unsigned int epoch = 0; epoch < MODEL_EPOCHS; epoch++) {
			bool sender = model_lives(m, MODEL_SENDER, rail, epoch);
			bool receiver = model_lives(m, MODEL_RECEIVER, rail, epoch);

			if (config->fault == MODEL_OLD_COMPLETIONS)
				sender = true;
			for (unsigned int k = 0; k < MODEL_ROWS * MODEL_PARTS; k++) {
				uint8_t *state = &m->packet[k / 2][k % 2][rail][epoch].state;

				if ((*state == MODEL_UNDER_WAY && !receiver) ||
				    (*state == MODEL_ARRIVED && !sender))
					memset(&m->packet[k / 2][k % 2][rail][epoch], 0,
					       sizeof(m->packet[0][0][0][0]));
			}
			if (!model_lives(m, MODEL_SENDER, rail, epoch)) {
				m->cts_len[rail][epoch] = 0;
				memset(m->cts[rail][epoch], 0, MODEL_CTS);
			}
		}
}

/* ---- the sender ---------------------------------------------------------------------------- */

static void post(struct model *m, unsigned int row, unsigned int part, unsigned int rail,
		 uint8_t cells)
{
	unsigned int epoch = m->rail[MODEL_SENDER][rail].epoch;

	m->packet[row][part][rail][epoch].state = MODEL_UNDER_WAY;
	m->packet[row][part][rail][epoch].cells = cells;
	m->part[row][part].state = MODEL_POSTED;
	m->part[row][part].rail = (uint8_t)rail;
	m->part[row][part].epoch = (uint8_t)epoch;
}

static uint8_t part_cells(unsigned int part, unsigned int sup)
{
	static const uint8_t cells[MODEL_PARTS][3] = { { 3, 1, 0 }, { 0, 2, 3 } };

	return cells[part][sup];
}

/* The next row, whose clear-to-send is there; @sup of its cells go to SUP. */
static enum model_can do_send(const struct model_config *config, struct model *m, unsigned int sup,
			      unsigned int b)
{
	unsigned int row = m->head;

	(void)b;
	if (row == config->rows || m->ring[row % config->slots] != row + 1)
		return MODEL_CANT;
	for (unsigned int part = 0; part < MODEL_PARTS; part++)
		if (part_cells(part, sup) && !up(m, MODEL_SENDER, part))
			return MODEL_CANT;
	m->head++;
	for (unsigned int part = 0; part < MODEL_PARTS; part++) {
		m->cells[row][part] = part_cells(part, sup);
		if (!m->cells[row][part])
			continue;
		m->remaining[row]++;
		post(m, row, part, part, m->cells[row][part]);
	}
	return MODEL_MUST;
}

/* A part that was lost, on its own rail if that is back, else on the other one, whatever becomes of
 * its own meanwhile. */
static enum model_can do_replay(const struct model_config *config, struct model *m, unsigned int a,
				unsigned int sup)
{
	unsigned int row = a / MODEL_PARTS, part = a % MODEL_PARTS;
	bool anew = config->fault == MODEL_DIVIDED_ANEW;
	unsigned int rail = up(m, MODEL_SENDER, part) ? part : !part;

	if (m->part[row][part].state != MODEL_PENDING || !up(m, MODEL_SENDER, rail) ||
	    (anew ? !part_cells(part, sup) : sup))
		return MODEL_CANT;
	post(m, row, part, rail, anew ? part_cells(part, sup) : m->cells[row][part]);
	return MODEL_MUST;
}

void model_credit(struct model *m, unsigned int row, unsigned int part)
{
	m->part[row][part].state = MODEL_DONE;
	m->part[row][part].rail = m->part[row][part].epoch = 0;
	if (!m->remaining[row]) {
		model_fail("a message is credited more often than it has parts");
		return;
	}
	if (--m->remaining[row] == 0 && m->memory[row] != ALL_CELLS)
		model_fail("a send is done, and the bytes aren't there");
}

/* An acknowledgement arrives, and its completion is polled. */
static enum model_can do_complete(const struct model_config *config, struct model *m,
				  unsigned int a, unsigned int b)
{
	unsigned int row = a / MODEL_PARTS, part = a % MODEL_PARTS;
	unsigned int rail = b / MODEL_EPOCHS, epoch = b % MODEL_EPOCHS;

	if (m->packet[row][part][rail][epoch].state != MODEL_ARRIVED ||
	    (!model_lives(m, MODEL_SENDER, rail, epoch) && config->fault != MODEL_OLD_COMPLETIONS))
		return MODEL_CANT;
	memset(&m->packet[row][part][rail][epoch], 0, sizeof(m->packet[0][0][0][0]));
	model_credit(m, row, part);
	/* Whoever credits what a part was posted on has to know it. */
	if (config->fault == MODEL_CREDITED_TWICE)
		m->part[row][part].rail = (uint8_t)rail;
	return on_rail(m, rail, epoch);
}

/* ---- the network --------------------------------------------------------------------------- */

static enum model_can do_deliver(const struct model_config *config, struct model *m, unsigned int a,
				 unsigned int b)
{
	unsigned int row = a / MODEL_PARTS, part = a % MODEL_PARTS;
	unsigned int rail = b / MODEL_EPOCHS, epoch = b % MODEL_EPOCHS;
	enum model_can can = on_rail(m, rail, epoch);

	if (m->packet[row][part][rail][epoch].state != MODEL_UNDER_WAY ||
	    !model_lives(m, MODEL_RECEIVER, rail, epoch))
		return MODEL_CANT;
	if (m->done[row])
		model_fail("bytes are written into a buffer that was given back");
	if (!m->remaining[row])
		model_fail("bytes are read from a buffer that was given back");
	if (!m->reserved[row][rail])
		model_fail("an immediate finds no receive that is reserved for it");
	else
		m->reserved[row][rail]--;
	m->memory[row] |= m->packet[row][part][rail][epoch].cells;
	m->unpolled[row][part] |= (uint8_t)(1u << rail);
	m->packet[row][part][rail][epoch].state = MODEL_ARRIVED;
	m->packet[row][part][rail][epoch].cells = 0;
	model_tidy(config, m);
	return can;
}

static enum model_can do_deliver_cts(const struct model_config *config, struct model *m,
				     unsigned int rail, unsigned int epoch)
{
	uint8_t *queue = m->cts[rail][epoch], row = queue[0];
	uint8_t *slot = &m->ring[row % config->slots];

	if (!m->cts_len[rail][epoch] || !model_lives(m, MODEL_SENDER, rail, epoch))
		return MODEL_CANT;
	memmove(queue, queue + 1, MODEL_CTS - 1);
	queue[MODEL_CTS - 1] = 0;
	m->cts_len[rail][epoch]--;
	if (*slot > row + 1)
		model_fail("a clear-to-send is written over that of a newer row");
	*slot = (uint8_t)(row + 1);
	return on_rail(m, rail, epoch);
}

/* ---- the receiver -------------------------------------------------------------------------- */

/* Immediates of a row that may come on @rail. When the other one is lost its part may come here,
 * too: of a row that is posted now only until the sender has spoken, who divides it no more then.
 */
uint8_t model_receives(const struct model_config *config, const struct model *m, unsigned int rail,
		       bool is_new)
{
	uint8_t state = m->rail[MODEL_RECEIVER][rail].state;
	uint8_t other = m->rail[MODEL_RECEIVER][!rail].state;

	if (state > MPIB_RAIL_MADE)
		return 0;
	if (other <= MPIB_RAIL_MADE || config->fault == MODEL_NO_MORE_RECEIVES)
		return 1;
	if (is_new && (other == MPIB_RAIL_LOST || config->fault == MODEL_TOO_FEW_RECEIVES))
		return 1;
	return 2;
}

static enum model_can do_post(const struct model_config *config, struct model *m, unsigned int a,
			      unsigned int b)
{
	unsigned int row = m->tail;

	(void)a;
	(void)b;
	if (row == config->rows || (row >= config->slots && !m->done[row - config->slots]))
		return MODEL_CANT;
	m->tail++;
	m->cts_wanted[row] = 1;
	for (unsigned int rail = 0; rail < MODEL_RAILS; rail++)
		m->reserved[row][rail] = model_receives(config, m, rail, true);
	return MODEL_MUST;
}

/* Clear-to-sends change the rail only when none is under way on the one that they took: all have
 * completed, or neither end has its queue pairs any more. Of those written again some may be of
 * rows that are done since, and come behind a newer row's that went another way. */
static bool may_change(const struct model_config *config, const struct model *m, unsigned int rail)
{
	const struct model_rail *r = &m->rail[MODEL_RECEIVER][rail];

	if (config->fault == MODEL_CTS_CHANGES_RAIL || config->fault == MODEL_RECEIVER_DOESNT_WAIT)
		return true;
	if (r->state == MPIB_RAIL_UP)
		return m->cts_len[rail][r->epoch] == 0;
	return r->state != MPIB_RAIL_SAID;
}

/* The oldest clear-to-send that has to be written. */
static enum model_can do_write_cts(const struct model_config *config, struct model *m,
				   unsigned int a, unsigned int b)
{
	unsigned int rail = up(m, MODEL_RECEIVER, 0) ? 0 : 1, epoch, row = 0;

	(void)a;
	(void)b;
	while (row < m->tail && !m->cts_wanted[row])
		row++;
	if (rail != m->cts_on && !may_change(config, m, m->cts_on))
		rail = m->cts_on;
	epoch = m->rail[MODEL_RECEIVER][rail].epoch;
	if (row == m->tail || !up(m, MODEL_RECEIVER, rail))
		return MODEL_CANT;
	m->cts_on = (uint8_t)rail;
	m->cts_wanted[row] = 0;
	m->cts_rail[row] = (uint8_t)(rail + 1);
	if (m->cts_len[rail][epoch] == MODEL_CTS) {
		model_fail("the model has room for fewer clear-to-sends");
		return MODEL_MUST;
	}
	m->cts[rail][epoch][m->cts_len[rail][epoch]++] = (uint8_t)row;
	model_tidy(config, m);
	return MODEL_MUST;
}

/* The immediate of @part, which came on @rail: its own, or, replayed, the other one. */
static void take(const struct model_config *config, struct model *m, unsigned int row,
		 unsigned int part, unsigned int rail)
{
	uint8_t bit = (uint8_t)(1u << part), mask;
	unsigned int both = m->cells[row][0] && m->cells[row][1], said;

	said = both ? 3 : bit;
	if (rail != part)
		said = mpib_replay_mask(part, !both || config->fault == MODEL_REPLAY_ALONE);
	mask = (uint8_t)mpib_mask_parts(said, rail);
	if (config->fault == MODEL_REPLAY_ALONE && rail != part && m->mask[row])
		mask = m->mask[row];
	if (m->done[row] || m->arrived[row] & bit) {
		model_fail("a part has arrived twice");
		return;
	}
	if (m->mask[row] && m->mask[row] != mask) {
		model_fail("an immediate contradicts the one before");
		return;
	}
	m->mask[row] = mask;
	m->arrived[row] |= bit;
	if (m->arrived[row] != mask)
		return;
	m->done[row] = 1;
	memset(m->reserved[row], 0, MODEL_RAILS); /* those that nothing used are given back */
	if (m->memory[row] != ALL_CELLS)
		model_fail("a receive is done, and bytes are missing");
}

void model_poll(const struct model_config *config, struct model *m, unsigned int rail)
{
	uint8_t bit = (uint8_t)(1u << rail);

	for (unsigned int row = 0; row < MODEL_ROWS; row++)
		for (unsigned int part = 0; part < MODEL_PARTS; part++)
			if (m->unpolled[row][part] & bit) {
				m->unpolled[row][part] &= (uint8_t)~bit;
				take(config, m, row, part, rail);
			}
}

static enum model_can do_poll(const struct model_config *config, struct model *m, unsigned int rail,
			      unsigned int b)
{
	uint8_t any = 0;

	(void)b;
	for (unsigned int row = 0; row < MODEL_ROWS; row++)
		any |= m->unpolled[row][0] | m->unpolled[row][1];
	if (!(any & 1u << rail))
		return MODEL_CANT;
	model_poll(config, m, rail);
	return MODEL_MUST;
}

/* ---- all of it ----------------------------------------------------------------------------- */

const struct model_action model_actions[] = {
	{ "the sender sends, cells on SUP:", do_send, 3, 1 },
	{ "the sender sends again, row and part:", do_replay, MODEL_ROWS *MODEL_PARTS, 3 },
	{ "an acknowledgement arrives, row and part, rail and epoch:", do_complete,
	  MODEL_ROWS *MODEL_PARTS, MODEL_RAILS *MODEL_EPOCHS },
	{ "a packet arrives, row and part, rail and epoch:", do_deliver, MODEL_ROWS *MODEL_PARTS,
	  MODEL_RAILS *MODEL_EPOCHS },
	{ "a clear-to-send arrives, rail, epoch:", do_deliver_cts, MODEL_RAILS, MODEL_EPOCHS },
	{ "the receiver posts", do_post, 1, 1 },
	{ "the receiver writes a clear-to-send", do_write_cts, 1, 1 },
	{ "the receiver polls rail", do_poll, MODEL_RAILS, 1 },
	{ "an end reads a frame (0 sender, 1 receiver):", model_do_frame, MODEL_ENDS, 1 },
	{ "an end takes a rail for lost:", model_do_lose, MODEL_ENDS, MODEL_RAILS },
	{ "an end that was late moves its queue pairs to ERR:", model_do_late, MODEL_ENDS,
	  MODEL_RAILS },
	{ "an end says RAIL_DOWN again:", model_do_repeat, MODEL_ENDS, 1 },
	{ "the sender makes new queue pairs, rail", model_do_return, MODEL_RAILS, 1 },
	{ "a request comes through new queue pairs, rail", model_do_probe, MODEL_RAILS, 1 },
	{ 0 },
};

void model_init(const struct model_config *config, struct model *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->losses = config->losses;
	ret->returns = config->returns;
	ret->repeats = config->repeats;
}

bool model_finished(const struct model_config *config, const struct model *m)
{
	for (unsigned int row = 0; row < config->rows; row++)
		if (!m->done[row] || row >= m->head || m->remaining[row])
			return false;
	return true;
}

bool model_cut_off(const struct model *m)
{
	for (unsigned int rail = 0; rail < MODEL_RAILS; rail++)
		for (unsigned int end = 0; end < MODEL_ENDS; end++)
			if (m->rail[end][rail].state < MPIB_RAIL_SAID)
				return false;
	return true;
}
