/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/plugin/fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include "plugin/verbs/verbs.h"

#define DEVICES	   4
#define EVENTS_MAX 16
#define COPY_MAX   (64u << 20) /* longer writes are checked and not done: they are about sizes */

/* A rule of verbs was broken: no test can go on. */
#define RULE(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			(void)fprintf(stderr, "verbs misused: %s (%s:%d)\n", #cond, __FILE__,      \
				      __LINE__);                                                   \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct context {
	struct ibv_context ctx; /* first */
	unsigned int device;
	unsigned int children;
	struct ibv_async_event event[EVENTS_MAX];
	unsigned int events;
	LIST_ENTRY(context) node;
};

struct mr {
	struct ibv_mr mr; /* first */
	unsigned int access;
	LIST_ENTRY(mr) node;
};

struct cq {
	struct ibv_cq cq; /* first */
	unsigned int depth, head, tail, users, most;
	struct {
		struct ibv_wc wc;
		uint32_t sq_seq; /* of a send: entries that its completion frees */
	} * entry;
};

struct srq {
	struct ibv_srq srq; /* first */
	unsigned int max, posted, users;
};

struct qp {
	struct ibv_qp qp; /* first */
	unsigned int device;
	uint32_t dest;
	uint32_t sq_posted, sq_freed;
	bool holds;
	unsigned int held;
	struct {
		struct ibv_wc wc;
		bool signalled;
		uint32_t sq_seq;
	} * hold; /* those that wait, room for max_send_wr */
	struct fake_qp_state state;
	LIST_ENTRY(qp) node;
};

#define PORT(address)                                                                              \
	{                                                                                          \
		.width = 2, .speed = 32, .mtu = IBV_MTU_4096,                                      \
		.link_layer = IBV_LINK_LAYER_ETHERNET, .ip = (address), .gid_first = 2,            \
		.gid_end = 4, .pkey = {                                                            \
			0xffff                                                                     \
		}                                                                                  \
	}

#define LIMITS                                                                                     \
	{                                                                                          \
		.max_srq = 4096, .max_qp_wr = 8192, .max_cqe = 65536                               \
	}

static struct {
	pthread_mutex_t lock;
	struct ibv_device device[DEVICES];
	unsigned int calls[FAKE_VERB_MAX];
	enum fake_verb fail_verb;
	unsigned int fail_skip;
	int fail_errno, failed;
	unsigned int live, live_mrs, mr_access;
	uint32_t next_key, next_qpn, max_msg;
	enum ibv_wc_status bad[DEVICES];
	struct fake_port port[DEVICES];
	struct fake_limits limits;
	struct ibv_ece ece[DEVICES];
	int dmabuf[DEVICES];
	unsigned int reads[DEVICES];
	int hidden;
	LIST_HEAD(, context) contexts;
	LIST_HEAD(, mr) mrs;
	LIST_HEAD(, qp) qps;
} fake = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.next_key = 0x1000,
	.next_qpn = 0x100,
	.max_msg = 1u << 30,
	.limits = LIMITS,
	.port = { PORT(0x0a000101), PORT(0x0a090101), PORT(0x0a000201), PORT(0x0a090201) },
	.dmabuf = { EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP },
};

static const char *const device_names[DEVICES] = { "sout", "sup", "sout2", "sup2" };

static const char *const verb_names[FAKE_VERB_MAX] = {
	[FAKE_LIST] = "get_device_list",
	[FAKE_OPEN] = "open_device",
	[FAKE_QUERY_DEVICE] = "query_device",
	[FAKE_QUERY_PORT] = "query_port",
	[FAKE_QUERY_GID] = "query_gid",
	[FAKE_ALLOC_PD] = "alloc_pd",
	[FAKE_REG_MR] = "reg_mr",
	[FAKE_CREATE_CQ] = "create_cq",
	[FAKE_CREATE_SRQ] = "create_srq",
	[FAKE_CREATE_QP] = "create_qp",
	[FAKE_MODIFY_QP] = "modify_qp",
	[FAKE_POST_SEND] = "post_send",
	[FAKE_POST_SRQ_RECV] = "post_srq_recv",
	[FAKE_POLL_CQ] = "poll_cq",
	[FAKE_DEREG_MR] = "dereg_mr",
	[FAKE_DESTROY_CQ] = "destroy_cq",
	[FAKE_DESTROY_SRQ] = "destroy_srq",
	[FAKE_DESTROY_QP] = "destroy_qp",
};

