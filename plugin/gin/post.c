/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is posted, what waits, and what has come.
 *
 * All atomics go through SOUT: two devices' atomics on one word are not atomic with each other. A
 * signal goes out behind its data where that is on SOUT, too. What SUP has brought is acknowledged
 * by the NIC there and may not be in memory yet: a READ behind it on the same QP, from the same
 * memory, pushes it, and the atomic waits for that READ. It pushes all earlier puts with it, so it
 * is one READ for a signal, and none where SUP has brought nothing since the last.
 */
#include "plugin/gin/post.h"

#include <errno.h>

#include "plugin/gin/times.h"

/* ---- behind SUP's data ----------------------------------------------------------------------- */

/* False: no room now. */
static bool push(struct mpib_gin_peer *peer)
{
	const struct mpib_gin *gin = peer->gin;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	if (!peer->qp[MPIB_SUP] || !peer->room[MPIB_SUP] || !peer->reads[MPIB_SUP])
		return false;
	sge = (struct ibv_sge){ gin->scratch_addr, MPIB_GIN_PUSH_SIZE,
				gin->scratch_lkey[MPIB_SUP] };
	mpib_gin_fill(&wr, &sge, IBV_WR_RDMA_READ, peer->unpushed_at,
		      peer->unpushed->far[peer->rank].rkey[MPIB_SUP]);
	wr.wr_id = mpib_gin_wr_id(peer, MPIB_GIN_PUSH);
	if (mpib_gin_post(peer, MPIB_SUP, &wr) < 0)
		return false;
	peer->room[MPIB_SUP]--;
	peer->reads[MPIB_SUP]--;
	peer->unpushed = NULL;
	peer->pushes++;
	return true;
}

/* ---- what waits ------------------------------------------------------------------------------ */

static bool may_post(struct mpib_gin_peer *peer, const struct mpib_gin_request *request,
		     unsigned int rail)
{
	if (!peer->room[rail] || (request->op == MPIB_GIN_GET && !peer->reads[rail]))
		return false;
	/* One READ pushes what is on the way to one memory. */
	if (request->op == MPIB_GIN_PUT && rail == MPIB_SUP && peer->unpushed &&
	    peer->unpushed != request->far)
		return push(peer) && peer->room[rail];
	return true;
}

bool mpib_gin_post_part(struct mpib_gin_peer *peer, struct mpib_gin_request *request,
			unsigned int of_rail)
{
	const unsigned int other = of_rail == MPIB_SOUT ? MPIB_SUP : MPIB_SOUT;
	const unsigned int rail = peer->qp[of_rail] ? of_rail : other;
	struct mpib_gin_part *part = &request->part[of_rail];
	bool get = request->op == MPIB_GIN_GET;

	while (part->left) {
		size_t size = part->left < peer->gin->max_msg[rail] ? part->left
								    : peer->gin->max_msg[rail];
		struct ibv_send_wr wr;
		struct ibv_sge sge;

		if (!may_post(peer, request, rail))
			return false;
		sge = (struct ibv_sge){ part->local, (uint32_t)size, request->near->lkey[rail] };
		mpib_gin_fill(&wr, &sge, get ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, part->remote,
			      request->far->far[peer->rank].rkey[rail]);
		wr.wr_id = mpib_gin_wr_id(request, get ? MPIB_GIN_READ : MPIB_GIN_DATA);
		if (mpib_gin_post(peer, rail, &wr) < 0)
			return false;
		if (rail == MPIB_SOUT) {
			peer->packets += mpib_gin_packets(peer, size);
			request->sout_bytes += of_rail == MPIB_SOUT ? size : 0;
		}
		/* Signals that take SUP themselves push what is before them. */
		if (!get && rail == MPIB_SUP && !peer->unpushed && peer->qp[MPIB_SOUT]) {
			peer->unpushed = request->far;
			peer->unpushed_at = part->remote;
		}
		if (get)
			peer->counters->rail[rail].cts += size;
		else
			mpib_gin_count(peer, rail, size);
		peer->room[rail]--;
		peer->reads[rail] -= get;
		request->remaining++;
		part->local += size;
		part->remote += size;
		part->left -= size;
	}
	return true;
}

/* Whether all that the signals' data has put on SUP is in memory, or will be once pushes that are
 * posted are done: then *ret_need says which. */
static bool know_need(struct mpib_gin_peer *peer, struct mpib_gin_request *request)
{
	if (request->need)
		return true;
	if (mpib_gin_needs_push(peer) && !push(peer))
		return false;
	request->need = peer->pushes;
	return true;
}

bool mpib_gin_post_signal(struct mpib_gin_peer *peer, struct mpib_gin_request *request)
{
	const unsigned int rail = mpib_gin_signal_rail(peer);
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	if (!peer->room[rail] || !peer->reads[rail])
		return false;
	mpib_gin_fill_atomic(peer, &wr, &sge, request);
	wr.wr_id = mpib_gin_wr_id(request, MPIB_GIN_SIGNAL);
	if (mpib_gin_post(peer, rail, &wr) < 0)
		return false;
	peer->room[rail]--;
	peer->reads[rail]--;
	peer->packets += rail == MPIB_SOUT;
	return true;
}

