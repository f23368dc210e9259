/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs of a connection: create, and the way RESET -> INIT -> RTR -> RTS (InfiniBand
 * specification, 10.3; man ibv_modify_qp). */
#ifndef MPIB_PLUGIN_QP_H
#define MPIB_PLUGIN_QP_H

#include <errno.h>

#include "plugin/connection/comm.h"

/* The rail whose QP 0 takes the clear-to-sends; known with mode and path. */
static inline unsigned int mpib_qps_cts_rail(const struct mpib_comm *comm)
{
	return comm->mode == MPIB_MODE_VANILLA && comm->path == MPIB_PATH_INTRA ? MPIB_SUP
										: MPIB_SOUT;
}

/* Entries of the send queue of the rail's QP @k, and of the rail's completion queue; with path,
 * rails and QPs of @comm known. */
unsigned int mpib_qps_sq_depth(const struct mpib_comm *comm, unsigned int rail, unsigned int k);
int mpib_qps_cq_depth(const struct mpib_comm *comm, unsigned int rail);

/* Creates the rail's comm->nqps QPs in INIT, that for the clear-to-sends with up to
 * MPIB_INLINE_MAX bytes inline, or what the device takes; those made are in comm->qp also on
 * failure. */
int mpib_qps_create(struct mpib_comm *comm, unsigned int rail, struct ibv_srq *srq);

/* What RTR returns where the peer's address can't be resolved on this rail. */
static inline bool mpib_qps_unreachable(int r)
{
	return r == -EHOSTUNREACH || r == -ENETUNREACH || r == -ETIMEDOUT;
}

/* Acceptor, after INIT: fills comm->ece with what the rail's QPs could do. */
void mpib_qps_offer_ece(struct mpib_comm *comm, unsigned int rail);

/* The other end of a QP. */
struct mpib_qp_end {
	uint32_t qpn;
	const uint8_t *gid;
	uint8_t mtu; /* enum ibv_mtu */
	uint16_t lid;
	uint8_t traffic_class; /* of what goes there */
};

/* One QP's steps. Negative errno, silent. */
int mpib_qp_to_init(const struct mpib_comm *comm, unsigned int rail, struct ibv_qp *qp,
		    unsigned int access);
int mpib_qp_to_rtr(const struct mpib_comm *comm, unsigned int rail, struct ibv_qp *qp,
		   const struct mpib_qp_end *remote, const struct mpib_env *env);
int mpib_qp_to_rts(struct ibv_qp *qp, const struct mpib_env *env);

/* Connects the rail's QPs to the peer's and moves them to RTS. Silent where the peer is
 * unreachable: the caller knows whether that matters. */
int mpib_qps_connect(struct mpib_comm *comm, unsigned int rail, const struct mpib_env *env);

/* Of a receiver whose QPs of the rail are in ERR, so that nothing more arrives, and still exist:
 * counts the receives of the shared queue that immediates took while nobody polled, and gives back
 * the reservations that nothing will use. For the thread that polls the rail. */
void mpib_qps_return_receives(struct mpib_comm *comm, unsigned int rail);

void mpib_qps_destroy(struct mpib_comm *comm, unsigned int rail);

#endif
