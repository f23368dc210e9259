/* SPDX-License-Identifier: Apache-2.0 */
/* Queue accounting: full queues, shared receive queues with their events, and channels. */
#include "tests/fabric/conform/conform.h"

#include <errno.h>
#include <poll.h>

/* Posts receives until refused; the count, and the refusal's errno. */
static uint32_t fill_receives(struct pair *p, uint32_t max, int *ret_err)
{
	uint32_t n = 0;

	*ret_err = 0;
	while (n < max && !*ret_err) {
		*ret_err = post_recv(p, n, ARENA, 64);
		n += !*ret_err;
	}
	return n;
}

static void check_srq(struct side *s)
{
	struct pair_options options = { .srq = true };
	struct ibv_srq_attr attr = { .srq_limit = 5 }, got = { 0 };
	uint32_t posted;
	struct pair p;
	int err;

	pair_open(s, &p, &options);
	posted = fill_receives(&p, 4096, &err);
	expect_errno(s, "srq.full", err, ENOMEM);
	expect_int(s, "srq.room_at_least_asked", posted >= 16, 1);
	expect_errno(s, "srq.arm_limit", ibv_modify_srq(p.srq, &attr, IBV_SRQ_LIMIT), 0);
	if (ibv_query_srq(p.srq, &got))
		die("ibv_query_srq");
	expect_int(s, "srq.limit_armed", got.srq_limit, 5);
	sync_ends(s);
	if (s->client) {
		/* Down to one below the limit. */
		swap_bytes(s, &posted, &posted, sizeof(posted));
		for (uint32_t k = 0; k < posted - 4; k++) {
			if (post(&p, IBV_WR_SEND, k, 0, 8, IBV_SEND_SIGNALED))
				die("post_send");
			if (await(p.send_cq).status != IBV_WC_SUCCESS)
				die("a send to the shared queue");
		}
	} else {
		uint32_t theirs, ok = 0;

		swap_bytes(s, &posted, &theirs, sizeof(posted));
		for (uint32_t k = 0; k < posted - 4; k++) {
			struct ibv_wc wc = await(p.recv_cq);

			ok += wc.status == IBV_WC_SUCCESS && wc.wr_id == k;
		}
		expect_int(s, "srq.in_order", ok == posted - 4, 1);
		expect_int(s, "srq.limit_event", await_event(s, IBV_EVENT_SRQ_LIMIT_REACHED), 1);
		if (ibv_query_srq(p.srq, &got))
			die("ibv_query_srq");
		expect_int(s, "srq.limit_disarmed", got.srq_limit, 0);
		(void)fill_receives(&p, 4096, &err);
		expect_errno(s, "srq.room_again_then_full", err, ENOMEM);
	}
	sync_ends(s);
	pair_close(&p);
}

/* A QP in the error state leaves the shared queue alone, and says so with an event. */
static void check_srq_error(struct side *s)
{
	struct pair_options options = { .srq = true };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct pair p;

	pair_open(s, &p, &options);
	if (post_recv(&p, 1, ARENA, 64))
		die("post_recv");
	if (ibv_modify_qp(p.qp, &attr, IBV_QP_STATE))
		die("ibv_modify_qp");
	expect_int(s, "srq.last_wqe_event", await_event(s, IBV_EVENT_QP_LAST_WQE_REACHED), 1);
	expect_int(s, "srq.not_flushed", is_quiet(p.recv_cq), 1);
	sync_ends(s);
	pair_close(&p);
}

static void check_full_queues(struct side *s)
{
	struct pair_options options = { .send_wr = 8, .recv_wr = 8 };
	uint32_t posted = 0;
	struct pair p;
	int err;

	pair_open(s, &p, &options);
	(void)fill_receives(&p, 4096, &err);
	expect_errno(s, "recv_queue.full", err, ENOMEM);
	sync_ends(s);
	if (s->client) {
		/* Unsignalled work keeps its places until a later completion is polled. */
		for (err = 0; posted < 4096 && !err; posted += !err)
			err = post(&p, IBV_WR_RDMA_WRITE, posted, 0, 8, IBV_SEND_SIGNALED);
		expect_errno(s, "send_queue.full", err, ENOMEM);
		for (uint32_t k = 0; k < posted; k++)
			if (await(p.send_cq).status != IBV_WC_SUCCESS)
				die("a write");
		expect_errno(s, "send_queue.room_again",
			     post(&p, IBV_WR_RDMA_WRITE, 1, 0, 8, IBV_SEND_SIGNALED), 0);
		expect_status(s, "send_queue.works_again", await(p.send_cq), IBV_WC_SUCCESS);
	}
	sync_ends(s);
	pair_close(&p);
}

static bool channel_rings(struct pair *p, int timeout_ms)
{
	struct pollfd fd = { .fd = p->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *arg;

	if (poll(&fd, 1, timeout_ms) != 1)
		return false;
	if (ibv_get_cq_event(p->channel, &cq, &arg))
		die("ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	return cq == p->recv_cq && arg == p;
}

static void check_channel(struct side *s)
{
	struct pair_options options = { .channel = true };
	struct pair p;

	pair_open(s, &p, &options);
	for (uint64_t k = 0; !s->client && k < 4; k++)
		if (post_recv(&p, k, ARENA, 64))
			die("post_recv");
	for (int round = 0; round < 3; round++) {
		/* 0: any completion; 1: solicited wanted, plain comes; 2: solicited comes */
		unsigned int flags = round == 2 ? IBV_SEND_SOLICITED : 0;

		if (!s->client && round < 2 && ibv_req_notify_cq(p.recv_cq, round > 0))
			die("ibv_req_notify_cq");
		sync_ends(s);
		if (s->client) {
			if (post(&p, IBV_WR_SEND, 1, 0, 8, IBV_SEND_SIGNALED | flags))
				die("post_send");
			expect_status(s, "channel.send", await(p.send_cq), IBV_WC_SUCCESS);
		}
		sync_ends(s);
		if (!s->client) {
			static const char *const names[] = { "channel.any", "channel.unsolicited",
							     "channel.solicited" };

			expect_int(s, names[round], channel_rings(&p, round == 1 ? 100 : 5000),
				   round != 1);
			expect_status(s, "channel.recv", await(p.recv_cq), IBV_WC_SUCCESS);
		}
	}
	sync_ends(s);
	pair_close(&p);
}

static void check_cq_overflow(struct side *s)
{
	struct pair_options options = { .cqe = 4 };
	struct pair p;

	pair_open(s, &p, &options);
	if (s->client) {
		uint32_t room = (uint32_t)p.send_cq->cqe;

		for (uint32_t k = 0; k < room + 1 && k < 250; k++)
			if (post(&p, IBV_WR_RDMA_WRITE, k, 0, 8, IBV_SEND_SIGNALED))
				break;
		expect_int(s, "cq.overflow_event", await_event(s, IBV_EVENT_CQ_ERR), 1);
	}
	sync_ends(s);
	pair_close(&p);
}

void check_queues(struct side *s)
{
	check_srq(s);
	check_srq_error(s);
	check_full_queues(s);
	check_channel(s);
	check_cq_overflow(s);
}
