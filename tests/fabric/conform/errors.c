/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that must fail: the status at each end, and what becomes of the two QPs. */
#include "tests/fabric/conform/conform.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define REMOTE_ALL (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* A bad RDMA request of the client and how it ends. */
struct rdma_case {
	const char *name;
	enum ibv_wr_opcode op;
	enum ibv_wc_status status;
	int64_t addr_shift;		   /* added to the address of the arena */
	uint32_t rkey_xor, len;		   /* what is wrong with the request */
	unsigned int qp_access, mr_access; /* what is wrong at the server */
	bool foreign_lkey;
};

static const struct rdma_case rdma_cases[] = {
	{ "write.bad_rkey", IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, 0, 0xffff00, 64, 0, 0,
	  false },
	{ "read.bad_rkey", IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR, 0, 0xffff00, 64, 0, 0, false },
	{ "write.past_the_end", IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, BUF_BYTES - ARENA - 63, 0,
	  64, 0, 0, false },
	{ "write.before_the_start", IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, -ARENA - 1, 0, 64, 0,
	  0, false },
	{ "read.past_the_end", IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR, BUF_BYTES - ARENA - 63, 0,
	  64, 0, 0, false },
	{ "write.memory_not_writable", IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, 0, 0, 64, 0,
	  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, false },
	{ "read.memory_not_readable", IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR, 0, 0, 64, 0,
	  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, false },
	{ "write.qp_not_writable", IBV_WR_RDMA_WRITE, IBV_WC_REM_INV_REQ_ERR, 0, 0, 64,
	  IBV_ACCESS_REMOTE_READ, 0, false },
	{ "read.qp_not_readable", IBV_WR_RDMA_READ, IBV_WC_REM_INV_REQ_ERR, 0, 0, 64,
	  IBV_ACCESS_REMOTE_WRITE, 0, false },
	{ "write.bad_lkey", IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR, 0, 0, 64, 0, 0, true },
};

static void run_rdma_case(struct side *s, const struct rdma_case *c)
{
	struct pair_options options = { 0 };
	struct ibv_sge sge = { .length = c->len };
	struct ibv_send_wr wr = { .wr_id = 5,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = c->op,
				  .send_flags = IBV_SEND_SIGNALED };
	struct pair p;
	char name[96];

	if (!s->client) {
		options.qp_access = c->qp_access;
		options.mr_access = c->mr_access;
	}
	pair_open(s, &p, &options);
	if (s->client) {
		sge.addr = (uintptr_t)p.buf;
		sge.lkey = p.mr->lkey ^ (c->foreign_lkey ? 0xffff00 : 0);
		wr.wr.rdma.remote_addr = p.peer.addr + ARENA + (uint64_t)c->addr_shift;
		wr.wr.rdma.rkey = p.peer.rkey ^ c->rkey_xor;
		if (post_wr(&p, &wr) || post(&p, IBV_WR_RDMA_WRITE, 6, 0, 8, 0))
			die("post_send");
		expect_status(s, c->name, await(p.send_cq), c->status);
		(void)snprintf(name, sizeof(name), "%s.next", c->name);
		expect_status(s, name, await(p.send_cq), IBV_WC_WR_FLUSH_ERR);
	}
	sync_ends(s);
	(void)snprintf(name, sizeof(name), "%s.state", c->name);
	expect_state(s, name, &p, !s->client && c->foreign_lkey ? IBV_QPS_RTS : IBV_QPS_ERR);
	sync_ends(s);
	pair_close(&p);
}

/* @lkey_xor spoils the server's receive, @room is its size. */
static void run_recv_case(struct side *s, const char *name, uint32_t lkey_xor, uint32_t room,
			  enum ibv_wc_status at_client, enum ibv_wc_status at_server)
{
	struct pair_options options = { 0 };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client) {
		struct ibv_sge sge = { .addr = (uintptr_t)p.buf + ARENA,
				       .length = room,
				       .lkey = p.mr->lkey ^ lkey_xor };
		struct ibv_recv_wr wr = { .wr_id = 3, .sg_list = &sge, .num_sge = 1 }, *bad;

		if (ibv_post_recv(p.qp, &wr, &bad))
			die("post_recv");
	}
	sync_ends(s);
	if (s->client) {
		if (post(&p, IBV_WR_SEND, 4, 0, 256, IBV_SEND_SIGNALED))
			die("post_send");
		expect_status(s, name, await(p.send_cq), at_client);
	} else {
		expect_status(s, name, await(p.recv_cq), at_server);
		expect_int(s, "recv.guard", p.buf[ARENA + room], 0);
	}
	expect_state(s, name, &p, IBV_QPS_ERR);
	sync_ends(s);
	pair_close(&p);
}

