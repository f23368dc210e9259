/* SPDX-License-Identifier: Apache-2.0 */
/* A wire of limited rate carries nothing before it was asked for, and makes up for nothing that
 * wasn't: only for the time that a process had no processor after it asked. */
#include "tests/fabric/cases/faults.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RATE_MBPS 40u /* bytes a microsecond */
#define BYTES	  400000u
#define TURNS	  8
#define IDLE_USEC 6000

static uint64_t clock_us(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* What @bytes take, less what rounding makes of the parts. */
static uint64_t wire_us(uint64_t bytes)
{
	return bytes / RATE_MBPS - 5;
}

static void check_least(const char *what, uint64_t us, uint64_t least)
{
	(void)printf("%s: %lu us, least %lu\n", what, (unsigned long)us, (unsigned long)least);
	require(us >= least, what);
}

static void transfer(struct pair *p, enum ibv_wr_opcode op, uint32_t bytes)
{
	require(post(p, op, 1, 0, bytes, IBV_SEND_SIGNALED) == 0, "a post");
	require(await(p->send_cq).status == IBV_WC_SUCCESS, "success");
}

/* A wire with nothing to carry stands still: after a while of that it is no faster. */
static void idle_wire(struct side *s)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	static const char *const limits[] = { "rate 1/sup 40000000", "rate 2/sup 40000000" };
	struct pair_options options = { 0 };
	struct pair p;

	pair_open(s, &p, &options);
	for (int k = 0; !s->client && k < 4; k++) {
		ctl("reset");
		ctl(limits[k % 2]);
		transfer(&p, ops[k / 2], BYTES);
		for (int turn = 0; turn < TURNS; turn++) {
			uint64_t start;

			(void)usleep(IDLE_USEC);
			start = clock_us();
			transfer(&p, ops[k / 2], BYTES);
			check_least(k < 2 ? "a write" : "a READ", clock_us() - start,
				    wire_us(BYTES));
		}
	}
	sync_ends(s);
	pair_close(&p);
}

/* The other end's processes posted much and are kept from their processors: a NIC would go on. */
static void late_sender(struct side *s)
{
	struct pair_options options = { 0 };
	uint64_t best = UINT64_MAX, start;
	struct pair p;
	int status;

	pair_open(s, &p, &options);
	if (!s->client)
		ctl("rate 2/sup 40000000");
	for (int turn = 0; turn < 5; turn++) {
		sync_ends(s);
		start = clock_us();
		for (int k = 0; s->client && k < 2; k++)
			require(post(&p, IBV_WR_RDMA_WRITE, 1, 0, BUF_BYTES - ARENA,
				     IBV_SEND_SIGNALED) == 0,
				"a post");
		sync_ends(s);
		if (!s->client) {
			(void)kill(fault_peer, SIGSTOP);
			require(waitpid(fault_peer, &status, WUNTRACED) == fault_peer &&
					WIFSTOPPED(status),
				"the peer stopped");
			(void)usleep(150000);
			(void)kill(fault_peer, SIGCONT);
			continue;
		}
		for (int k = 0; k < 2; k++)
			require(await(p.send_cq).status == IBV_WC_SUCCESS, "success");
		start = clock_us() - start;
		check_least("8 MiB of one who was stopped", start, wire_us(2 * BUF_BYTES) - 250);
		best = start < best ? start : best;
	}
	if (s->client) {
		(void)printf("the best: %lu us\n", (unsigned long)best);
		require(best < 300000, "210 ms and not 150 more");
	}
	sync_ends(s);
	pair_close(&p);
}

/* --- what was posted early, but could not go --- */

static void behind_port(struct pair *p)
{
	uint64_t start, down, up;

	ctl("rate 1/sup 10000000"); /* long beside what the commands take */
	start = clock_us();
	require(post(p, IBV_WR_RDMA_WRITE, 1, 0, 4000000, IBV_SEND_SIGNALED) == 0, "a post");
	(void)usleep(5000);
	ctl("port 1/sup down");
	down = clock_us();
	(void)usleep(450000);
	up = clock_us();
	ctl("port 1/sup up");
	require(await(p->send_cq).status == IBV_WC_SUCCESS, "success");
	check_least("with a port that was down", clock_us() - start, 399000 + up - down);
	ctl("rate 1/sup 40000000");
}

