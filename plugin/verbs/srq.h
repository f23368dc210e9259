/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared receive queue of an HCA: generic receives without a buffer, each good for one
 * immediate of any connection. Every posted irecv reserves one receive on each rail that could
 * bring its data, and the queue always holds at least as many as are reserved: a sender never
 * meets an empty queue, and a connection whose owner is slow can't starve another.
 */
#ifndef MPIB_PLUGIN_SRQ_H
#define MPIB_PLUGIN_SRQ_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/macros.h"
#include "plugin/verbs/hca.h"

/* What mlx5 allows: 1024 connections that each await 32 messages. */
#define MPIB_SRQ_DEPTH 32767
/* wr_id of every receive: tells it from a send where a completion's opcode doesn't count. */
#define MPIB_WR_RECV (1ull << 63)
#define MPIB_SRQ_LOW 128 /* spare receives under which a chain is posted */

/* Makes the queue when the HCA's first receiver comes up. Serialised inside. */
int mpib_srq_get(struct mpib_hca *hca, struct ibv_srq **ret);
void mpib_srq_fini(struct mpib_hca *hca);

/* Slow half of mpib_srq_reserve. */
bool mpib_srq_refill(struct mpib_hca *hca);

/* A reservation that no immediate used. One that was used is simply gone, with its receive. */
static inline void mpib_srq_release(struct mpib_hca *hca)
{
	(void)atomic_fetch_add_explicit(&hca->srq_credits, 1, memory_order_acq_rel);
}

/* A completion used a receive: one of @reserved, or, from a peer that sends more than it may, a
 * spare one. */
static inline void mpib_srq_used(struct mpib_hca *hca, uint32_t *reserved)
{
	if (mpib_likely(*reserved))
		--*reserved;
	else
		(void)atomic_fetch_sub_explicit(&hca->srq_credits, 1, memory_order_acq_rel);
}

/* Reserves a receive. False: the queue is full and none is spare, try later. Any thread. */
static inline bool mpib_srq_reserve(struct mpib_hca *hca)
{
	int before = atomic_fetch_sub_explicit(&hca->srq_credits, 1, memory_order_acq_rel);

	return mpib_likely(before > MPIB_SRQ_LOW) || mpib_srq_refill(hca);
}

/* The same where the queue need not be refilled first. False: the caller gives it back by
 * mpib_srq_release. */
static inline bool mpib_srq_reserve_spare(struct mpib_hca *hca)
{
	return atomic_fetch_sub_explicit(&hca->srq_credits, 1, memory_order_acq_rel) > MPIB_SRQ_LOW;
}

#endif