static void check_rnr(struct side *s)
{
	struct pair_options none = { .rnr_retry = 8 }, forever = { 0 };
	struct pair p;

	pair_open(s, &p, &none);
	if (s->client) {
		if (post(&p, IBV_WR_SEND, 1, 0, 16, IBV_SEND_SIGNALED))
			die("post_send");
		expect_status(s, "rnr.no_retry", await(p.send_cq), IBV_WC_RNR_RETRY_EXC_ERR);
	}
	sync_ends(s);
	expect_state(s, "rnr.no_retry_state", &p, s->client ? IBV_QPS_ERR : IBV_QPS_RTS);
	sync_ends(s);
	pair_close(&p);

	pair_open(s, &p, &forever);
	if (s->client) {
		if (post(&p, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 100000, IBV_SEND_SIGNALED) ||
		    post(&p, IBV_WR_SEND, 2, 0, 16, IBV_SEND_SIGNALED))
			die("post_send");
		expect_int(s, "rnr.waits", is_quiet(p.send_cq), 1);
	}
	sync_ends(s);
	if (!s->client && (post_recv(&p, 1, 0, 16) || post_recv(&p, 2, 0, 16)))
		die("post_recv");
	for (int64_t k = 1; k <= 2; k++) {
		struct ibv_wc wc = await(s->client ? p.send_cq : p.recv_cq);

		expect_status(s, "rnr.late_receive", wc, IBV_WC_SUCCESS);
		expect_int(s, "rnr.late_receive_wr_id", (int64_t)wc.wr_id, k);
	}
	sync_ends(s);
	pair_close(&p);
}

/* The server's QP is gone or in the error state: silence, then the retry counter runs out. */
static void check_silence(struct side *s, const char *name, bool destroyed)
{
	struct pair_options options = { .timeout = 12, .retry = 2 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client && destroyed)
		pair_close(&p);
	else if (!s->client && ibv_modify_qp(p.qp, &attr, IBV_QP_STATE))
		die("ibv_modify_qp");
	sync_ends(s);
	if (s->client) {
		if (post(&p, IBV_WR_RDMA_WRITE, 1, 0, 64, 0) ||
		    post(&p, IBV_WR_RDMA_WRITE, 2, 0, 64, 0))
			die("post_send");
		expect_status(s, name, await(p.send_cq), IBV_WC_RETRY_EXC_ERR);
		expect_status(s, "silence.next", await(p.send_cq), IBV_WC_WR_FLUSH_ERR);
		expect_state(s, "silence.state", &p, IBV_QPS_ERR);
	}
	sync_ends(s);
	if (s->client || !destroyed)
		pair_close(&p);
}

static void check_flush(struct side *s)
{
	struct pair_options options = { 0 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc;
	struct pair p;

	pair_open(s, &p, &options);
	for (uint64_t k = 0; k < 3; k++)
		if (post_recv(&p, k, ARENA, 64))
			die("post_recv");
	if (ibv_modify_qp(p.qp, &attr, IBV_QP_STATE))
		die("ibv_modify_qp");
	for (int64_t k = 0; k < 3; k++) {
		wc = await(p.recv_cq);
		expect_status(s, "flush.recv", wc, IBV_WC_WR_FLUSH_ERR);
		expect_int(s, "flush.recv_wr_id", (int64_t)wc.wr_id, k);
	}
	expect_errno(s, "flush.post_recv_in_err", post_recv(&p, 9, ARENA, 64), 0);
	expect_status(s, "flush.recv_in_err", await_for(s, "flush.recv_in_err", p.recv_cq),
		      IBV_WC_WR_FLUSH_ERR);
	expect_errno(s, "flush.post_send_in_err", post(&p, IBV_WR_SEND, 8, 0, 64, 0), 0);
	expect_status(s, "flush.send_in_err", await(p.send_cq), IBV_WC_WR_FLUSH_ERR);
	sync_ends(s);
	pair_close(&p);
}

/* Memory that was deregistered after its key was given out. */
static void check_stale_key(struct side *s)
{
	struct pair_options options = { 0 };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client) {
		if (ibv_dereg_mr(p.mr))
			die("ibv_dereg_mr");
		p.mr = ibv_reg_mr(s->pd, p.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
		if (!p.mr)
			die("ibv_reg_mr");
	}
	sync_ends(s);
	if (s->client) {
		if (post(&p, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED))
			die("post_send");
		expect_status(s, "write.stale_rkey", await(p.send_cq), IBV_WC_REM_ACCESS_ERR);
	}
	sync_ends(s);
	pair_close(&p);
}

void check_errors(struct side *s)
{
	for (size_t k = 0; k < sizeof(rdma_cases) / sizeof(rdma_cases[0]); k++)
		run_rdma_case(s, &rdma_cases[k]);
	run_recv_case(s, "recv.too_small", 0, 255, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
	run_recv_case(s, "recv.bad_lkey", 0xffff00, 4096, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
	check_rnr(s);
	check_silence(s, "silence.peer_in_err", false);
	check_silence(s, "silence.peer_destroyed", true);
	check_flush(s);
	check_stale_key(s);
}
