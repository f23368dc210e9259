/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/split.h"
#include "plugin/clock.h"
#include "plugin/counters.h"
#include "plugin/flush.h"
#include "plugin/log.h"
#include "plugin/qp.h"
#include "plugin/result.h"
#include "plugin/srq.h"
#include "plugin/transfer.h"

#define CACHE_LINE 64

/* Under the watch lock. */
static struct mpib_comm *all_comms;

/* Ring of a sender: CTS rows, then staging for completion records. Of a receiver: staging for CTS
 * rows, then the completion records. */
#define ROWS_SIZE    (MPIB_ROWS * sizeof(struct mpib_cts_row))
#define RECORDS_SIZE (MPIB_ROWS * MPIB_GROUP_MAX * sizeof(uint64_t))
#define RING_SIZE    (ROWS_SIZE + RECORDS_SIZE + MPIB_FLUSH_SCRATCH)

/* ---- making -------------------------------------------------------------------------------- */

static int pool_init(struct mpib_comm *comm)
{
	struct mpib_request_pool *pool = &comm->pool;

	pool->requests = aligned_alloc(CACHE_LINE, MPIB_REQUESTS_MAX * sizeof(struct mpib_request));
	if (!pool->requests)
		return -ENOMEM;
	memset(pool->requests, 0, MPIB_REQUESTS_MAX * sizeof(struct mpib_request));
	for (uint16_t k = 0; k < MPIB_REQUESTS_MAX; k++) {
		pool->requests[k].comm = comm;
		pool->requests[k].index = k;
		pool->free_list[k] = (uint16_t)(MPIB_REQUESTS_MAX - 1 - k);
	}
	pool->free_count = MPIB_REQUESTS_MAX;
	return 0;
}

int mpib_comm_new(enum mpib_counter_kind kind, struct mpib_device *dev, const struct mpib_env *env,
		  int traffic_class, struct mpib_comm **ret)
{
	size_t size = kind == MPIB_COUNTER_SEND ? sizeof(struct mpib_send_comm)
						: sizeof(struct mpib_recv_comm);
	struct mpib_comm *comm;
	int r;

	size = (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
	comm = aligned_alloc(CACHE_LINE, size);
	if (!comm)
		return -ENOMEM;
	memset(comm, 0, size);
	comm->kind = kind;
	comm->dev = dev;
	comm->mode = (enum mpib_mode)env->mode;
	/* As in NCCL's own transport the environment wins over the communicator's setting. */
	comm->traffic_class = env->tc;
	if (env->tc < 0)
		comm->traffic_class =
			traffic_class >= 0 && traffic_class <= 255 ? traffic_class : 0;
	comm->ctl.fd = -1;
	(void)snprintf(comm->peer_text, sizeof(comm->peer_text), "?");
	r = pool_init(comm);
	if (r < 0) {
		free(comm);
		return r;
	}

	mpib_watch_lock();
	comm->next = all_comms;
	comm->link = &all_comms;
	if (all_comms)
		all_comms->link = &comm->next;
	all_comms = comm;
	mpib_watch_unlock();
	*ret = comm;
	return 0;
}

int mpib_comm_describe(struct mpib_comm *comm, const struct mpib_env *env, uint64_t nonce)
{
	struct mpib_peer *local = &comm->local;

	local->nonce = nonce;
	local->pid = (uint32_t)getpid();
	local->mode = (uint8_t)env->mode;
	local->prefix_len = (uint8_t)env->prefix_len;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r = mpib_hca_describe(&comm->dev->hca[rail], env, local, &comm->gid[rail]);

		if (r < 0)
			return r;
		local->qps[rail] = (uint16_t)env->qps[rail];
	}
	return 0;
}

static void classify(struct mpib_comm *comm, const struct mpib_env *env)
{
	const unsigned int sout = mpib_rail_bit(MPIB_SOUT), sup = mpib_rail_bit(MPIB_SUP);
	bool intra = mpib_ipv4_same_prefix(comm->local.rail[MPIB_SOUT].ipv4_be,
					   comm->remote.rail[MPIB_SOUT].ipv4_be,
					   (unsigned int)env->prefix_len);

	comm->path = intra ? MPIB_PATH_INTRA : MPIB_PATH_INTER;
	comm->rail_mask = sout | sup;
	if (comm->mode == MPIB_MODE_VANILLA && !intra)
		comm->rail_mask = sout; /* SUP doesn't reach: its QPs are never made */
	comm->data_mask = comm->rail_mask;
	if (comm->mode == MPIB_MODE_VANILLA)
		comm->data_mask = intra ? sup : sout;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		comm->nqps[rail] =
			comm->rail_mask & mpib_rail_bit(rail) ? (unsigned int)env->qps[rail] : 0;
}

