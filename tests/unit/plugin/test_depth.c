/* SPDX-License-Identifier: Apache-2.0 */
/* The queues hold the worst that can happen to them, and are no deeper than that. fake_verbs.c
 * aborts where a queue is posted to or completed into beyond its depth. */
#include "tests/unit/plugin/test.h"

#include <stdlib.h>

#include "plugin/connection/comm.h"
#include "plugin/setup/qp.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/pair.h"

#define PIECE	1024u
#define TAG	5
#define DEVICES 4

static struct pair p;
static void *sends[MPIB_REQUESTS_MAX], *recvs[MPIB_REQUESTS_MAX];

static struct mpib_comm *send_comm(void)
{
	return p.send;
}

static struct mpib_comm *recv_comm(void)
{
	return p.recv;
}

/* Vanilla within an island: all bytes are SUP's. */
static void open_pair(const char *qps)
{
	pair_env();
	(void)setenv("MPIB_MODE", "0", 1);
	(void)setenv("MPIB_SUP_QP", qps, 1);
	fake_set_max_msg(PIECE);
	test_log_clear();
	if (pair_open(&p, test_logger, 0) != ncclSuccess)
		fail_msg("no connection: %s", test_log_state.text);
	memset(sends, 0, sizeof(sends));
	memset(recvs, 0, sizeof(recvs));
}

static int finish(void **state)
{
	(void)state;
	pair_close(&p);
	(void)unsetenv("MPIB_SUP_QP");
	(void)unsetenv("MPIB_FLUSH");
	fake_set_max_msg(1u << 30);
	fake_reset_ports();
	return fake_live() == 0 ? 0 : -1;
}

static void *receive_one(size_t room)
{
	void *in = p.in, *request = NULL;
	int tag = TAG;

	assert_int_equal(mpib_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &request),
			 ncclSuccess);
	return request;
}

static void *send_one(size_t size)
{
	void *request = NULL;

	assert_int_equal(mpib_isend(p.send, p.out, size, TAG, p.send_mr, &request), ncclSuccess);
	return request;
}

static bool done(void *request)
{
	int is_done = 0;

	assert_int_equal(mpib_test(request, &is_done, NULL), ncclSuccess);
	return is_done;
}

static struct fake_qp_state qp_of(const struct mpib_comm *comm, unsigned int rail, unsigned int k)
{
	struct fake_qp_state state;

	assert_int_equal(fake_qp(comm->qp[rail][k]->qp_num, &state), 0);
	return state;
}

/* On each QP as much of cut messages as it takes, whose completions don't come. Returns how many
 * requests that took. */
static unsigned int fill_with_cut_messages(unsigned int qps)
{
	const struct mpib_comm *comm = send_comm();

	for (unsigned int k = 0; k < qps; k++)
		fake_hold(comm->qp[MPIB_SUP][k]->qp_num);
	for (unsigned int k = 0; k < qps; k++) {
		void *recv = receive_one(PAIR_BUFFER);

		assert_non_null(recv);
		sends[k] = send_one((MPIB_SQ_CHAINED - 1) * PIECE);
		assert_non_null(sends[k]);
		assert_true(done(recv));
		assert_false(done(sends[k]));
	}
	for (unsigned int k = 0; k < qps; k++)
		assert_int_equal(send_comm()->send.chained[MPIB_SUP][k], MPIB_SQ_CHAINED);
	return qps;
}

/* All other messages on one QP: those on the others are done, and their requests are used again. */
static void send_queue_holds_all(const char *qps)
{
	unsigned int n = (unsigned int)strtoul(qps, NULL, 10), cut, used = 0;
	const struct mpib_comm *comm;

	open_pair(qps);
	comm = send_comm();
	cut = fill_with_cut_messages(n);
	for (unsigned int k = 1; k < n; k++)
		fake_let_go(comm->qp[MPIB_SUP][k]->qp_num);
	for (unsigned int k = 0; k < cut; k++)
		if (!done(sends[k]))
			sends[used++] = sends[k];
	assert_int_equal(used, 1);
	for (void *recv;;) {
		void *request;

		recv = receive_one(PIECE);
		assert_non_null(recv);
		request = send_one(PIECE);
		if (!request)
			break;
		assert_true(done(recv));
		if (!done(request))
			sends[used++] = request;
	}
	assert_int_equal(used, MPIB_REQUESTS_MAX);
	/* The cut message, which is one of the requests, is in MPIB_SQ_CHAINED. */
	assert_int_equal(qp_of(comm, MPIB_SUP, 0).sq_most, MPIB_SQ_DEPTH - 1);
	assert_int_equal(qp_of(comm, MPIB_SUP, 0).cap.max_send_wr, MPIB_SQ_DEPTH + MPIB_MAIL_SLOTS);

	fake_let_go(comm->qp[MPIB_SUP][0]->qp_num);
	for (unsigned int k = 0; k < used; k++)
		assert_true(done(sends[k]));
	assert_int_equal(test_log_warnings(), 0);
}