/* Zeroed; not by a function that a test of the plugin's allocations makes fail. */
static void *allocate(size_t size)
{
	void *block = NULL;

	RULE(posix_memalign(&block, 64, size) == 0);
	memset(block, 0, size);
	return block;
}

static void lock(void)
{
	(void)pthread_mutex_lock(&fake.lock);
}

static void unlock(void)
{
	(void)pthread_mutex_unlock(&fake.lock);
}

/* ---- control -------------------------------------------------------------------------------- */

void fake_fail(enum fake_verb verb, unsigned int skip, int err)
{
	lock();
	fake.fail_verb = verb;
	fake.fail_skip = skip;
	fake.fail_errno = err;
	fake.failed = 0;
	unlock();
}

int fake_failed(void)
{
	int failed;

	lock();
	failed = fake.failed;
	unlock();
	return failed;
}

unsigned int fake_calls(enum fake_verb verb)
{
	unsigned int calls;

	lock();
	calls = fake.calls[verb];
	unlock();
	return calls;
}

const char *fake_verb_name(enum fake_verb verb)
{
	return verb_names[verb];
}

unsigned int fake_live(void)
{
	unsigned int live;

	lock();
	live = fake.live;
	unlock();
	return live;
}

unsigned int fake_live_mrs(void)
{
	unsigned int live;

	lock();
	live = fake.live_mrs;
	unlock();
	return live;
}

unsigned int fake_mr_access(void)
{
	unsigned int access;

	lock();
	access = fake.mr_access;
	unlock();
	return access;
}

void fake_set_max_msg(uint32_t max)
{
	lock();
	fake.max_msg = max;
	unlock();
}

void fake_set_port(unsigned int device, const struct fake_port *port)
{
	lock();
	fake.port[device] = *port;
	unlock();
}

void fake_get_port(unsigned int device, struct fake_port *ret)
{
	lock();
	*ret = fake.port[device];
	unlock();
}

void fake_set_limits(const struct fake_limits *limits)
{
	lock();
	fake.limits = *limits;
	unlock();
}

void fake_reset_ports(void)
{
	static const struct fake_port start[DEVICES] = { PORT(0x0a000101), PORT(0x0a090101),
							 PORT(0x0a000201), PORT(0x0a090201) };

	lock();
	memcpy(fake.port, start, sizeof(start));
	fake.limits = (struct fake_limits)LIMITS;
	memset(fake.ece, 0, sizeof(fake.ece));
	for (unsigned int k = 0; k < DEVICES; k++)
		fake.dmabuf[k] = EOPNOTSUPP;
	unlock();
}

void fake_set_ece(unsigned int device, uint32_t vendor, uint32_t options)
{
	lock();
	fake.ece[device] = (struct ibv_ece){ .vendor_id = vendor, .options = options };
	unlock();
}

void fake_hide_devices(int hide)
{
	lock();
	fake.hidden = hide;
	unlock();
}

void fake_set_dmabuf(unsigned int device, int err)
{
	lock();
	fake.dmabuf[device] = err;
	unlock();
}

unsigned int fake_reads(unsigned int device)
{
	unsigned int reads;

	lock();
	reads = fake.reads[device];
	unlock();
	return reads;
}

void fake_bad_completion(unsigned int device, enum ibv_wc_status status)
{
	lock();
	fake.bad[device] = status;
	unlock();
}

/* Counts a call; what it should fail with, or 0. Under the lock. */
static int enter(enum fake_verb verb)
{
	int err = 0;

	fake.calls[verb]++;
	if (fake.fail_errno && fake.fail_verb == verb && fake.fail_skip-- == 0) {
		err = fake.fail_errno;
		fake.fail_errno = 0;
		fake.failed = 1;
	}
	return err;
}

