/* SPDX-License-Identifier: Apache-2.0 */
/* The data path between two ends in one process: which rail gets work, exact sizes, wraps of the
 * counters. */
#include "tests/unit/plugin/test.h"

#include <errno.h>

#include "plugin/base/result.h"
#include "plugin/data/progress.h"
#include "tests/unit/plugin/moved_pair.h"

static const size_t sizes[] = { 0, 1, 127, 128, 129, 255, 256, 4095, 4096, 4097, 65535 };

/* Vanilla inside the island: nothing at all on SOUT. */
static void test_intra_is_sup(void **state)
{
	(void)state;
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
		assert_int_equal(pair_transfer(&p, sizes[k], PAIR_BUFFER), ncclSuccess);
	assert_int_equal(send_comm()->counters->rail[MPIB_SOUT].requests, 0);
	assert_int_equal(recv_comm()->counters->rail[MPIB_SOUT].cts, 0);
	assert_int_equal(recv_comm()->counters->rail[MPIB_SUP].cts,
			 sizeof(sizes) / sizeof(sizes[0]));
}

/* Vanilla between islands: SUP has no queue pairs, and the peer knows of none. */
static void test_inter_is_sout(void **state)
{
	(void)state;
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
		assert_int_equal(pair_transfer(&p, sizes[k], PAIR_BUFFER), ncclSuccess);
	assert_int_equal(send_comm()->nqps[MPIB_SUP], 0);
	assert_null(send_comm()->qp[MPIB_SUP][0]);
	assert_null(send_comm()->cq[MPIB_SUP]);
	assert_int_equal(send_comm()->counters->rail[MPIB_SUP].requests, 0);
	assert_int_equal(recv_comm()->nqps[MPIB_SUP], 0);
}

/* C04: every size at every share, one request a rail with bytes and none on an idle one. */
static void test_shares(void **state)
{
	static const uint32_t shares[] = { 0, 1, 256, 511, 512, 768, 1023, 1024, 4000 };
	struct mpib_hint_entry entry = { 0 };
	struct mpib_comm *send = send_comm();

	(void)state;
	assert_false(send->agent.unread);
	for (size_t s = 0; s < sizeof(shares) / sizeof(shares[0]); s++) {
		entry.sup_bw = shares[s];
		atomic_store(&send->agent.hint, &entry);
		for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
			uint64_t sout = send->counters->rail[MPIB_SOUT].requests;
			uint64_t sup = send->counters->rail[MPIB_SUP].requests;
			uint64_t sup_bytes = send->counters->rail[MPIB_SUP].bytes;
			size_t part = shares[s] >= 1024 ? sizes[k]
							: (sizes[k] * shares[s] >> 10) & ~127ul;
			bool on_sup = part || (sizes[k] == 0 && shares[s] >= 1024);
			bool on_sout = sizes[k] > part || (sizes[k] == 0 && shares[s] < 1024);

			assert_int_equal(pair_transfer(&p, sizes[k], PAIR_BUFFER), ncclSuccess);
			assert_int_equal(send->counters->rail[MPIB_SOUT].requests - sout, on_sout);
			assert_int_equal(send->counters->rail[MPIB_SUP].requests - sup, on_sup);
			assert_int_equal(send->counters->rail[MPIB_SUP].bytes - sup_bytes, part);
		}
	}
	atomic_store(&send->agent.hint, NULL);
}

/* Below MPIB_SPLIT_MIN a message goes whole to the rail with the larger part; isolation stays. */
static void test_short_messages_are_not_divided(void **state)
{
	static const struct {
		uint32_t share, at_least, below; /* SUP's bytes of 4096, of 4095 */
	} cases[] = {
		{ 0, 0, 0 },	     { 256, 1024, 0 },	   { 511, 1920, 0 },
		{ 512, 2048, 4095 }, { 1023, 3968, 4095 }, { 1024, 4096, 4095 },
	};
	struct mpib_hint_entry entry = { 0 };
	struct mpib_comm *send = send_comm();
	const uint64_t *sup = &send->counters->rail[MPIB_SUP].bytes;

	(void)state;
	assert_int_equal(send->send.split_min, 0); /* as the tests' environment says */
	send->send.split_min = 4096;
	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		uint64_t before = *sup;

		entry.sup_bw = cases[k].share;
		atomic_store(&send->agent.hint, &entry);
		assert_int_equal(pair_transfer(&p, 4096, PAIR_BUFFER), ncclSuccess);
		assert_int_equal(*sup - before, cases[k].at_least);
		before = *sup;
		assert_int_equal(pair_transfer(&p, 4095, PAIR_BUFFER), ncclSuccess);
		assert_int_equal(*sup - before, cases[k].below);
		assert_int_equal(send->counters->share, cases[k].share);
	}
	atomic_store(&send->agent.hint, NULL);
}

