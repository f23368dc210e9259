/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/setup/rail_make.h"

#include <string.h>

#include "plugin/setup/flush_qp.h"
#include "plugin/setup/qp.h"
#include "plugin/verbs/gid.h"
#include "plugin/verbs/srq.h"

static bool is_gid(const struct mpib_comm *comm, unsigned int rail, unsigned int index)
{
	const struct mpib_hca *hca = &comm->dev->hca[rail];
	const union ibv_gid *want = &comm->source[rail].gid.gid;
	struct mpib_gid gid;

	return mpib_gid_check(hca->ctx, hca->port, index, &gid) == 0 &&
	       memcmp(&gid.gid, want, sizeof(*want)) == 0;
}

/* With its link a port may lose its addresses, and their GIDs come back to other places of the
 * table. One that is in none may be there at the next attempt; this one fails. */
static void follow_gid(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_gid *gid = &comm->source[rail].gid;
	const int len = comm->dev->hca[rail].port_attr.gid_tbl_len;

	if (comm->local.rail[rail].link_layer == IBV_LINK_LAYER_INFINIBAND ||
	    comm->rails->env->gid_index >= 0 || is_gid(comm, rail, gid->index))
		return;
	for (int index = 0; index < len; index++)
		if (is_gid(comm, rail, (unsigned int)index)) {
			gid->index = (unsigned int)index;
			return;
		}
}

/* What the old ones left is of no use to anybody, both ends have settled it; but what a device told
 * of late took receives from the shared queue. */
static void leave(struct mpib_comm *comm, unsigned int rail)
{
	if (comm->kind == MPIB_COUNTER_RECV)
		mpib_qps_return_receives(comm, rail);
}

static int make(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_hca *hca = &comm->dev->hca[rail];
	struct ibv_srq *srq = NULL;
	int r;

	if (comm->kind == MPIB_COUNTER_RECV)
		mpib_flush_fini(comm, rail);
	follow_gid(comm, rail);
	mpib_qps_destroy(comm, rail);
	(void)mpib_verbs_destroy_cq(comm->cq[rail]);
	comm->cq[rail] = NULL;
	r = mpib_verbs_create_cq(hca->ctx, mpib_qps_cq_depth(comm, rail), comm, &comm->cq[rail]);
	if (r == 0 && comm->kind == MPIB_COUNTER_RECV)
		r = mpib_srq_get(hca, &srq);
	if (r == 0)
		r = mpib_qps_create(comm, rail, srq);
	return r;
}

static void describe(const struct mpib_comm *comm, unsigned int rail, struct mpib_peer_qps *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->path = (uint8_t)comm->path;
	ret->rail_mask = (uint8_t)mpib_rail_bit(rail);
	ret->qps[rail] = (uint16_t)comm->nqps[rail];
	ret->ring_rkey[rail] = comm->ring_mr->rkey[rail]; /* it stays where it was */
	for (unsigned int k = 0; k < comm->nqps[rail]; k++)
		ret->qpn[rail][k] = comm->qp[rail][k]->qp_num;
}

static int connect_rail(struct mpib_comm *comm, unsigned int rail, const struct mpib_peer_qps *peer)
{
	int r;

	memcpy(comm->remote_qps.qpn[rail], peer->qpn[rail], sizeof(peer->qpn[rail]));
	r = mpib_qps_connect(comm, rail, comm->rails->env);
	if (r == 0 && comm->kind == MPIB_COUNTER_RECV && comm->dev->ptr_support &&
	    comm->rails->env->flush)
		r = mpib_flush_make(comm, rail, comm->rails->env);
	return r;
}

const struct mpib_rail_maker mpib_rail_maker = { leave, make, describe, connect_rail };
