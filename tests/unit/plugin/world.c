/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/plugin/world.h"

#include "plugin/connection/comm.h"
#include "tests/unit/plugin/wire.h"

#define SLOT_SIZE  8192u
#define LONGEST	   (SLOT_SIZE - 128)
#define OPEN_MAX   120 /* receives and flushes: less than there are requests */
#define UNTOUCHED  0xee
#define GIVEN_BACK 0 /* as fresh memory is */

static bool good(struct world *w, ncclResult_t r)
{
	if (r == ncclSuccess)
		return true;
	if (!w->faulty)
		fail_msg("error %d: %s", r, test_log_state.text);
	w->failed = true;
	return false;
}

static struct world_row *row_at(struct world *w, unsigned int k)
{
	return &w->rows[k % WORLD_ROWS];
}

static uint8_t *slot_at(const struct world_slots *slots, unsigned int slot)
{
	return slots->memory + (size_t)slot * SLOT_SIZE;
}

static void slots_make(struct world_slots *slots, void *comm)
{
	slots->memory = calloc(WORLD_SLOTS, SLOT_SIZE);
	assert_non_null(slots->memory);
	assert_int_equal(mpib_entry_reg_mr(comm, slots->memory, (size_t)WORLD_SLOTS * SLOT_SIZE,
					   NCCL_PTR_HOST, &slots->mr),
			 ncclSuccess);
	for (unsigned int k = 0; k < WORLD_SLOTS; k++)
		slots->free[k] = k;
	slots->head = 0;
	slots->tail = WORLD_SLOTS;
}

static bool all_are(const uint8_t *at, size_t len, uint8_t value)
{
	return len == 0 || (at[0] == value && memcmp(at, at + 1, len - 1) == 0);
}

static unsigned int slot_get(struct world_slots *slots)
{
	unsigned int slot = slots->free[slots->head++ % WORLD_SLOTS];

	assert_true(slots->head != slots->tail + 1);
	assert_true(all_are(slot_at(slots, slot), SLOT_SIZE, GIVEN_BACK));
	return slot;
}

static void slot_put(struct world_slots *slots, unsigned int slot)
{
	memset(slot_at(slots, slot), GIVEN_BACK, SLOT_SIZE);
	slots->free[slots->tail++ % WORLD_SLOTS] = slot;
}

static void pattern_fill(uint8_t *at, size_t len, uint8_t pattern)
{
	for (size_t k = 0; k < len; k++)
		at[k] = (uint8_t)(pattern + k * 7 + (k >> 8));
}

static size_t random_size(const struct world *w)
{
	size_t size = (wire_below(2) ? mpib_test_random_log(&wire_random)
				     : mpib_test_random_next(&wire_random)) %
		      (LONGEST + 1);

	if (w->long_ones && wire_below(2))
		return LONGEST - wire_below(256);
	if (wire_below(3) == 0)
		size = size & ~(size_t)127;
	return wire_below(8) == 0 ? 0 : size;
}

static void plan_row(struct world *w)
{
	struct world_row *row = row_at(w, w->planned++);
	unsigned int tags = 1 + wire_below(4);

	row->n = wire_below(2) ? 1 : 1 + (int)wire_below(w->max_group);
	for (int k = 0; k < row->n; k++) {
		struct world_message *m = &row->message[k];
		size_t size = random_size(w), room = random_size(w);

		*m = (struct world_message){ .tag = row->n == 1 ? 77 : (int)wire_below(tags) };
		m->size = size < room ? size : room;
		m->room = wire_below(2) ? m->size : room;
		if (m->room < m->size)
			m->room = m->size;
		m->in = slot_get(&w->in);
		m->out = slot_get(&w->out);
		m->pattern = (uint8_t)wire_below(256);
		memset(slot_at(&w->in, m->in), UNTOUCHED, SLOT_SIZE);
	}
}

/* Messages of a tag meet the receives of the tag in their order, whatever their sizes: the pattern
 * is that of the receive. */
static void fill_message(struct world *w, const struct world_message *m)
{
	pattern_fill(slot_at(&w->out, m->out), m->size, m->pattern);
}

void world_try_irecv(struct world *w)
{
	void *data[MPIB_GROUP_MAX], *mrs[MPIB_GROUP_MAX];
	size_t rooms[MPIB_GROUP_MAX];
	int tags[MPIB_GROUP_MAX];
	struct world_row *row;

	if (w->posted - w->received >= w->window || w->open == OPEN_MAX ||
	    w->in.tail - w->in.head < MPIB_GROUP_MAX || w->out.tail - w->out.head < MPIB_GROUP_MAX)
		return;
	if (w->posted == w->planned)
		plan_row(w);
	row = row_at(w, w->posted);
	for (int k = 0; k < row->n; k++) {
		struct world_message *m = &row->message[k];

		data[k] = slot_at(&w->in, m->in);
		mrs[k] = m->room == 0 && wire_below(2) ? NULL : w->in.mr;
		rooms[k] = m->room;
		tags[k] = m->tag;
	}
	row->request = (void *)1;
	if (good(w, mpib_irecv(w->p.recv, row->n, data, rooms, tags, mrs, &row->request)) &&
	    row->request) {
		w->posted++;
		w->open++;
	}
}