static unsigned int most_on(const struct mpib_comm *send, unsigned int k)
{
	struct fake_qp_state state;

	assert_int_equal(fake_qp(send->qp[MPIB_SUP][k]->qp_num, &state), 0);
	return state.sq_most;
}

static void test_messages_take_the_qps_in_turn(void **state)
{
	struct mpib_comm *send = send_comm();
	const unsigned int qps = send->nqps[MPIB_SUP];

	(void)state;
	assert_true(qps > 1);
	for (unsigned int k = 0; k < qps; k++) {
		assert_int_equal(most_on(send, k), 0);
		assert_int_equal(pair_transfer(&p, k + 1, PAIR_BUFFER), ncclSuccess);
		assert_true(most_on(send, k) > 0);
	}
	for (unsigned int k = 0; k < 3 * qps; k++) {
		const struct ibv_qp *now = send->send.at[MPIB_SUP]->qp;

		assert_int_equal(pair_transfer(&p, k + 1, PAIR_BUFFER), ncclSuccess);
		assert_ptr_not_equal(send->send.at[MPIB_SUP]->qp, now);
	}
	assert_ptr_equal(send->send.at[MPIB_SUP]->qp, send->qp[MPIB_SUP][0]);
}

/* C10: the wraps of the 8- and 16-bit fields, over 70 000 one-byte messages. */
static void test_70000_messages(void **state)
{
	(void)state;
	for (unsigned int n = 0; n < 70000; n++)
		if (pair_transfer(&p, 1, 1) != ncclSuccess)
			fail_msg("message %u: %s", n, test_log_state.text);
	assert_int_equal(send_comm()->counters->messages, 70000);
	assert_int_equal(recv_comm()->counters->messages, 70000);
}

/* C10: the 32-bit row counter. Both ends are put where 2^32 - 40 messages would have brought them:
 * every row of the ring was used before. */
static void test_row_counter_wraps(void **state)
{
	const uint32_t start_row = UINT32_MAX - 39;

	(void)state;
	send_comm()->send.head = recv_comm()->recv.one_until = start_row;
	/* The helper thread reads it. */
	__atomic_store_n(&recv_comm()->recv.tail, start_row, __ATOMIC_RELEASE);
	recv_comm()->recv.cts_limit = start_row + MPIB_CTS_DEPTH;
	for (uint32_t k = 0; k < MPIB_ROWS; k++) {
		uint32_t row = start_row - MPIB_ROWS + k;

		for (unsigned int e = 0; e < MPIB_GROUP_MAX; e++)
			send_comm()->send.cts[row % MPIB_ROWS].element[e].seq = row + 1;
	}
	for (unsigned int n = 0; n < 600; n++) {
		size_t size = n % 2 ? n : 0;

		if (pair_transfer(&p, size, PAIR_BUFFER) != ncclSuccess)
			fail_msg("message %u: %s", n, test_log_state.text);
	}
	assert_int_equal(send_comm()->send.head, (uint32_t)(start_row + 600));
	assert_int_equal(recv_comm()->recv.tail, (uint32_t)(start_row + 600));
}

/* A port that carries less than the message: several legal requests, one completion, exact size. */
static void test_cut_messages(void **state)
{
	(void)state;
	assert_int_equal(send_comm()->send.max_msg[MPIB_SUP], 1024);
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
		assert_int_equal(pair_transfer(&p, sizes[k], PAIR_BUFFER), ncclSuccess);
	assert_int_equal(pair_transfer(&p, 1024, PAIR_BUFFER), ncclSuccess);
	assert_int_equal(pair_transfer(&p, 1025, PAIR_BUFFER), ncclSuccess);
}