static void *new_object(size_t size)
{
	fake.live++;
	return allocate(size);
}

static void free_object(void *object)
{
	fake.live--;
	free(object);
}

/* ---- devices -------------------------------------------------------------------------------- */

int mpib_verbs_load(void)
{
	return 0;
}

void mpib_verbs_unload(void)
{
}

bool mpib_verbs_has_iova2(void)
{
	return true;
}

int mpib_verbs_list(struct ibv_device ***ret_list, int *ret_count)
{
	static struct ibv_device *list[DEVICES + 1];
	int err;

	lock();
	err = enter(FAKE_LIST);
	for (unsigned int k = 0; k < DEVICES; k++) {
		list[k] = &fake.device[k];
		(void)snprintf(list[k]->ibdev_path, sizeof(list[k]->ibdev_path),
			       "/sys/class/infiniband/%s", device_names[k]);
	}
	*ret_count = fake.hidden ? 0 : DEVICES;
	unlock();
	if (err)
		return -err;
	*ret_list = list;
	return 0;
}

void mpib_verbs_free_list(struct ibv_device **list)
{
	(void)list;
}

const char *mpib_verbs_device_name(struct ibv_device *device)
{
	return device_names[device - fake.device];
}

static int post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
static int post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
static int poll_cq(struct ibv_cq *ibcq, int count, struct ibv_wc *wc);

int mpib_verbs_open(struct ibv_device *device, struct ibv_context **ret_ctx)
{
	struct context *context;
	int err;

	lock();
	err = enter(FAKE_OPEN);
	if (!err) {
		context = new_object(sizeof(*context));
		context->ctx.device = device;
		context->ctx.async_fd = eventfd(0, EFD_CLOEXEC);
		context->ctx.ops.post_send = post_send;
		context->ctx.ops.post_srq_recv = post_srq_recv;
		context->ctx.ops.poll_cq = poll_cq;
		context->device = (unsigned int)(device - fake.device);
		LIST_INSERT_HEAD(&fake.contexts, context, node);
		*ret_ctx = &context->ctx;
	}
	unlock();
	return -err;
}

void mpib_verbs_close(struct ibv_context *ctx)
{
	struct context *context = (struct context *)ctx;

	if (!ctx)
		return;
	lock();
	RULE(context->children == 0);
	(void)close(ctx->async_fd);
	LIST_REMOVE(context, node);
	free_object(context);
	unlock();
}

int mpib_verbs_query_device(struct ibv_context *ctx, struct ibv_device_attr *ret)
{
	struct fake_limits limits;
	int err;

	lock();
	err = enter(FAKE_QUERY_DEVICE);
	limits = fake.limits;
	unlock();
	memset(ret, 0, sizeof(*ret));
	ret->node_guid = 1 + (uint64_t)(ctx->device - fake.device);
	ret->max_qp = 4096;
	ret->max_srq_wr = 8192;
	ret->max_srq = limits.max_srq;
	ret->max_qp_wr = limits.max_qp_wr;
	ret->max_cqe = limits.max_cqe;
	ret->phys_port_cnt = 1;
	return -err;
}

int mpib_verbs_query_port(struct ibv_context *ctx, unsigned int port, struct ibv_port_attr *ret)
{
	struct fake_port as;
	int err;

	memset(ret, 0, sizeof(*ret));
	lock();
	err = enter(FAKE_QUERY_PORT);
	ret->max_msg_sz = fake.max_msg;
	as = fake.port[ctx->device - fake.device];
	unlock();
	if (port != 1)
		return -EINVAL;
	ret->state = IBV_PORT_ACTIVE;
	ret->active_mtu = as.mtu;
	ret->gid_tbl_len = 4;
	ret->active_width = as.width;
	ret->active_speed = as.speed <= UINT8_MAX ? (uint8_t)as.speed : 128;
	ret->pkey_tbl_len = 3;
	ret->link_layer = as.link_layer;
	ret->lid = as.lid;
	return -err;
}

