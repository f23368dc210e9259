/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of verbs that programs seldom meet, and then rely on. */
#include "tests/fabric/cases/faults.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PART  (1U << 20)
#define THERE (2 * PART) /* where a second request has its bytes */

/* A READ into the buffer's begin and, in the same list, @next of 64 bytes with the key off by @key.
 */
static void post_read_and(struct pair *p, enum ibv_wr_opcode next, uint32_t key)
{
	struct ibv_sge sge[2] = { { (uintptr_t)p->buf, PART, p->mr->lkey },
				  { (uintptr_t)p->buf + THERE, 64, p->mr->lkey } };
	struct ibv_send_wr second = { .wr_id = 2,
				      .sg_list = &sge[1],
				      .num_sge = 1,
				      .opcode = next,
				      .send_flags = IBV_SEND_SIGNALED },
			   first = { .wr_id = 1,
				     .next = &second,
				     .sg_list = &sge[0],
				     .num_sge = 1,
				     .opcode = IBV_WR_RDMA_READ,
				     .send_flags = IBV_SEND_SIGNALED };

	first.wr.rdma.remote_addr = p->peer.addr + ARENA;
	first.wr.rdma.rkey = p->peer.rkey;
	second.wr.rdma.remote_addr = p->peer.addr + THERE;
	second.wr.rdma.rkey = p->peer.rkey + key;
	require(post_wr(p, &first) == 0, "a post");
}

static void expect_read(struct pair *p, unsigned int seed)
{
	struct ibv_wc wc = await(p->send_cq);

	require(wc.status == IBV_WC_SUCCESS && wc.wr_id == 1, "the READ to complete first");
	require(pattern_holds(p->buf, PART, seed), "all of its bytes by then");
}

/* What comes after a READ is refused, or gets lost: the READ has its bytes all the same. */
static void read_then_refusal(struct side *s)
{
	struct pair_options options = { .timeout = 17, .retry = 7 };
	struct pair p;

	for (unsigned int k = 0; k < 3; k++) {
		pair_open(s, &p, &options);
		fill_pattern(p.buf + ARENA, PART, k + s->client);
		sync_ends(s);
		if (!s->client) {
			if (k == 2)
				ctl("rate 2/sup 500000");
			post_read_and(&p, k == 0 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, k == 1);
			if (k == 2) {
				ctl("port 2/sup down");
				require(is_quiet(p.send_cq), "nothing while the port is down");
				ctl("reset");
			}
			expect_read(&p, k + 1);
		}
		if (k == 0) {
			sync_ends(s);
			require(!s->client || post_recv(&p, 5, THERE, 64) == 0, "a receive");
		}
		if (!s->client)
			require(await(p.send_cq).status ==
					(k == 1 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS),
				"the second request's own status");
		sync_ends(s);
		pair_close(&p);
	}
}

static int to_state(struct pair *p, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state, .en_sqd_async_notify = 1 };

	return ibv_modify_qp(p->qp, &attr,
			     IBV_QP_STATE |
				     (state == IBV_QPS_SQD ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0));
}

/* SQD: what has begun ends, with an event; the rest stays until RTS. */
static void drains(struct side *s)
{
	struct pair_options options = { .timeout = 16 };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client) {
		ctl("rate 1/sup 200000");
		require(post(&p, IBV_WR_RDMA_WRITE, 1, 0, PART, IBV_SEND_SIGNALED) == 0 &&
				post(&p, IBV_WR_RDMA_READ, 2, 0, 64, IBV_SEND_SIGNALED) == 0,
			"two posts");
		require(to_state(&p, IBV_QPS_SQD) == 0, "RTS to SQD");
		ctl("reset");
		require(await(p.send_cq).status == IBV_WC_SUCCESS, "the first request to end");
		require(await_event(s, IBV_EVENT_SQ_DRAINED), "the event for it");
		require(is_quiet(p.send_cq) && state_of(&p) == IBV_QPS_SQD, "the second to stay");
		require(to_state(&p, IBV_QPS_RTS) == 0, "SQD to RTS");
		require(await(p.send_cq).status == IBV_WC_SUCCESS, "the second request to end");
	}
	sync_ends(s);
	pair_close(&p);
}