static void post_signals(struct mpib_gin_peer *peer)
{
	struct mpib_gin_request *request;

	/* Those further behind get their READs under way, too. */
	for (request = peer->signals.first; request; request = request->next)
		if (!know_need(peer, request))
			break;
	while ((request = peer->signals.first)) {
		if (!request->need || (peer->pushed < request->need && peer->qp[MPIB_SOUT]) ||
		    !mpib_gin_post_signal(peer, request))
			return;
		/* Its part of `remaining` is the atomic's completion from here on. */
		mpib_gin_list_drop(&peer->signals);
	}
}

void mpib_gin_pump(struct mpib_gin_peer *peer)
{
	struct mpib_gin_request *request;

	if (mpib_unlikely(peer->again))
		return; /* what comes behind it would overtake it */

	while ((request = peer->queue.first) && !peer->gin->error) {
		const bool sup = mpib_gin_post_part(peer, request, MPIB_SUP);
		const bool sout = mpib_gin_post_part(peer, request,
						     MPIB_SOUT); /* whatever SUP has room for */

		if (!sup || !sout)
			break;
		mpib_gin_list_drop(&peer->queue);
		request->remaining--; /* of what is not posted */
		if (request->signals)
			mpib_gin_list_add(&peer->signals, request);
	}
	if (peer->signals.first && !peer->gin->error)
		post_signals(peer);
}

/* ---- completions ----------------------------------------------------------------------------- */

/* What SUP did not bring before it was lost goes by SOUT, and no push is done by it. */
static __attribute__((cold)) struct mpib_gin_peer *failed(struct mpib_gin_peer *peer,
							  unsigned int rail,
							  const struct ibv_wc *wc)
{
	const unsigned int kind = wc->wr_id & MPIB_GIN_KINDS;

	if (!mpib_gin_rail_failed(peer, rail, wc)) {
		mpib_gin_completion_failed(peer, rail, wc);
		return peer;
	}
	if (rail == MPIB_SOUT)
		return peer; /* until it is known what became of it */
	peer->room[rail]++;
	peer->reads[rail] += kind != MPIB_GIN_DATA;
	if (kind != MPIB_GIN_PUSH) {
		struct mpib_gin_request *request =
			(void *)(uintptr_t)(wc->wr_id & ~(uint64_t)MPIB_GIN_KINDS);

		mpib_gin_again(request);
		request->remaining--;
	}
	return peer;
}

static inline struct mpib_gin_peer *complete(struct mpib_gin *gin, unsigned int rail,
					     const struct ibv_wc *wc)
{
	const unsigned int kind = wc->wr_id & MPIB_GIN_KINDS;
	void *object = (void *)(uintptr_t)(wc->wr_id & ~(uint64_t)MPIB_GIN_KINDS);
	struct mpib_gin_request *request = object;
	struct mpib_gin_peer *peer = kind == MPIB_GIN_PUSH ? object : request->peer;

	gin->outstanding[rail]--;
	if (mpib_unlikely(wc->status != IBV_WC_SUCCESS))
		return failed(peer, rail, wc);
	peer->room[rail] = (uint16_t)(peer->room[rail] + (kind == MPIB_GIN_DATA_SIGNAL ? 2 : 1));
	if (kind != MPIB_GIN_DATA)
		peer->reads[rail]++;
	if (kind == MPIB_GIN_PUSH)
		peer->pushed++;
	else
		request->remaining--;
	return peer;
}

static void poll_rail(struct mpib_gin *gin, unsigned int rail)
{
	struct ibv_wc wc[MPIB_GIN_POLL_BATCH];
	int n = ibv_poll_cq(gin->cq[rail], MPIB_GIN_POLL_BATCH, wc);

	for (int k = 0; k < n; k++) {
		struct mpib_gin_peer *peer = complete(gin, rail, &wc[k]);

		if (mpib_unlikely(peer->queue.first || peer->signals.first) && !gin->error)
			mpib_gin_pump(peer);
	}
	if (mpib_unlikely(n < 0))
		(void)mpib_gin_post_failed(&gin->peer[gin->rank], rail, EIO);
}

/* Out of line: an idle call saves no registers. */
static __attribute__((noinline)) void poll_sup(struct mpib_gin *gin)
{
	poll_rail(gin, MPIB_SUP);
	if (mpib_unlikely(atomic_load_explicit(&gin->news, memory_order_relaxed)) && !gin->error)
		mpib_gin_hear_lost(gin);
	if (mpib_unlikely(gin->leaving))
		mpib_gin_rails_step(gin);
	if (gin->spans)
		mpib_gin_times_step(gin);
}

void mpib_gin_progress(struct mpib_gin *gin)
{
	if (gin->outstanding[MPIB_SOUT] && !gin->error)
		poll_rail(gin, MPIB_SOUT);
	if (gin->outstanding[MPIB_SUP] && !gin->error)
		poll_sup(gin);
}

bool mpib_gin_test(struct mpib_gin *gin, struct mpib_gin_request *request)
{
	if (request->remaining)
		mpib_gin_progress(gin);
	if (request->remaining)
		return false;
	request->next = request->context->free;
	request->context->free = request;
	request->context->out--;
	return true;
}
