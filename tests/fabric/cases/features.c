/* SPDX-License-Identifier: Apache-2.0 */
/* What devices differ in: partitions, and those without shared receive queues or atomics. */
#include "tests/fabric/cases/faults.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static const char partitions_config[] =
	"[fabric]\nname = partitions\n[device sup]\n"
	"[node 1]\nsup.address = 10.9.1.1\nsup.pkeys = 0x7fff 0x8003 0x0003\n"
	"[node 2]\nsup.address = 10.9.1.2\nsup.pkeys = 0x8003 0x0003 0x8004\n";

static void expect_write(struct side *s, unsigned int here, unsigned int there, bool arrives)
{
	struct pair_options options = { .timeout = 8,
					.retry = 1,
					.pkey_index = (uint16_t)(s->client ? there : here) };
	struct pair p;

	pair_open(s, &p, &options);
	if (!s->client)
		require(write_once(&p, 64) == (arrives ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR),
			arrives ? "a write within a partition" : "no write between partitions");
	sync_ends(s);
	pair_close(&p);
}

static void partitions(struct side *s)
{
	static const uint16_t keys[2][3] = { { 0x7fff, 0x8003, 0x0003 },
					     { 0x8003, 0x0003, 0x8004 } };
	struct pair_options options = { .no_connect = true };
	struct ibv_port_attr port;
	__be16 key = 0;
	struct pair p;

	require(ibv_query_port(s->ctx, 1, &port) == 0 && port.pkey_tbl_len == 3, "three keys");
	for (int k = 0; k < 3; k++) {
		require(ibv_query_pkey(s->ctx, 1, k, &key) == 0 &&
				be16toh(key) == keys[s->client][k],
			"the keys in their order");
		require(ibv_get_pkey_index(s->ctx, 1, key) == k, "and found by key");
	}
	require(ibv_query_pkey(s->ctx, 1, 3, &key) == -1, "no fourth one");
	pair_open(s, &p, &options);
	p.pkey_index = 3;
	require(to_init(&p, 0) == EINVAL, "no QP in a partition that isn't");
	pair_close(&p);

	expect_write(s, 1, 0, true);  /* both full */
	expect_write(s, 2, 0, true);  /* a limited member to a full one */
	expect_write(s, 1, 1, true);  /* and the other way */
	expect_write(s, 2, 1, false); /* two limited ones */
	expect_write(s, 1, 2, false); /* 0x8003 to 0x8004 */
}

static const char plain_config[] =
	"[fabric]\nname = plain\n[device sup]\nmax_srq = 0\natomics = no\nmax_inline = 32\n"
	"relaxed_ordering = no\n"
	"active_width = 2\nactive_speed = 256\n"
	"[node 1]\nsup.address = 10.9.1.1\n[node 2]\nsup.address = 10.9.1.2\n";

/* A device without shared receive queues, atomics and much inline data, at 800 Gbit/s. */
static void plain_device(struct side *s)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct {
		struct ibv_port_attr attr;
		uint32_t active_speed_ex;
	} port = { 0 };
	static char word[8];
	struct ibv_device_attr attr;
	struct pair_options options = { 0 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .send_flags = IBV_SEND_SIGNALED,
				  .num_sge = 1 };
	struct ibv_sge sge = { 0 };
	struct ibv_qp_init_attr qp = { 0 };
	struct pair p;

	require(ibv_query_device(s->ctx, &attr) == 0 && attr.max_srq == 0 && attr.max_srq_wr == 0,
		"no shared receive queues");
	require(attr.atomic_cap == IBV_ATOMIC_NONE, "no atomics");
	errno = 0;
	require(!ibv_create_srq(s->pd, &init) && errno == EOPNOTSUPP, "and none is made");
	errno = 0;
	require(!ibv_reg_mr_iova2(s->pd, word, sizeof(word), (uintptr_t)word,
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING) &&
			errno == EINVAL,
		"no relaxed ordering");
	require(verbs_get_ctx(s->ctx)->query_port(s->ctx, 1, &port.attr, sizeof(port)) == 0 &&
			port.active_speed_ex == 256 && port.attr.active_speed == 128 &&
			port.attr.active_width == 2,
		"the speed beyond eight bits");

	pair_open(s, &p, &options);
	qp.send_cq = qp.recv_cq = p.send_cq;
	qp.qp_type = IBV_QPT_RC;
	qp.cap = (struct ibv_qp_cap){ 1, 1, 1, 1, 33 };
	require(!ibv_create_qp(s->pd, &qp) && errno == EINVAL, "33 bytes inline are refused");
	if (!s->client) {
		sge = (struct ibv_sge){ (uintptr_t)p.buf, 8, p.mr->lkey };
		wr.sg_list = &sge;
		wr.wr.atomic.remote_addr = p.peer.addr;
		wr.wr.atomic.rkey = p.peer.rkey;
		require(post_wr(&p, &wr) == 0 && await(p.send_cq).status == IBV_WC_REM_INV_REQ_ERR,
			"an atomic is refused");
	}
	sync_ends(s);
	pair_close(&p);
}

