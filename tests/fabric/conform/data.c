/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that arrive: all operations, sizes, byte counts, immediate data and order. The client
 * asks, the server looks. */
#include "tests/fabric/conform/conform.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const uint32_t sizes[] = { 0, 1, 127, 4096, 65536, (1 << 20) + 3 };

static void check_sends(struct side *s)
{
	struct pair_options options = { 0 };
	struct pair p;
	char name[64];

	pair_open(s, &p, &options);
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		struct ibv_wc wc;

		if (!s->client && post_recv(&p, k, ARENA, BUF_BYTES - ARENA))
			die("post_recv");
		sync_ends(s);
		if (s->client) {
			fill_pattern(p.buf, sizes[k], (unsigned int)k);
			if (post(&p, k % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, k, 0, sizes[k],
				 IBV_SEND_SIGNALED))
				die("post_send");
		}
		wc = await(s->client ? p.send_cq : p.recv_cq);
		(void)snprintf(name, sizeof(name), "send.%u", sizes[k]);
		expect_status(s, name, wc, IBV_WC_SUCCESS);
		if (!s->client) {
			expect_int(s, "send.byte_len", wc.byte_len, sizes[k]);
			expect_int(s, "send.opcode", wc.opcode, IBV_WC_RECV);
			expect_int(s, "send.imm_flag", wc.wc_flags & IBV_WC_WITH_IMM,
				   k % 2 ? IBV_WC_WITH_IMM : 0);
			expect_int(s, "send.imm", k % 2 ? wc.imm_data : k, (int64_t)k);
			expect_int(s, "send.data",
				   pattern_holds(p.buf + ARENA, sizes[k], (unsigned int)k), 1);
			expect_int(s, "send.qp_num", wc.qp_num == p.qp->qp_num, 1);
		}
	}
	sync_ends(s);
	pair_close(&p);
}

static void check_writes(struct side *s)
{
	struct pair_options options = { .inline_bytes = 64 };
	struct pair p;
	char name[64];

	pair_open(s, &p, &options);
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		struct ibv_wc wc;

		if (!s->client && post_recv(&p, 100 + k, 0, 0))
			die("post_recv");
		sync_ends(s);
		if (s->client) {
			fill_pattern(p.buf, sizes[k], (unsigned int)k);
			if (post(&p, IBV_WR_RDMA_WRITE_WITH_IMM, k, 0, sizes[k], IBV_SEND_SIGNALED))
				die("post_send");
		}
		wc = await(s->client ? p.send_cq : p.recv_cq);
		(void)snprintf(name, sizeof(name), "write_imm.%u", sizes[k]);
		expect_status(s, name, wc, IBV_WC_SUCCESS);
		if (!s->client) {
			expect_int(s, "write_imm.byte_len", wc.byte_len, sizes[k]);
			expect_int(s, "write_imm.opcode", wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
			expect_int(s, "write_imm.imm", wc.imm_data, (int64_t)k);
			expect_int(s, "write_imm.wr_id", (int64_t)wc.wr_id, 100 + (int64_t)k);
			expect_int(s, "write_imm.data",
				   pattern_holds(p.buf + ARENA, sizes[k], (unsigned int)k), 1);
			expect_int(s, "write_imm.guard",
				   p.buf[ARENA + sizes[k]] == 0 || k == 0 ||
					   sizes[k] < sizes[k - 1],
				   1);
		}
	}
	sync_ends(s);
	if (s->client) { /* inline: the bytes are taken at once */
		memset(p.buf, 0x5a, 64);
		if (post(&p, IBV_WR_RDMA_WRITE, 7, 0, 64, IBV_SEND_SIGNALED | IBV_SEND_INLINE))
			die("post_send");
		memset(p.buf, 0, 64);
		expect_status(s, "write.inline", await(p.send_cq), IBV_WC_SUCCESS);
	}
	sync_ends(s);
	if (!s->client)
		expect_int(s, "write.inline_data",
			   p.buf[ARENA] == 0x5a && p.buf[ARENA + 63] == 0x5a, 1);
	pair_close(&p);
}

static void check_reads(struct side *s)
{
	struct pair_options options = { 0 };
	struct pair p;
	struct ibv_wc wc;

	pair_open(s, &p, &options);
	fill_pattern(p.buf + ARENA, BUF_BYTES - ARENA, 9);
	sync_ends(s);
	for (size_t k = 1; s->client && k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		char name[64];

		memset(p.buf, 0, BUF_BYTES);
		if (post(&p, IBV_WR_RDMA_READ, k, 64, sizes[k], IBV_SEND_SIGNALED))
			die("post_send");
		wc = await(p.send_cq);
		(void)snprintf(name, sizeof(name), "read.%u", sizes[k]);
		expect_status(s, name, wc, IBV_WC_SUCCESS);
		expect_int(s, "read.opcode", wc.opcode, IBV_WC_RDMA_READ);
		expect_int(s, "read.data", pattern_holds(p.buf + 64, sizes[k], 9), 1);
		expect_int(s, "read.guard", p.buf[63] == 0 && p.buf[64 + sizes[k]] == 0, 1);
	}
	sync_ends(s);
	pair_close(&p);
}

static int post_atomic(struct pair *p, enum ibv_wr_opcode op, uint64_t compare_add, uint64_t swap,
		       uint64_t offset)
{
	struct ibv_sge sge = { .addr = (uintptr_t)p->buf, .length = 8, .lkey = p->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED
	};

	wr.wr.atomic.remote_addr = p->peer.addr + offset;
	wr.wr.atomic.rkey = p->peer.rkey;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	return post_wr(p, &wr);
}