static void test_send_queue_holds_all(void **state)
{
	(void)state;
	send_queue_holds_all("4");
}

static void test_send_queue_of_one_qp_holds_all(void **state)
{
	(void)state;
	send_queue_holds_all("1");
}

static void test_send_queue_of_many_qps_holds_all(void **state)
{
	(void)state;
	send_queue_holds_all("16");
}

/* All that a rail may have posted completes at once: its QPs fail. */
static void test_completions_of_a_sender(void **state)
{
	const unsigned int qps = 4;
	const struct mpib_comm *comm;
	unsigned int used;

	(void)state;
	open_pair("4");
	comm = send_comm();
	for (used = fill_with_cut_messages(qps); used < MPIB_REQUESTS_MAX; used++) {
		void *recv = receive_one(PIECE);

		assert_non_null(recv);
		sends[used] = send_one(PIECE);
		assert_non_null(sends[used]);
		assert_true(done(recv));
	}
	for (unsigned int k = 0; k < qps; k++)
		fake_fail_qp(comm->qp[MPIB_SUP][k]->qp_num);
	/* Each QP's cut message has one of the requests. */
	assert_int_equal(fake_cq_most(comm->cq[MPIB_SUP]),
			 MPIB_REQUESTS_MAX - qps + qps * MPIB_SQ_CHAINED);
	assert_int_equal(mpib_qps_cq_depth(comm, MPIB_SUP),
			 MPIB_REQUESTS_MAX + qps * MPIB_SQ_CHAINED + MPIB_MAIL_SLOTS);
}

/* Every row has its data, nobody asked for it, and the QP of the clear-to-sends fails. */
static void test_completions_of_a_receiver(void **state)
{
	const struct mpib_comm *comm;

	(void)state;
	(void)setenv("MPIB_FAILOVER", "0", 1); /* SOUT isn't in reserve */
	open_pair("4");
	comm = recv_comm();
	fake_hold(recv_comm()->recv.cts_qp->qp_num);
	for (unsigned int k = 0; k < MPIB_CTS_DEPTH; k++) {
		recvs[k] = receive_one(PIECE);
		assert_non_null(recvs[k]);
	}
	for (unsigned int k = 0; k < MPIB_CTS_DEPTH; k++) {
		sends[k] = send_one(PIECE);
		assert_non_null(sends[k]);
	}
	fake_fail_qp(recv_comm()->recv.cts_qp->qp_num);
	assert_int_equal(fake_cq_most(comm->cq[MPIB_SUP]), MPIB_CTS_DEPTH + MPIB_CTS_DEPTH);
	assert_int_equal(mpib_qps_cq_depth(comm, MPIB_SUP), MPIB_REQUESTS_MAX + MPIB_CTS_DEPTH);
	assert_int_equal(qp_of(comm, MPIB_SUP, 0).sq_most, MPIB_CTS_DEPTH);
}

/* A receive and a flush have a request of the same pool, so that they share the queue's room. */
static void test_flushes_take_the_room_of_receives(void **state)
{
	const struct mpib_comm *comm;
	int size = PIECE;
	unsigned int k;

	(void)state;
	for (unsigned int device = 0; device < DEVICES; device++)
		fake_set_dmabuf(device, 0);
	(void)setenv("MPIB_FLUSH", "1", 1);
	open_pair("4");
	comm = recv_comm();
	assert_non_null(recv_comm()->recv.flush_qp[MPIB_SUP]);
	assert_int_equal(pair_transfer(&p, PIECE, PIECE), ncclSuccess);
	fake_hold(recv_comm()->recv.cts_qp->qp_num);
	for (k = 0; k < MPIB_REQUESTS_MAX / 2; k++) {
		recvs[k] = receive_one(PIECE);
		assert_non_null(recvs[k]);
		sends[k] = send_one(PIECE);
		assert_non_null(sends[k]);
	}
	for (; k < MPIB_REQUESTS_MAX; k++) {
		void *in = p.in;

		assert_int_equal(mpib_iflush(p.recv, 1, &in, &size, &p.recv_mr, &recvs[k]),
				 ncclSuccess);
		assert_non_null(recvs[k]);
	}
	assert_null(receive_one(PIECE));
	fake_fail_qp(recv_comm()->recv.cts_qp->qp_num);
	assert_int_equal(fake_cq_most(comm->cq[MPIB_SUP]),
			 MPIB_REQUESTS_MAX + MPIB_REQUESTS_MAX / 2);
}

