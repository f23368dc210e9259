/* SPDX-License-Identifier: Apache-2.0 */
/* A rail goes down and comes back: the queues hold what comes then, the shared queue has as many
 * receives as it is said to have, and a flush waits for all that it has to. fake_verbs.c aborts
 * where a queue is posted to or completed into beyond its depth. */
#include "tests/unit/plugin/test.h"

#include <errno.h>

#include "plugin/connection/rails.h"
#include "plugin/data/rail_loss.h"
#include "plugin/wire/imm.h"
#include "tests/unit/plugin/fake_impl.h"
#include "tests/unit/plugin/one_pair.h"

#define LOOKS 5000 /* milliseconds */
#define TAG   5
#define SIZE  1024u

static struct mpib_hint_entry half = { .sup_bw = 512 };

static void open_two_rails(void)
{
	(void)setenv("MPIB_MODE", "1", 1);
	open_pair(0);
	atomic_store(&send_base()->agent.hint, &half);
}

/* The agent's part is over: its shares are not those of the test. */
static int finish(void **state)
{
	const struct mpib_comm *comm = p.send;

	/* What an agent takes for posts under way is what is. */
	for (unsigned int rail = 0; comm && !comm->error && rail < MPIB_RAIL_MAX; rail++)
		if ((uint32_t)(comm->counters->rail[rail].requests -
			       comm->counters->rail[rail].completions) -
			    comm->counters->chained[rail] !=
		    comm->polled[rail])
			return -1;
	if (p.send)
		atomic_store(&send_base()->agent.hint, NULL);
	return one_pair_finish(state);
}

static uint8_t state_of(const struct mpib_comm *comm, unsigned int rail)
{
	uint8_t state;

	mpib_watch_lock();
	state = comm->rails->rail[rail].end.state;
	mpib_watch_unlock();
	return state;
}

static bool done(void *request)
{
	int is_done = 0;

	assert_int_equal(mpib_test(request, &is_done, NULL), ncclSuccess);
	return is_done;
}

static void *receive_one(void)
{
	void *in = p.in, *request = NULL;
	size_t room = SIZE;
	int tag = TAG;

	assert_int_equal(mpib_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &request),
			 ncclSuccess);
	return request;
}

static void *send_one(void)
{
	void *request = NULL;

	assert_int_equal(mpib_isend(p.send, p.out, SIZE, TAG, p.send_mr, &request), ncclSuccess);
	return request;
}

/* Both ends, as their progress threads would, until @comm has the rail in @want. */
static void await_state(const struct mpib_comm *comm, unsigned int rail, uint8_t want)
{
	for (unsigned int k = 0; k < LOOKS && state_of(comm, rail) != want; k++) {
		if (atomic_load(&send_base()->flags))
			assert_int_equal(mpib_rails_step(p.send), 0);
		if (atomic_load(&recv_base()->flags))
			assert_int_equal(mpib_rails_step(p.recv), 0);
		(void)poll(NULL, 0, 1);
	}
	assert_int_equal(state_of(comm, rail), want);
}

/* ---- queues ---------------------------------------------------------------------------------- */

/* The worst that a receiver's queue can meet: all rows are open, it has settled the loss and
 * written all of their clear-to-sends again, and isn't called any more; the sender, which has not
 * been called since, divides every message, and sends the lost parts again on the rail that is
 * left. */
