/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of a way that is gone: some arrive after everybody has noticed. */
#include "tests/fabric/cases/faults.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PART 65536 /* bytes of a message that leave at a time */

static const struct pair_options impatient = { .timeout = 12, .retry = 1 };

static void to_error(struct pair *p)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	require(ibv_modify_qp(p->qp, &attr, IBV_QP_STATE) == 0, "a QP in ERR");
}

/* Within five seconds. */
static bool arrives(struct pair *p, size_t len, unsigned int seed)
{
	for (int k = 0; k < 500; k++) {
		if (pattern_holds(p->buf + ARENA, len, seed))
			return true;
		(void)usleep(10000);
	}
	return false;
}

static void cut_under_way(struct side *s, struct pair *p, enum ibv_wr_opcode op, uint32_t len)
{
	ctl("late 1/sup 60000000");
	fill_pattern(p->buf, len, 1);
	require(write_once(p, len) == IBV_WC_SUCCESS, "a first write");
	ctl("cut 1/sup 1");
	fill_pattern(p->buf, len, 2);
	require(post(p, op, 7, 0, len, IBV_SEND_SIGNALED) == 0, "a post");
	require(await(p->send_cq).status == IBV_WC_RETRY_EXC_ERR, "that the loss is noticed");
	require(await_event(s, IBV_EVENT_PORT_ERR), "the event for port down");
	/* What left is not what is in memory by now. */
	fill_pattern(p->buf, len, 3);
}

/* Receives what node 1 sent, later than node 1's completion says that it is lost. */
static void one_late(struct side *s, enum ibv_wr_opcode op, uint32_t len, bool dead)
{
	uint32_t first = len < PART ? len : PART;
	struct pair p;

	pair_open(s, &p, &impatient);
	if (s->client)
		require(post_recv(&p, 9, ARENA, 64) == 0, "a receive");
	sync_ends(s);
	if (!s->client)
		cut_under_way(s, &p, op, len);
	sync_ends(s);
	if (s->client) {
		require(pattern_holds(p.buf + ARENA, len, 1), "nothing of the second write");
		if (dead)
			to_error(&p);
	}
	sync_ends(s);
	if (!s->client)
		ctl("late 1/sup 0");
	sync_ends(s);
	if (s->client && !dead) {
		require(arrives(&p, first, 2), "what had left");
		require(first == len || !pattern_holds(p.buf + ARENA, len, 2), "and no more");
		if (op == IBV_WR_RDMA_WRITE_WITH_IMM && first == len)
			require(await(p.recv_cq).wr_id == 9, "the immediate");
	} else if (s->client) {
		require(await(p.recv_cq).status == IBV_WC_WR_FLUSH_ERR, "a flushed receive");
		require(is_quiet(p.recv_cq) && pattern_holds(p.buf + ARENA, len, 1),
			"a QP in ERR to take nothing");
	}
	sync_ends(s);
	if (!s->client) {
		ctl("reset");
		require(await_event(s, IBV_EVENT_PORT_ACTIVE), "the event for port up");
	}
	sync_ends(s);
	pair_close(&p);
}

/* No port goes down, but the sender gives its QP up: what had left arrives all the same. */
static void given_up(struct side *s)
{
	struct pair p;

	pair_open(s, &p, &impatient);
	if (!s->client) {
		fill_pattern(p.buf, 64, 4);
		ctl("latency 1/sup 1000000");
		require(post(&p, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED) == 0, "a post");
		(void)usleep(200000);
		to_error(&p);
		require(await(p.send_cq).status == IBV_WC_WR_FLUSH_ERR, "a flushed write");
		ctl("reset");
	}
	sync_ends(s);
	if (s->client)
		require(arrives(&p, 64, 4), "what had left");
	sync_ends(s);
	pair_close(&p);
}

/* The port is back before the retries run out, and the write comes again: what was held is a packet
 * that the QP has had by then. */
