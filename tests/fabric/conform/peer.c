/* SPDX-License-Identifier: Apache-2.0 */
/* What all checks share: the line to the other end, QPs, waiting, and reporting. */
#include "tests/fabric/conform/conform.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REMOTE_ALL (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

void die(const char *what)
{
	(void)fprintf(stderr, "conform: %s: %s\n", what, strerror(errno));
	exit(3);
}

void swap_bytes(struct side *s, const void *mine, void *ret_theirs, size_t len)
{
	size_t have = 0;

	if (write(s->sock, mine, len) != (ssize_t)len)
		die("the other end is gone");
	while (have < len) {
		ssize_t n = read(s->sock, (char *)ret_theirs + have, len - have);

		if (n <= 0)
			die("the other end is gone");
		have += (size_t)n;
	}
}

void sync_ends(struct side *s)
{
	char mine = 's', theirs;

	swap_bytes(s, &mine, &theirs, 1);
}

/* --- QPs --- */

int to_init(struct pair *p, unsigned int access)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .pkey_index = p->pkey_index,
				    .qp_access_flags = access };

	return ibv_modify_qp(p->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int to_rtr(struct pair *p)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = p->side->mtu,
				    .dest_qp_num = p->peer.qpn,
				    .rq_psn = p->peer.psn,
				    .max_dest_rd_atomic = p->reads_in ? p->reads_in : 1,
				    .min_rnr_timer = 12,
				    .ah_attr = { .is_global = 1, .port_num = 1 } };

	memcpy(attr.ah_attr.grh.dgid.raw, p->peer.gid, 16);
	attr.ah_attr.grh.sgid_index = (uint8_t)p->side->gid_index;
	attr.ah_attr.grh.hop_limit = 64;
	return ibv_modify_qp(p->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

int to_rts(struct pair *p, const struct pair_options *options)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .sq_psn = p->mine.psn,
				    .timeout = options->timeout ? options->timeout : 18,
				    .retry_cnt = options->retry ? options->retry : 6,
				    .rnr_retry = options->rnr_retry ? options->rnr_retry & 7 : 7,
				    .max_rd_atomic = options->reads_out ? options->reads_out : 1 };

	return ibv_modify_qp(p->qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void make_qp(struct pair *p, const struct pair_options *o)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = o->recv_wr ? o->recv_wr : 16,
						   .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };

	if (o->srq) {
		p->srq = ibv_create_srq(p->side->pd, &srq);
		if (!p->srq)
			die("ibv_create_srq");
	}
	init.send_cq = p->send_cq;
	init.recv_cq = p->recv_cq;
	init.srq = p->srq;
	init.cap.max_send_wr = o->send_wr ? o->send_wr : 256;
	init.cap.max_recv_wr = o->recv_wr ? o->recv_wr : 256;
	init.cap.max_send_sge = 2;
	init.cap.max_recv_sge = 2;
	init.cap.max_inline_data = o->inline_bytes;
	p->qp = ibv_create_qp(p->side->pd, &init);
	if (!p->qp)
		die("ibv_create_qp");
}

void pair_open(struct side *s, struct pair *p, const struct pair_options *o)
{
	static uint32_t psn = 0x1234;
	size_t bytes = o->bytes ? o->bytes : BUF_BYTES;
	int cqe = o->cqe ? (int)o->cqe : 1024;
	struct address mine;

	memset(p, 0, sizeof(*p));
	p->side = s;
	p->pkey_index = o->pkey_index;
	p->reads_in = o->reads_in;
	p->buf = calloc(1, bytes);
	if (!p->buf)
		die("calloc");
	if (o->channel) {
		p->channel = ibv_create_comp_channel(s->ctx);
		if (!p->channel)
			die("ibv_create_comp_channel");
	}
	p->shares_cq = o->send_cq != NULL;
	p->send_cq = o->send_cq ? o->send_cq : ibv_create_cq(s->ctx, cqe, NULL, NULL, 0);
	p->recv_cq = ibv_create_cq(s->ctx, cqe, p, p->channel, 0);
	p->mr = ibv_reg_mr(
		s->pd, p->buf, bytes,
		(int)(o->mr_access ? o->mr_access : IBV_ACCESS_LOCAL_WRITE | REMOTE_ALL));
	if (!p->send_cq || !p->recv_cq || !p->mr)
		die("queues and memory");
	make_qp(p, o);
	psn += 77;
	mine = (struct address){ .qpn = p->qp->qp_num,
				 .psn = psn + s->client,
				 .rkey = p->mr->rkey,
				 .addr = (uintptr_t)p->buf };
	memcpy(mine.gid, s->gid.raw, 16);
	p->mine = mine;
	if (o->no_connect)
		return;
	/* Not from p: where gcc inlines all of it, it takes the first field for the whole. */
	swap_bytes(s, &mine, &p->peer, sizeof(mine));
	if (to_init(p, o->qp_access ? o->qp_access : REMOTE_ALL) || to_rtr(p) || to_rts(p, o))
		die("connecting a QP");
	sync_ends(s);
}