static void one_rail_takes_all(unsigned int lost)
{
	static void *sends[MPIB_REQUESTS_MAX], *recvs[MPIB_REQUESTS_MAX];
	struct mpib_comm *comm;
	unsigned int cts;

	open_two_rails();
	comm = recv_base();
	cts = comm->recv.cts_rail == lost ? MPIB_ROWS : 0;
	for (unsigned int k = 0; k < MPIB_REQUESTS_MAX; k++)
		assert_non_null(recvs[k] = receive_one());
	fake_event(lost, IBV_EVENT_PORT_ERR);
	for (unsigned int k = 0; k < LOOKS && state_of(comm, lost) != MPIB_RAIL_LOST; k++) {
		assert_int_equal(mpib_rails_step(comm), 0);
		(void)poll(NULL, 0, 1);
	}
	for (unsigned int k = 0; k < MPIB_REQUESTS_MAX; k++)
		assert_non_null(sends[k] = send_one());
	for (unsigned int k = 0; k < MPIB_REQUESTS_MAX; k++)
		for (unsigned int looks = 0; looks < LOOKS && !done(sends[k]); looks++)
			(void)poll(NULL, 0, 1);
	assert_true(fake_cq_most(comm->cq[!lost]) >= 2 * MPIB_REQUESTS_MAX + cts);
	for (unsigned int k = 0; k < MPIB_REQUESTS_MAX; k++)
		assert_true(done(recvs[k]));
	assert_memory_equal(p.in, p.out, SIZE);
}

static void test_sout_takes_all(void **state)
{
	(void)state;
	one_rail_takes_all(SUP);
}

static void test_sup_takes_all(void **state)
{
	(void)state;
	one_rail_takes_all(SOUT);
}

/* An immediate that a device tells of after the receiver has said what has arrived took a receive
 * all the same: the shared queue of the process has one less. */
static void test_late_completion_took_a_receive(void **state)
{
	const struct mpib_hca *hca;
	const struct fake_srq *srq;
	struct mpib_comm *comm;
	void *recv, *send;
	uint32_t qpn;

	(void)state;
	open_two_rails();
	comm = recv_base();
	hca = comm->recv.hca[MPIB_SUP];
	srq = (const struct fake_srq *)hca->srq;
	qpn = comm->qp[MPIB_SUP][0]->qp_num;
	recv = receive_one();
	fake_event(SUP, IBV_EVENT_PORT_ERR);
	await_state(p.recv, MPIB_SUP, MPIB_RAIL_LOST);
	await_state(p.send, MPIB_SUP, MPIB_RAIL_LOST);
	assert_int_equal(fake_immediate(qpn, mpib_imm_encode(0, MPIB_RAILS_ALL, 4), SIZE / 2), 0);
	fake_event(SUP, IBV_EVENT_PORT_ACTIVE);
	await_state(p.recv, MPIB_SUP, MPIB_RAIL_UP);
	await_state(p.send, MPIB_SUP, MPIB_RAIL_UP);
	assert_int_equal((int)comm->recv.reserved[MPIB_SUP] + atomic_load(&hca->srq_credits),
			 srq->posted);
	send = send_one();
	assert_true(done(recv));
	assert_true(done(send));
	assert_memory_equal(p.in, p.out, SIZE);
}

/* ---- ends that nobody calls, and memory -------------------------------------------------------
 */

static bool usable(const struct mpib_comm *comm, unsigned int rail)
{
	bool ret;

	mpib_watch_lock();
	ret = mpib_rail_usable(comm, rail);
	mpib_watch_unlock();
	return ret;
}

/* Nobody calls either end while the rail is lost and back again: the helper threads have said all
 * that there is to say, and the first message goes through. */
static void test_idle_ends(void **state)
{
	(void)state;
	for (unsigned int k = 0; k < 2; k++) {
		open_two_rails();
		assert_int_equal(pair_transfer(&p, SIZE, SIZE), ncclSuccess);
		fake_event(k ? SUP : SOUT, IBV_EVENT_PORT_ERR);
		for (unsigned int looks = 0; looks < LOOKS; looks++) {
			if (state_of(p.send, k) == MPIB_RAIL_SAID &&
			    state_of(p.recv, k) == MPIB_RAIL_SAID)
				break;
			(void)poll(NULL, 0, 1);
		}
		assert_int_equal(state_of(p.send, k), MPIB_RAIL_SAID);
		assert_int_equal(state_of(p.recv, k), MPIB_RAIL_SAID);
		fake_event(k ? SUP : SOUT, IBV_EVENT_PORT_ACTIVE);
		assert_int_equal(pair_transfer(&p, SIZE, SIZE), ncclSuccess);
		await_state(p.recv, k, MPIB_RAIL_UP);
		await_state(p.send, k, MPIB_RAIL_UP);
		assert_true(usable(p.send, k) && usable(p.recv, k));
		assert_int_equal(pair_transfer(&p, SIZE, SIZE), ncclSuccess);
		assert_int_equal(finish(state), 0);
	}
}

