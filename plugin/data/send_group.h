/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isend of a message of a group: matched by its tag, its work requests filled in. The last one of
 * the row posts them all: on each rail that has bytes plain writes, then a write-with-immediate,
 * which on the leader rail carries the exact sizes into the receiver's completion record.
 *
 * The row is the peer's to write. How many messages it has is taken once, and every address and key
 * in it is the peer's own affair.
 */
#ifndef MPIB_PLUGIN_SEND_GROUP_H
#define MPIB_PLUGIN_SEND_GROUP_H

#include "plugin/data/send.h"

/* All of the row is matched: posts it. */
int mpib_group_start(struct mpib_send_comm *send);

/* A message alone in its row for which mpib_send_usual says no. */
int mpib_isend_odd(struct mpib_send_comm *send, void *data, size_t size, int tag,
		   const struct mpib_mr *mr, struct mpib_request **ret);

/* A message of a group, or one that has to be cut. */
int mpib_isend_group(struct mpib_send_comm *send, void *data, size_t size, int tag,
		     const struct mpib_mr *mr, struct mpib_request **ret);

/* The group has to go piece by piece: a port's limit, or no room in a send queue (send_slow.c). */
int mpib_slow_start(struct mpib_send_comm *send);

static inline __attribute__((always_inline)) void mpib_group_fill(
	struct mpib_send_comm *send, unsigned int rail, const struct mpib_cts *cts,
	const struct mpib_mr *mr, uint64_t addr, size_t offset, size_t len)
{
	struct mpib_wr *wr = --send->group.wrs[rail].at;

	wr->wr.wr.rdma.remote_addr = cts->addr + offset;
	wr->wr.wr.rdma.rkey = cts->rkey[rail];
	wr->sge.addr = addr + offset;
	wr->sge.length = (uint32_t)len;
	wr->sge.lkey = mr->lkey[rail];
	send->base.counters->rail[rail].bytes += len;
}

/* Whether the message is the first one of the row that isn't matched, and nothing about it is odd;
 * reads the share. What says no here is looked at again by mpib_isend_group. */
static inline bool mpib_group_usual(struct mpib_send_comm *send, size_t size, uint32_t tag,
				    const struct mpib_mr *mr, unsigned int *ret_k,
				    uint32_t *ret_share)
{
	const struct mpib_group *group = &send->group;
	const struct mpib_cts *cts;

	if (mpib_unlikely(send->base.error || !group->left))
		return false;
	*ret_k = (unsigned int)__builtin_ctz(group->left);
	cts = &group->row[*ret_k];
	return mpib_likely(cts->tag == tag) && mpib_likely(size <= cts->size_low) &&
	       mpib_likely(size <= send->max_whole) && mpib_likely(mr != NULL) &&
	       mpib_policy_try(send, ret_share);
}

/* Message @k of the row, which fits. */
static inline __attribute__((always_inline)) int mpib_group_add(struct mpib_send_comm *send,
								unsigned int k, uint32_t share,
								void *data, size_t size,
								const struct mpib_mr *mr,
								struct mpib_request **ret)
{
	struct mpib_counter_entry *counters = send->base.counters;
	struct mpib_group *group = &send->group;
	const struct mpib_cts *cts = &group->row[k];
	struct mpib_request *req = mpib_request_get(&send->base.pool);
	uint64_t addr = (uint64_t)(uintptr_t)data;
	uint32_t left = group->left & ~(1u << k);
	size_t sup = 0;

	if (mpib_unlikely(!req))
		return 0;
	*ret = req;
	if (mpib_send_divides(send, size, share))
		sup = mpib_split_sup(size, share);
	else if (share >= MPIB_SHARE_MAX / 2)
		sup = size;
	req->mate = group->head;
	req->remaining = 1;
	req->element = (uint8_t)k;
	req->size = size;
	req->addr = addr;
	req->sup_bytes = sup;
	req->mr = mr;
	group->head = req;
	group->record[1 + k] = size;
	group->left = left;
	counters->share = share;
	counters->messages++;
	if (mpib_likely(sup))
		mpib_group_fill(send, MPIB_SUP, cts, mr, addr, size - sup, sup);
	if (mpib_likely(size - sup))
		mpib_group_fill(send, MPIB_SOUT, cts, mr, addr, 0, size - sup);
	return left ? 0 : mpib_group_start(send);
}

#endif
