/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/verbs/srq.h"

#include <errno.h>
#include <string.h>

#include "plugin/base/lock.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/verbs/async.h"
#include "plugin/verbs/limit.h"

/* Posts a chain and adds what the queue took to the credits. 0, or why it took less. */
static int post_chain(struct mpib_hca *hca)
{
	struct ibv_recv_wr *bad = NULL;
	int posted = MPIB_SRQ_CHAIN;
	int error;

	for (int k = 0; !hca->srq_chain[MPIB_SRQ_CHAIN - 1].wr_id && k < MPIB_SRQ_CHAIN; k++)
		hca->srq_chain[k] = (struct ibv_recv_wr){
			.wr_id = MPIB_WR_RECV,
			.next = k + 1 < MPIB_SRQ_CHAIN ? &hca->srq_chain[k + 1] : NULL,
		};
	error = ibv_post_srq_recv(hca->srq, hca->srq_chain, &bad);
	if (error)
		posted = bad ? (int)(bad - hca->srq_chain) : 0; /* full: those before are in */
	(void)atomic_fetch_add_explicit(&hca->srq_credits, posted, memory_order_acq_rel);
	return error;
}

/* Once an HCA: from here on receives wait for others to complete, which may be a deadlock. */
static void warn_full(struct mpib_hca *hca, int error)
{
	mpib_assert_locked(&hca->srq_lock);
	if (hca->srq_full_logged)
		return;
	hca->srq_full_logged = true;
	if (error == ENOMEM)
		MPIB_WARN("%s rail %s: the shared receive queue is full: outstanding receives of "
			  "this "
			  "process hold all of its %u entries, further ones wait for them; use "
			  "fewer connections (NCCL channels, communicators) a process",
			  mpib_rail_name(hca->rail), hca->name, hca->srq_depth);
	else
		MPIB_WARN(
			"%s rail %s: the shared receive queue takes no receives: %s; receives wait",
			mpib_rail_name(hca->rail), hca->name, strerror(error));
}

bool mpib_srq_refill(struct mpib_hca *hca)
{
	int error = 0;
	int credits;

	(void)pthread_mutex_lock(&hca->srq_lock);
	credits = atomic_load_explicit(&hca->srq_credits, memory_order_acquire);
	while (credits <= MPIB_SRQ_LOW) {
		int before = credits;

		error = post_chain(hca);
		credits = atomic_load_explicit(&hca->srq_credits, memory_order_acquire);
		if (credits < before + MPIB_SRQ_CHAIN)
			break;
	}
	if (credits < 0)
		warn_full(hca, error);
	(void)pthread_mutex_unlock(&hca->srq_lock);
	if (credits >= 0)
		return true;

	mpib_srq_release(hca);
	return false;
}

int mpib_srq_get(struct mpib_hca *hca, struct ibv_srq **ret)
{
	struct ibv_srq_init_attr attr;
	char advice[MPIB_ADVICE_MAX];
	int r = 0;

	memset(&attr, 0, sizeof(attr));
	attr.attr.max_wr = MPIB_SRQ_DEPTH;
	attr.attr.max_sge = 1;
	if (hca->attr.max_srq_wr > 0 && hca->attr.max_srq_wr < MPIB_SRQ_DEPTH)
		attr.attr.max_wr = (uint32_t)hca->attr.max_srq_wr;

	(void)pthread_mutex_lock(&hca->srq_lock);
	if (!hca->srq) {
		hca->srq_depth = attr.attr.max_wr;
		r = mpib_verbs_create_srq(hca->pd, &attr, &hca->srq);
	}
	*ret = hca->srq;
	(void)pthread_mutex_unlock(&hca->srq_lock);
	if (r < 0 && !mpib_hca_failed(hca))
		MPIB_WARN("%s rail %s: no shared receive queue: %s%s", mpib_rail_name(hca->rail),
			  hca->name, strerror(-r),
			  mpib_limit_advice(hca, MPIB_OBJECT_SRQ, r, advice));
	return r < 0 ? mpib_error_of_host(r) : 0;
}

void mpib_srq_fini(struct mpib_hca *hca)
{
	(void)mpib_verbs_destroy_srq(hca->srq);
	hca->srq = NULL;
	atomic_store_explicit(&hca->srq_credits, 0, memory_order_relaxed);
}