/* Memory that is registered while a rail is lost serves both when it is back. */
static void test_memory_of_that_time(void **state)
{
	struct mpib_comm *recv;
	uint64_t before;

	(void)state;
	open_two_rails();
	recv = recv_base();
	fake_event(SUP, IBV_EVENT_PORT_ERR);
	await_state(p.recv, MPIB_SUP, MPIB_RAIL_LOST);
	await_state(p.send, MPIB_SUP, MPIB_RAIL_LOST);
	assert_int_equal(mpib_entry_dereg_mr(p.send, p.send_mr), ncclSuccess);
	assert_int_equal(mpib_entry_dereg_mr(p.recv, p.recv_mr), ncclSuccess);
	p.send_mr = p.recv_mr = NULL;
	assert_int_equal(mpib_entry_reg_mr(p.send, p.out, PAIR_BUFFER, NCCL_PTR_HOST, &p.send_mr),
			 ncclSuccess);
	assert_int_equal(mpib_entry_reg_mr(p.recv, p.in, PAIR_BUFFER, NCCL_PTR_HOST, &p.recv_mr),
			 ncclSuccess);
	assert_int_equal(pair_transfer(&p, SIZE, SIZE), ncclSuccess);
	fake_event(SUP, IBV_EVENT_PORT_ACTIVE);
	await_state(p.recv, MPIB_SUP, MPIB_RAIL_UP);
	await_state(p.send, MPIB_SUP, MPIB_RAIL_UP);
	atomic_store(&send_base()->agent.hint, &half);
	before = recv->counters->rail[MPIB_SUP].bytes;
	assert_int_equal(pair_transfer(&p, SIZE, SIZE), ncclSuccess);
	assert_int_equal(recv->counters->rail[MPIB_SUP].bytes - before, SIZE / 2);
}

/* The ends close at each step of the way back. */
static void test_close_on_the_way_back(void **state)
{
	for (unsigned int steps = 0; steps < 12; steps++) {
		struct mpib_comm *recv;

		open_two_rails();
		recv = recv_base();
		fake_event(SUP, IBV_EVENT_PORT_ERR);
		await_state(p.recv, MPIB_SUP, MPIB_RAIL_LOST);
		await_state(p.send, MPIB_SUP, MPIB_RAIL_LOST);
		fake_event(SUP, IBV_EVENT_PORT_ACTIVE);
		for (unsigned int k = 0; k < steps; k++) {
			(void)poll(NULL, 0, 1);
			assert_int_equal(mpib_rails_step(k % 2 ? p.recv : p.send), 0);
		}
		if (steps % 3 == 0)
			assert_non_null(receive_one());
		if (steps == 11) /* enough for all of it */
			assert_int_equal(recv->rails->rail[MPIB_SUP].end.epoch, 1);
		assert_int_equal(finish(state), 0);
	}
}

/* ---- flushes --------------------------------------------------------------------------------- */

/* A read that can't be posted says that its rail is lost. What the other one has brought is waited
 * for. */
