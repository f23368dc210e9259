/* SPDX-License-Identifier: Apache-2.0 */
/* What is left to do when a peer or a device went away. */
#include "tests/unit/plugin/test.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "plugin/connection/comm.h"
#include "plugin/data/progress.h"
#include "plugin/setup/comm_life.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/pair.h"

#define BYTES 1000
#define TAG   1
#define SOUT  0 /* the devices, of fake_verbs.c */
#define SUP   1

static struct pair p;

static void open_pair(void)
{
	pair_env();
	(void)setenv("MPIB_MODE", "0", 1);
	test_log_clear();
	if (pair_open(&p, test_logger, 0) != ncclSuccess)
		fail_msg("no connection: %s", test_log_state.text);
}

static int finish(void **state)
{
	(void)state;
	pair_close(&p);
	(void)unsetenv("MPIB_GPUDIRECT");
	return fake_live() == 0 ? 0 : -1;
}

static void *receive(void *into)
{
	size_t room = BYTES;
	int tag = TAG;
	void *request = NULL;

	assert_int_equal(mpib_irecv(p.recv, 1, &into, &room, &tag, &p.recv_mr, &request),
			 ncclSuccess);
	assert_non_null(request);
	return request;
}

static void send_and_close(void)
{
	for (unsigned int k = 0; k < 2; k++) {
		void *request = NULL;
		int done = 0;

		assert_int_equal(mpib_isend(p.send, p.out, BYTES, TAG, p.send_mr, &request),
				 ncclSuccess);
		assert_non_null(request);
		assert_int_equal(mpib_test(request, &done, NULL), ncclSuccess);
		assert_int_equal(done, 1);
	}
	assert_int_equal(mpib_entry_dereg_mr(p.send, p.send_mr), ncclSuccess);
	p.send_mr = NULL;
	assert_int_equal(mpib_entry_close(p.send), ncclSuccess);
	p.send = NULL;
}

static int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
static unsigned int empty_polls;

static int poll_later(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	if (empty_polls == 0)
		return poll_cq(cq, n, wc);
	empty_polls--;
	return 0;
}

/* All data was there before the peer closed. The flush starts when the peer is known to be gone for
 * longer than its messages would be waited for, and isn't done at the first look. */
static void test_a_flush_outlives_the_peer(void **state)
{
	void *requests[2], *into, *flush = NULL;
	struct ibv_context_ops *ops;
	int size = BYTES, done = 0;

	(void)state;
	(void)setenv("MPIB_GPUDIRECT", "1", 1);
	open_pair();
	for (unsigned int k = 0; k < 2; k++)
		requests[k] = receive(p.in + k * BYTES);
	send_and_close();
	(void)poll(NULL, 0, 100); /* the helper thread reads the peer's goodbye */
	for (unsigned int k = 0; k < 2; k++) {
		assert_int_equal(mpib_test(requests[k], &done, NULL), ncclSuccess);
		assert_int_equal(done, 1);
		(void)poll(NULL, 0, MPIB_PEER_GONE_GRACE_MS + 50); /* nobody runs this thread */
	}

	into = p.in + BYTES;
	assert_int_equal(mpib_iflush(p.recv, 1, &into, &size, &p.recv_mr, &flush), ncclSuccess);
	assert_non_null(flush);
	ops = &mpib_device_get(0)->hca[MPIB_SUP].ctx->ops;
	poll_cq = ops->poll_cq;
	ops->poll_cq = poll_later;
	empty_polls = 2;
	done = 0;
	for (unsigned int k = 0; k < 4 && !done; k++)
		assert_int_equal(mpib_test(flush, &done, NULL), ncclSuccess);
	ops->poll_cq = poll_cq;
	assert_int_equal(done, 1);
	assert_int_equal(empty_polls, 0);
}

/* In the place of each good completion of @bad_cq a bad one comes, as of a peer that answers
 * nothing; without @bad_cq's, one more for @bad_id on @bad_qp. */
static struct ibv_cq *bad_cq;
static uint64_t bad_id;
static uint32_t bad_qp;

static int poll_bad(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = poll_cq(cq, n, wc);

	if (cq != bad_cq)
		return got;
	if (got == 0 && bad_qp) {
		memset(wc, 0, sizeof(*wc));
		wc[0].wr_id = bad_id;
		wc[0].qp_num = bad_qp;
		bad_qp = 0;
		got = 1;
	}
	for (int k = 0; k < got; k++)
		wc[k].status = IBV_WC_RETRY_EXC_ERR;
	return got;
}

static struct ibv_context_ops *start_bad(void *comm)
{
	struct ibv_context_ops *ops = &mpib_device_get(0)->hca[MPIB_SUP].ctx->ops;

	bad_cq = ((struct mpib_comm *)comm)->cq[MPIB_SUP];
	poll_cq = ops->poll_cq;
	ops->poll_cq = poll_bad;
	return ops;
}