static void check_atomics(struct side *s)
{
	struct pair_options options = { 0 };
	struct pair p;
	uint64_t value = 40;

	pair_open(s, &p, &options);
	memcpy(p.buf + ARENA, &value, 8);
	sync_ends(s);
	if (s->client) {
		if (post_atomic(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0, ARENA))
			die("post_send");
		expect_status(s, "fetch_add", await(p.send_cq), IBV_WC_SUCCESS);
		memcpy(&value, p.buf, 8);
		expect_int(s, "fetch_add.old", (int64_t)value, 40);
		if (post_atomic(&p, IBV_WR_ATOMIC_CMP_AND_SWP, 42, 99, ARENA))
			die("post_send");
		expect_status(s, "cmp_swap", await(p.send_cq), IBV_WC_SUCCESS);
		memcpy(&value, p.buf, 8);
		expect_int(s, "cmp_swap.old", (int64_t)value, 42);
		if (post_atomic(&p, IBV_WR_ATOMIC_CMP_AND_SWP, 42, 7, ARENA))
			die("post_send");
		expect_status(s, "cmp_swap.no_match", await(p.send_cq), IBV_WC_SUCCESS);
		memcpy(&value, p.buf, 8);
		expect_int(s, "cmp_swap.no_match_old", (int64_t)value, 99);
	}
	sync_ends(s);
	if (!s->client) {
		memcpy(&value, p.buf + ARENA, 8);
		expect_int(s, "atomics.final", (int64_t)value, 99);
	}
	pair_close(&p);
}

void check_data(struct side *s)
{
	check_sends(s);
	check_writes(s);
	check_reads(s);
	check_atomics(s);
}

/* --- order --- */

/* Many writes to one place without a signal, then one with immediate data: its completion proves
 * all of them, and the last one won. */
static void check_last_write_wins(struct side *s)
{
	struct pair_options options = { 0 };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client && post_recv(&p, 1, 0, 0))
		die("post_recv");
	sync_ends(s);
	for (uint32_t k = 1; s->client && k <= 200; k++) {
		memcpy(p.buf + 8 * (size_t)k, &k, 4);
		if (post(&p, k < 200 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM, k,
			 8 * (uint64_t)k, 4, k < 200 ? 0 : IBV_SEND_SIGNALED))
			die("post_send");
	}
	if (s->client) {
		struct ibv_wc wc = await(p.send_cq);

		expect_status(s, "order.unsignalled", wc, IBV_WC_SUCCESS);
		expect_int(s, "order.unsignalled_wr_id", (int64_t)wc.wr_id, 200);
		expect_int(s, "order.unsignalled_silent", is_quiet(p.send_cq), 1);
	} else {
		uint32_t last;

		expect_status(s, "order.imm_after_writes", await(p.recv_cq), IBV_WC_SUCCESS);
		memcpy(&last, p.buf + ARENA, 4);
		expect_int(s, "order.last_write_wins", last, 200);
	}
	sync_ends(s);
	pair_close(&p);
}

static void check_completion_order(struct side *s)
{
	struct pair_options options = { 0 };
	unsigned int in_order = 0;
	struct pair p;

	pair_open(s, &p, &options);
	for (uint64_t k = 0; !s->client && k < 128; k++)
		if (post_recv(&p, k, ARENA, 4096))
			die("post_recv");
	sync_ends(s);
	for (uint64_t k = 0; s->client && k < 128; k++)
		if (post(&p, k % 3 ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM, k, 0,
			 (uint32_t)(k * 31), IBV_SEND_SIGNALED))
			die("post_send");
	for (uint64_t k = 0; k < 128; k++) {
		struct ibv_wc wc = await(s->client ? p.send_cq : p.recv_cq);

		in_order += wc.status == IBV_WC_SUCCESS && wc.wr_id == k &&
			    (s->client || (wc.imm_data == k && wc.byte_len == k * 31));
	}
	expect_int(s, "order.completions", in_order, 128);
	sync_ends(s);
	pair_close(&p);
}

/* A fenced send waits for the READ before it. */
static void check_fence(struct side *s)
{
	struct pair_options options = { 0 };
	struct ibv_wc first, second;
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client && post_recv(&p, 1, 0, 4096))
		die("post_recv");
	fill_pattern(p.buf + ARENA, 65536, 3);
	sync_ends(s);
	if (s->client) {
		if (post(&p, IBV_WR_RDMA_READ, 1, 1 << 20, 65536, IBV_SEND_SIGNALED) ||
		    post(&p, IBV_WR_SEND, 2, 1 << 20, 4096, IBV_SEND_SIGNALED | IBV_SEND_FENCE))
			die("post_send");
		first = await(p.send_cq);
		second = await(p.send_cq);
		expect_int(s, "order.fence_completions", first.wr_id == 1 && second.wr_id == 2, 1);
		expect_status(s, "order.fence_send", second, IBV_WC_SUCCESS);
	} else {
		expect_status(s, "order.fence_recv", await(p.recv_cq), IBV_WC_SUCCESS);
		expect_int(s, "order.fence_data", pattern_holds(p.buf, 4096, 3), 1);
	}
	sync_ends(s);
	pair_close(&p);
}

void check_order(struct side *s)
{
	check_last_write_wins(s);
	check_completion_order(s);
	check_fence(s);
}
