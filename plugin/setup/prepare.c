/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/setup/prepare.h"

#include "common/split.h"
#include "plugin/connection/rails.h"
#include "plugin/setup/qp.h"
#include "plugin/wire/imm.h"

#define REQUEST_MAX (1u << 30) /* bytes that a request is given, whatever the port allows */

/* The largest size that size_q carries without being cut to its maximum. */
#define WHOLE_MAX (((size_t)MPIB_IMM_SIZE_RECORD << 7) - 1)

/* Switches of InfiniBand spread plain writes over paths and keep writes with immediate on one. All
 * of a rail's requests of a message are on one QP, and RC promises that the immediate is told after
 * the writes before it are in memory (InfiniBand specification, 9.5), whatever their order: a
 * device of another transport, as iWARP, doesn't say so, and RoCE networks seldom spread. */
static bool is_spread(const struct mpib_comm *comm, unsigned int rail)
{
	return comm->local.rail[rail].link_layer == IBV_LINK_LAYER_INFINIBAND &&
	       comm->dev->hca[rail].ctx->device->transport_type == IBV_TRANSPORT_IB;
}

static size_t ar_above(const struct mpib_comm *comm, const struct mpib_env *env)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (comm->mem_mask & mpib_rail_bit(rail) && !is_spread(comm, rail))
			return SIZE_MAX;
	return env->ar_threshold < 0 ? SIZE_MAX : (size_t)env->ar_threshold;
}

/* What the connection is asked for, and what its rails allow. */
static void set_limits(struct mpib_comm *comm, const struct mpib_env *env)
{
	comm->send.record_addr = comm->remote_qps.ring_addr;
	comm->send.split_min = (size_t)env->split_min;
	comm->send.split_min_idle = comm->send.split_min > MPIB_SPLIT_MIN_IDLE
					    ? comm->send.split_min
					    : MPIB_SPLIT_MIN_IDLE;
	comm->send.ar_above = ar_above(comm, env);
	comm->send.share_fixed = comm->path == MPIB_PATH_INTRA ? MPIB_SHARE_MAX : 0;
	if (!(comm->data_mask & mpib_rail_bit(MPIB_SUP)))
		comm->send.share_fixed = 0;
	comm->send.share_last = comm->send.share_fixed;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		uint32_t limit = comm->dev->hca[rail].port_attr.max_msg_sz;

		/* Pieces stay whole 128-byte lines, and within a 32-bit length. */
		if (limit == 0 || limit > REQUEST_MAX)
			limit = REQUEST_MAX;
		comm->send.max_msg[rail] =
			limit > MPIB_SPLIT_ALIGN ? limit & ~(MPIB_SPLIT_ALIGN - 1) : limit;
	}
}

/* A part may have to take the other port. */
static void set_one_limit(struct mpib_comm *comm)
{
	if (comm->send.max_msg[MPIB_SOUT] > comm->send.max_msg[MPIB_SUP])
		comm->send.max_msg[MPIB_SOUT] = comm->send.max_msg[MPIB_SUP];
	comm->send.max_msg[MPIB_SUP] = comm->send.max_msg[MPIB_SOUT];
}

static void prepare_chain(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_chain *chain = &comm->send.group.chain[rail];
	struct mpib_wr *final = &chain->wr[MPIB_GROUP_MAX];

	for (struct mpib_wr *wr = chain->wr; wr < final; wr++) {
		wr->wr.opcode = IBV_WR_RDMA_WRITE;
		wr->wr.sg_list = &wr->sge;
		wr->wr.num_sge = 1;
		wr->wr.next = &wr[1].wr;
	}
	final->wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	final->wr.send_flags = IBV_SEND_SIGNALED;
	final->wr.sg_list = &final->sge;
	final->wr.wr.rdma.rkey = comm->remote_qps.ring_rkey[rail];
	final->sge.lkey = comm->ring_mr->lkey[rail];
	chain->at = final;
}

static void prepare_request(struct mpib_request *req)
{
	req->count = 1;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		req->wr[rail].wr_id = req->index;
		req->wr[rail].sg_list = &req->sge[rail];
		req->wr[rail].num_sge = 1;
		req->wr[rail].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		req->wr[rail].send_flags = IBV_SEND_SIGNALED;
	}
}

static void prepare_send(struct mpib_comm *comm, const struct mpib_env *env)
{
	set_limits(comm, env);
	if (mpib_rails_possible(comm))
		set_one_limit(comm);
	if (comm->rails) {
		comm->rails->share_fixed = comm->send.share_fixed;
	}
	comm->send.max_uncut = WHOLE_MAX;
	for (unsigned int k = 0; k < MPIB_REQUESTS_MAX; k++)
		prepare_request(&comm->pool.requests[k]);
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		unsigned int n = comm->nqps[rail];

		comm->send.at[rail] = n ? &comm->send.qps[rail][0] : NULL;
		prepare_chain(comm, rail);
		if (!(comm->rail_mask & mpib_rail_bit(rail)))
			continue;
		for (unsigned int k = 0; k < n; k++)
			comm->send.qps[rail][k] = (struct mpib_send_qp){
				.qp = comm->qp[rail][k],
				.next = &comm->send.qps[rail][k + 1 == n ? 0 : k + 1],
				.index = k,
			};
		if (comm->send.max_msg[rail] < comm->send.max_uncut)
			comm->send.max_uncut = comm->send.max_msg[rail];
	}
	comm->send.max_whole = comm->send.max_uncut < comm->send.ar_above ? comm->send.max_uncut
									  : comm->send.ar_above;
}

static void prepare_recv(struct mpib_comm *comm)
{
	struct ibv_send_wr *wr = &comm->recv.cts_wr;

	comm->recv.cts_addr = comm->remote_qps.ring_addr;
	comm->recv.cts_rail = mpib_qps_cts_rail(comm);
	comm->recv.cts_qp = comm->qp[comm->recv.cts_rail][0];
	comm->recv.cts_limit = MPIB_CTS_DEPTH;
	comm->recv.inline_room = comm->recv.inline_on[comm->recv.cts_rail];
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		comm->polled[rail] = (comm->use_mask & mpib_rail_bit(rail)) != 0;
		comm->recv.hca[rail] = &comm->dev->hca[rail];
	}
	comm->recv.cts_count = &comm->counters->rail[comm->recv.cts_rail].cts;
	for (unsigned int k = 0; k < MPIB_REQUESTS_MAX; k++)
		comm->pool.requests[k].cts.count = 1;
	comm->recv.cts_sge.length = sizeof(struct mpib_cts);
	comm->recv.cts_sge.lkey = comm->ring_mr->lkey[comm->recv.cts_rail];
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->send_flags = IBV_SEND_INLINE;
	wr->sg_list = &comm->recv.cts_sge;
	wr->num_sge = 1;
	wr->wr.rdma.rkey = comm->remote_qps.ring_rkey[comm->recv.cts_rail];
}

void mpib_comm_prepare(struct mpib_comm *comm, const struct mpib_env *env)
{
	if (comm->kind == MPIB_COUNTER_SEND)
		prepare_send(comm, env);
	else
		prepare_recv(comm);
}
