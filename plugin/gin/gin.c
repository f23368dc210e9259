/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a mesh. */
#include "plugin/gin/gin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin/agent/agent_link.h"
#include "plugin/base/clock.h"
#include "plugin/base/counters.h"
#include "plugin/base/log.h"
#include "plugin/base/nccl_abi.h"
#include "plugin/base/result.h"
#include "plugin/gin/gin_impl.h"
#include "plugin/setup/take.h"
#include "plugin/verbs/async.h"
#include "plugin/verbs/limit.h"
#include "plugin/verbs/port.h"

#define SCRATCH_SIZE 4096
#define CLOSE_MS     1000

static struct mpib_gin *all; /* under the watch lock */

int mpib_gin_supported(struct mpib_device *dev)
{
	const struct mpib_hca *sout = &dev->hca[MPIB_SOUT];

	if (sout->attr.atomic_cap == IBV_ATOMIC_NONE) {
		MPIB_INFO("%s rail %s: the device has no atomics, so no device-initiated "
			  "communication",
			  mpib_rail_name(MPIB_SOUT), sout->name);
		return -EOPNOTSUPP;
	}
	/* The words that kernels wait for are in it. */
	if (!(dev->ptr_support & (NCCL_PTR_CUDA | NCCL_PTR_DMABUF))) {
		MPIB_INFO("%s: no GPU memory, so no device-initiated communication", dev->name);
		return -EOPNOTSUPP;
	}
	return 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

int mpib_gin_context_new(struct mpib_gin *gin, int queues, struct mpib_gin_context **ret)
{
	size_t n = (size_t)queues * gin->nranks * MPIB_GIN_DEPTH;
	size_t size = offsetof(struct mpib_gin_context, requests[n]);
	struct mpib_gin_context *context;

	*ret = NULL;
	size = (size + 63) & ~(size_t)63;
	context = aligned_alloc(64, size);
	if (!context)
		return -ENOMEM;
	memset(context, 0, size);
	context->gin = gin;
	context->count = n;
	while (n-- > 0) {
		context->requests[n].context = context;
		context->requests[n].next = context->free;
		context->free = &context->requests[n];
	}
	mpib_watch_lock();
	context->next = gin->contexts;
	context->link = &gin->contexts;
	if (gin->contexts)
		gin->contexts->link = &context->next;
	gin->contexts = context;
	mpib_watch_unlock();
	*ret = context;
	return 0;
}

static void context_drop(struct mpib_gin_context *context)
{
	mpib_watch_lock();
	*context->link = context->next;
	if (context->next)
		context->next->link = context->link;
	mpib_watch_unlock();
	free(context);
}

void mpib_gin_context_free(struct mpib_gin_context *context)
{
	/* What the NICs hold of it may still complete. */
	if (context && context != context->gin->own && context->out == 0)
		context_drop(context);
}

struct mpib_gin_context *mpib_gin_own_context(struct mpib_gin *gin)
{
	return gin->own;
}

struct mpib_gin *mpib_gin_of(const struct mpib_gin_context *context)
{
	return context->gin;
}

/* What the handles tell: which ranks are of the island, and whether all speak alike. */
static int read_handle(struct mpib_gin *gin, struct mpib_gin_peer *peer, const void *handle)
{
	if (mpib_handle_decode(handle, MPIB_HANDLE_SIZE, &peer->handle) < 0) {
		MPIB_WARN("the handle of rank %u isn't MPIB's: every rank must load this plugin",
			  peer->rank);
		return -MPIB_EUSAGE;
	}
	if (peer->handle.version != MPIB_WIRE_VERSION) {
		MPIB_WARN("wire version differs: %u here, %u at rank %u: install the same MPIB on "
			  "every node",
			  MPIB_WIRE_VERSION, peer->handle.version, peer->rank);
		return -MPIB_EUSAGE;
	}
	peer->intra =
		mpib_ipv4_same_prefix(gin->local.rail[MPIB_SOUT].ipv4_be, peer->handle.sout_ip_be,
				      (unsigned int)gin->env.prefix_len);
	return 0;
}

static int make_peers(struct mpib_gin *gin, void *const *handles)
{
	gin->peer = aligned_alloc(64, gin->nranks * sizeof(*gin->peer));
	if (!gin->peer)
		return -ENOMEM;
	memset(gin->peer, 0, gin->nranks * sizeof(*gin->peer));
	for (uint32_t k = 0; k < gin->nranks; k++) {
		struct mpib_gin_peer *peer = &gin->peer[k];

		peer->gin = gin;
		peer->rank = k;
		peer->ctl.fd = -1;
		peer->counters = &gin->uncounted;
		peer->pushes = peer->pushed = 1;
		peer->next_packet = UINT32_MAX;
		mpib_gin_list_init(&peer->queue);
		mpib_gin_list_init(&peer->signals);
		(void)snprintf(peer->text, sizeof(peer->text), "rank %u", k);
	}
	for (uint32_t k = 0; k < gin->nranks; k++) {
		int r = read_handle(gin, &gin->peer[k], handles[k]);

		if (r < 0)
			return r;
	}
	return 0;
}

static int make_queue(struct mpib_gin *gin, unsigned int rail)
{
	struct mpib_hca *hca = &gin->dev->hca[rail];
	char advice[MPIB_ADVICE_MAX];
	int r = mpib_verbs_create_cq(hca->ctx, mpib_gin_cq_depth(gin->nranks), NULL,
				     &gin->cq[rail]);
	uint64_t limit = hca->port_attr.max_msg_sz;

	gin->max_msg[rail] = limit == 0 || limit > 1u << 30 ? 1u << 30 : limit;
	if (r == 0)
		return 0;
	if (mpib_hca_failed(hca))
		return -EIO;
	MPIB_WARN("%s rail %s: no completion queue of %d entries for %u ranks: %s%s",
		  mpib_rail_name(rail), hca->name, mpib_gin_cq_depth(gin->nranks), gin->nranks,
		  strerror(-r), mpib_limit_advice(hca, MPIB_OBJECT_CQ, r, advice));
	return mpib_error_of_host(r);
}

static int make_scratch(struct mpib_gin *gin)
{
	int r;

	gin->scratch = mmap(NULL, SCRATCH_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	if (gin->scratch == MAP_FAILED) {
		gin->scratch = NULL;
		return -ENOMEM;
	}
	(void)madvise(gin->scratch, SCRATCH_SIZE, MADV_DONTFORK);
	r = mpib_mr_new(gin->dev, MPIB_RAILS_ALL, gin->scratch, SCRATCH_SIZE,
			IBV_ACCESS_LOCAL_WRITE, &gin->scratch_mr);
	if (r < 0)
		return r;
	gin->scratch_addr = (uint64_t)(uintptr_t)gin->scratch;
	memcpy(gin->scratch_lkey, gin->scratch_mr->lkey, sizeof(gin->scratch_lkey));
	gin->scratch_window = calloc(1, sizeof(*gin->scratch_window));
	if (!gin->scratch_window)
		return -ENOMEM;
	memcpy(gin->scratch_window->lkey, gin->scratch_lkey, sizeof(gin->scratch_lkey));
	return 0;
}

static void make_put(struct mpib_gin *gin)
{
	for (int k = 0; k < 2; k++) {
		gin->put_wr[k].sg_list = &gin->put_sge[k];
		gin->put_wr[k].num_sge = 1;
	}
	gin->put_wr[0].opcode = IBV_WR_RDMA_WRITE;
	gin->put_wr[1].opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	gin->put_wr[1].send_flags = IBV_SEND_SIGNALED;
	gin->put_sge[1] = (struct ibv_sge){ gin->scratch_addr, 8, gin->scratch_lkey[MPIB_SOUT] };
}

static int describe(struct mpib_gin *gin)
{
	struct mpib_peer *local = &gin->local;

	local->pid = (uint32_t)getpid();
	local->mode = (uint8_t)gin->env.mode;
	local->features = gin->env.failover ? MPIB_FEATURE_FAILOVER : 0;
	local->prefix_len = (uint8_t)gin->env.prefix_len;
	local->service_level = (uint8_t)gin->env.sl;
	if (gin->env.tc >= 0)
		local->traffic_class = (uint8_t)gin->env.tc;
	local->cts_traffic_class = local->traffic_class;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r = mpib_hca_describe(&gin->dev->hca[rail], &gin->env, local,
					  &gin->source[rail]);

		if (r < 0)
			return r;
		local->qps[rail] = 1;
	}
	return 0;
}

/* Up to here SOUT, though slower, brings a put and its signal no later than SUP and the READ behind
 * it do. */
static size_t alone_max(const struct mpib_gin *gin)
{
	const uint64_t sout = gin->dev->hca[MPIB_SOUT].speed_mbps;
	const uint64_t sup = gin->dev->hca[MPIB_SUP].speed_mbps;
	uint64_t bytes;

	if (sup <= sout)
		return MPIB_GIN_ALONE_MAX;
	bytes = MPIB_GIN_PUSH_US * sout * sup / (sup - sout) / 8;
	return bytes < MPIB_GIN_ALONE_MAX ? bytes : MPIB_GIN_ALONE_MAX;
}

static int build(struct mpib_gin *gin, void *const *handles, int queues)
{
	int r = describe(gin);

	gin->alone_max = alone_max(gin);
	if (r == 0)
		r = make_peers(gin, handles);
	if (r == 0)
		r = mpib_gin_context_new(gin, queues, &gin->own);
	for (unsigned int rail = 0; r == 0 && rail < MPIB_RAIL_MAX; rail++)
		r = make_queue(gin, rail);
	if (r == 0)
		r = make_scratch(gin);
	make_put(gin);
	for (uint32_t k = 0; r == 0 && k < gin->nranks; k++)
		r = mpib_gin_qps_create(&gin->peer[k]);
	return r;
}

static uint32_t island(const struct mpib_gin *gin)
{
	uint32_t ranks = 0;

	for (uint32_t k = 0; k < gin->nranks; k++)
		ranks += gin->peer[k].intra;
	return ranks;
}

/* ---- the agent ------------------------------------------------------------------------------- */

static bool shares(const struct mpib_gin_peer *peer)
{
	return peer->qp[MPIB_SUP] && peer->rank != peer->gin->rank;
}

static int register_flows(struct mpib_gin *gin)
{
	int r;

	for (uint32_t k = 0; k < gin->nranks; k++) {
		struct mpib_gin_peer *peer = &gin->peer[k];

		/* The vanilla policy, and whenever no hint may be used. */
		peer->share = shares(peer) ? MPIB_SHARE_MAX : 0;
		peer->now_max = gin->max_msg[MPIB_SOUT];
		if (gin->env.mode != MPIB_MODE_ADVANCED || !shares(peer))
			continue;
		r = mpib_agent_register(&peer->agent, gin->local.rail[MPIB_SOUT].ipv4_be,
					peer->remote.rail[MPIB_SOUT].ipv4_be,
					gin->local.rail[MPIB_SUP].ipv4_be,
					peer->remote.rail[MPIB_SUP].ipv4_be);
		if (r < 0)
			return r;
	}
	for (uint32_t k = 0; k < gin->nranks; k++) {
		if (gin->env.mode != MPIB_MODE_ADVANCED || !shares(&gin->peer[k]))
			continue;
		while ((r = mpib_agent_register_poll(&gin->peer[k].agent)) == 0)
			(void)usleep(1000); /* bounded by the agent's link */
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- counters -------------------------------------------------------------------------------- */

/* Meshes have no more than half of the process's table: what is left is for connections of the
 * collectives. */
#define COUNTERS_MAX (MPIB_COUNTERS_ENTRIES / 2)
static unsigned int counted; /* under the watch lock */

static void count_peer(struct mpib_gin_peer *peer)
{
	const struct mpib_gin *gin = peer->gin;
	struct mpib_counter_entry *entry = NULL;

	if (peer->rank != gin->rank && counted < COUNTERS_MAX)
		entry = mpib_counters_get();
	if (!entry)
		return;
	counted++;
	entry->kind = MPIB_COUNTER_GIN;
	entry->mode = (uint32_t)gin->env.mode;
	entry->path = !peer->intra;
	entry->conn_id = peer->agent.conn_id;
	entry->sout_local = gin->local.rail[MPIB_SOUT].ipv4_be;
	entry->sout_remote = peer->remote.rail[MPIB_SOUT].ipv4_be;
	entry->share = peer->share;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		entry->qps[rail] = peer->qp[rail] != NULL;
		entry->rails_up |= peer->qp[rail] ? mpib_rail_bit(rail) : 0;
		entry->speed[rail] = gin->dev->hca[rail].speed_mbps;
	}
	mpib_counters_publish(entry);
	peer->counters = entry;
}

static void count_peers(struct mpib_gin *gin)
{
	mpib_watch_lock();
	for (uint32_t k = 0; k < gin->nranks; k++)
		count_peer(&gin->peer[k]);
	mpib_watch_unlock();
	if (gin->env.mode == MPIB_MODE_ADVANCED)
		mpib_agent_hand_counters();
}

static void uncount_peer(struct mpib_gin_peer *peer)
{
	if (!peer->counters || peer->counters == &peer->gin->uncounted)
		return;
	mpib_watch_lock();
	mpib_counters_put(peer->counters);
	counted--;
	mpib_watch_unlock();
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* A rank of this process: it may be closed by this very thread, once this one is. */
static bool is_mate(const struct mpib_gin_peer *peer)
{
	const struct mpib_peer *local = &peer->gin->local;

	return peer->remote.pid == local->pid &&
	       peer->remote.rail[MPIB_SOUT].ipv4_be == local->rail[MPIB_SOUT].ipv4_be;
}

static bool all_over(struct mpib_gin *gin)
{
	for (uint32_t k = 0; k < gin->nranks; k++)
		if (gin->peer[k].ctl.fd >= 0 && !is_mate(&gin->peer[k]) &&
		    atomic_load_explicit(&gin->peer[k].over, memory_order_acquire) == MPIB_GIN_LIVE)
			return false;
	return true;
}

/* Whoever has been told of a signal may close while its answer is on the way: the QPs stay until
 * all have come so far. */
static void say_bye(struct mpib_gin *gin)
{
	mpib_watch_lock();
	for (uint32_t k = 0; k < gin->nranks; k++)
		if (gin->peer[k].ctl.fd >= 0)
			mpib_ctl_send_last(&gin->peer[k].ctl, MPIB_FRAME_BYE, NULL, 0);
	mpib_watch_unlock();
	(void)mpib_gin_wait(gin, all_over, CLOSE_MS);
}

static void free_peers(struct mpib_gin *gin)
{
	for (uint32_t k = 0; gin->peer && k < gin->nranks; k++) {
		struct mpib_gin_peer *peer = &gin->peer[k];

		mpib_agent_deregister(&peer->agent);
		uncount_peer(peer);
		mpib_ctl_close(&peer->ctl);
		for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
			if (peer->qp[rail])
				(void)mpib_verbs_destroy_qp(peer->qp[rail]);
		if (peer->lost_qp)
			(void)mpib_verbs_destroy_qp(peer->lost_qp);
		if (peer->off_qp)
			(void)mpib_verbs_destroy_qp(peer->off_qp);
	}
	free(gin->peer);
}

void mpib_gin_close(struct mpib_gin *gin)
{
	if (!gin)
		return;
	if (gin->established && !gin->error)
		say_bye(gin);
	mpib_gin_unwatch(gin);
	mpib_watch_lock();
	*gin->link = gin->next;
	if (gin->next)
		gin->next->link = gin->link;
	mpib_watch_unlock();
	while (gin->windows)
		(void)mpib_gin_deregister(gin, gin->windows);
	free_peers(gin);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (gin->cq[rail])
			(void)mpib_verbs_destroy_cq(gin->cq[rail]);
	free(gin->scratch_window);
	(void)mpib_mr_free(gin->scratch_mr);
	if (gin->scratch)
		(void)munmap(gin->scratch, SCRATCH_SIZE);
	while (gin->contexts)
		context_drop(gin->contexts);
	if (gin->news_fd >= 0)
		(void)close(gin->news_fd);
	free(gin);
}

void mpib_gin_close_all(void)
{
	for (struct mpib_gin *gin = all; gin; gin = gin->next)
		gin->established = false; /* nobody waits for peers now */
	while (all)
		mpib_gin_close(all);
}

bool mpib_gin_any(void)
{
	return all != NULL;
}

void mpib_gin_fork_child(void)
{
	for (struct mpib_gin *gin = all; gin; gin = gin->next) {
		gin->error = -ESHUTDOWN;
		gin->news = 1;
		for (uint32_t k = 0; gin->peer && k < gin->nranks; k++) {
			if (gin->peer[k].ctl.fd >= 0)
				(void)close(gin->peer[k].ctl.fd);
			gin->peer[k].ctl.fd = -1;
		}
		if (gin->news_fd >= 0)
			(void)close(gin->news_fd);
		gin->news_fd = -1;
	}
}

/* ---- connect --------------------------------------------------------------------------------- */

static struct mpib_gin *gin_new(struct mpib_listener *listener, uint32_t nranks, uint32_t rank)
{
	struct mpib_gin *gin = aligned_alloc(64, (sizeof(*gin) + 63) & ~(size_t)63);

	if (!gin)
		return NULL;
	memset(gin, 0, sizeof(*gin));
	gin->dev = mpib_listener_device(listener);
	gin->env = *mpib_listener_env(listener);
	gin->nranks = nranks;
	gin->rank = rank;
	gin->split_min = (size_t)gin->env.split_min;
	gin->sout.why_not = "the mesh isn't up yet";
	gin->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	mpib_watch_lock();
	gin->next = all;
	gin->link = &all;
	if (all)
		all->link = &gin->next;
	all = gin;
	mpib_watch_unlock();
	return gin;
}

int mpib_gin_connect(struct mpib_listener *listener, void *const *handles, int nranks, int rank,
		     int queues, struct mpib_gin **ret)
{
	struct mpib_gin *gin;
	int r;

	*ret = NULL;
	if (nranks < 1 || rank < 0 || rank >= nranks) {
		MPIB_WARN("rank %d of %d can't be", rank, nranks);
		return -MPIB_EARGUMENT;
	}
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (mpib_hca_failed(&mpib_listener_device(listener)->hca[rail]))
			return -EIO;
	gin = gin_new(listener, (uint32_t)nranks, (uint32_t)rank);
	if (!gin)
		return -ENOMEM;
	mpib_gin_watch_devices(gin);
	r = gin->news_fd < 0 ? -EMFILE : build(gin, handles, queues);
	if (r == 0)
		r = mpib_gin_mesh(gin, listener);
	if (r == 0)
		r = register_flows(gin);
	if (r < 0) {
		mpib_gin_close(gin);
		return r;
	}
	count_peers(gin);
	gin->established = true;
	mpib_gin_sout_judge(gin);
	MPIB_INFO("device-initiated communication: rank %d of %d, %s, %u ranks of the island", rank,
		  nranks, gin->env.mode == MPIB_MODE_ADVANCED ? "advanced" : "vanilla",
		  island(gin));
	*ret = gin;
	return 0;
}

bool mpib_gin_failed(const struct mpib_gin *gin)
{
	return gin->error != 0;
}