uint32_t mpib_verbs_port_speed(struct ibv_context *ctx, unsigned int port,
			       const struct ibv_port_attr *attr)
{
	struct fake_port as;

	fake_get_port((unsigned int)(ctx->device - fake.device), &as);
	return port == 1 ? as.speed : attr->active_speed;
}

int mpib_verbs_query_pkey(struct ibv_context *ctx, unsigned int port, unsigned int index,
			  uint16_t *ret)
{
	struct fake_port as;

	fake_get_port((unsigned int)(ctx->device - fake.device), &as);
	if (port != 1 || index >= sizeof(as.pkey) / sizeof(as.pkey[0]) || !as.pkey[index])
		return -ENODATA;
	*ret = as.pkey[index];
	return 0;
}

int mpib_verbs_query_gid(struct ibv_context *ctx, unsigned int port, unsigned int index,
			 struct ibv_gid_entry *ret)
{
	bool infiniband, routable;
	struct fake_port as;
	uint32_t ip;
	int err;

	lock();
	err = enter(FAKE_QUERY_GID);
	as = fake.port[ctx->device - fake.device];
	unlock();
	ip = htonl(as.ip);
	routable = ip != 0 && index >= as.gid_first && index < as.gid_end;
	infiniband = as.link_layer == IBV_LINK_LAYER_INFINIBAND;
	memset(ret, 0, sizeof(*ret));
	if (err)
		return -err;
	if (index > 3)
		return -ENODATA;
	ret->gid_index = index;
	ret->port_num = port;
	ret->gid_type = index & 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	if (infiniband && index)
		return -ENODATA;
	if (infiniband)
		ret->gid_type = IBV_GID_TYPE_IB;
	if (!routable) {
		ret->gid.raw[0] = 0xfe;
		ret->gid.raw[1] = 0x80;
	} else {
		ret->gid.raw[10] = ret->gid.raw[11] = 0xff;
	}
	memcpy(ret->gid.raw + 12, &ip, 4);
	return 0;
}

/* ---- memory --------------------------------------------------------------------------------- */

int mpib_verbs_alloc_pd(struct ibv_context *ctx, struct ibv_pd **ret)
{
	struct ibv_pd *pd = NULL;
	int err;

	lock();
	err = enter(FAKE_ALLOC_PD);
	if (!err) {
		pd = new_object(sizeof(*pd));
		pd->context = ctx;
		((struct context *)ctx)->children++;
	}
	unlock();
	*ret = pd;
	return -err;
}

void mpib_verbs_dealloc_pd(struct ibv_pd *pd)
{
	if (!pd)
		return;
	lock();
	RULE(pd->handle == 0); /* what was made of it is gone */
	((struct context *)pd->context)->children--;
	free_object(pd);
	unlock();
}

int mpib_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t size, unsigned int access,
		      struct ibv_mr **ret)
{
	struct mr *mr;
	int err;

	lock();
	err = enter(FAKE_REG_MR);
	if (!err) {
		mr = new_object(sizeof(*mr));
		mr->mr.context = pd->context;
		mr->mr.pd = pd;
		mr->mr.addr = addr;
		mr->mr.length = size;
		mr->mr.lkey = mr->mr.rkey = fake.next_key++;
		mr->access = fake.mr_access = access;
		pd->handle++;
		fake.live_mrs++;
		LIST_INSERT_HEAD(&fake.mrs, mr, node);
		*ret = &mr->mr;
	}
	unlock();
	return -err;
}

int mpib_verbs_reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t size, uint64_t iova, int fd,
			  unsigned int access, struct ibv_mr **ret)
{
	int err;

	(void)offset;
	lock();
	err = fake.dmabuf[pd->context->device - fake.device];
	unlock();
	if (err)
		return -err;
	if (fd < 0)
		return -EBADF;
	return mpib_verbs_reg_mr(pd, (void *)(uintptr_t)iova, size, access, ret);
}