/* Without an answer to any clear-to-send a receiver stops posting, and goes on with the first. */
static void test_clear_to_sends_wait_for_room(void **state)
{
	void *recv;

	(void)state;
	open_pair("4");
	fake_hold(recv_comm()->recv.cts_qp->qp_num);
	for (unsigned int k = 0; k < MPIB_CTS_DEPTH; k++) {
		void *request;

		recv = receive_one(PIECE);
		assert_non_null(recv);
		request = send_one(PIECE);
		assert_non_null(request);
		assert_true(done(recv));
		assert_true(done(request));
	}
	assert_null(receive_one(PIECE));
	fake_let_go(recv_comm()->recv.cts_qp->qp_num);
	recv = receive_one(PIECE);
	assert_non_null(recv);
	assert_non_null(send_one(PIECE));
	assert_true(done(recv));
	assert_int_equal(test_log_warnings(), 0);
}

/* QPs that post nothing have next to no send queue, and one alone has inline data. */
static void test_idle_queues_are_small(void **state)
{
	const struct mpib_comm *comm;

	(void)state;
	(void)setenv("MPIB_FAILOVER", "0", 1); /* SOUT isn't in reserve */
	open_pair("4");
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		comm = recv_comm();
		for (unsigned int k = 0; k < comm->nqps[rail]; k++) {
			bool cts = rail == MPIB_SUP && k == 0;

			assert_int_equal(qp_of(comm, rail, k).cap.max_send_wr,
					 cts ? MPIB_CTS_DEPTH : 1);
			assert_int_equal(qp_of(comm, rail, k).cap.max_inline_data,
					 cts ? MPIB_INLINE_MAX : 0);
		}
		comm = send_comm();
		for (unsigned int k = 0; k < comm->nqps[rail]; k++) {
			assert_int_equal(qp_of(comm, rail, k).cap.max_send_wr,
					 rail == MPIB_SUP ? MPIB_SQ_DEPTH : 1);
			assert_int_equal(qp_of(comm, rail, k).cap.max_inline_data, 0);
		}
	}
	assert_int_equal(mpib_qps_cq_depth(send_comm(), MPIB_SOUT), 1);
	assert_int_equal(mpib_qps_cq_depth(recv_comm(), MPIB_SOUT), 1);
}

/* As many receives as the shared queue holds: the next ones wait, and a line says why. */
static void test_a_full_shared_queue_is_told(void **state)
{
	enum {
		CONNECTIONS = 34
	}; /* of 256 receives each, and the queue of fake_verbs.c holds 8192 */
	static struct pair pairs[CONNECTIONS];
	unsigned int posted = 0;

	(void)state;
	pair_env();
	(void)setenv("MPIB_MODE", "0", 1);
	test_log_clear();
	for (unsigned int c = 0; c < CONNECTIONS; c++)
		assert_int_equal(pair_open(&pairs[c], test_logger, 0), ncclSuccess);
	for (unsigned int c = 0; c < CONNECTIONS; c++) {
		for (;;) {
			void *in = pairs[c].in, *request = NULL;
			size_t room = PIECE;
			int tag = TAG;

			assert_int_equal(mpib_irecv(pairs[c].recv, 1, &in, &room, &tag,
						    &pairs[c].recv_mr, &request),
					 ncclSuccess);
			if (!request)
				break;
			posted++;
		}
	}
	assert_int_equal(posted, 8192);
	assert_int_equal(test_log_warnings(), 1);
	assert_non_null(strstr(test_log_state.text, "SUP rail sup:1: the shared receive queue is "
						    "full: outstanding receives of this process "
						    "hold all of its 8192 entries"));
	for (unsigned int c = 0; c < CONNECTIONS; c++)
		pair_close(&pairs[c]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_send_queue_holds_all, finish),
		cmocka_unit_test_teardown(test_send_queue_of_one_qp_holds_all, finish),
		cmocka_unit_test_teardown(test_send_queue_of_many_qps_holds_all, finish),
		cmocka_unit_test_teardown(test_completions_of_a_sender, finish),
		cmocka_unit_test_teardown(test_completions_of_a_receiver, finish),
		cmocka_unit_test_teardown(test_flushes_take_the_room_of_receives, finish),
		cmocka_unit_test_teardown(test_clear_to_sends_wait_for_room, finish),
		cmocka_unit_test_teardown(test_idle_queues_are_small, finish),
		cmocka_unit_test_teardown(test_a_full_shared_queue_is_told, finish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