static void random_hint(struct world *w)
{
	static const uint32_t shares[] = { 0, 1, 511, 512, 1023, 1024, 5000 };
	struct mpib_comm *send = w->p.send;

	if (send->mode != MPIB_MODE_ADVANCED || wire_below(w->steady ? 1000 : 4))
		return;
	if (send->agent.unread) /* a rail is lost: nobody's share is followed */
		return;
	w->hint.sup_bw = wire_below(2) ? wire_below(1025) : shares[wire_below(7)];
	w->hint.seq = wire_below(8) == 0; /* odd: its writer has died */
	atomic_store(&send->agent.hint, wire_below(8) ? &w->hint : NULL);
}

/* Groups and cut messages keep to their part of the send queues. */
static void check_queues(const struct world *w)
{
	const struct mpib_comm *send = w->p.send;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		for (unsigned int k = 0; k < MPIB_QPS_MAX; k++)
			assert_true(send->send.chained[rail][k] <= MPIB_SQ_CHAINED);
}

/* A message of the row that isn't sent, and of those with its tag the first. */
static struct world_message *to_send(struct world_row *row)
{
	unsigned int n = (unsigned int)row->n, at = wire_below(n);
	int tag;

	while (row->message[at].state != WORLD_TO_SEND)
		at = (at + 1) % n;
	tag = row->message[at].tag;
	for (unsigned int k = 0; k < at; k++)
		if (row->message[k].state == WORLD_TO_SEND && row->message[k].tag == tag)
			return &row->message[k];
	return &row->message[at];
}

void world_try_isend(struct world *w)
{
	struct world_row *row = row_at(w, w->sent);
	struct world_message *m;

	if (w->sent == w->planned)
		return;
	m = to_send(row);
	random_hint(w);
	m->request = (void *)1;
	if (wire_below(16) == 0) {
		(void)good(w, mpib_isend(w->p.send, slot_at(&w->out, m->out), 1, 1234, w->out.mr,
					 &m->request));
		assert_null(m->request); /* no receive has this tag */
		return;
	}
	fill_message(w, m);
	if (!good(w, mpib_isend(w->p.send, slot_at(&w->out, m->out), m->size, m->tag,
				m->size == 0 && wire_below(2) ? NULL : w->out.mr, &m->request)))
		return;
	check_queues(w);
	if (!m->request) {
		memset(slot_at(&w->out, m->out), GIVEN_BACK, SLOT_SIZE);
		return;
	}
	assert_true(w->sent < w->posted);
	m->state = WORLD_SENT;
	w->bytes += m->size;
	for (int k = 0; k < row->n; k++)
		if (row->message[k].state == WORLD_TO_SEND)
			return;
	w->sent++;
}

void world_try_test_send(struct world *w)
{
	unsigned int at = w->received + wire_below(w->sent + 1 - w->received);
	int k, done = -1, size = -1;
	struct world_row *row;

	if (at == w->planned)
		return;
	row = row_at(w, at);
	k = (int)wire_below((unsigned int)row->n);
	if (row->message[k].state != WORLD_SENT)
		return;
	if (!good(w, mpib_test(row->message[k].request, &done, wire_below(2) ? &size : NULL)) ||
	    !done)
		return;
	assert_true(size == -1 || (size_t)size == row->message[k].size);
	row->message[k].state = WORLD_SENT_DONE;
	slot_put(&w->out, row->message[k].out);
}

static void check_row(const struct world *w, const struct world_row *row, const int *sizes)
{
	static uint8_t expected[SLOT_SIZE];

	for (int k = 0; k < row->n; k++) {
		const struct world_message *m = &row->message[k];
		const uint8_t *in = slot_at(&w->in, m->in);

		assert_true(m->state != WORLD_TO_SEND);
		if (sizes)
			assert_int_equal(sizes[k], m->size);
		pattern_fill(expected, m->size, m->pattern);
		assert_memory_equal(in, expected, m->size);
		assert_true(all_are(in + m->size, SLOT_SIZE - m->size, UNTOUCHED));
	}
}

static void give_back(struct world *w, struct world_row *row)
{
	row->request = row->flush = NULL;
	w->open--;
	for (int k = 0; k < row->n; k++)
		slot_put(&w->in, row->message[k].in);
	w->messages += (uint64_t)row->n;
}