int mpib_verbs_dereg_mr(struct ibv_mr *mr)
{
	int err;

	if (!mr)
		return 0;
	lock();
	err = enter(FAKE_DEREG_MR);
	mr->pd->handle--;
	fake.live_mrs--;
	LIST_REMOVE((struct mr *)mr, node);
	free_object(mr);
	unlock();
	return -err;
}

static bool covered(uint32_t key, uint64_t addr, size_t len, unsigned int access,
		    const struct ibv_context *ctx)
{
	struct mr *mr;

	LIST_FOREACH(mr, &fake.mrs, node)
	if (mr->mr.lkey == key && mr->mr.context->device == ctx->device)
		return addr >= (uintptr_t)mr->mr.addr &&
		       addr + len <= (uintptr_t)mr->mr.addr + mr->mr.length &&
		       (mr->access & access) == access;
	return false;
}

/* ---- queues --------------------------------------------------------------------------------- */

int mpib_verbs_create_cq(struct ibv_context *ctx, int depth, void *owner, struct ibv_cq **ret)
{
	struct cq *cq;
	int err;

	lock();
	err = enter(FAKE_CREATE_CQ);
	if (!err) {
		cq = new_object(sizeof(*cq));
		cq->cq.context = ctx;
		cq->cq.cq_context = owner;
		cq->depth = (unsigned int)depth;
		cq->entry = allocate(cq->depth * sizeof(cq->entry[0]));
		((struct context *)ctx)->children++;
		*ret = &cq->cq;
	}
	unlock();
	return -err;
}

int mpib_verbs_destroy_cq(struct ibv_cq *ibcq)
{
	struct cq *cq = (struct cq *)ibcq;
	int err;

	if (!cq)
		return 0;
	lock();
	err = enter(FAKE_DESTROY_CQ);
	RULE(cq->users == 0);
	((struct context *)ibcq->context)->children--;
	free(cq->entry);
	free_object(cq);
	unlock();
	return -err;
}

static void complete(struct ibv_cq *ibcq, const struct ibv_wc *wc, uint32_t sq_seq)
{
	struct cq *cq = (struct cq *)ibcq;

	RULE(cq->head - cq->tail < cq->depth); /* no overflow, ever */
	cq->entry[cq->head % cq->depth].wc = *wc;
	cq->entry[cq->head % cq->depth].sq_seq = sq_seq;
	cq->head++;
	if (cq->head - cq->tail > cq->most)
		cq->most = cq->head - cq->tail;
}

static struct qp *find_qp(uint32_t qpn)
{
	struct qp *qp;

	LIST_FOREACH(qp, &fake.qps, node)
	if (qp->qp.qp_num == qpn)
		return qp;
	return NULL;
}

static int poll_cq(struct ibv_cq *ibcq, int count, struct ibv_wc *wc)
{
	struct cq *cq = (struct cq *)ibcq;
	int n = 0;

	lock();
	if (enter(FAKE_POLL_CQ)) {
		unlock();
		return -1;
	}
	while (n < count && cq->tail != cq->head) {
		unsigned int at = cq->tail++ % cq->depth;
		struct qp *qp = find_qp(cq->entry[at].wc.qp_num);

		wc[n++] = cq->entry[at].wc;
		if (qp && cq->entry[at].sq_seq)
			qp->sq_freed = cq->entry[at].sq_seq;
	}
	unlock();
	return n;
}

int mpib_verbs_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr, struct ibv_srq **ret)
{
	struct srq *srq;
	int err;

	lock();
	err = enter(FAKE_CREATE_SRQ);
	if (!err) {
		srq = new_object(sizeof(*srq));
		srq->srq.context = pd->context;
		srq->srq.pd = pd;
		srq->max = attr->attr.max_wr;
		pd->handle++;
		*ret = &srq->srq;
	}
	unlock();
	return -err;
}

int mpib_verbs_destroy_srq(struct ibv_srq *ibsrq)
{
	int err;

	if (!ibsrq)
		return 0;
	lock();
	err = enter(FAKE_DESTROY_SRQ);
	RULE(((struct srq *)ibsrq)->users == 0);
	ibsrq->pd->handle--;
	free_object(ibsrq);
	unlock();
	return -err;
}