static int make_ring(struct mpib_comm *comm)
{
	int r;

	comm->ring =
		mmap(NULL, RING_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (comm->ring == MAP_FAILED) {
		comm->ring = NULL;
		return -ENOMEM;
	}
	/* A forked child must not make the parent's pages copy-on-write under the HCA. */
	(void)madvise(comm->ring, RING_SIZE, MADV_DONTFORK);
	r = mpib_mr_new(comm->dev, comm->data_mask, comm->ring, RING_SIZE, MPIB_MR_ACCESS_RING,
			&comm->ring_mr);
	if (r < 0)
		return r;

	if (comm->kind == MPIB_COUNTER_SEND) {
		struct mpib_send_comm *send = mpib_send_comm(comm);

		send->cts = comm->ring;
		send->sizes = (void *)((char *)comm->ring + ROWS_SIZE);
	} else {
		struct mpib_recv_comm *recv = mpib_recv_comm(comm);

		recv->cts_out = comm->ring;
		recv->records = (void *)((char *)comm->ring + ROWS_SIZE);
		recv->flush_scratch = (char *)comm->ring + ROWS_SIZE + RECORDS_SIZE;
	}
	return 0;
}

int mpib_comm_build(struct mpib_comm *comm, const struct mpib_env *env)
{
	char text[MPIB_IPV4_TEXT_MAX], advice[MPIB_ADVICE_MAX];
	struct ibv_srq *srq;
	int r;

	(void)snprintf(comm->peer_text, sizeof(comm->peer_text), "%s pid %u",
		       mpib_ipv4_format(comm->remote.rail[MPIB_SOUT].ipv4_be, text),
		       comm->remote.pid);
	classify(comm, env);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		struct mpib_hca *hca = &comm->dev->hca[rail];

		if (!comm->nqps[rail])
			continue;
		srq = NULL;
		r = mpib_verbs_create_cq(hca->ctx, MPIB_CQ_DEPTH, &comm->cq[rail]);
		if (r < 0) {
			MPIB_WARN("%s rail %s to %s: no completion queue: %s%s",
				  mpib_rail_name(rail), hca->name, comm->peer_text, strerror(-r),
				  mpib_memlock_advice(r, advice));
			return r;
		}
		if (comm->kind == MPIB_COUNTER_RECV) {
			r = mpib_srq_get(hca, &srq);
			if (r < 0)
				return r;
		}
		r = mpib_qps_create(comm, rail, srq);
		if (r < 0)
			return r;
		if (comm->kind == MPIB_COUNTER_RECV && env->ece)
			mpib_qps_offer_ece(comm, rail);
	}
	return make_ring(comm);
}

void mpib_comm_qps(const struct mpib_comm *comm, struct mpib_peer_qps *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->path = (uint8_t)comm->path;
	ret->rail_mask = (uint8_t)comm->rail_mask;
	ret->ring_addr = (uint64_t)(uintptr_t)comm->ring;
	if (comm->kind == MPIB_COUNTER_RECV)
		ret->ring_addr += ROWS_SIZE;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		ret->qps[rail] = (uint16_t)comm->nqps[rail];
		ret->ring_rkey[rail] = comm->ring_mr->rkey[rail];
		ret->ece[rail].vendor_id = comm->ece[rail].vendor_id;
		ret->ece[rail].options = comm->ece[rail].options;
		for (unsigned int k = 0; k < comm->nqps[rail]; k++)
			ret->qpn[rail][k] = comm->qp[rail][k] ? comm->qp[rail][k]->qp_num : 0;
	}
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* Peers whose SUP could not be resolved lately. The kernel takes a second to find that out, inside
 * the call; the next connections to the same peer shouldn't wait for it again. */
