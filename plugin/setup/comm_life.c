/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/setup/comm_life.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin/agent/agent_link.h"
#include "plugin/base/counters.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/connection/news.h"
#include "plugin/connection/rails.h"
#include "plugin/setup/flush_qp.h"
#include "plugin/setup/prepare.h"
#include "plugin/setup/qp.h"
#include "plugin/setup/rail_make.h"
#include "plugin/verbs/async.h"
#include "plugin/verbs/limit.h"
#include "plugin/verbs/port.h"
#include "plugin/verbs/srq.h"
#include "plugin/wire/net.h"

/* Ring of a sender: CTS rows, then staging for completion records. Of a receiver: staging for CTS
 * rows, then the completion records. Of both: behind that, and room for flushes, the mailbox. */
#define ROWS_SIZE    (MPIB_ROWS * sizeof(struct mpib_cts_row))
#define RECORDS_SIZE (MPIB_ROWS * MPIB_RECORD_NUMBERS * sizeof(uint64_t))
#define MAIL_AT	     (ROWS_SIZE + RECORDS_SIZE + MPIB_FLUSH_SCRATCH)
#define RING_SIZE    (MAIL_AT + 2 * MPIB_MAIL_SIZE) /* what the peer writes, and staging */

#define POOL_SIZE (MPIB_REQUESTS_MAX * sizeof(struct mpib_request))

/* ---- making -------------------------------------------------------------------------------- */

static int pool_init(struct mpib_comm *comm)
{
	struct mpib_request_pool *pool = &comm->pool;
	void *pages =
		mmap(NULL, POOL_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		return -ENOMEM;
	/* All of them are used at once: one call for what would be a page fault each. An older
	 * kernel doesn't know it. */
	(void)madvise(pages, POOL_SIZE, MADV_POPULATE_WRITE);
	pool->requests = pages;
	for (uint16_t k = 0; k < MPIB_REQUESTS_MAX; k++) {
		pool->requests[k].comm = comm;
		pool->requests[k].index = k;
		mpib_request_put(pool, &pool->requests[k]);
	}
	return 0;
}

int mpib_comm_new(enum mpib_counter_kind kind, struct mpib_device *dev, const struct mpib_env *env,
		  int traffic_class, struct mpib_comm **ret)
{
	struct mpib_comm *comm = aligned_alloc(MPIB_CACHE_LINE, sizeof(*comm));
	int r;

	if (!comm)
		return -ENOMEM;
	memset(comm, 0, sizeof(*comm));
	comm->kind = (uint8_t)kind;
	comm->dev = dev;
	comm->mode = (enum mpib_mode)env->mode;
	/* As in NCCL's own transport the environment wins over the communicator's setting. */
	if (env->tc >= 0)
		comm->local.traffic_class = (uint8_t)env->tc;
	else if (traffic_class >= 0 && traffic_class <= 255)
		comm->local.traffic_class = (uint8_t)traffic_class;
	comm->local.cts_traffic_class =
		env->fifo_tc >= 0 ? (uint8_t)env->fifo_tc : comm->local.traffic_class;
	comm->ctl.fd = -1;
	(void)snprintf(comm->peer_text, sizeof(comm->peer_text), "?");
	r = pool_init(comm);
	if (r < 0) {
		free(comm);
		return r;
	}

	mpib_comms_listen();
	mpib_comms_add(comm);
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
	local->service_level = (uint8_t)env->sl;
	local->features = env->failover ? MPIB_FEATURE_FAILOVER | MPIB_FEATURE_MAIL : 0;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r = mpib_hca_describe(&comm->dev->hca[rail], env, local, &comm->source[rail]);

		if (r < 0)
			return r;
		local->qps[rail] = (uint16_t)env->qps[rail];
	}
	return 0;
}

