/* SPDX-License-Identifier: Apache-2.0 */
/* What a NIC lets pass, and the fabric shows: atomics on one word through two devices, writes that
 * are acknowledged and not in memory yet, more READs and atomics at once than the other end takes.
 */
#include "tests/fabric/cases/faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATER 512 /* offset in the arena */

/* How many @what a device of node 2 has counted. */
static uint64_t counted(const char *device, const char *what)
{
	char line[512];
	uint64_t seen = 0;
	FILE *show;

	(void)snprintf(line, sizeof(line), "%s show %s", getenv("FABRICCTL"), device);
	show = popen(line, "re");
	require(show != NULL, "fabricctl show");
	while (fgets(line, sizeof(line), show)) {
		const char *at = strstr(line, what);

		if (at)
			seen = strtoull(at + strlen(what), NULL, 10);
	}
	require(pclose(show) == 0, "fabricctl show to succeed");
	return seen;
}

/* The same end on the other rail. */
static void open_sout(const struct side *s, struct side *ret)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	*ret = *s;
	ret->ctx = NULL;
	for (int k = 0; list && list[k]; k++)
		if (strcmp(ibv_get_device_name(list[k]), "sout") == 0)
			ret->ctx = ibv_open_device(list[k]);
	ibv_free_device_list(list);
	require(ret->ctx != NULL, "the device sout");
	ret->pd = ibv_alloc_pd(ret->ctx);
	require(ret->pd && !ibv_query_gid(ret->ctx, 1, ret->gid_index, &ret->gid),
		"answers of the device sout");
}

static enum ibv_wc_status add_at(struct pair *p, uint64_t addr, uint32_t rkey, uint64_t value)
{
	struct ibv_sge sge = { (uintptr_t)p->buf, 8, p->mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .send_flags = IBV_SEND_SIGNALED,
				  .num_sge = 1 };

	wr.sg_list = &sge;
	wr.wr.atomic.remote_addr = addr;
	wr.wr.atomic.rkey = rkey;
	wr.wr.atomic.compare_add = value;
	require(post_wr(p, &wr) == 0, "a post");
	return await(p->send_cq).status;
}

/* One word of node 2 through both of its devices; @meanwhile is what happens in between. */
static void add_twice(struct side *s, struct side *sout, void (*meanwhile)(struct pair *),
		      enum ibv_wc_status want)
{
	struct pair_options options = { 0 };
	struct {
		uint64_t addr, rkey;
	} word = { 0 }, theirs;
	struct pair first, second;
	struct ibv_mr *mr;

	pair_open(sout, &first, &options);
	pair_open(s, &second, &options);
	mr = ibv_reg_mr(s->pd, first.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	require(mr != NULL, "the first buffer on the other rail, too");
	word.addr = (uintptr_t)first.buf;
	word.rkey = mr->rkey;
	swap_bytes(s, &word, &theirs, sizeof(word));
	if (!s->client) {
		require(add_at(&first, theirs.addr, first.peer.rkey, 5) == IBV_WC_SUCCESS,
			"an atomic through sout");
		require(add_at(&first, theirs.addr, first.peer.rkey, 5) == IBV_WC_SUCCESS,
			"another one through sout");
	}
	sync_ends(s);
	meanwhile(&first);
	sync_ends(s);
	if (!s->client)
		require(add_at(&second, theirs.addr, (uint32_t)theirs.rkey, 7) == want,
			want ? "the atomic through sup to be refused"
			     : "the atomic through sup to be taken");
	sync_ends(s);
	if (s->client) {
		uint64_t now;

		memcpy(&now, first.buf, sizeof(now));
		require(now == (want ? 10 : 17), "the sum of what was taken");
		require(counted("2/sup", "mistakes ") == (want ? 1 : 0), "as many mistakes told");
		ctl("reset 2/sup");
	}
	sync_ends(s);
	(void)ibv_dereg_mr(mr);
	pair_close(&second);
	pair_close(&first);
}

static void nothing(struct pair *p)
{
	(void)p;
}

static void a_while(struct pair *p)
{
	(void)p;
	(void)usleep(150000);
}

static void its_end(struct pair *p)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	require(ibv_modify_qp(p->qp, &attr, IBV_QP_STATE) == 0, "a QP in ERR");
}