static const char limits_config[] =
	"[fabric]\nname = limits\n[device sup]\nmax_qp = 3\nmax_cq = 3\nmax_srq = 2\nmax_mr = 3\n"
	"max_sge = 2\nmax_qp_wr = 700\nmax_srq_wr = 5\nmax_cqe = 1200\nlimit_errno = 11\n"
	"[node 1]\nsup.address = 10.9.1.1\n[node 2]\nsup.address = 10.9.1.2\n";

/* Makes as many as there is room for, wants EAGAIN for the next one, and room again after one went.
 */
#define EXHAUST(type, most, make, destroy)                                                         \
	do {                                                                                       \
		type *made[8] = { NULL }; /* NOLINT(bugprone-macro-parentheses): a type */         \
		unsigned int n = 0;                                                                \
		while (n < 8 && (made[n] = (make)))                                                \
			n++;                                                                       \
		require(n == (most) && errno == EAGAIN, "so many " #type);                         \
		require(destroy(made[0]) == 0 && (made[0] = (make)), "and one for one " #type);    \
		while (n--)                                                                        \
			require(destroy(made[n]) == 0, "which go");                                \
	} while (0)

/* Of each kind of object as many as configured, and no queue that is longer. */
static void limits(struct side *s)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 5, .max_sge = 2 } };
	struct pair_options options = { 0 };
	struct ibv_qp_init_attr qp = { 0 };
	struct ibv_device_attr attr;
	static char word[8];
	struct pair p;

	pair_open(s, &p, &options);
	require(ibv_query_device(s->ctx, &attr) == 0 && attr.max_qp == 3 && attr.max_cq == 3 &&
			attr.max_srq == 2 && attr.max_mr == 3 && attr.max_sge == 2 &&
			attr.max_srq_sge == 2,
		"what the device tells");
	qp = (struct ibv_qp_init_attr){ .send_cq = p.send_cq,
					.recv_cq = p.recv_cq,
					.qp_type = IBV_QPT_RC,
					.cap = { 700, 700, 2, 2, 0 } };
	EXHAUST(struct ibv_qp, 2, ibv_create_qp(s->pd, &qp), ibv_destroy_qp);
	EXHAUST(struct ibv_cq, 1, ibv_create_cq(s->ctx, 1200, NULL, NULL, 0), ibv_destroy_cq);
	EXHAUST(struct ibv_srq, 2, ibv_create_srq(s->pd, &srq), ibv_destroy_srq);
	EXHAUST(struct ibv_mr, 2, ibv_reg_mr(s->pd, word, sizeof(word), 0), ibv_dereg_mr);
	qp.cap.max_send_sge = 3;
	require(!ibv_create_qp(s->pd, &qp) && errno == EINVAL, "no three pieces");
	qp.cap = (struct ibv_qp_cap){ 701, 1, 1, 1, 0 };
	require(!ibv_create_qp(s->pd, &qp) && errno == EINVAL, "no longer queue");
	require(!ibv_create_cq(s->ctx, 1201, NULL, NULL, 0) && errno == EINVAL, "nor a CQ's");
	srq.attr.max_wr = 6;
	require(!ibv_create_srq(s->pd, &srq) && errno == EINVAL, "nor a shared one");
	sync_ends(s);
	pair_close(&p);
}

static const char inline_config[] =
	"[fabric]\nname = inline\n[device sup]\nmax_inline = 220\ninline_step = 64\n"
	"[node 1]\nsup.address = 10.9.1.1\n[node 2]\nsup.address = 10.9.1.2\n";

/* A QP may get more inline data than it asked for, and is told so. */
static void inline_sizes(struct side *s)
{
	static const uint32_t wanted[] = { 0, 1, 64, 65, 200, 220 };
	static const uint32_t got[] = { 0, 64, 64, 128, 220, 220 };
	struct pair_options options = { 0 };
	struct pair p;

	pair_open(s, &p, &options);
	for (size_t k = 0; k < sizeof(wanted) / sizeof(wanted[0]); k++) {
		struct ibv_qp_init_attr init = { .send_cq = p.send_cq,
						 .recv_cq = p.recv_cq,
						 .qp_type = IBV_QPT_RC,
						 .cap = { 1, 1, 1, 1, wanted[k] } };
		struct ibv_qp *qp = ibv_create_qp(s->pd, &init);

		require(qp && init.cap.max_inline_data == got[k], "what was asked for, or more");
		require(ibv_destroy_qp(qp) == 0, "and it goes");
	}
	sync_ends(s);
	pair_close(&p);
}

const struct fault_case feature_cases[] = {
	{ .name = "inline-sizes", .run = inline_sizes, .config = inline_config },
	{ .name = "limits", .run = limits, .config = limits_config },
	{ .name = "partitions", .run = partitions, .config = partitions_config },
	{ .name = "plain-device", .run = plain_device, .config = plain_config },
	{ 0 },
};