static void classify(struct mpib_comm *comm, const struct mpib_env *env)
{
	const uint8_t sout = mpib_rail_bit(MPIB_SOUT), sup = mpib_rail_bit(MPIB_SUP);
	bool intra = mpib_ipv4_same_prefix(comm->local.rail[MPIB_SOUT].ipv4_be,
					   comm->remote.rail[MPIB_SOUT].ipv4_be,
					   (unsigned int)env->prefix_len);

	comm->path = intra ? MPIB_PATH_INTRA : MPIB_PATH_INTER;
	comm->rail_mask = sout | sup;
	if (comm->mode == MPIB_MODE_VANILLA && !intra)
		comm->rail_mask = sout; /* SUP doesn't reach: its QPs are never made */
	comm->mem_mask = comm->rail_mask;
	comm->data_mask = comm->rail_mask;
	if (comm->mode == MPIB_MODE_VANILLA)
		comm->data_mask = intra ? sup : sout;
	if (!mpib_rails_possible(comm))
		comm->mem_mask = comm->data_mask;
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
	r = mpib_mr_new(comm->dev, comm->mem_mask, comm->ring, RING_SIZE, MPIB_MR_ACCESS_RING,
			&comm->ring_mr);
	if (r < 0)
		return r;

	if (comm->kind == MPIB_COUNTER_SEND) {

		comm->send.cts = comm->ring;
		comm->send.records = (void *)((char *)comm->ring + ROWS_SIZE);
	} else {

		comm->recv.cts_out = comm->ring;
		comm->recv.records = (void *)((char *)comm->ring + ROWS_SIZE);
		comm->recv.flush_scratch = (char *)comm->ring + ROWS_SIZE + RECORDS_SIZE;
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
		r = mpib_verbs_create_cq(hca->ctx, mpib_qps_cq_depth(comm, rail), comm,
					 &comm->cq[rail]);
		if (r < 0 && mpib_hca_failed(hca))
			return -EIO;
		if (r < 0) {
			MPIB_WARN("%s rail %s to %s: no completion queue: %s%s",
				  mpib_rail_name(rail), hca->name, comm->peer_text, strerror(-r),
				  mpib_limit_advice(hca, MPIB_OBJECT_CQ, r, advice));
			return mpib_error_of_host(r);
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

/* ---- living --------------------------------------------------------------------------------- */

static int start_counters(struct mpib_comm *comm)
{
	struct mpib_counter_entry *entry = mpib_counters_get();

	if (!entry) {
		entry = aligned_alloc(MPIB_CACHE_LINE, sizeof(*entry));
		if (!entry)
			return -ENOMEM;
		memset(entry, 0, sizeof(*entry));
		comm->own_counters = 1;
	}
	comm->counters = entry;
	entry->kind = comm->kind;
	entry->mode = comm->mode;
	entry->path = comm->path;
	entry->conn_id = comm->agent.conn_id;
	entry->rails_up = comm->use_mask;
	entry->sout_local = comm->local.rail[MPIB_SOUT].ipv4_be;
	entry->sout_remote = comm->remote.rail[MPIB_SOUT].ipv4_be;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		entry->qps[rail] = comm->nqps[rail];
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		entry->speed[rail] = comm->dev->hca[rail].speed_mbps;
	if (!comm->own_counters)
		mpib_counters_publish(entry);
	return 0;
}

/* With the path, the rails and both ends' features known. */
static int make_rails(struct mpib_comm *comm, const struct mpib_env *env)
{
	bool here = comm->local.features & MPIB_FEATURE_FAILOVER;

	comm->use_mask = comm->data_mask;
	if ((here ^ comm->remote.features) & MPIB_FEATURE_FAILOVER)
		MPIB_INFO("%s: failover is on at %s end alone (MPIB_FAILOVER): off for this "
			  "connection",
			  comm->peer_text, here ? "this" : "the other");
	if (comm->rails || !mpib_rails_return(comm))
		return 0;
	comm->rails = calloc(1, sizeof(*comm->rails));
	if (!comm->rails)
		return -ENOMEM;
	comm->rails->env = malloc(sizeof(*env));
	if (!comm->rails->env) {
		free(comm->rails);
		comm->rails = NULL;
		return -ENOMEM;
	}
	*comm->rails->env = *env;
	comm->rails->maker = &mpib_rail_maker;
	mpib_rails_init(comm);
	/* A receiver has told where its records are. */
	if (mpib_rails_possible(comm) &&
	    comm->local.features & comm->remote.features & MPIB_FEATURE_MAIL)
		mpib_mailbox_open(&comm->rails->box, (char *)comm->ring + MAIL_AT,
				  comm->remote_qps.ring_addr + MAIL_AT -
					  (comm->kind == MPIB_COUNTER_SEND ? ROWS_SIZE : 0));
	return 0;
}

int mpib_comm_establish(struct mpib_comm *comm, const struct mpib_env *env)
{
	int r;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (mpib_hca_failed(&comm->dev->hca[rail]))
			return -EIO;
	if (!comm->counters) { /* the first of these calls */
		r = make_rails(comm, env);
		if (r == 0)
			r = start_counters(comm);
		if (r < 0)
			return r;
		mpib_comm_prepare(comm, env);
	}

	r = mpib_comm_watch_ctl(comm);
	if (r < 0 && mpib_net_is_transient(-r))
		return r;
	if (r < 0) {
		MPIB_WARN("control connection to %s can't be watched: %s", comm->peer_text,
			  strerror(-r));
		return r;
	}
	comm->established = 1;
	if (comm->mode == MPIB_MODE_ADVANCED)
		mpib_agent_hand_counters();

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

static void free_resources(struct mpib_comm *comm)
{
	mpib_rails_free(comm);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		if (comm->kind == MPIB_COUNTER_RECV) {
			mpib_flush_fini(comm, rail);
			mpib_rail_stop(comm, rail);
			mpib_qps_return_receives(comm, rail);
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
	(void)munmap(comm->pool.requests, POOL_SIZE);
	free(comm);
}

/* Rows that this end is done with, as BYE tells them. The request of a row that has not arrived
 * whole is still in its place. */
static uint32_t rows_done(const struct mpib_comm *comm)
{
	const uint32_t tail = comm->recv.tail;

	if (comm->kind == MPIB_COUNTER_SEND)
		return comm->send.head - (comm->busy & MPIB_BUSY_POSTING ? 1 : 0);
	for (uint32_t row = tail - MPIB_ROWS; row != tail; row++)
		if (comm->recv.row[row % MPIB_ROWS])
			return row;
	return tail;
}

static void send_bye(struct mpib_comm *comm)
{
	uint8_t payload[MPIB_BYE_SIZE];

	mpib_ctl_send_last(&comm->ctl, MPIB_FRAME_BYE, payload,
			   mpib_bye_encode(payload, rows_done(comm)));
}

void mpib_comm_free(struct mpib_comm *comm)
{
	if (!comm)
		return;

	mpib_rails_end(comm);
	mpib_watch_del(&comm->ctl_watch);
	mpib_agent_deregister(&comm->agent);
	if (comm->established && !comm->error)
		send_bye(comm);
	mpib_ctl_close(&comm->ctl);

	mpib_comms_del(comm);
	free_resources(comm);
}

void mpib_comm_free_all(void)
{
	struct mpib_comm *comm;

	while ((comm = mpib_comms_first()))
		mpib_comm_free(comm);
}