/* What a QP tells of packets: as many as came, whole requests and begun ones. */
static void tells_packets(struct side *s)
{
	struct pair_options options = { .reads_in = 4, .reads_out = 4 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_sge sge = { .length = 8 };
	struct ibv_send_wr add = { .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct pair p;
	uint32_t mtu;

	pair_open(s, &p, &options);
	sge.addr = (uintptr_t)p.buf;
	sge.lkey = p.mr->lkey;
	add.wr.atomic.remote_addr = p.peer.addr + ARENA;
	add.wr.atomic.rkey = p.peer.rkey;
	mtu = 128U << s->mtu;
	if (!s->client) {
		require(post(&p, IBV_WR_RDMA_WRITE, 1, 0, 3 * mtu + 1, 0) == 0 &&
				post(&p, IBV_WR_RDMA_WRITE, 1, 0, 0, 0) == 0 &&
				post(&p, IBV_WR_RDMA_READ, 1, 0, 2 * mtu, 0) == 0 &&
				post_wr(&p, &add) == 0 &&
				post(&p, IBV_WR_RDMA_WRITE, 1, 0, mtu, IBV_SEND_SIGNALED) == 0,
			"five posts");
		require(await(p.send_cq).status == IBV_WC_SUCCESS, "all of them to be done");
	}
	sync_ends(s);
	if (s->client)
		require(to_state(&p, IBV_QPS_ERR) == 0, "the QP to leave");
	require(ibv_query_qp(p.qp, &attr, IBV_QP_RQ_PSN, &init) == 0, "an answer");
	require(((attr.rq_psn - p.peer.psn) & 0xffffff) == (s->client ? 9 : 0),
		"the number of the next packet");
	sync_ends(s);
	pair_close(&p);
}

static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int k = 0; list && list[k]; k++)
		if (strcmp(ibv_get_device_name(list[k]), name) == 0)
			ctx = ibv_open_device(list[k]);
	ibv_free_device_list(list);
	require(ctx != NULL, name);
	return ctx;
}

static void expect_no_qp(struct side *s, struct ibv_qp_init_attr_ex *init, int want,
			 const char *what)
{
	init->comp_mask |= IBV_QP_INIT_ATTR_PD;
	init->pd = init->pd ? init->pd : s->pd;
	init->qp_type = IBV_QPT_RC;
	init->cap = (struct ibv_qp_cap){ 1, 1, 1, 1, 0 };
	errno = 0;
	require(!ibv_create_qp_ex(s->ctx, init) && errno == want, what);
}

/* Queues and domains of one device are strangers on another one, as with rails mixed up. */
static void wrong_objects(struct side *s)
{
	struct ibv_context *other = open_named("sout");
	struct ibv_comp_channel *channel = ibv_create_comp_channel(other);
	struct ibv_cq *mine = ibv_create_cq(s->ctx, 4, NULL, NULL, 0);
	struct ibv_cq *theirs = ibv_create_cq(other, 4, NULL, channel, 0);
	struct ibv_pd *pd = ibv_alloc_pd(other);
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	struct ibv_qp_init_attr_ex init;

	require(mine && theirs && srq, "objects on both devices");
	init = (struct ibv_qp_init_attr_ex){ .send_cq = theirs, .recv_cq = mine };
	expect_no_qp(s, &init, EINVAL, "no QP with another device's send CQ");
	init = (struct ibv_qp_init_attr_ex){ .send_cq = mine, .recv_cq = theirs };
	expect_no_qp(s, &init, EINVAL, "no QP with another device's receive CQ");
	init = (struct ibv_qp_init_attr_ex){ .send_cq = mine, .recv_cq = mine, .srq = srq };
	expect_no_qp(s, &init, EINVAL, "no QP with another device's SRQ");
	init = (struct ibv_qp_init_attr_ex){ .send_cq = mine, .recv_cq = mine, .pd = pd };
	expect_no_qp(s, &init, EINVAL, "no QP with another device's PD");
	init = (struct ibv_qp_init_attr_ex){ .send_cq = mine,
					     .recv_cq = mine,
					     .comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					     .send_ops_flags = IBV_QP_EX_WITH_BIND_MW };
	expect_no_qp(s, &init, EOPNOTSUPP, "no QP with an operation that isn't there");
	require(!ibv_create_cq(s->ctx, 4, NULL, channel, 0) && errno == EINVAL,
		"no CQ with another device's channel");
	require(!ibv_destroy_srq(srq) && !ibv_dealloc_pd(pd) && !ibv_destroy_cq(theirs) &&
			!ibv_destroy_comp_channel(channel) && !ibv_close_device(other) &&
			!ibv_destroy_cq(mine),
		"everything taken down");
}

