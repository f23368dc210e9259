/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs of a mesh. They differ from a net connection's in what the peer may do (READs,
 * atomics) and in how much of it at once. */
#include <errno.h>
#include <string.h>

#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/gin/gin_impl.h"
#include "plugin/verbs/async.h"
#include "plugin/verbs/limit.h"

/* As those of net connections. */
#define MIN_RNR_TIMER 12
#define RNR_FOREVER   7

static int warn(const struct mpib_gin_peer *peer, unsigned int rail, const char *what, int r,
		const char *advice)
{
	struct mpib_hca *hca = &peer->gin->dev->hca[rail];

	if (mpib_hca_failed(hca))
		return -EIO;
	MPIB_WARN("%s rail %s to %s: QP can't %s: %s%s", mpib_rail_name(rail), hca->name,
		  peer->text, what, strerror(-r), advice);
	return r == -EHOSTUNREACH || r == -ENETUNREACH || r == -ETIMEDOUT ? r
									  : mpib_error_of_host(r);
}

static unsigned int least(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

/* What this end takes, and what it may begin. Drivers that tell 0 take one all the same. */
static unsigned int reads_in(const struct mpib_gin_peer *peer, unsigned int rail)
{
	int most = peer->gin->dev->hca[rail].attr.max_qp_rd_atom;

	return most < 1 ? 1 : least((unsigned int)most, MPIB_GIN_READS_MAX);
}

static unsigned int reads_out(const struct mpib_gin_peer *peer, unsigned int rail)
{
	int most = peer->gin->dev->hca[rail].attr.max_qp_init_rd_atom;

	most = most < 1 ? 1 : (int)least((unsigned int)most, MPIB_GIN_READS_MAX);
#ifdef MPIB_GIN_WRONG_READS /* must fail its tests: more than the other end takes */
	return (unsigned int)most;
#endif
	return least((unsigned int)most, peer->join.reads[rail]);
}

void mpib_gin_describe(const struct mpib_gin_peer *peer, struct mpib_gin_join *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->version = MPIB_GIN_VERSION;
	ret->nranks = peer->gin->nranks;
	ret->rank = peer->gin->rank;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		if (!peer->qp[rail])
			continue;
		ret->qpn[rail] = peer->qp[rail]->qp_num;
		ret->reads[rail] = (uint8_t)reads_in(peer, rail);
	}
}

static int create(struct mpib_gin_peer *peer, unsigned int rail)
{
	struct mpib_gin *gin = peer->gin;
	struct mpib_hca *hca = &gin->dev->hca[rail];
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	char advice[MPIB_ADVICE_MAX];
	int r;

	memset(&init, 0, sizeof(init));
	init.send_cq = gin->cq[rail];
	init.recv_cq = gin->cq[rail];
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = MPIB_GIN_SQ_DEPTH;
	init.cap.max_recv_wr = 1;
	init.cap.max_send_sge = 1;
	init.cap.max_recv_sge = 1;
	r = mpib_verbs_create_qp(hca->pd, &init, &peer->qp[rail]);
	if (r < 0)
		return warn(peer, rail, "be created", r,
			    mpib_limit_advice(hca, MPIB_OBJECT_QP, r, advice));
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = (uint8_t)hca->port;
	attr.pkey_index = gin->source[rail].pkey_index;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	if (MPIB_GIN_ATOMIC_RAILS & mpib_rail_bit(rail))
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
	r = mpib_verbs_modify_qp(peer->qp[rail], &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					 IBV_QP_ACCESS_FLAGS);
	peer->room[rail] = MPIB_GIN_SQ_DEPTH;
	return r < 0 ? warn(peer, rail, "enter INIT", r, "") : 0;
}

int mpib_gin_qps_create(struct mpib_gin_peer *peer)
{
	int r = create(peer, MPIB_SOUT);

	/* Between islands SUP may not reach; SOUT alone then takes everything. */
	return r < 0 || !peer->intra ? r : create(peer, MPIB_SUP);
}

/* Within an InfiniBand subnet LIDs are enough; RoCE, and other subnets, need the global route. */
static void set_route(const struct mpib_gin_peer *peer, unsigned int rail, struct ibv_ah_attr *ret)
{
	const struct mpib_gin *gin = peer->gin;

	ret->dlid = peer->remote.rail[rail].lid;
	ret->sl = (uint8_t)gin->env.sl;
	ret->port_num = (uint8_t)gin->dev->hca[rail].port;
	if (gin->local.rail[rail].link_layer == IBV_LINK_LAYER_INFINIBAND &&
	    memcmp(gin->local.rail[rail].gid, peer->remote.rail[rail].gid, 8) == 0)
		return;
	ret->is_global = 1;
	memcpy(ret->grh.dgid.raw, peer->remote.rail[rail].gid, MPIB_GID_SIZE);
	ret->grh.sgid_index = (uint8_t)gin->source[rail].gid.index;
	ret->grh.hop_limit = 255;
	ret->grh.traffic_class = gin->local.traffic_class;
}

static enum ibv_mtu path_mtu(const struct mpib_gin_peer *peer, unsigned int rail)
{
	return (enum ibv_mtu)least(peer->gin->local.rail[rail].mtu, peer->remote.rail[rail].mtu);
}

static int to_rtr(const struct mpib_gin_peer *peer, unsigned int rail)
{
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = path_mtu(peer, rail);
	attr.dest_qp_num = peer->join.qpn[rail];
	attr.max_dest_rd_atomic = (uint8_t)reads_in(peer, rail);
	attr.min_rnr_timer = MIN_RNR_TIMER;
	set_route(peer, rail, &attr.ah_attr);
	return mpib_verbs_modify_qp(peer->qp[rail], &attr,
				    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					    IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct mpib_gin_peer *peer, unsigned int rail)
{
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = (uint8_t)peer->gin->env.timeout;
	attr.retry_cnt = (uint8_t)peer->gin->env.retry_cnt;
	attr.rnr_retry = RNR_FOREVER;
	attr.max_rd_atomic = (uint8_t)reads_out(peer, rail);
	peer->reads[rail] = attr.max_rd_atomic;
	return mpib_verbs_modify_qp(peer->qp[rail], &attr,
				    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					    IBV_QP_MAX_QP_RD_ATOMIC);
}

int mpib_gin_qps_connect(struct mpib_gin_peer *peer)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r;

		if (!peer->qp[rail] != !peer->join.qpn[rail]) {
			MPIB_WARN("%s: %s has a QP at one end only: the SOUT addresses that both "
				  "see must be the same ones",
				  peer->text, mpib_rail_name(rail));
			return -MPIB_EUSAGE;
		}
		if (!peer->qp[rail])
			continue;
		if (rail == MPIB_SOUT)
			peer->mtu_shift = (uint8_t)(7 + path_mtu(peer, rail));
		r = to_rtr(peer, rail);
		if (r < 0)
			return warn(peer, rail, "enter RTR", r,
				    "; check addresses, routes and cables of that rail");
		r = to_rts(peer, rail);
		if (r < 0)
			return warn(peer, rail, "enter RTS", r, "");
	}
	return 0;
}
