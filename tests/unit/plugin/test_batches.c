/* SPDX-License-Identifier: Apache-2.0 */
/* Completions in error polled together with good ones, in every order: each counts once, and none
 * behind a bad one is lost. A flush fails nothing while its cause is unknown; anything else fails
 * the connection, and still took what it took. */
#include "tests/unit/plugin/test.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "plugin/data/progress.h"
#include "plugin/data/send.h"
#include "plugin/data/times.h"
#include "plugin/data/wr_id.h"
#include "plugin/verbs/srq.h"
#include "plugin/wire/imm.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/pair.h"

#define BATCH  16
#define BYTES  256
#define ROUNDS 400 /* of random batches, on each rail */

static struct pair p;
static uint32_t seed = 1;

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

static int start(void **state)
{
	(void)state;
	pair_env();
	(void)setenv("MPIB_FAILOVER", "0", 1); /* one that fails is no lost rail */
	(void)setenv("MPIB_MODE", "1", 1);     /* both rails */
	(void)setenv("MPIB_AGENT_OPTIONAL", "1", 1);
	(void)setenv("MPIB_AGENT_DIR", "/nonexistent/mpib", 1);
	(void)setenv("MPIB_GPUDIRECT", "1", 1);
	if (pair_open(&p, test_logger, 0) != ncclSuccess)
		return -1;
	test_log_clear(); /* no agent */
	return 0;
}

static int finish(void **state)
{
	(void)state;
	pair_close(&p);
	(void)unsetenv("MPIB_GPUDIRECT");
	(void)unsetenv("MPIB_FAILOVER");
	return fake_live() == 0 ? 0 : -1;
}

static struct {
	const struct ibv_wc *wc;
	unsigned int n;
	int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
} given;

static int poll_given(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	unsigned int count = given.n;

	if (!count)
		return given.poll_cq(cq, n, wc);
	assert_true((int)count <= n);
	memcpy(wc, given.wc, count * sizeof(*wc));
	given.n = 0;
	return (int)count;
}

/* One poll of the rail gives these. */
static int deliver(struct mpib_comm *comm, unsigned int rail, const struct ibv_wc *wc,
		   unsigned int n)
{
	struct ibv_context_ops *ops = &comm->dev->hca[rail].ctx->ops;
	int r;

	given.wc = wc;
	given.n = n;
	given.poll_cq = ops->poll_cq;
	ops->poll_cq = poll_given;
	r = mpib_poll_rail(comm, rail);
	ops->poll_cq = given.poll_cq;
	return r;
}

/* As if the flush had not been. */
static void forgive(struct mpib_comm *comm)
{
	atomic_store(&comm->flags, 0);
	comm->gone_since_ms = 0;
}

/* ---- the sender ------------------------------------------------------------------------------ */

/* What completion @k of a batch is: of a message alone, or of a row of one. */
static uint64_t chain_bits(unsigned int k)
{
	switch (k % 4) {
	case 1:
		return MPIB_WR_CHAIN; /* more of the row is to come */
	case 2:
		return MPIB_WR_CHAIN | MPIB_WR_FINAL;
	default:
		return 0;
	}
}

/* @bad: which of the @n don't succeed. */
static void send_batch(unsigned int rail, unsigned int n, uint32_t bad)
{
	struct mpib_comm *comm = p.send;
	struct mpib_request *req[BATCH];
	struct ibv_wc wc[BATCH];
	uint32_t used = comm->send.chained[rail][0], polled = comm->polled[rail];

	memset(wc, 0, sizeof(wc));
	for (unsigned int k = 0; k < n; k++) {
		req[k] = mpib_request_get(&comm->pool);
		assert_non_null(req[k]);
		req[k]->remaining = mpib_rail_bit(rail);
		wc[k].wr_id = req[k]->index;
		wc[k].qp_num = comm->qp[rail][k % comm->nqps[rail]]->qp_num;
		wc[k].status = bad >> k & 1 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS;
		comm->polled[rail]++;
		if (chain_bits(k)) {
			wc[k].wr_id |= 5u << 16 | chain_bits(k);
			req[k]->rails = (uint8_t)mpib_rail_bit(rail);
			req[k]->mate = NULL;
			comm->send.chained[rail][0] += 5;
			used += bad >> k & 1 ? 5 : 0; /* the queue of a QP that failed stays full */
		}
	}
	assert_int_equal(deliver(p.send, rail, wc, n), 0);
	assert_int_equal(comm->polled[rail], polled);
	assert_int_equal(comm->send.chained[rail][0], used);
	for (unsigned int k = 0; k < n; k++) {
		bool left = bad >> k & 1 || chain_bits(k) == MPIB_WR_CHAIN;

		if (left != (req[k]->remaining != 0))
			fail_msg("%u completions, bad ones 0x%x: number %u has %u left", n, bad, k,
				 req[k]->remaining);
		req[k]->remaining = 0;
		mpib_request_put(&comm->pool, req[k]);
	}
	comm->send.chained[rail][0] = 0;
	forgive(comm);
}