static void expect_no_mr(struct side *s, void *at, int access, const char *what)
{
	errno = 0;
	require(!ibv_reg_mr(s->pd, at, 8192, access) && errno == EFAULT, what);
}

/* Memory that the kernel wouldn't pin for what is asked, and a DMA-BUF's end. */
static void wrong_memory(struct side *s)
{
	void *fixed = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *none = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("dmabuf", MFD_CLOEXEC);
	struct ibv_mr *mr;

	require(fixed != MAP_FAILED && none != MAP_FAILED && fd >= 0 && ftruncate(fd, 4096) == 0,
		"memory");
	expect_no_mr(s, fixed, IBV_ACCESS_LOCAL_WRITE, "no writing to read-only memory");
	expect_no_mr(s, none, IBV_ACCESS_REMOTE_READ, "no reading where nobody may");
	mr = ibv_reg_mr(s->pd, fixed, 8192, IBV_ACCESS_REMOTE_READ);
	require(mr && ibv_dereg_mr(mr) == 0, "reading of read-only memory");
	errno = 0;
	require(!ibv_reg_dmabuf_mr(s->pd, 0, 8192, 0, fd, IBV_ACCESS_LOCAL_WRITE) &&
			errno == EINVAL,
		"nothing past the end of a DMA-BUF");
	(void)close(fd);
	(void)munmap(fixed, 8192);
	(void)munmap(none, 8192);
}

/* The ibv_wr_* calls have no list to check; what can't be is refused when it ends. */
static void wrong_requests(struct side *s)
{
	struct pair_options options = { .no_connect = true };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.cap = { 4, 4, 1, 1, 64 },
		.pd = s->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
	};
	struct pair p;
	struct ibv_qp_ex *ex;

	pair_open(s, &p, &options);
	require(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE) == EINVAL, "no way from RESET to ERR");
	require(ibv_destroy_qp(p.qp) == 0, "a QP taken down");
	init.send_cq = p.send_cq;
	init.recv_cq = p.recv_cq;
	p.qp = ibv_create_qp_ex(s->ctx, &init);
	require(p.qp && to_init(&p, 0) == 0, "a QP with ibv_wr_*");
	require(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE) == 0, "INIT to ERR");
	ex = ibv_qp_to_qp_ex(p.qp);
	ibv_wr_start(ex);
	ibv_wr_atomic_fetch_add(ex, 1, 8, 1);
	ibv_wr_set_sge(ex, p.mr->lkey, (uintptr_t)p.buf, 16);
	require(ibv_wr_complete(ex) == EINVAL, "no atomic of 16 bytes");
	ibv_wr_start(ex);
	ibv_wr_rdma_read(ex, 1, 8);
	ibv_wr_set_inline_data(ex, p.buf, 8);
	require(ibv_wr_complete(ex) == EINVAL, "no inline READ");
	pair_close(&p);
}

static void refused(struct side *s)
{
	struct ibv_gid_entry entries[2];

	wrong_objects(s);
	wrong_memory(s);
	wrong_requests(s);
	require(ibv_query_gid_table(s->ctx, entries, 2, 0) == -EINVAL,
		"a GID table that is too small to be told");
	sync_ends(s);
	if (!s->client)
		ctl("gid 1/sup 5 10.9.1.77/v2");
	require(s->client || await_event(s, IBV_EVENT_GID_CHANGE), "the event for a GID");
	if (!s->client)
		ctl("reset 1/sup");
	require(s->client || await_event(s, IBV_EVENT_GID_CHANGE), "the event for a GID reset");
	sync_ends(s);
}

const struct fault_case rule_cases[] = {
	{ .name = "read-then-refusal", .run = read_then_refusal },
	{ .name = "drains", .run = drains },
	{ .name = "refused", .run = refused },
	{ .name = "tells-packets", .run = tells_packets },
	{ 0 },
};