static int post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct srq *srq = (struct srq *)ibsrq;
	int err;

	lock();
	err = enter(FAKE_POST_SRQ_RECV);
	for (; !err && wr; wr = wr->next) {
		if (srq->posted == srq->max)
			err = ENOMEM;
		else
			srq->posted++;
		if (err)
			break;
	}
	*bad = wr;
	unlock();
	return err;
}

/* ---- queue pairs ---------------------------------------------------------------------------- */

int mpib_verbs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct ibv_qp **ret)
{
	struct qp *qp;
	int err;

	lock();
	err = enter(FAKE_CREATE_QP);
	if (!err) {
		qp = new_object(sizeof(*qp));
		qp->qp.context = pd->context;
		qp->qp.pd = pd;
		qp->qp.qp_context = attr->qp_context;
		qp->qp.send_cq = attr->send_cq;
		qp->qp.recv_cq = attr->recv_cq;
		qp->qp.srq = attr->srq;
		qp->qp.qp_num = fake.next_qpn++;
		qp->qp.state = IBV_QPS_RESET;
		qp->state.cap = attr->cap;
		qp->hold = allocate(attr->cap.max_send_wr * sizeof(qp->hold[0]));
		qp->device = ((struct context *)pd->context)->device;
		pd->handle++;
		((struct cq *)attr->send_cq)->users++;
		if (attr->srq)
			((struct srq *)attr->srq)->users++;
		LIST_INSERT_HEAD(&fake.qps, qp, node);
		*ret = &qp->qp;
	}
	unlock();
	return -err;
}

static void note_attributes(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = from->pkey_index;
	if (mask & IBV_QP_AV)
		to->ah_attr = from->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = from->path_mtu;
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = from->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		to->retry_cnt = from->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		to->rnr_retry = from->rnr_retry;
}

int mpib_verbs_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct qp *qp = (struct qp *)ibqp;
	int err;

	lock();
	err = enter(FAKE_MODIFY_QP);
	if (!err && mask & IBV_QP_STATE) {
		if (attr->qp_state != IBV_QPS_ERR && attr->qp_state != ibqp->state + 1)
			err = EINVAL;
		else
			ibqp->state = attr->qp_state;
	}
	if (!err && mask & IBV_QP_DEST_QPN)
		qp->dest = attr->dest_qp_num;
	if (!err)
		note_attributes(&qp->state.attr, attr, mask);
	unlock();
	return -err;
}

int mpib_verbs_destroy_qp(struct ibv_qp *ibqp)
{
	struct qp *qp = (struct qp *)ibqp;
	int err;

	if (!qp)
		return 0;
	lock();
	err = enter(FAKE_DESTROY_QP);
	LIST_REMOVE(qp, node);
	((struct cq *)ibqp->send_cq)->users--;
	if (ibqp->srq)
		((struct srq *)ibqp->srq)->users--;
	ibqp->pd->handle--;
	free(qp->hold);
	free_object(qp);
	unlock();
	return -err;
}

int mpib_verbs_query_ece(struct ibv_qp *ibqp, struct ibv_ece *ret)
{
	struct qp *qp = (struct qp *)ibqp;
	int r = 0;

	lock();
	*ret = fake.ece[qp->device];
	if (!ret->vendor_id)
		r = -EOPNOTSUPP;
	if (qp->state.ece_vendor)
		ret->options = qp->state.ece_options;
	unlock();
	return r;
}

int mpib_verbs_set_ece(struct ibv_qp *ibqp, struct ibv_ece *ece)
{
	struct qp *qp = (struct qp *)ibqp;
	int r = 0;

	lock();
	RULE(ibqp->state == IBV_QPS_INIT); /* man ibv_set_ece: before RTR */
	if (fake.ece[qp->device].vendor_id != ece->vendor_id) {
		r = -EINVAL;
	} else {
		qp->state.ece_vendor = ece->vendor_id;
		qp->state.ece_options = fake.ece[qp->device].options & ece->options;
	}
	unlock();
	return r;
}