/* The answers come on another wire than what the fence holds back. */
static void behind_fence(struct pair *p)
{
	uint64_t start = clock_us();

	require(post(p, IBV_WR_RDMA_READ, 1, 0, BYTES, IBV_SEND_SIGNALED) == 0 &&
			post(p, IBV_WR_RDMA_WRITE, 2, 0, BYTES,
			     IBV_SEND_SIGNALED | IBV_SEND_FENCE) == 0,
		"posts");
	require(await(p->send_cq).status == IBV_WC_SUCCESS, "the READ's success");
	require(await(p->send_cq).status == IBV_WC_SUCCESS, "the write's success");
	check_least("a READ, and a write with a fence", clock_us() - start, 2 * wire_us(BYTES));
}

static void behind_receiver(struct side *s, struct pair *p)
{
	uint64_t start = 0;

	if (!s->client)
		require(post(p, IBV_WR_SEND, 1, 0, BYTES, IBV_SEND_SIGNALED) == 0, "a post");
	(void)usleep(50000);
	sync_ends(s);
	start = clock_us();
	sync_ends(s);
	if (s->client) {
		require(post_recv(p, 1, ARENA, BYTES) == 0, "a receive");
		require(await(p->recv_cq).status == IBV_WC_SUCCESS, "the message");
	} else {
		require(await(p->send_cq).status == IBV_WC_SUCCESS, "success");
		/* A part that was refused so far may be on its way once more. */
		check_least("a SEND that waited for a receive", clock_us() - start,
			    wire_us(BYTES) - 500);
	}
	sync_ends(s);
}

static void behind_drain(struct pair *p)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	uint64_t start;

	require(ibv_modify_qp(p->qp, &attr, IBV_QP_STATE) == 0, "SQD");
	require(post(p, IBV_WR_RDMA_WRITE, 1, 0, BYTES, IBV_SEND_SIGNALED) == 0, "a post");
	require(is_quiet(p->send_cq), "nothing meanwhile");
	start = clock_us();
	attr.qp_state = IBV_QPS_RTS;
	require(ibv_modify_qp(p->qp, &attr, IBV_QP_STATE) == 0, "RTS");
	require(await(p->send_cq).status == IBV_WC_SUCCESS, "success");
	check_least("a write that a drained queue held", clock_us() - start, wire_us(BYTES));
}

static void behind_old_rate(struct pair *p)
{
	uint64_t start;

	ctl("rate 1/sup 10000");
	require(post(p, IBV_WR_RDMA_WRITE, 1, 0, 4000000, IBV_SEND_SIGNALED) == 0, "a post");
	require(is_quiet(p->send_cq), "nothing yet");
	start = clock_us();
	ctl("rate 1/sup 10000000");
	require(await(p->send_cq).status == IBV_WC_SUCCESS, "success");
	/* Of the old rate one packet has gone, and another may be on its way. */
	check_least("a write at a new rate", clock_us() - start, 399000);
}

static void held_back(struct side *s)
{
	struct pair_options options = { .timeout = 16, .retry = 7 };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client) {
		ctl("rate 1/sup 40000000");
		ctl("rate 2/sup 40000000");
		behind_port(&p);
		behind_fence(&p);
		behind_drain(&p);
	}
	behind_receiver(s, &p);
	if (!s->client) {
		ctl("rate 2/sup 0");
		behind_old_rate(&p);
	}
	sync_ends(s);
	pair_close(&p);
}

const struct fault_case wire_cases[] = {
	{ .name = "idle-wire", .run = idle_wire },
	{ .name = "late-sender", .run = late_sender },
	{ .name = "held-back", .run = held_back },
	{ 0 },
};