static void try_flush(struct world *w, struct world_row *row)
{
	void *data[MPIB_GROUP_MAX], *mrs[MPIB_GROUP_MAX];
	int sizes[MPIB_GROUP_MAX];

	for (int k = 0; k < row->n; k++) {
		data[k] = slot_at(&w->in, row->message[k].in);
		mrs[k] = w->in.mr;
		sizes[k] = (int)row->message[k].size;
	}
	row->request = NULL;
	row->flush = (void *)1;
	if (good(w, mpib_iflush(w->p.recv, row->n, data, sizes, mrs, &row->flush)) && !row->flush)
		give_back(w, row);
}

static bool row_done(const struct world_row *row)
{
	for (int k = 0; k < row->n; k++)
		if (row->message[k].state != WORLD_SENT_DONE)
			return false;
	return !row->request && !row->flush;
}

void world_try_test_recv(struct world *w)
{
	unsigned int open = w->posted - w->received;
	int sizes[MPIB_GROUP_MAX + 1], done = 0;
	bool wanted = wire_below(4);
	struct world_row *row;

	if (!open)
		return;
	row = row_at(w, w->received + wire_below(open));
	memset(sizes, 0x77, sizeof(sizes));
	if (row->flush) {
		if (good(w, mpib_test(row->flush, &done, wanted ? sizes : NULL)) && done)
			give_back(w, row);
	} else if (row->request && good(w, mpib_test(row->request, &done, wanted ? sizes : NULL)) &&
		   done) {
		assert_int_equal(sizes[wanted ? row->n : 0], 0x77777777);
		check_row(w, row, wanted ? sizes : NULL);
		try_flush(w, row);
	}
	while (w->received != w->sent && row_done(row_at(w, w->received)))
		w->received++;
}

/* ---- its life ------------------------------------------------------------------------------- */

/* Where nearly 2^32 rows would have brought both ends. */
static void near_the_wrap(struct world *w)
{
	struct mpib_comm *send = w->p.send;
	struct mpib_comm *recv = w->p.recv;
	const uint32_t start = UINT32_MAX - wire_below(300);

	send->send.head = recv->recv.one_until = start;
	__atomic_store_n(&recv->recv.tail, start,
			 __ATOMIC_RELEASE); /* the helper thread reads it */
	recv->recv.cts_limit = start + MPIB_CTS_DEPTH;
	for (uint32_t row = start - MPIB_ROWS; row != start; row++)
		for (unsigned int k = 0; k < MPIB_GROUP_MAX; k++)
			send->send.cts[row % MPIB_ROWS].element[k].seq = row + 1;
}

void world_open(struct world *w, bool faulty)
{
	static const unsigned int windows[] = { 1, 2, 8, 32, 120, 300 };

	memset(w, 0, sizeof(*w));
	w->faulty = faulty;
	w->long_ones = wire_below(2);
	w->steady = wire_below(3) == 0;
	w->window = windows[wire_below(6)];
	w->max_group = 1 + wire_below(MPIB_GROUP_MAX);
	if (pair_open(&w->p, test_logger, (int)wire_below(2)) != ncclSuccess)
		fail_msg("no connection: %s", test_log_state.text);
	slots_make(&w->in, w->p.recv);
	slots_make(&w->out, w->p.send);
	if (wire_below(2))
		near_the_wrap(w);
}

void world_close(struct world *w)
{
	assert_int_equal(mpib_entry_dereg_mr(w->p.send, w->out.mr), ncclSuccess);
	assert_int_equal(mpib_entry_dereg_mr(w->p.recv, w->in.mr), ncclSuccess);
	pair_close(&w->p);
	free(w->in.memory);
	free(w->out.memory);
}

void world_check_ended(const struct world *w)
{
	const struct mpib_comm *send = w->p.send;
	const struct mpib_comm *recv = w->p.recv;
	uint64_t bytes = 0;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		bytes += send->counters->rail[rail].bytes;
		assert_int_equal(recv->counters->rail[rail].bytes,
				 send->counters->rail[rail].bytes);
		assert_int_equal(send->polled[rail], 0);
		assert_int_equal((uint32_t)(send->counters->rail[rail].requests -
					    send->counters->rail[rail].completions),
				 send->counters->chained[rail]);
		assert_int_equal(((struct mpib_comm *)w->p.recv)->recv.reserved[rail], 0);
		for (unsigned int k = 0; k < MPIB_QPS_MAX; k++)
			assert_int_equal(((struct mpib_comm *)w->p.send)->send.chained[rail][k], 0);
	}
	assert_int_equal(bytes, w->bytes);
	assert_int_equal(send->counters->messages, recv->counters->messages);
	assert_int_equal(send->error, 0);
	assert_int_equal(send->busy, 0);
	assert_int_equal(recv->error, 0);
}