/* Retries ran out on a peer that had closed with all of it, while nobody looked. */
static void test_what_arrived_is_sent_without_an_answer(void **state)
{
	void *recv[2], *send[2] = { NULL, NULL };
	struct ibv_context_ops *ops;

	(void)state;
	open_pair();
	for (unsigned int k = 0; k < 2; k++) {
		recv[k] = receive(p.in + k * BYTES);
		assert_int_equal(mpib_isend(p.send, p.out, BYTES, TAG, p.send_mr, &send[k]),
				 ncclSuccess);
		assert_non_null(send[k]);
	}
	for (unsigned int k = 0; k < 2; k++) {
		int done = 0;

		assert_int_equal(mpib_test(recv[k], &done, NULL), ncclSuccess);
		assert_int_equal(done, 1);
	}
	assert_int_equal(mpib_entry_dereg_mr(p.recv, p.recv_mr), ncclSuccess);
	mpib_watch_lock();	/* the helper thread comes to nothing */
	mpib_comm_free(p.recv); /* as mpib_entry_close, whose lock comes before that one */
	p.recv = p.recv_mr = NULL;
	ops = start_bad(p.send);
	for (unsigned int k = 0; k < 2; k++) {
		int done = 0, size = 0;

		assert_int_equal(mpib_test(send[k], &done, &size), ncclSuccess);
		assert_int_equal(done, 1);
		assert_int_equal(size, BYTES);
	}
	ops->poll_cq = poll_cq;
	mpib_watch_unlock();
	assert_int_equal(test_log_warnings(), 0);
}

/* A clear-to-send that a closed peer no longer acknowledged ends no flush of what it had sent. */
static void test_a_clear_to_send_to_a_closed_peer(void **state)
{
	void *requests[2], *into, *flush = NULL;
	struct ibv_context_ops *ops;
	struct mpib_comm *recv;
	int size = BYTES, done = 0;

	(void)state;
	(void)setenv("MPIB_GPUDIRECT", "1", 1);
	open_pair();
	for (unsigned int k = 0; k < 2; k++)
		requests[k] = receive(p.in + k * BYTES);
	send_and_close();
	for (unsigned int k = 0; k < 2; k++) {
		assert_int_equal(mpib_test(requests[k], &done, NULL), ncclSuccess);
		assert_int_equal(done, 1);
	}
	recv = p.recv;
	bad_id = recv->recv.tail - 1;
	bad_qp = recv->recv.cts_qp->qp_num;
	ops = start_bad(p.recv);
	into = p.in;
	done = 0;
	while (bad_qp)
		assert_int_equal(mpib_poll_rail(recv, MPIB_SUP), 0);
	ops->poll_cq = poll_cq;
	assert_int_equal(mpib_iflush(p.recv, 1, &into, &size, &p.recv_mr, &flush), ncclSuccess);
	for (unsigned int k = 0; k < 4 && !done; k++)
		assert_int_equal(mpib_test(flush, &done, NULL), ncclSuccess);
	assert_int_equal(done, 1);
	assert_int_equal(test_log_warnings(), 0);
}

/* Closes @comm while somebody else holds the other end of its control connection; the rows that
 * its BYE tells. */
static uint32_t rows_of_bye(void **comm)
{
	struct mpib_ctl *ctl = &((struct mpib_comm *)*comm)->ctl;
	uint8_t buf[MPIB_FRAME_MAX];
	struct mpib_frame frame;
	int ends[2], old = ctl->fd;
	uint32_t rows = 0;
	size_t used;
	ssize_t n;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	mpib_watch_lock(); /* the helper thread may be reading from it */
	ctl->fd = ends[0];
	mpib_watch_unlock();
	assert_int_equal(mpib_entry_close(*comm), ncclSuccess);
	*comm = NULL;
	(void)close(old);
	n = read(ends[1], buf, sizeof(buf));
	(void)close(ends[1]);
	assert_true(n > 0);
	assert_int_equal(mpib_frame_decode(buf, (size_t)n, &frame, &used), 1);
	assert_int_equal(frame.type, MPIB_FRAME_BYE);
	assert_int_equal(mpib_bye_decode(frame.payload, frame.payload_len, &rows), 0);
	return rows;
}

/* A sender: what it has posted. A receiver: what has arrived without a gap before it. */
static void test_bye_tells_rows(void **state)
{
	void *requests[3], *request = NULL;
	int done = 0;

	(void)state;
	open_pair();
	assert_int_equal(pair_transfer(&p, BYTES, BYTES), ncclSuccess);
	for (unsigned int k = 0; k < 3; k++)
		requests[k] = receive(p.in + k * BYTES);
	assert_int_equal(mpib_isend(p.send, p.out, BYTES, TAG, p.send_mr, &request), ncclSuccess);
	assert_non_null(request);
	assert_int_equal(mpib_test(requests[0], &done, NULL), ncclSuccess);
	assert_int_equal(done, 1);
	assert_int_equal(mpib_entry_dereg_mr(p.recv, p.recv_mr), ncclSuccess);
	assert_int_equal(mpib_entry_dereg_mr(p.send, p.send_mr), ncclSuccess);
	p.recv_mr = p.send_mr = NULL;
	assert_int_equal(rows_of_bye(&p.recv), 2);
	assert_int_equal(rows_of_bye(&p.send), 2);
}