void pair_close(struct pair *p)
{
	if (ibv_destroy_qp(p->qp) || (p->srq && ibv_destroy_srq(p->srq)) || ibv_dereg_mr(p->mr) ||
	    (!p->shares_cq && ibv_destroy_cq(p->send_cq)) || ibv_destroy_cq(p->recv_cq) ||
	    (p->channel && ibv_destroy_comp_channel(p->channel)))
		die("taking down a QP");
	free(p->buf);
}

enum ibv_qp_state state_of(struct pair *p)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(p->qp, &attr, IBV_QP_STATE, &init))
		die("ibv_query_qp");
	return attr.qp_state;
}

/* --- waiting --- */

static uint64_t now_ms(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static uint64_t patience_ms(const struct side *s, const char *name)
{
	const char *at = s->absent ? strstr(s->absent, name) : NULL;
	size_t len = strlen(name);

	if (!at || (at != s->absent && at[-1] != ',') || (at[len] && at[len] != ','))
		return 60000;
	return 1000;
}

static struct ibv_wc await_ms(struct ibv_cq *cq, uint64_t ms)
{
	uint64_t end = now_ms() + ms;
	struct ibv_wc wc;

	while (now_ms() < end) {
		int n = ibv_poll_cq(cq, 1, &wc);

		if (n == 1)
			return wc;
		if (n < 0)
			break;
	}
	return (struct ibv_wc){ .status = (enum ibv_wc_status) - 1 };
}

struct ibv_wc await(struct ibv_cq *cq)
{
	return await_ms(cq, 60000);
}

struct ibv_wc await_for(struct side *s, const char *name, struct ibv_cq *cq)
{
	return await_ms(cq, patience_ms(s, name));
}

bool is_quiet(struct ibv_cq *cq)
{
	uint64_t end = now_ms() + 50;
	struct ibv_wc wc;

	while (now_ms() < end)
		if (ibv_poll_cq(cq, 1, &wc))
			return false;
	return true;
}

bool await_event(struct side *s, enum ibv_event_type type)
{
	struct pollfd fd = { .fd = s->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	bool found = false;

	while (!found && poll(&fd, 1, 5000) == 1) {
		if (ibv_get_async_event(s->ctx, &event))
			die("ibv_get_async_event");
		found = event.event_type == type;
		ibv_ack_async_event(&event);
	}
	return found;
}

/* --- posting --- */

int post_recv(struct pair *p, uint64_t id, uint64_t offset, uint32_t len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)p->buf + offset,
			       .length = len,
			       .lkey = p->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return p->srq ? ibv_post_srq_recv(p->srq, &wr, &bad) : ibv_post_recv(p->qp, &wr, &bad);
}

int post_wr(struct pair *p, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(p->qp, wr, &bad);
}

int post(struct pair *p, enum ibv_wr_opcode op, uint64_t id, uint64_t offset, uint32_t len,
	 unsigned int flags)
{
	struct ibv_sge sge = { .addr = (uintptr_t)p->buf + offset,
			       .length = len,
			       .lkey = p->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = &sge,
				  .num_sge = len ? 1 : 0,
				  .opcode = op,
				  .send_flags = flags,
				  .imm_data = (uint32_t)id };

	wr.wr.rdma.remote_addr = p->peer.addr + ARENA;
	wr.wr.rdma.rkey = p->peer.rkey;
	return post_wr(p, &wr);
}

void fill_pattern(uint8_t *to, size_t len, unsigned int seed)
{
	for (size_t k = 0; k < len; k++)
		to[k] = (uint8_t)(k * 7 + (k >> 8) + seed);
}

bool pattern_holds(const uint8_t *at, size_t len, unsigned int seed)
{
	for (size_t k = 0; k < len; k++)
		if (at[k] != (uint8_t)(k * 7 + (k >> 8) + seed))
			return false;
	return true;
}

/* --- reports --- */

void expect_str(struct side *s, const char *name, const char *seen, const char *want)
{
	bool same = strcmp(seen, want) == 0;

	s->checks++;
	s->failed += !same;
	(void)printf("%s %s: %s", same ? "ok  " : "DIFF", name, seen);
	if (!same)
		(void)printf(" (expected %s)", want);
	(void)printf("\n");
	(void)fflush(stdout);
}

void expect_int(struct side *s, const char *name, int64_t seen, int64_t want)
{
	char a[32], b[32];

	(void)snprintf(a, sizeof(a), "%" PRId64, seen);
	(void)snprintf(b, sizeof(b), "%" PRId64, want);
	expect_str(s, name, a, b);
}

void expect_status(struct side *s, const char *name, struct ibv_wc wc, enum ibv_wc_status want)
{
	expect_str(s, name, (int)wc.status == -1 ? "no completion" : ibv_wc_status_str(wc.status),
		   ibv_wc_status_str(want));
}

void expect_errno(struct side *s, const char *name, int seen, int want)
{
	const char *a = strerrorname_np(seen), *b = strerrorname_np(want);

	expect_str(s, name, a ? a : "?", b ? b : "?");
}

static const char *state_name(enum ibv_qp_state state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return (size_t)state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

/* The peer's refusal may reach the responder's own QP a moment after the completion. */
void expect_state(struct side *s, const char *name, struct pair *p, enum ibv_qp_state want)
{
	uint64_t end = now_ms() + 60000;

	while (state_of(p) != want && now_ms() < end)
		(void)usleep(1000);
	expect_str(s, name, state_name(state_of(p)), state_name(want));
}