static void flush_meets_loss(unsigned int lost)
{
	void *in, *request = NULL;
	unsigned int reads;
	int size = SIZE;

	(void)setenv("MPIB_GPUDIRECT", "1", 1);
	open_two_rails();
	in = p.in;
	assert_int_equal(pair_transfer(&p, SIZE, SIZE), ncclSuccess);
	assert_int_equal(recv_base()->recv.carried, MPIB_RAILS_ALL);
	reads = fake_reads(!lost);
	fake_fail(FAKE_POST_SEND, lost, EIO);
	assert_int_equal(mpib_iflush(p.recv, 1, &in, &size, &p.recv_mr, &request), ncclSuccess);
	assert_int_equal(fake_failed(), 1);
	assert_int_equal(fake_reads(!lost) - reads, 1);
	assert_non_null(request);
	for (unsigned int k = 0; k < LOOKS && !done(request); k++)
		(void)poll(NULL, 0, 1);
	assert_ptr_equal(recv_base()->pool.free, request);
	assert_int_equal(pair_transfer(&p, SIZE, SIZE), ncclSuccess);
}

static void test_flush_meets_loss_of_sout(void **state)
{
	(void)state;
	flush_meets_loss(SOUT);
}

static void test_flush_meets_loss_of_sup(void **state)
{
	(void)state;
	flush_meets_loss(SUP);
}

/* What rxe says of a request on a port that is down. On one that is up it tells of a mistake, and
 * ends the connection. */
static void local_error(bool down, bool event)
{
	void *recv, *send;
	ncclResult_t r = ncclSuccess;
	int got = 0;

	open_two_rails();
	recv = receive_one();
	if (down)
		fake_set_port_down(SUP, true);
	if (event)
		fake_event(SUP, IBV_EVENT_PORT_ERR);
	fake_bad_completion(SUP, IBV_WC_LOC_QP_OP_ERR);
	send = send_one();
	for (unsigned int k = 0; k < LOOKS && r == ncclSuccess && !got; k++) {
		int sent = 0;

		if (send)
			r = mpib_test(send, &sent, NULL);
		send = sent ? NULL : send;
		if (r == ncclSuccess)
			r = mpib_test(recv, &got, NULL);
		(void)poll(NULL, 0, 1);
	}
	fake_set_port_down(SUP, false);
	assert_int_equal(r, down ? ncclSuccess : ncclRemoteError);
	assert_int_equal(got, down);
	if (down)
		assert_memory_equal(p.in, p.out, SIZE);
}

static void test_local_error_on_a_port_that_is_down(void **state)
{
	for (unsigned int event = 0; event < 2; event++) {
		local_error(true, event);
		assert_int_equal(finish(state), 0);
	}
}

static void test_local_error_on_a_port_that_is_up(void **state)
{
	(void)state;
	local_error(false, false);
}

/* A post is refused in the middle of a message of many requests, on a queue pair that goes on to
 * take the others: the receiver must not take it for whole. */
static void test_refused_in_the_middle(void **state)
{
	for (unsigned int nth = 0; nth < 12; nth++) {
		fake_set_max_msg(256);
		open_two_rails();
		assert_int_equal(pair_transfer(&p, SIZE, SIZE), ncclSuccess);
		fake_fail(FAKE_POST_SEND, nth, ENOMEM);
		assert_int_equal(pair_transfer(&p, 8 * SIZE, PAIR_BUFFER), ncclSuccess);
		fake_fail(FAKE_POST_SEND, 0, 0);
		assert_int_equal(finish(state), 0);
	}
	fake_set_max_msg(1u << 30);
}

#define LOSS(test) cmocka_unit_test_setup_teardown(test, one_pair_clean, finish)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOSS(test_sout_takes_all),
		LOSS(test_sup_takes_all),
		LOSS(test_late_completion_took_a_receive),
		LOSS(test_idle_ends),
		LOSS(test_memory_of_that_time),
		LOSS(test_close_on_the_way_back),
		LOSS(test_flush_meets_loss_of_sout),
		LOSS(test_flush_meets_loss_of_sup),
		LOSS(test_local_error_on_a_port_that_is_down),
		LOSS(test_local_error_on_a_port_that_is_up),
		LOSS(test_refused_in_the_middle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