#define UNREACHABLE_MS	60000
#define UNREACHABLE_MAX 64

static struct {
	uint32_t local_be, remote_be;
	uint64_t until_ms;
} unreachable[UNREACHABLE_MAX]; /* under the watch lock */

static bool known_unreachable(const struct mpib_comm *comm)
{
	const uint64_t now = mpib_now_ms();
	bool found = false;

	mpib_watch_lock();
	for (unsigned int k = 0; k < UNREACHABLE_MAX && !found; k++)
		found = unreachable[k].until_ms > now &&
			unreachable[k].local_be == comm->local.rail[MPIB_SUP].ipv4_be &&
			unreachable[k].remote_be == comm->remote.rail[MPIB_SUP].ipv4_be;
	mpib_watch_unlock();
	return found;
}

static void remember_unreachable(const struct mpib_comm *comm)
{
	static unsigned int next;

	mpib_watch_lock();
	unreachable[next].local_be = comm->local.rail[MPIB_SUP].ipv4_be;
	unreachable[next].remote_be = comm->remote.rail[MPIB_SUP].ipv4_be;
	unreachable[next].until_ms = mpib_now_ms() + UNREACHABLE_MS;
	next = (next + 1) % UNREACHABLE_MAX;
	mpib_watch_unlock();
}

bool mpib_comm_may_drop_sup(const struct mpib_comm *comm)
{
	return comm->mode == MPIB_MODE_ADVANCED && comm->path == MPIB_PATH_INTER;
}

void mpib_comm_drop_sup(struct mpib_comm *comm, const char *who)
{
	char local[MPIB_IPV4_TEXT_MAX], remote[MPIB_IPV4_TEXT_MAX];

	MPIB_INFO("SUP %s doesn't reach %s (found by %s): the connection to %s uses SOUT alone",
		  mpib_ipv4_format(comm->local.rail[MPIB_SUP].ipv4_be, local),
		  mpib_ipv4_format(comm->remote.rail[MPIB_SUP].ipv4_be, remote), who,
		  comm->peer_text);
	mpib_qps_destroy(comm, MPIB_SUP);
	comm->nqps[MPIB_SUP] = 0;
	comm->rail_mask = comm->data_mask = mpib_rail_bit(MPIB_SOUT);
	if (comm->kind == MPIB_COUNTER_SEND) {
		mpib_send_comm(comm)->share_fixed = 0;
		mpib_send_comm(comm)->hinted = false;
	}
}

int mpib_comm_register(struct mpib_comm *comm)
{
	bool sup = comm->rail_mask & mpib_rail_bit(MPIB_SUP);

	return mpib_agent_register(&comm->agent, comm->local.rail[MPIB_SOUT].ipv4_be,
				   comm->remote.rail[MPIB_SOUT].ipv4_be,
				   sup ? comm->local.rail[MPIB_SUP].ipv4_be : 0,
				   sup ? comm->remote.rail[MPIB_SUP].ipv4_be : 0);
}

static void prepare_send(struct mpib_send_comm *send)
{
	struct mpib_comm *comm = &send->base;

	send->record_addr = comm->remote_qps.ring_addr;
	send->share_fixed = comm->path == MPIB_PATH_INTRA ? MPIB_SHARE_MAX : 0;
	if (!(comm->data_mask & mpib_rail_bit(MPIB_SUP)))
		send->share_fixed = 0;
	send->share_last = send->share_fixed;
	send->hinted =
		comm->mode == MPIB_MODE_ADVANCED && comm->data_mask & mpib_rail_bit(MPIB_SUP);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		struct mpib_wr *wr = &send->wr[rail];
		uint32_t limit = comm->dev->hca[rail].port_attr.max_msg_sz;

		/* Pieces stay whole 128-byte lines, and within a 32-bit length. */
		if (limit == 0 || limit > 1u << 30)
			limit = 1u << 30;
		send->max_msg[rail] =
			limit > MPIB_SPLIT_ALIGN ? limit & ~(MPIB_SPLIT_ALIGN - 1) : limit;
		wr->wr.sg_list = &wr->sge;
		wr->wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->wr.send_flags = IBV_SEND_SIGNALED;
	}
}

