/* SPDX-License-Identifier: Apache-2.0 */
/* From the peer's queue pairs to a connection that can carry messages; SUP is given up where it may
 * be and can't be reached. */
#include "plugin/connection/comm.h"

#include <errno.h>
#include <string.h>

#include "common/split.h"
#include "plugin/base/clock.h"
#include "plugin/data/flush.h"
#include "plugin/base/log.h"
#include "plugin/setup/qp.h"
#include "plugin/base/result.h"

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
	if (comm->kind == MPIB_COUNTER_SEND)
		mpib_send_comm(comm)->share_fixed = 0;
}

int mpib_comm_register(struct mpib_comm *comm)
{
	bool sup = comm->rail_mask & mpib_rail_bit(MPIB_SUP);

	comm->agent.unread = !sup;
	return mpib_agent_register(&comm->agent, comm->local.rail[MPIB_SOUT].ipv4_be,
				   comm->remote.rail[MPIB_SOUT].ipv4_be,
				   sup ? comm->local.rail[MPIB_SUP].ipv4_be : 0,
				   sup ? comm->remote.rail[MPIB_SUP].ipv4_be : 0);
}

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

static void prepare_send(struct mpib_send_comm *send, const struct mpib_env *env)
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
		struct ibv_send_wr *wr = &send->wr[rail];
		uint32_t limit = comm->dev->hca[rail].port_attr.max_msg_sz;

		/* Pieces stay whole 128-byte lines, and within a 32-bit length. */
		if (limit == 0 || limit > 1u << 30)
			limit = 1u << 30;
		send->max_msg[rail] =
			limit > MPIB_SPLIT_ALIGN ? limit & ~(MPIB_SPLIT_ALIGN - 1) : limit;
		wr->sg_list = &send->sge[rail];
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->send_flags = IBV_SEND_SIGNALED;
	}
}

static void prepare_recv(struct mpib_recv_comm *recv)
{
	struct mpib_comm *comm = &recv->base;

	recv->cts_addr = comm->remote_qps.ring_addr;
	recv->cts_rail = mpib_qps_cts_rail(comm);
	recv->cts_qp = comm->qp[recv->cts_rail][0];
	recv->cts_limit = MPIB_CTS_DEPTH;
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
		prepare_send(mpib_send_comm(comm), env);
	else
		prepare_recv(mpib_recv_comm(comm));
	if (comm->kind == MPIB_COUNTER_RECV && comm->dev->ptr_support && env->flush)
		return mpib_flush_init(mpib_recv_comm(comm), env);
	return 0;
}