int fake_qp(uint32_t qpn, struct fake_qp_state *ret)
{
	struct qp *qp;

	lock();
	qp = find_qp(qpn);
	if (qp)
		*ret = qp->state;
	unlock();
	return qp ? 0 : -1;
}

static int receive(struct qp *dest, uint32_t imm_be, uint32_t len)
{
	struct ibv_wc wc = {
		.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
		.wc_flags = IBV_WC_WITH_IMM,
		.imm_data = imm_be,
		.byte_len = len,
		.qp_num = dest->qp.qp_num,
	};
	struct srq *srq = (struct srq *)dest->qp.srq;

	if (!srq || srq->posted == 0)
		return -1;
	srq->posted--;
	complete(dest->qp.recv_cq, &wc, 0);
	return 0;
}

/* What the other side makes of a request. */
static enum ibv_wc_status execute(struct qp *qp, struct qp *dest, const struct ibv_send_wr *wr,
				  size_t len)
{
	uint64_t remote = wr->wr.rdma.remote_addr;
	bool reads = wr->opcode == IBV_WR_RDMA_READ;

	if (!dest || dest->qp.state < IBV_QPS_RTR || dest->qp.state == IBV_QPS_ERR)
		return IBV_WC_RETRY_EXC_ERR;
	if (len && !(wr->send_flags & IBV_SEND_INLINE) &&
	    !covered(wr->sg_list->lkey, wr->sg_list->addr, len, 0, qp->qp.context))
		return IBV_WC_LOC_PROT_ERR;
	if (len &&
	    !covered(wr->wr.rdma.rkey, remote, len,
		     reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE, dest->qp.context))
		return IBV_WC_REM_ACCESS_ERR;
	if (len && reads)
		memcpy((void *)(uintptr_t)wr->sg_list->addr, (void *)(uintptr_t)remote, len);
	else if (len && len <= COPY_MAX)
		memcpy((void *)(uintptr_t)remote, (void *)(uintptr_t)wr->sg_list->addr, len);
	if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		RULE(receive(dest, wr->imm_data, (uint32_t)len) ==
		     0); /* a receive is always there */
	return IBV_WC_SUCCESS;
}

static int post_one(struct qp *qp, const struct ibv_send_wr *wr)
{
	size_t len = wr->num_sge ? wr->sg_list->length : 0;
	struct ibv_wc wc = { .wr_id = wr->wr_id, .qp_num = qp->qp.qp_num };
	struct qp *dest = find_qp(qp->dest);

	if (qp->qp.state != IBV_QPS_RTS && qp->qp.state != IBV_QPS_ERR)
		return EINVAL;
	RULE(qp->sq_posted - qp->sq_freed < qp->state.cap.max_send_wr); /* the queue has room */
	RULE(len <= fake.max_msg);
	RULE(!(wr->send_flags & IBV_SEND_INLINE) || len <= qp->state.cap.max_inline_data);
	qp->sq_posted++;
	if (qp->sq_posted - qp->sq_freed > qp->state.sq_most)
		qp->state.sq_most = qp->sq_posted - qp->sq_freed;
	if (qp->qp.state == IBV_QPS_ERR) {
		wc.status = IBV_WC_WR_FLUSH_ERR;
	} else if (fake.bad[qp->device]) {
		wc.status = fake.bad[qp->device];
		fake.bad[qp->device] = IBV_WC_SUCCESS;
	} else {
		wc.status = execute(qp, dest, wr, len);
	}
	if (wc.status) {
		qp->qp.state = IBV_QPS_ERR;
		if (dest && wc.status == IBV_WC_REM_ACCESS_ERR)
			dest->qp.state = IBV_QPS_ERR;
	}
	wc.opcode = IBV_WC_RDMA_WRITE;
	if (wr->opcode == IBV_WR_RDMA_READ) {
		wc.opcode = IBV_WC_RDMA_READ;
		fake.reads[qp->device]++;
	}
	if (qp->holds) {
		qp->hold[qp->held].wc = wc;
		qp->hold[qp->held].signalled = wr->send_flags & IBV_SEND_SIGNALED || wc.status;
		qp->hold[qp->held++].sq_seq = qp->sq_posted;
	} else if (wr->send_flags & IBV_SEND_SIGNALED || wc.status) {
		complete(qp->qp.send_cq, &wc, qp->sq_posted);
	}
	return 0;
}

