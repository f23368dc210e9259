/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/setup/qp.h"

#include <errno.h>
#include <string.h>

#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/connection/rails.h"
#include "plugin/verbs/async.h"
#include "plugin/verbs/limit.h"
#include "plugin/verbs/srq.h"

/* As NCCL's own transport: 0.64 ms until a sender may try a receiver again that had no receive. */
#define MIN_RNR_TIMER 12
#define RNR_FOREVER   7

static int warn(const struct mpib_comm *comm, unsigned int rail, const char *what, int r,
		const char *advice)
{
	if (mpib_hca_failed(&comm->dev->hca[rail]))
		return -EIO;
	MPIB_WARN("%s rail %s to %s: QP can't %s: %s%s", mpib_rail_name(rail),
		  comm->dev->hca[rail].name, comm->peer_text, what, strerror(-r), advice);
	return mpib_error_of_host(r);
}

int mpib_qp_to_init(const struct mpib_comm *comm, unsigned int rail, struct ibv_qp *qp,
		    unsigned int access)
{
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = (uint8_t)comm->dev->hca[rail].port;
	attr.pkey_index = comm->source[rail].pkey_index;
	attr.qp_access_flags = access;
	return mpib_verbs_modify_qp(
		qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* Within an InfiniBand subnet LIDs are enough; RoCE, and other subnets, need the global route. */
static bool needs_grh(const struct mpib_comm *comm, unsigned int rail, const uint8_t *remote_gid)
{
	return comm->local.rail[rail].link_layer != IBV_LINK_LAYER_INFINIBAND ||
	       memcmp(comm->local.rail[rail].gid, remote_gid, 8) != 0;
}

int mpib_qp_to_rtr(const struct mpib_comm *comm, unsigned int rail, struct ibv_qp *qp,
		   const struct mpib_qp_end *remote, const struct mpib_env *env)
{
	const uint8_t local_mtu = comm->local.rail[rail].mtu;
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = local_mtu < remote->mtu ? local_mtu : remote->mtu;
	attr.dest_qp_num = remote->qpn;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = MIN_RNR_TIMER;
	attr.ah_attr.dlid = remote->lid;
	if (needs_grh(comm, rail, remote->gid)) {
		attr.ah_attr.is_global = 1;
		memcpy(attr.ah_attr.grh.dgid.raw, remote->gid, MPIB_GID_SIZE);
		attr.ah_attr.grh.sgid_index = (uint8_t)comm->source[rail].gid.index;
		attr.ah_attr.grh.hop_limit = 255;
		attr.ah_attr.grh.traffic_class = remote->traffic_class;
	}
	attr.ah_attr.sl = (uint8_t)env->sl;
	attr.ah_attr.port_num = (uint8_t)comm->dev->hca[rail].port;
	return mpib_verbs_modify_qp(qp, &attr,
				    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					    IBV_QP_MIN_RNR_TIMER);
}

int mpib_qp_to_rts(struct ibv_qp *qp, const struct mpib_env *env)
{
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = (uint8_t)env->timeout;
	attr.retry_cnt = (uint8_t)env->retry_cnt;
	attr.rnr_retry = RNR_FOREVER;
	attr.max_rd_atomic = 1;
	return mpib_verbs_modify_qp(qp, &attr,
				    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					    IBV_QP_MAX_QP_RD_ATOMIC);
}

static bool posts_cts(const struct mpib_comm *comm, unsigned int rail, unsigned int k)
{
	return comm->kind == MPIB_COUNTER_RECV && rail == mpib_qps_cts_rail(comm) && k == 0;
}

/* The same, where the other rail may be lost. */
static bool may_post_cts(const struct mpib_comm *comm, unsigned int rail, unsigned int k)
{
	return posts_cts(comm, rail, k) ||
	       (comm->kind == MPIB_COUNTER_RECV && k == 0 && mpib_rails_possible(comm));
}

/* Clear-to-sends, and where a rail may be lost the write that asks whether they get through. */
static unsigned int cts_depth(const struct mpib_comm *comm)
{
	return MPIB_CTS_DEPTH + (mpib_rails_possible(comm) ? 1 + MPIB_MAIL_SLOTS : 0);
}

static uint8_t traffic_class(const struct mpib_comm *comm, unsigned int rail, unsigned int k)
{
	return posts_cts(comm, rail, k) ? comm->local.cts_traffic_class : comm->local.traffic_class;
}

unsigned int mpib_qps_sq_depth(const struct mpib_comm *comm, unsigned int rail, unsigned int k)
{
	if (may_post_cts(comm, rail, k))
		return cts_depth(comm);
	if (comm->kind == MPIB_COUNTER_RECV || !(comm->mem_mask & mpib_rail_bit(rail)))
		return 1;
	return MPIB_SQ_DEPTH + (k == 0 && mpib_rails_possible(comm) ? MPIB_MAIL_SLOTS : 0);
}

int mpib_qps_cq_depth(const struct mpib_comm *comm, unsigned int rail)
{
	unsigned int depth = 0;

	if (comm->mem_mask & mpib_rail_bit(rail))
		depth = MPIB_REQUESTS_MAX;
	if (depth && comm->kind == MPIB_COUNTER_SEND)
		depth += comm->nqps[rail] * MPIB_SQ_CHAINED +
			 (mpib_rails_possible(comm) ? MPIB_MAIL_SLOTS : 0);
	if (may_post_cts(comm, rail, 0))
		depth += cts_depth(comm);
	if (comm->kind == MPIB_COUNTER_RECV && mpib_rails_possible(comm))
		depth += MPIB_REQUESTS_MAX; /* what the other rail has lost */
	return depth ? (int)depth : 1;
}

/* Once an HCA. */
static void tell_inline(const struct mpib_comm *comm, unsigned int rail, unsigned int room)
{
	if (atomic_exchange_explicit(&comm->dev->hca[rail].inline_told, true, memory_order_relaxed))
		return;
	MPIB_INFO("%s rail %s: the device takes %u of %u bytes inline: clear-to-sends of %s are "
		  "read from host memory, which each receive waits for",
		  mpib_rail_name(rail), comm->dev->hca[rail].name, room, MPIB_INLINE_MAX,
		  room < sizeof(struct mpib_cts) ? "all receives" : "groups");
}

/* The QP with as much inline data as the device takes: verbs have no attribute that tells it, and
 * a create that asks for too much is refused with EINVAL. */
static int create_with_inline(struct mpib_comm *comm, unsigned int rail,
			      struct ibv_qp_init_attr *init, struct ibv_qp **ret)
{
	static const unsigned int steps[] = { MPIB_INLINE_MAX, sizeof(struct mpib_cts), 0 };
	struct mpib_hca *hca = &comm->dev->hca[rail];
	unsigned int known = atomic_load_explicit(&hca->inline_max, memory_order_relaxed);
	const struct ibv_qp_cap cap = init->cap; /* a create may change it */
	int r = -EINVAL;

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(steps); k++) {
		if (known && steps[k] > known - 1)
			continue;
		init->cap = cap;
		init->cap.max_inline_data = steps[k];
		r = mpib_verbs_create_qp(hca->pd, init, ret);
		if (r == 0 && !known)
			atomic_store_explicit(&hca->inline_max, steps[k] + 1, memory_order_relaxed);
		if (r == 0 && steps[k] < MPIB_INLINE_MAX && posts_cts(comm, rail, 0))
			tell_inline(comm, rail, steps[k]);
		if (r != -EINVAL && r != -EOPNOTSUPP)
			break;
	}
	if (r == 0)
		comm->recv.inline_on[rail] = init->cap.max_inline_data;
	return r;
}

static int create_one(struct mpib_comm *comm, unsigned int rail, unsigned int k,
		      struct ibv_srq *srq)
{
	struct ibv_qp **ret = &comm->qp[rail][k];
	struct ibv_qp_init_attr init;
	char advice[MPIB_ADVICE_MAX];
	int r;

	memset(&init, 0, sizeof(init));
	init.qp_context = comm;
	init.send_cq = comm->cq[rail];
	init.recv_cq = comm->cq[rail];
	init.srq = srq;
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = mpib_qps_sq_depth(comm, rail, k);
	init.cap.max_recv_wr = srq ? 0 : 1;
	init.cap.max_send_sge = 1;
	init.cap.max_recv_sge = srq ? 0 : 1;
	r = may_post_cts(comm, rail, k) ? create_with_inline(comm, rail, &init, ret)
					: mpib_verbs_create_qp(comm->dev->hca[rail].pd, &init, ret);
	if (r < 0)
		return warn(comm, rail, "be created", r,
			    mpib_limit_advice(&comm->dev->hca[rail], MPIB_OBJECT_QP, r, advice));

	r = mpib_qp_to_init(comm, rail, *ret, IBV_ACCESS_REMOTE_WRITE);
	return r < 0 ? warn(comm, rail, "enter INIT", r, "") : 0;
}

int mpib_qps_create(struct mpib_comm *comm, unsigned int rail, struct ibv_srq *srq)
{
	for (unsigned int k = 0; k < comm->nqps[rail]; k++) {
		int r = create_one(comm, rail, k, srq);

		if (r < 0)
			return r;
	}
	return 0;
}

void mpib_qps_offer_ece(struct mpib_comm *comm, unsigned int rail)
{
	if (mpib_verbs_query_ece(comm->qp[rail][0], &comm->ece[rail]) < 0)
		memset(&comm->ece[rail], 0, sizeof(comm->ece[rail]));
}

/* Before RTR: what the peer offered or answered. A driver that can't is no error: both ends then do
 * without. */
static void set_ece(struct mpib_comm *comm, unsigned int rail, struct ibv_qp *qp)
{
	struct ibv_ece ece = { .vendor_id = comm->remote_qps.ece[rail].vendor_id,
			       .options = comm->remote_qps.ece[rail].options };

	if (ece.vendor_id)
		(void)mpib_verbs_set_ece(qp, &ece);
}

int mpib_qps_connect(struct mpib_comm *comm, unsigned int rail, const struct mpib_env *env)
{
	for (unsigned int k = 0; k < comm->nqps[rail]; k++) {
		const struct mpib_qp_end remote = { .qpn = comm->remote_qps.qpn[rail][k],
						    .gid = comm->remote.rail[rail].gid,
						    .mtu = comm->remote.rail[rail].mtu,
						    .lid = comm->remote.rail[rail].lid,
						    .traffic_class = traffic_class(comm, rail, k) };
		struct ibv_qp *qp = comm->qp[rail][k];
		int r;

		if (env->ece)
			set_ece(comm, rail, qp);
		r = mpib_qp_to_rtr(comm, rail, qp, &remote, env);
		if (mpib_qps_unreachable(r))
			return r;
		if (r < 0)
			return warn(comm, rail, "enter RTR", r, "");
		r = mpib_qp_to_rts(qp, env);
		if (r < 0)
			return warn(comm, rail, "enter RTS", r, "");
	}

	/* The connector answers with what is left after both drivers had their say. */
	if (env->ece && comm->kind == MPIB_COUNTER_SEND && comm->nqps[rail] &&
	    comm->remote_qps.ece[rail].vendor_id)
		mpib_qps_offer_ece(comm, rail);
	return 0;
}

/* While the QPs exist: some drivers drop a destroyed QP's completions. */
void mpib_qps_return_receives(struct mpib_comm *comm, unsigned int rail)
{
	struct ibv_wc wc[MPIB_POLL_BATCH];
	int n;

	while (comm->cq[rail] && (n = ibv_poll_cq(comm->cq[rail], MPIB_POLL_BATCH, wc)) > 0)
		for (int k = 0; k < n; k++)
			if (wc[k].wr_id == MPIB_WR_RECV)
				mpib_srq_used(&comm->dev->hca[rail], &comm->recv.reserved[rail]);
	while (comm->recv.reserved[rail]) {
		comm->recv.reserved[rail]--;
		mpib_srq_release(&comm->dev->hca[rail]);
	}
}

void mpib_qps_destroy(struct mpib_comm *comm, unsigned int rail)
{
	for (unsigned int k = 0; k < MPIB_QPS_MAX; k++) {
		(void)mpib_verbs_destroy_qp(comm->qp[rail][k]);
		comm->qp[rail][k] = NULL;
	}
}