static void prepare_recv(struct mpib_recv_comm *recv)
{
	struct mpib_comm *comm = &recv->base;

	recv->cts_addr = comm->remote_qps.ring_addr;
	recv->cts_rail = comm->mode == MPIB_MODE_VANILLA && comm->path == MPIB_PATH_INTRA
				 ? MPIB_SUP
				 : MPIB_SOUT;
	recv->cts_qp = comm->qp[recv->cts_rail][0];
	recv->cts_depth = MPIB_SQ_DEPTH;
}

int mpib_comm_activate(struct mpib_comm *comm, const struct mpib_env *env)
{
	const struct mpib_peer_qps *remote = &comm->remote_qps;
	bool may_drop = mpib_comm_may_drop_sup(comm);

	if (remote->path != comm->path) {
		MPIB_WARN("%s: this end says %s-island and the peer %s-island: the SOUT addresses "
			  "that both see must be the same ones",
			  comm->peer_text, comm->path ? "inter" : "intra",
			  remote->path ? "inter" : "intra");
		return -MPIB_EUSAGE;
	}
	if (may_drop && comm->nqps[MPIB_SUP] && !(remote->rail_mask & mpib_rail_bit(MPIB_SUP)))
		mpib_comm_drop_sup(comm, "the peer");

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r;

		if (comm->nqps[rail] != remote->qps[rail]) {
			MPIB_WARN("%s: %u QPs on %s here and %u there", comm->peer_text,
				  comm->nqps[rail], mpib_rail_name(rail), remote->qps[rail]);
			return -EPROTO;
		}
		if (rail == MPIB_SUP && may_drop && comm->nqps[rail] && known_unreachable(comm))
			r = -EHOSTUNREACH;
		else
			r = mpib_qps_connect(comm, rail, env);
		if (r < 0 && !mpib_qps_unreachable(r))
			return r;
		if (r < 0 && rail == MPIB_SUP && may_drop) {
			remember_unreachable(comm);
			mpib_comm_drop_sup(comm, "this end");
		} else if (r < 0) {
			MPIB_WARN("%s rail %s doesn't reach %s: %s; check addresses, routes and "
				  "cables of that rail",
				  mpib_rail_name(rail), comm->dev->hca[rail].name, comm->peer_text,
				  strerror(-r));
			return r;
		}
	}

	if (comm->kind == MPIB_COUNTER_SEND)
		prepare_send(mpib_send_comm(comm));
	else
		prepare_recv(mpib_recv_comm(comm));
	if (comm->kind == MPIB_COUNTER_RECV && comm->dev->ptr_support && env->flush)
		return mpib_flush_init(mpib_recv_comm(comm), env);
	return 0;
}

/* What the helper thread does with the control connection of a live connection. */
static void on_ctl(struct mpib_watch_item *item, uint32_t events)
{
	struct mpib_comm *comm = mpib_container_of(item, struct mpib_comm, ctl_watch);
	struct mpib_frame frame;
	int r;

	(void)events;
	while ((r = mpib_ctl_recv(&comm->ctl, &frame)) > 0) {
		if (frame.type == MPIB_FRAME_BYE) {
			mpib_comm_flag(comm, MPIB_FLAG_PEER_BYE);
		} else if (frame.type == MPIB_FRAME_FAIL) {
			mpib_text_decode(frame.payload, frame.payload_len, comm->fail_text);
			mpib_comm_flag(comm, MPIB_FLAG_PEER_FAIL);
		}
		/* Other types are for later versions. */
	}
	if (r < 0) {
		mpib_watch_del(item);
		mpib_comm_flag(comm, MPIB_FLAG_PEER_GONE);
	}
}

static void start_counters(struct mpib_comm *comm)
{
	struct mpib_counter_entry *entry = comm->counters;

	entry->kind = comm->kind;
	entry->mode = comm->mode;
	entry->path = comm->path;
	entry->conn_id = comm->agent.conn_id;
	entry->sout_local = comm->local.rail[MPIB_SOUT].ipv4_be;
	entry->sout_remote = comm->remote.rail[MPIB_SOUT].ipv4_be;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		entry->qps[rail] = comm->nqps[rail];
	if (!comm->own_counters)
		mpib_counters_publish(entry);
}