static int post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int err;

	lock();
	err = enter(FAKE_POST_SEND);
	for (; !err && wr; wr = wr->next) {
		err = post_one((struct qp *)ibqp, wr);
		if (err)
			break;
	}
	*bad = wr;
	unlock();
	return err;
}

void fake_hold(uint32_t qpn)
{
	lock();
	find_qp(qpn)->holds = true;
	unlock();
}

static void let_go(uint32_t qpn, bool fails)
{
	struct qp *qp;

	lock();
	qp = find_qp(qpn);
	qp->holds = false;
	for (unsigned int k = 0; k < qp->held; k++) {
		if (fails)
			qp->hold[k].wc.status = IBV_WC_WR_FLUSH_ERR;
		if (fails || qp->hold[k].signalled)
			complete(qp->qp.send_cq, &qp->hold[k].wc, qp->hold[k].sq_seq);
	}
	qp->held = 0;
	if (fails)
		qp->qp.state = IBV_QPS_ERR;
	unlock();
}

void fake_let_go(uint32_t qpn)
{
	let_go(qpn, false);
}

void fake_fail_qp(uint32_t qpn)
{
	let_go(qpn, true);
}

unsigned int fake_cq_most(const struct ibv_cq *cq)
{
	unsigned int most;

	lock();
	most = ((const struct cq *)cq)->most;
	unlock();
	return most;
}

int fake_immediate(uint32_t qpn, uint32_t imm, uint32_t byte_len)
{
	struct qp *qp;
	int r = -1;

	lock();
	qp = find_qp(qpn);
	if (qp)
		r = receive(qp, htonl(imm), byte_len);
	unlock();
	return r;
}

/* ---- events --------------------------------------------------------------------------------- */

void fake_event(unsigned int device, enum ibv_event_type type)
{
	fake_port_event(device, type, 1);
}

void fake_port_event(unsigned int device, enum ibv_event_type type, int port)
{
	struct context *context;
	uint64_t one = 1;
	struct qp *qp;

	lock();
	LIST_FOREACH(context, &fake.contexts, node)
	{
		struct ibv_async_event *event = &context->event[context->events];

		if (context->device != device || context->events == EVENTS_MAX)
			continue;
		event->event_type = type;
		event->element.port_num = port;
		LIST_FOREACH(qp, &fake.qps, node)
		{
			if (qp->device != device || type > IBV_EVENT_QP_ACCESS_ERR)
				continue;
			if (type == IBV_EVENT_CQ_ERR)
				event->element.cq = qp->qp.recv_cq;
			else
				event->element.qp = &qp->qp;
		}
		context->events++;
		(void)!write(context->ctx.async_fd, &one, sizeof(one));
	}
	unlock();
}

int mpib_verbs_async_event(struct ibv_context *ctx, struct ibv_async_event *ret)
{
	struct context *context = (struct context *)ctx;
	uint64_t value;
	int r = 0;

	lock();
	(void)!read(ctx->async_fd, &value, sizeof(value));
	if (context->events) {
		*ret = context->event[--context->events];
		r = 1;
	}
	unlock();
	return r;
}

void mpib_verbs_ack_event(struct ibv_async_event *event)
{
	(void)event;
}

const char *mpib_verbs_wc_text(enum ibv_wc_status status)
{
	return status == IBV_WC_REM_ACCESS_ERR ? "remote access error" : "bad status";
}

const char *mpib_verbs_event_text(enum ibv_event_type type)
{
	return type == IBV_EVENT_DEVICE_FATAL ? "device fatal" : "some event";
}