static int start_small_port(void **state)
{
	fake_set_max_msg(1024 + 100); /* pieces stay whole lines of 128 bytes */
	return start_intra(state);
}

/* C09: more than the receive has room for is an error at both ends and never a write. */
static void test_too_large(void **state)
{
	void *in = p.in, *rr = NULL;
	size_t room = 4096;
	ncclResult_t r = ncclSuccess;
	int tag = 5, done = 0;

	(void)state;
	assert_int_equal(pair_transfer(&p, 4097, room), ncclRemoteError);
	assert_int_equal((unsigned char)p.in[0], 0x55);
	assert_int_equal((unsigned char)p.in[4096], 0x55);
	assert_logged("4097 bytes");
	assert_logged("4096 bytes");
	/* The receiver is told. */
	for (unsigned int k = 0; k < 30000 && r == ncclSuccess; k++) {
		if (!rr)
			r = mpib_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &rr);
		if (r == ncclSuccess && rr)
			r = mpib_test(rr, &done, NULL);
		(void)poll(NULL, 0, 1);
	}
	assert_int_equal(r, ncclRemoteError);
	assert_logged("the peer failed");
}

/* Every slot of the pool in use: "not now", and all of them complete later. */
static void test_pool_full(void **state)
{
	void *requests[300] = { 0 }, *in = p.in;
	size_t room = 8;
	unsigned int posted = 0, finished = 0;
	int tag = 1;

	(void)state;
	for (posted = 0; posted < 300; posted++) {
		assert_int_equal(
			mpib_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &requests[posted]),
			ncclSuccess);
		if (!requests[posted])
			break;
	}
	assert_int_equal(posted, MPIB_REQUESTS_MAX);
	for (unsigned int k = 0; k < posted; k++) {
		void *request = NULL;
		int done = 0;

		assert_int_equal(mpib_isend(p.send, p.out, 8, tag, p.send_mr, &request),
				 ncclSuccess);
		assert_non_null(request);
		assert_int_equal(mpib_test(request, &done, NULL), ncclSuccess);
		assert_int_equal(done, 1);
		assert_int_equal(mpib_test(requests[k], &done, NULL), ncclSuccess);
		finished += (unsigned int)done;
	}
	assert_int_equal(finished, posted);
	assert_int_equal(pair_transfer(&p, 1000, 1000), ncclSuccess);
}

/* Section 19: 0x1 in *request on entry is overwritten, whatever the answer is. */
static void test_request_is_always_written(void **state)
{
	void *request = (void *)1, *in = p.in;
	size_t room = 8;
	int tag = 1, done;

	(void)state;
	assert_int_equal(mpib_isend(p.send, p.out, 8, tag, p.send_mr, &request), ncclSuccess);
	assert_null(request); /* nothing is posted over there */
	request = (void *)1;
	assert_int_equal(mpib_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &request),
			 ncclSuccess);
	assert_true(request && request != (void *)1);
	assert_int_equal(mpib_test(request, &done, NULL), ncclSuccess);
	assert_int_equal(done, 0);
	request = (void *)1;
	tag = 2; /* another tag than the receive's */
	assert_int_equal(mpib_isend(p.send, p.out, 8, tag, p.send_mr, &request), ncclSuccess);
	assert_null(request);
}