int mpib_comm_establish(struct mpib_comm *comm)
{
	int r;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (mpib_hca_failed(&comm->dev->hca[rail]))
			return -EIO;
	comm->counters = mpib_counters_get();
	if (!comm->counters) {
		comm->own_counters = 1;
		comm->counters = aligned_alloc(CACHE_LINE, sizeof(*comm->counters));
		if (!comm->counters)
			return -ENOMEM;
		memset(comm->counters, 0, sizeof(*comm->counters));
	}
	start_counters(comm);

	comm->ctl_watch.fd = comm->ctl.fd;
	comm->ctl_watch.on_event = on_ctl;
	mpib_watch_lock();
	r = mpib_watch_add(&comm->ctl_watch, EPOLLIN);
	if (r == 0)
		on_ctl(&comm->ctl_watch, EPOLLIN); /* what came together with the last frame */
	mpib_watch_unlock();
	if (r < 0) {
		MPIB_WARN("control connection to %s can't be watched: %s", comm->peer_text,
			  strerror(-r));
		return r;
	}

	MPIB_INFO("%s %s: %s-island, %s; QPs SOUT %u SUP %u; %s",
		  comm->kind == MPIB_COUNTER_SEND ? "send to" : "receive from", comm->peer_text,
		  comm->path == MPIB_PATH_INTRA ? "intra" : "inter",
		  comm->mode == MPIB_MODE_ADVANCED ? "advanced" : "vanilla", comm->nqps[MPIB_SOUT],
		  comm->nqps[MPIB_SUP],
		  comm->mode == MPIB_MODE_ADVANCED
			  ? (atomic_load_explicit(&comm->agent.hint, memory_order_acquire)
				     ? "share from the agent"
				     : "no hint yet")
			  : (comm->path == MPIB_PATH_INTRA ? "all on SUP" : "all on SOUT"));
	return 0;
}

/* ---- closing ------------------------------------------------------------------------------- */

/* Receives that immediates used up while nobody polled, and reservations that nothing will use. The
 * QPs are in the error state by now, so that nothing more arrives, and still exist: some drivers
 * drop a destroyed QP's completions. */
static void return_receives(struct mpib_recv_comm *recv, unsigned int rail)
{
	struct mpib_comm *comm = &recv->base;
	struct ibv_wc wc[MPIB_POLL_BATCH];
	int n;

	while (comm->cq[rail] && (n = ibv_poll_cq(comm->cq[rail], MPIB_POLL_BATCH, wc)) > 0)
		for (int k = 0; k < n; k++)
			mpib_recv_used(recv, rail, &wc[k]);
	while (recv->reserved[rail]) {
		recv->reserved[rail]--;
		mpib_srq_release(&comm->dev->hca[rail]);
	}
}

static void free_resources(struct mpib_comm *comm)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		if (comm->kind == MPIB_COUNTER_RECV) {
			mpib_flush_fini(mpib_recv_comm(comm), rail);
			mpib_qps_stop(comm, rail);
			return_receives(mpib_recv_comm(comm), rail);
		}
		mpib_qps_destroy(comm, rail);
		(void)mpib_verbs_destroy_cq(comm->cq[rail]);
	}
	(void)mpib_mr_free(comm->ring_mr);
	if (comm->ring)
		(void)munmap(comm->ring, RING_SIZE);
	if (comm->counters && comm->own_counters)
		free(comm->counters);
	else if (comm->counters)
		mpib_counters_put(comm->counters);
	free(comm->pool.requests);
	free(comm);
}

void mpib_comm_free(struct mpib_comm *comm)
{
	if (!comm)
		return;

	mpib_watch_del(&comm->ctl_watch);
	mpib_agent_deregister(&comm->agent);
	if (comm->counters && !comm->error)
		mpib_ctl_send_text(&comm->ctl, MPIB_FRAME_BYE, "");
	mpib_ctl_close(&comm->ctl);

	mpib_watch_lock();
	*comm->link = comm->next;
	if (comm->next)
		comm->next->link = comm->link;
	mpib_watch_unlock();
	free_resources(comm);
}

void mpib_comms_fork_child(void)
{
	for (struct mpib_comm *comm = all_comms; comm; comm = comm->next) {
		if (comm->ctl.fd >= 0)
			(void)close(comm->ctl.fd);
		comm->ctl.fd = -1; /* the number may be another file's soon */
		comm->error = -ESHUTDOWN;
	}
}

