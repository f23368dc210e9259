/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/setup/prepare.h"

#include "common/split.h"
#include "plugin/setup/qp.h"
#include "plugin/wire/imm.h"

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
		if (comm->data_mask & mpib_rail_bit(rail) && !is_spread(comm, rail))
			return SIZE_MAX;
	return env->ar_threshold < 0 ? SIZE_MAX : (size_t)env->ar_threshold;
}

/* What the connection is asked for, and what its rails allow. */
static void set_limits(struct mpib_send_comm *send, const struct mpib_env *env)
{
	struct mpib_comm *comm = &send->base;

	send->record_addr = comm->remote_qps.ring_addr;
	send->split_min = (size_t)env->split_min;
	send->ar_above = ar_above(comm, env);
	send->share_fixed = comm->path == MPIB_PATH_INTRA ? MPIB_SHARE_MAX : 0;
	if (!(comm->data_mask & mpib_rail_bit(MPIB_SUP)))
		send->share_fixed = 0;
	send->share_last = send->share_fixed;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		uint32_t limit = comm->dev->hca[rail].port_attr.max_msg_sz;

		/* Pieces stay whole 128-byte lines, and within a 32-bit length. */
		if (limit == 0 || limit > 1u << 30)
			limit = 1u << 30;
		send->max_msg[rail] =
			limit > MPIB_SPLIT_ALIGN ? limit & ~(MPIB_SPLIT_ALIGN - 1) : limit;
	}
}

static void prepare_chain(struct mpib_send_comm *send, unsigned int rail)
{
	struct mpib_chain *chain = &send->group.chain[rail];
	struct mpib_wr *final = &chain->wr[MPIB_GROUP_MAX];
	struct mpib_comm *comm = &send->base;

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

static void prepare_send(struct mpib_send_comm *send, const struct mpib_env *env)
{
	struct mpib_comm *comm = &send->base;

	set_limits(send, env);
	send->max_uncut = WHOLE_MAX;
	for (unsigned int k = 0; k < MPIB_REQUESTS_MAX; k++)
		comm->pool.requests[k].count = 1;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		unsigned int n = comm->nqps[rail];

		send->at[rail] = n ? &send->qps[rail][0] : NULL;
		prepare_chain(send, rail);
		if (!(comm->rail_mask & mpib_rail_bit(rail)))
			continue;
		for (unsigned int k = 0; k < n; k++)
			send->qps[rail][k] = (struct mpib_send_qp){
				.qp = comm->qp[rail][k],
				.next = &send->qps[rail][k + 1 == n ? 0 : k + 1],
				.index = k,
			};
		send->wr[rail].sg_list = &send->sge[rail];
		send->wr[rail].num_sge = 1;
		send->wr[rail].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		send->wr[rail].send_flags = IBV_SEND_SIGNALED;
		if (send->max_msg[rail] < send->max_uncut)
			send->max_uncut = send->max_msg[rail];
	}
	send->max_whole = send->max_uncut < send->ar_above ? send->max_uncut : send->ar_above;
}

static void prepare_recv(struct mpib_recv_comm *recv)
{
	struct mpib_comm *comm = &recv->base;
	struct ibv_send_wr *wr = &recv->cts_wr;

	recv->cts_addr = comm->remote_qps.ring_addr;
	recv->cts_rail = mpib_qps_cts_rail(comm);
	recv->cts_qp = comm->qp[recv->cts_rail][0];
	recv->cts_limit = MPIB_CTS_DEPTH;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		comm->polled[rail] = (comm->data_mask & mpib_rail_bit(rail)) != 0;
		recv->hca[rail] = &comm->dev->hca[rail];
	}
	recv->cts_count = &comm->counters->rail[recv->cts_rail].cts;
	recv->cts_one.count = 1;
	recv->cts_sge.addr = (uint64_t)(uintptr_t)&recv->cts_one;
	recv->cts_sge.length = sizeof(recv->cts_one);
	recv->cts_sge.lkey = comm->ring_mr->lkey[recv->cts_rail];
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->send_flags = IBV_SEND_INLINE;
	wr->sg_list = &recv->cts_sge;
	wr->num_sge = 1;
	wr->wr.rdma.rkey = comm->remote_qps.ring_rkey[recv->cts_rail];
}

void mpib_comm_prepare(struct mpib_comm *comm, const struct mpib_env *env)
{
	if (comm->kind == MPIB_COUNTER_SEND)
		prepare_send(mpib_send_comm(comm), env);
	else
		prepare_recv(mpib_recv_comm(comm));
}