static void atomics_of_two_devices(struct side *s)
{
	struct side sout;

	open_sout(s, &sout);
	add_twice(s, &sout, nothing, IBV_WC_REM_OP_ERR);
	add_twice(s, &sout, a_while, IBV_WC_SUCCESS);
	add_twice(s, &sout, its_end, IBV_WC_SUCCESS);
	require(ibv_dealloc_pd(sout.pd) == 0 && ibv_close_device(sout.ctx) == 0, "sout taken down");
}

/* Node 1 writes and has its answer; what it does next is seen by node 2, or isn't. */
static void unseen_until(struct side *s, enum ibv_wr_opcode op, bool seen)
{
	struct pair_options options = { 0 };
	struct pair p;

	pair_open(s, &p, &options);
	if (s->client)
		require(post_recv(&p, 9, LATER, 64) == 0, "a receive");
	sync_ends(s);
	if (!s->client) {
		fill_pattern(p.buf, 300, 1);
		require(write_once(&p, 300) == IBV_WC_SUCCESS, "a write");
	}
	sync_ends(s);
	if (s->client)
		require(!pattern_holds(p.buf + ARENA, 300, 1), "an answer before the bytes");
	sync_ends(s);
	if (!s->client) {
		struct ibv_sge sge = { (uintptr_t)p.buf + 1024, 8, p.mr->lkey };
		struct ibv_send_wr wr = { .opcode = op,
					  .send_flags = IBV_SEND_SIGNALED,
					  .num_sge = 1 };

		wr.sg_list = &sge;
		wr.wr.rdma.remote_addr = p.peer.addr + LATER;
		wr.wr.rdma.rkey = p.peer.rkey;
		if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr.wr.atomic.remote_addr = p.peer.addr + LATER;
			wr.wr.atomic.compare_add = 1;
			wr.wr.atomic.rkey = p.peer.rkey;
		}
		require(post_wr(&p, &wr) == 0 && await(p.send_cq).status == IBV_WC_SUCCESS,
			"what comes behind it");
	}
	sync_ends(s);
	if (s->client)
		require(pattern_holds(p.buf + ARENA, 300, 1) == seen,
			seen ? "the bytes, pushed" : "no bytes yet");
	sync_ends(s);
	pair_close(&p);
}

/* A program that reads through its own device, as a flush does, sees all that came through it. */
static void unseen_until_own_read(struct side *s)
{
	struct pair_options loop = { .no_connect = true }, options = { 0 };
	struct pair p, self;

	pair_open(s, &p, &options);
	pair_open(s, &self, &loop);
	self.peer = self.mine;
	require(!to_init(&self, IBV_ACCESS_REMOTE_READ) && !to_rtr(&self) && !to_rts(&self, &loop),
		"a QP to itself");
	if (!s->client) {
		fill_pattern(p.buf, 300, 2);
		require(write_once(&p, 300) == IBV_WC_SUCCESS, "a write");
	}
	sync_ends(s);
	if (s->client) {
		require(!pattern_holds(p.buf + ARENA, 300, 2), "an answer before the bytes");
		require(post(&self, IBV_WR_RDMA_READ, 1, 0, 8, IBV_SEND_SIGNALED) == 0 &&
				await(self.send_cq).status == IBV_WC_SUCCESS,
			"a READ from itself");
		require(pattern_holds(p.buf + ARENA, 300, 2), "the bytes, pushed");
	}
	sync_ends(s);
	pair_close(&self);
	pair_close(&p);
}