bool mpib_comms_any(void)
{
	return all_comms != NULL;
}

void mpib_comm_free_all(void)
{
	while (all_comms)
		mpib_comm_free(all_comms);
}

/* ---- errors -------------------------------------------------------------------------------- */

void mpib_comm_flag(struct mpib_comm *comm, unsigned int flag)
{
	if (!atomic_load_explicit(&comm->flags, memory_order_relaxed))
		comm->news_ms = mpib_now_ms();
	(void)atomic_fetch_or_explicit(&comm->flags, flag, memory_order_release);
}

void mpib_comm_flag_hca(const struct mpib_hca *hca, unsigned int flag)
{
	mpib_watch_lock();
	for (struct mpib_comm *comm = all_comms; comm; comm = comm->next)
		if (&comm->dev->hca[hca->rail] == hca && comm->data_mask & 1u << hca->rail)
			mpib_comm_flag(comm, flag);
	mpib_watch_unlock();
}

int mpib_comm_fail(struct mpib_comm *comm, int error, const char *text)
{
	if (comm->error)
		return comm->error;

	comm->error = error;
	MPIB_WARN("%s %s: %s", comm->kind == MPIB_COUNTER_SEND ? "send to" : "receive from",
		  comm->peer_text, text);
	mpib_ctl_send_text(&comm->ctl, MPIB_FRAME_FAIL, text);
	return error;
}

int mpib_comm_check(struct mpib_comm *comm)
{
	unsigned int flags = atomic_load_explicit(&comm->flags, memory_order_acquire);
	char text[MPIB_TEXT_MAX + 1];
	uint64_t now;

	if (comm->error)
		return comm->error;
	if (!flags)
		return 0;
	if (flags & MPIB_FLAG_DEVICE_FATAL)
		return mpib_comm_fail(comm, -EIO, "a device failed (see the line above)");

	now = mpib_now_ms();
	if (!comm->gone_since_ms)
		comm->gone_since_ms = now;
	if (now - comm->gone_since_ms < MPIB_PEER_GONE_GRACE_MS)
		return 0;
	if (flags & MPIB_FLAG_PEER_FAIL)
		(void)snprintf(text, sizeof(text), "the peer failed: %.300s", comm->fail_text);
	else if (flags & MPIB_FLAG_QP_FATAL)
		(void)snprintf(text, sizeof(text), "%s", comm->qp_text);
	else if (flags & MPIB_FLAG_PEER_BYE)
		(void)snprintf(text, sizeof(text),
			       "the peer closed the connection while messages were outstanding");
	else
		(void)snprintf(text, sizeof(text),
			       "the peer's process or host is gone (control connection lost %llu "
			       "ms ago)",
			       (unsigned long long)(now - comm->news_ms));
	return mpib_comm_fail(comm, -ECONNRESET, text);
}

static const char *likely_cause(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "no answer within timeout and retries: peer, cable or switch is down, or "
		       "the GID is wrong";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the peer had no receive posted";
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
		return "the peer's memory registration doesn't allow the write";
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_LEN_ERR:
		return "this end's buffer isn't covered by its registration";
	case IBV_WC_WR_FLUSH_ERR:
		return "the QP had failed before";
	default:
		return "see the status";
	}
}

int mpib_comm_bad_completion(struct mpib_comm *comm, unsigned int rail, const struct ibv_wc *wc)
{
	char text[MPIB_TEXT_MAX + 1];
	uint32_t remote = 0;

	for (unsigned int k = 0; k < comm->nqps[rail]; k++)
		if (comm->qp[rail][k] && comm->qp[rail][k]->qp_num == wc->qp_num)
			remote = comm->remote_qps.qpn[rail][k];
	(void)snprintf(text, sizeof(text), "%s rail %s, QP 0x%x to 0x%x: %s (vendor 0x%x): %s",
		       mpib_rail_name(rail), comm->dev->hca[rail].name, wc->qp_num, remote,
		       mpib_verbs_wc_text(wc->status), wc->vendor_err, likely_cause(wc->status));
	return mpib_comm_fail(comm, wc->status == IBV_WC_LOC_PROT_ERR ? -EIO : -EREMOTEIO, text);
}