static void test_a_sender_loses_none(void **state)
{
	(void)state;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		for (unsigned int n = 1; n <= 8; n++)
			for (uint32_t bad = 0; bad < 1u << n; bad++)
				send_batch(rail, n, bad);
		for (unsigned int k = 0; k < ROUNDS; k++)
			send_batch(rail, 1 + draw(BATCH), draw(1u << BATCH));
	}
	assert_int_equal(test_log_warnings(), 0);
}

/* Whatever is in a batch, its time is told once, and the span ends where nothing is under way. */
static void test_busy_times_are_told_once_a_batch(void **state)
{
	struct mpib_comm *comm = p.send;
	struct mpib_counter_entry *counters = comm->counters;

	(void)state;
	mpib_watch_lock();
	mpib_ticks_init();
	mpib_watch_unlock();
	for (unsigned int k = 0; k < 4; k++) {
		const unsigned int rail = k % 2, n = 1 + draw(BATCH);
		const bool last = k / 2;
		uint64_t start = mpib_ticks();

		comm->polled[rail] += !last;
		comm->busy |= MPIB_BUSY_TIMED;
		counters->busy[rail] = 2 * (1000 - start) + 1;
		counters->latest[rail] = start;
		send_batch(rail, n, draw(1u << n));
		assert_int_equal(counters->busy[rail] & 1, !last);
		assert_int_equal(!!(comm->busy & MPIB_BUSY_IDLE), last);
		assert_in_range(mpib_counter_busy(counters->busy[rail], counters->latest[rail]),
				1001, 1000 + mpib_ticks() - start);
		comm->busy &= (uint8_t) ~(MPIB_BUSY_TIMED | MPIB_BUSY_IDLE);
		comm->polled[rail] -= !last;
	}
}

/* ---- the receiver ---------------------------------------------------------------------------- */

enum kind { ROW, GROUP, FLUSH, CTS, KINDS };

struct posted {
	struct mpib_request *req; /* NULL: CTS */
	enum kind kind;
	unsigned int slot;
};

/* Receives in the rail's queue, reserved or spare: each completion of one takes one. */
static int receives(const struct mpib_comm *comm, unsigned int rail)
{
	return (int)comm->recv.reserved[rail] + atomic_load(&comm->dev->hca[rail].srq_credits);
}

static void post(struct posted *posted, unsigned int rail)
{
	struct mpib_comm *comm = p.recv;
	void *data[2] = { p.in, p.in + BYTES };
	size_t sizes[2] = { BYTES, BYTES };
	void *mrs[2] = { p.recv_mr, p.recv_mr };
	int tags[2] = { 1, 2 }, n = posted->kind == GROUP ? 2 : 1;
	void *request = NULL;

	if (posted->kind == CTS)
		return;
	if (posted->kind == FLUSH) {
		posted->req = mpib_request_get(&comm->pool);
		assert_non_null(posted->req);
		posted->req->remaining = mpib_rail_bit(rail) * MPIB_REMAINING_ONE;
		return;
	}
	posted->slot = comm->recv.tail % MPIB_ROWS;
	while (!request)
		assert_int_equal(mpib_irecv(p.recv, n, data, sizes, tags, mrs, &request),
				 ncclSuccess);
	posted->req = request;
}