static uint64_t cpu_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A device that is taken away ends its stream of events, and poll() says so from then on. */
static void test_a_device_without_events_is_lost(void **state)
{
	struct mpib_hca *hca;
	ncclResult_t r = ncclSuccess;
	uint64_t before;
	int ends[2];

	(void)state;
	open_pair();
	hca = &mpib_device_get(0)->hca[MPIB_SUP];
	assert_int_equal(pipe(ends), 0);
	mpib_watch_del(&hca->async);
	assert_true(dup2(ends[0], hca->ctx->async_fd) >= 0);
	(void)close(ends[0]);
	assert_int_equal(mpib_watch_add(&hca->async, EPOLLIN), 0);
	(void)close(ends[1]);

	for (unsigned int k = 0; k < 2000 && r == ncclSuccess; k++) {
		void *request = NULL;

		r = mpib_isend(p.send, p.out, BYTES, TAG, p.send_mr, &request);
		assert_null(request);
		(void)poll(NULL, 0, 1);
	}
	assert_int_not_equal(r, ncclSuccess);
	assert_non_null(strstr(test_log_state.text, "the device is lost to this process"));
	before = cpu_ms();
	(void)poll(NULL, 0, 300);
	assert_in_range(cpu_ms() - before, 0, 100);
}

/* Of both ends: whose QP the event is about, the fake decides. The helper thread counts. */
static unsigned int events_ignored(void)
{
	unsigned int n;

	mpib_watch_lock();
	n = ((struct mpib_comm *)p.send)->events_ignored +
	    ((struct mpib_comm *)p.recv)->events_ignored;
	mpib_watch_unlock();
	return n;
}

/* Vanilla inside an island has QPs on SOUT and sends nothing there: what happens to them is of no
 * interest to the connection. */
static void test_an_event_of_an_idle_rail_is_ignored(void **state)
{
	(void)state;
	open_pair();
	fake_event(SOUT, IBV_EVENT_QP_FATAL);
	for (unsigned int k = 0; k < 2000 && events_ignored() == 0; k++)
		(void)poll(NULL, 0, 1);
	assert_int_equal(events_ignored(), 1);
	(void)poll(NULL, 0, MPIB_PEER_GONE_GRACE_MS + 50);
	assert_int_equal(pair_transfer(&p, BYTES, BYTES), ncclSuccess);
	assert_int_equal(test_log_warnings(), 0);
}

/* Only the connection whose CQ it is fails: others go on, and new ones can be made. */
static void test_a_broken_cq_is_one_connections(void **state)
{
	ncclResult_t r = ncclSuccess;
	struct pair other;
	void *waits;

	(void)state;
	open_pair();
	memset(&other, 0, sizeof(other));
	waits = receive(p.in);
	fake_event(SUP, IBV_EVENT_CQ_ERR);
	for (unsigned int k = 0; k < 5000 && r == ncclSuccess; k++) {
		void *request = NULL;
		int done;

		/* a tag that nobody waits for: both ends look and nothing moves */
		r = mpib_isend(p.send, p.out, BYTES, TAG + 1, p.send_mr, &request);
		assert_null(request);
		if (r == ncclSuccess)
			r = mpib_test(waits, &done, NULL);
		(void)poll(NULL, 0, 1);
	}
	assert_int_not_equal(r, ncclSuccess);
	assert_non_null(strstr(test_log_state.text, "SUP rail sup:1, CQ"));
	assert_int_equal(mpib_device_get(0)->hca[MPIB_SUP].fatal, 0);
	assert_int_equal(mpib_entry_listen(p.ctx, 0, other.handle, &other.listener), ncclSuccess);
	assert_int_equal(pair_shake(&other, 0), ncclSuccess);
	assert_int_equal(mpib_entry_close(other.send), ncclSuccess);
	assert_int_equal(mpib_entry_close(other.recv), ncclSuccess);
	assert_int_equal(mpib_entry_close_listen(other.listener), ncclSuccess);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_a_flush_outlives_the_peer, finish),
		cmocka_unit_test_teardown(test_what_arrived_is_sent_without_an_answer, finish),
		cmocka_unit_test_teardown(test_a_clear_to_send_to_a_closed_peer, finish),
		cmocka_unit_test_teardown(test_bye_tells_rows, finish),
		cmocka_unit_test_teardown(test_an_event_of_an_idle_rail_is_ignored, finish),
		cmocka_unit_test_teardown(test_a_broken_cq_is_one_connections, finish),
		cmocka_unit_test_teardown(test_a_device_without_events_is_lost, finish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
