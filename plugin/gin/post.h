/* SPDX-License-Identifier: Apache-2.0 */
/* One work request of a mesh. Progress thread. */
#ifndef MPIB_PLUGIN_GIN_POST_H
#define MPIB_PLUGIN_GIN_POST_H

#include "plugin/gin/gin_impl.h"

_Static_assert((MPIB_GIN_KINDS & (_Alignof(struct mpib_gin_request) - 1)) == MPIB_GIN_KINDS &&
		       (MPIB_GIN_KINDS & (_Alignof(struct mpib_gin_peer) - 1)) == MPIB_GIN_KINDS,
	       "a kind fits below the bits of a pointer");

static inline uint64_t mpib_gin_wr_id(const void *object, enum mpib_gin_kind kind)
{
	return (uint64_t)(uintptr_t)object | kind;
}

static inline int mpib_gin_post(struct mpib_gin_peer *peer, unsigned int rail,
				struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int r = ibv_post_send(peer->qp[rail], wr, &bad);

	if (mpib_unlikely(r))
		return mpib_gin_post_failed(peer, rail, r);
	peer->gin->outstanding[rail]++;
	return 0;
}

static inline void mpib_gin_fill_atomic(const struct mpib_gin_peer *peer, struct ibv_send_wr *wr,
					struct ibv_sge *sge, const struct mpib_gin_request *request)
{
	*sge = (struct ibv_sge){ peer->gin->scratch_addr, 8,
				 peer->gin->scratch_lkey[mpib_gin_signal_rail(peer)] };
	*wr = (struct ibv_send_wr){ .sg_list = sge,
				    .num_sge = 1,
				    .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				    .send_flags = IBV_SEND_SIGNALED };
	wr->wr.atomic.remote_addr = request->signal_addr;
	wr->wr.atomic.rkey = request->signal_far->rkey[mpib_gin_signal_rail(peer)];
	wr->wr.atomic.compare_add = request->signal_value;
}

static inline void mpib_gin_fill(struct ibv_send_wr *wr, struct ibv_sge *sge,
				 enum ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey)
{
	*wr = (struct ibv_send_wr){
		.sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED
	};
	wr->wr.rdma.remote_addr = remote;
	wr->wr.rdma.rkey = rkey;
}

/* Whether SUP has brought what may not be in memory yet. */
static inline bool mpib_gin_needs_push(const struct mpib_gin_peer *peer)
{
#ifdef MPIB_GIN_WRONG_NO_PUSH /* must fail its tests: takes SUP's acknowledgements for its data */
	return false;
#endif
	return peer->unpushed != NULL;
}

/* The rest of what @of_rail was to carry of the request; on the other one where that is lost.
 * False: no room now, or an error. */
bool mpib_gin_post_part(struct mpib_gin_peer *peer, struct mpib_gin_request *request,
			unsigned int of_rail);
/* A request's atomic, as far as its turn has come. False: no room now, or an error. */
bool mpib_gin_post_signal(struct mpib_gin_peer *peer, struct mpib_gin_request *request);
/* Posts what the peer's lists hold, as far as there is room. */
void mpib_gin_pump(struct mpib_gin_peer *peer);

#endif