static void held_twice(struct side *s)
{
	struct pair_options options = { .timeout = 17, .retry = 7 };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client) {
		ctl("late 1/sup 60000000");
		ctl("cut 1/sup 1");
		fill_pattern(p.buf, 64, 5);
		require(post(&p, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED) == 0, "a post");
		require(await_event(s, IBV_EVENT_PORT_ERR), "the event for port down");
		ctl("port 1/sup up");
		require(await(p.send_cq).status == IBV_WC_SUCCESS, "success after a short flap");
	}
	sync_ends(s);
	if (s->client) {
		require(arrives(&p, 64, 5), "the write");
		memset(p.buf + ARENA, 0, 64);
	}
	sync_ends(s);
	if (!s->client) {
		ctl("late 1/sup 0");
		require(write_once(&p, 0) == IBV_WC_SUCCESS, "a write behind it");
		ctl("reset");
	}
	sync_ends(s);
	require(!s->client || !pattern_holds(p.buf + ARENA, 64, 5), "nothing to be written twice");
	sync_ends(s);
	pair_close(&p);
}

static void late_packets(struct side *s)
{
	one_late(s, IBV_WR_RDMA_WRITE, 64, false);
	one_late(s, IBV_WR_RDMA_WRITE_WITH_IMM, 64, false);
	one_late(s, IBV_WR_RDMA_WRITE_WITH_IMM, 3 * PART, false);
	given_up(s);
	held_twice(s);
}

static void late_packets_of_a_dead_qp(struct side *s)
{
	one_late(s, IBV_WR_RDMA_WRITE, 64, true);
	one_late(s, IBV_WR_RDMA_WRITE_WITH_IMM, 64, true);
}

/* Requests before the N-th arrive, and it doesn't. */
static void cut_at_request(struct side *s)
{
	for (int n = 1; n <= 3; n++) {
		struct pair p;
		char words[32];

		pair_open(s, &p, &impatient);
		(void)snprintf(words, sizeof(words), "cut 1/sup %d", n);
		if (!s->client) {
			ctl(words);
			for (int k = 1; k < n; k++)
				require(write_once(&p, 2 * PART) == IBV_WC_SUCCESS, "a write");
			require(write_once(&p, 2 * PART) == IBV_WC_RETRY_EXC_ERR,
				"the end of the port at the request that was named");
			require(await_event(s, IBV_EVENT_PORT_ERR), "the event for port down");
			ctl("port 1/sup up");
			require(await_event(s, IBV_EVENT_PORT_ACTIVE), "the event for port up");
		}
		sync_ends(s);
		pair_close(&p);
	}
}

/* What a silent device sends is lost, and what it gets arrives. Nobody is told. */
static void silence(struct side *s, bool answers)
{
	struct pair_options options = { .timeout = 8, .retry = 3 };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client) {
		ctl(answers ? "silent 2/sup on" : "silent 1/sup on");
		fill_pattern(p.buf, 64, 6);
		require(post(&p, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED) == 0, "a post");
		require(await(p.send_cq).status == IBV_WC_RETRY_EXC_ERR, "retries to be used up");
	}
	sync_ends(s);
	if (s->client)
		require(pattern_holds(p.buf + ARENA, 64, 6) == answers,
			"a write to arrive where its answer alone is lost");
	sync_ends(s);
	pair_close(&p);
	sync_ends(s);
	options.timeout = 14;
	options.retry = 7;
	pair_open(s, &p, &options);
	if (!s->client) { /* silent for less than the retries last */
		require(post(&p, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED) == 0, "a post");
		(void)usleep(50000);
		ctl("reset");
		require(await(p.send_cq).status == IBV_WC_SUCCESS, "success behind a silence");
		require(write_once(&p, 3 * PART) == IBV_WC_SUCCESS, "a write behind it");
	}
	sync_ends(s);
	pair_close(&p);
}

static void silent_device(struct side *s)
{
	silence(s, false);
	silence(s, true);
}

const struct fault_case late_cases[] = {
	{ .name = "late-packets", .run = late_packets },
	{ .name = "late-packets-of-a-dead-qp", .run = late_packets_of_a_dead_qp },
	{ .name = "cut-at-request", .run = cut_at_request },
	{ .name = "silent-device", .run = silent_device },
	{ 0 },
};