static struct ibv_wc completion(const struct posted *posted, unsigned int rail)
{
	struct mpib_comm *comm = p.recv;
	uint64_t *record = &comm->recv.records[posted->slot * MPIB_RECORD_NUMBERS];
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS, .qp_num = 1 };
	bool group = posted->kind == GROUP;

	switch (posted->kind) {
	case CTS:
		wc.opcode = IBV_WC_RDMA_WRITE;
		wc.wr_id = comm->recv.cts_limit - 1 - MPIB_CTS_DEPTH;
		break;
	case FLUSH:
		wc.opcode = IBV_WC_RDMA_READ;
		wc.wr_id = posted->req->index;
		break;
	default:
		record[0] = rail == MPIB_SUP ? 2 * BYTES : 0;
		record[1] = record[2] = BYTES;
		wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
		wc.wr_id = MPIB_WR_RECV;
		wc.byte_len = group ? 0 : BYTES;
		wc.imm_data = htonl(
			mpib_imm_encode(posted->slot, mpib_rail_bit(rail),
					group ? MPIB_IMM_SIZE_RECORD : mpib_imm_size_q(BYTES)));
	}
	return wc;
}

/* Of @n completions those in @bad have @status. */
static void recv_batch(unsigned int rail, unsigned int n, uint32_t bad, enum ibv_wc_status status)
{
	struct mpib_comm *comm = p.recv;
	bool fatal = bad && status != IBV_WC_WR_FLUSH_ERR, failed = false;
	struct posted posted[BATCH] = { 0 };
	struct ibv_wc wc[BATCH];
	int took = 0, before, r;

	for (unsigned int k = 0; k < n; k++) {
		posted[k].kind = draw(KINDS);
		post(&posted[k], rail);
	}
	assert_int_equal(mpib_poll_rail(p.recv, comm->recv.cts_rail), 0); /* their clear-to-sends */
	for (unsigned int k = 0; k < n; k++) {
		wc[k] = completion(&posted[k], rail);
		if (bad >> k & 1)
			wc[k].status = status;
		took += wc[k].wr_id == MPIB_WR_RECV;
	}
	before = receives(comm, rail);
	r = deliver(p.recv, rail, wc, n);
	if (fatal ? r >= 0 : r != 0)
		fail_msg("%u completions, bad ones 0x%x: %d", n, bad, r);
	if (receives(comm, rail) != before - took)
		fail_msg("%u completions, bad ones 0x%x: %d receives taken, not %d", n, bad,
			 before - receives(comm, rail), took);
	for (unsigned int k = 0; k < n; k++) {
		failed |= fatal && bad >> k & 1;
		if (posted[k].req && !posted[k].req->remaining != !(failed || bad >> k & 1))
			fail_msg("%u completions, bad ones 0x%x: number %u has %u left", n, bad, k,
				 posted[k].req->remaining);
	}
	forgive(comm);
	/* The rows that are left complete on what remains. */
	for (unsigned int k = 0; k < n && !fatal; k++) {
		if (posted[k].req && posted[k].req->remaining) {
			wc[0] = completion(&posted[k], rail);
			comm->recv.reserved[rail] +=
				wc[0].wr_id == MPIB_WR_RECV && !comm->recv.reserved[rail];
			assert_int_equal(deliver(p.recv, rail, wc, 1), 0);
		}
		if (posted[k].req) {
			assert_int_equal(posted[k].req->remaining, 0);
			mpib_request_put(&comm->pool, posted[k].req);
		}
	}
}

static void test_a_receiver_counts_each_once(void **state)
{
	(void)state;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		for (unsigned int n = 1; n <= BATCH; n++)
			for (unsigned int k = 0; k < ROUNDS / BATCH; k++)
				recv_batch(rail, n, draw(1u << n), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(test_log_warnings(), 0);
}

/* One that says why, anywhere in a batch: what is behind it is not looked at, but took receives. */
static void test_a_failure_keeps_the_receives(void **state)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		for (unsigned int at = 0; at < BATCH; at++) {
			recv_batch(rail, BATCH, 1u << at, IBV_WC_REM_OP_ERR);
			assert_int_equal(test_log_warnings(), 1);
			assert_int_equal(finish(state), 0);
			assert_int_equal(start(state), 0);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_sender_loses_none, start, finish),
		cmocka_unit_test_setup_teardown(test_busy_times_are_told_once_a_batch, start,
						finish),
		cmocka_unit_test_setup_teardown(test_a_receiver_counts_each_once, start, finish),
		cmocka_unit_test_setup_teardown(test_a_failure_keeps_the_receives, start, finish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