static void writes_unseen(struct side *s)
{
	static const enum ibv_wr_opcode pushing[] = { IBV_WR_RDMA_READ, IBV_WR_SEND,
						      IBV_WR_RDMA_WRITE_WITH_IMM,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };

	if (s->client)
		ctl("unseen 2/sup 60000000");
	sync_ends(s);
	for (size_t k = 0; k < sizeof(pushing) / sizeof(pushing[0]); k++)
		unseen_until(s, pushing[k], true);
	unseen_until(s, IBV_WR_RDMA_WRITE, false);
	unseen_until_own_read(s);
	if (s->client)
		require(counted("2/sup", "unseen_parts ") == 7, "each part counted");
}

/* They come by themselves after the time, when their key goes, and in the order of their writes. */
static void writes_unseen_and_their_end(struct side *s)
{
	struct pair_options options = { 0 };
	struct pair p;

	pair_open(s, &p, &options);
	if (s->client)
		ctl("unseen 2/sup 60000000");
	sync_ends(s);
	for (unsigned int seed = 1; !s->client && seed <= 2; seed++) {
		fill_pattern(p.buf, 4096, seed);
		require(write_once(&p, 4096) == IBV_WC_SUCCESS, "a write");
	}
	sync_ends(s);
	if (s->client) {
		require(!pattern_holds(p.buf + ARENA, 4096, 2), "an answer before the bytes");
		ctl("unseen 2/sup 1000");
		for (int k = 0; k < 500 && !pattern_holds(p.buf + ARENA, 4096, 2); k++)
			(void)usleep(10000);
		require(pattern_holds(p.buf + ARENA, 4096, 2), "the later bytes after their time");
		ctl("unseen 2/sup 60000000");
	}
	sync_ends(s);
	if (!s->client) {
		fill_pattern(p.buf, 64, 3);
		require(write_once(&p, 64) == IBV_WC_SUCCESS, "a write");
	}
	sync_ends(s);
	if (s->client) {
		struct ibv_mr *again = ibv_reg_mr(s->pd, p.buf, BUF_BYTES, IBV_ACCESS_LOCAL_WRITE);

		require(again && !pattern_holds(p.buf + ARENA, 64, 3),
			"an answer before the bytes");
		require(ibv_dereg_mr(p.mr) == 0 && pattern_holds(p.buf + ARENA, 64, 3),
			"nothing to be held beyond its registration");
		p.mr = again;
	}
	sync_ends(s);
	pair_close(&p);
}

/* Two READs at once to an end that takes @in. */
static void two_reads(struct side *s, uint8_t in, enum ibv_wc_status want)
{
	struct pair_options options = { .reads_out = 2, .reads_in = in };
	enum ibv_wc_status worst = IBV_WC_SUCCESS;
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client) {
		ctl("latency 2/sup 50000");
		for (int k = 0; k < 2; k++)
			require(post(&p, IBV_WR_RDMA_READ, 1, 0, 64, IBV_SEND_SIGNALED) == 0,
				"a post");
		for (int k = 0; k < 2; k++) {
			enum ibv_wc_status status = await(p.send_cq).status;

			worst = worst ? worst : status;
		}
		require(worst == want, want ? "one READ too many to be refused" : "both READs");
		require(counted("2/sup", "mistakes ") == (want ? 1 : 0), "as many mistakes told");
		ctl("reset 2/sup");
	}
	sync_ends(s);
	pair_close(&p);
}

static void reads_outstanding(struct side *s)
{
	two_reads(s, 2, IBV_WC_SUCCESS);
	two_reads(s, 1, IBV_WC_REM_INV_REQ_ERR);
}

const struct fault_case judge_cases[] = {
	{ .name = "atomics-of-two-devices", .run = atomics_of_two_devices },
	{ .name = "writes-unseen", .run = writes_unseen },
	{ .name = "writes-unseen-and-their-end", .run = writes_unseen_and_their_end },
	{ .name = "reads-outstanding", .run = reads_outstanding },
	{ 0 },
};