/* Section 19: sizes may be NULL, and of an array exactly n are written. */
static void test_sizes_exactly_n(void **state)
{
	void *in[8], *request = NULL, *sends[3] = { 0 };
	void *mrs[8] = { p.recv_mr, p.recv_mr, p.recv_mr };
	size_t rooms[8] = { 100, 100, 100 };
	int tags[8] = { 7, 8, 7 }, got[8], done = 0;

	(void)state;
	for (unsigned int round = 0; round < 600; round++) {
		for (unsigned int k = 0; k < 3; k++)
			in[k] = p.in + 100 * k;
		assert_int_equal(mpib_irecv(p.recv, 3, in, rooms, tags, mrs, &request),
				 ncclSuccess);
		assert_non_null(request);
		assert_int_equal(mpib_isend(p.send, p.out, 0, 8, p.send_mr, &sends[0]), 0);
		assert_int_equal(mpib_isend(p.send, p.out, 50, 7, p.send_mr, &sends[1]), 0);
		assert_int_equal(mpib_isend(p.send, p.out, 100, 7, p.send_mr, &sends[2]), 0);
		for (unsigned int k = 0; k < 3; k++) {
			assert_int_equal(mpib_test(sends[k], &done, round & 1 ? got : NULL), 0);
			assert_int_equal(done, 1);
		}
		memset(got, 0x77, sizeof(got));
		assert_int_equal(mpib_test(request, &done, round & 1 ? got : NULL), 0);
		assert_int_equal(done, 1);
		if (!(round & 1))
			continue;
		assert_int_equal(got[0], 50);
		assert_int_equal(got[1], 0);
		assert_int_equal(got[2], 100);
		assert_int_equal(got[3], 0x77777777);
	}
}

/* A completion with an error names rail, device, peer, QP and status, once. */
static void test_bad_completion(void **state)
{
	void *in = p.in, *posted = NULL, *request = NULL;
	int tag = 1, done = 0;
	size_t room = 1000;
	char qp[32];

	(void)state;
	assert_int_equal(mpib_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &posted), 0);
	fake_bad_completion(1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(mpib_isend(p.send, p.out, 8, tag, p.send_mr, &request), 0);
	assert_int_equal(mpib_test(request, &done, NULL), ncclRemoteError);
	assert_int_equal(done, 0);
	(void)snprintf(qp, sizeof(qp), "QP 0x%x", send_comm()->qp[MPIB_SUP][0]->qp_num);
	assert_logged("SUP rail sup:1");
	assert_logged(qp);
	assert_logged("remote access error");
	assert_logged("10.0.1.1 pid");
	assert_int_equal(test_log_warnings(), 1);
	assert_int_equal(mpib_isend(p.send, p.out, 8, tag, p.send_mr, &request), ncclRemoteError);
}

static void test_device_fatal(void **state)
{
	ncclResult_t r = ncclSuccess;

	(void)state;
	fake_event(1, IBV_EVENT_DEVICE_FATAL);
	for (unsigned int k = 0; k < 30000 && r == ncclSuccess; k++) {
		void *request = NULL;

		/* No receive is posted: only the event can end this. */
		r = mpib_isend(p.send, p.out, 8, 1, p.send_mr, &request);
		assert_null(request);
		(void)poll(NULL, 0, 1);
	}
	assert_int_equal(r, ncclSystemError);
	assert_logged("device is lost");
}

/* A QP that the device gives up, seen by the helper thread alone: nothing is on its way. */
static void test_qp_fatal(void **state)
{
	ncclResult_t r = ncclSuccess;

	(void)state;
	fake_event(1, IBV_EVENT_QP_FATAL);
	for (unsigned int k = 0; k < 30000 && r == ncclSuccess; k++) {
		void *in = p.in, *request = NULL;
		size_t room = 8;
		int tag = 1;

		r = mpib_isend(p.send, p.out, 8, 1, p.send_mr, &request);
		if (r == ncclSuccess && !request)
			r = mpib_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &request);
		if (r == ncclSuccess && request)
			r = mpib_test(request, &tag, NULL);
		(void)poll(NULL, 0, 1);
	}
	assert_int_equal(r, ncclRemoteError);
	assert_logged("some event"); /* what the device said */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		INTRA(test_intra_is_sup),
		INTRA(test_messages_take_the_qps_in_turn),
		INTER(test_inter_is_sout),
		ADVANCED(test_shares),
		ADVANCED(test_short_messages_are_not_divided),
		INTRA(test_70000_messages),
		ADVANCED(test_row_counter_wraps),
		cmocka_unit_test_setup_teardown(test_cut_messages, start_small_port, finish),
		INTRA(test_too_large),
		INTRA(test_pool_full),
		INTRA(test_request_is_always_written),
		ADVANCED(test_sizes_exactly_n),
		INTRA(test_sizes_exactly_n),
		INTER(test_sizes_exactly_n),
		INTRA(test_bad_completion),
		INTRA(test_device_fatal),
		INTRA(test_qp_fatal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
