/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SUP is lost between two ranks, and their mesh goes on.
 *
 * Each end moves its QP of SUP to ERR and then says LOST; once both have, no
 * late packet of it can write any more, here or there. What SUP had not
 * acknowledged is then done again on SOUT: the same bytes to the same place. No
 * signal goes out in between that would announce any of it, since a READ that
 * pushes SUP's bytes didn't come back either. What SUP had acknowledged is in
 * memory by that time: SETTLE_MS and an exchange of frames after the other NIC
 * had it.
 *
 * SOUT's loss is another matter, of all ranks together: sout_loss.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/base/watch.h"
#include "plugin/gin/post.h"
#include "plugin/gin/times.h"

#define SETTLE_MS 3

/* ---- both ends
 * -------------------------------------------------------------------------------
 */

void mpib_gin_say_lost(struct mpib_gin_peer *peer)
{
	struct ibv_qp_attr attr;
	uint8_t payload = MPIB_SUP;

	mpib_watch_assert_locked();
	if (peer->said_lost || !peer->qp[MPIB_SUP])
		return;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_ERR;
#ifndef MPIB_GIN_WRONG_LOST /* must fail its tests: late packets of SUP still write */
	(void)mpib_verbs_modify_qp(peer->qp[MPIB_SUP], &attr, IBV_QP_STATE);
#endif
	peer->said_lost = true;
	/* A socket that fails is the end of the mesh, which the helper thread sees
	 * there. */
	if (peer->ctl.fd >= 0)
		(void)mpib_ctl_send(&peer->ctl, MPIB_GIN_FRAME_LOST, &payload, sizeof(payload));
}

/* ---- this end leaves the rail
 * ---------------------------------------------------------------- */

static bool is_leaving(const struct mpib_gin_peer *peer)
{
	return peer->lost_qp && !peer->left;
}

static void leave(struct mpib_gin_peer *peer, const char *cause)
{
	struct mpib_gin *gin = peer->gin;

	if (!peer->qp[MPIB_SUP])
		return;
	mpib_watch_lock();
	if (atomic_load_explicit(&gin->sout.closed, memory_order_relaxed)) {
		mpib_watch_unlock();
		(void)mpib_gin_fail(gin, -ECONNRESET, "SUP is lost, and SOUT is, too");
		return;
	}
	mpib_gin_say_lost(peer);
	peer->lost_qp = peer->qp[MPIB_SUP];
	peer->qp[MPIB_SUP] = NULL;
	mpib_watch_unlock();
	if (peer->rank == gin->rank)
		atomic_store_explicit(&peer->told_lost, 1, memory_order_relaxed);
	if (peer->timed)
		mpib_gin_times_follow(peer, false);
	peer->lost_cause = cause;
	peer->lost_ms = mpib_now_ms();
	__atomic_store_n(&peer->counters->rails_up, mpib_rail_bit(MPIB_SOUT), __ATOMIC_RELAXED);
	gin->leaving++;
	gin->outstanding[MPIB_SUP]++; /* so that progress comes by */
}

/* What comes of a way that is gone; rxe says that the QP has an error where its interface went down
 * under it. What the other end refuses it would refuse on SOUT, too. */
bool mpib_gin_says_lost(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR ||
	       status == IBV_WC_RESP_TIMEOUT_ERR || status == IBV_WC_LOC_QP_OP_ERR ||
	       status == IBV_WC_FATAL_ERR || status == IBV_WC_GENERAL_ERR;
}

bool mpib_gin_rail_failed(struct mpib_gin_peer *peer, unsigned int rail, const struct ibv_wc *wc)
{
	if (rail == MPIB_SOUT)
		return mpib_gin_sout_failed(peer, wc);
	if (!peer->failover || peer->gin->error || peer->gin->sout.leaving)
		return false;
	if (peer->lost_qp)
		return true;
	if (!mpib_gin_says_lost(wc->status))
		return false;
	if (mpib_gin_look(peer->gin) < 0 ||
	    atomic_load_explicit(&peer->over, memory_order_acquire) != MPIB_GIN_LIVE)
		return false;
	leave(peer, "a request failed");
	return true;
}

void mpib_gin_hear_lost(struct mpib_gin *gin)
{
	bool port = atomic_exchange_explicit(&gin->port_down, 0, memory_order_acquire);

	mpib_gin_sout_hear(gin);
	if (gin->sout.leaving) {
		if (port)
			(void)mpib_gin_fail(gin, -ECONNRESET,
					    "SUP's port is down, and SOUT is lost");
		return;
	}
	for (uint32_t k = 0; k < gin->nranks; k++) {
		struct mpib_gin_peer *peer = &gin->peer[k];

		if (!peer->failover || !peer->qp[MPIB_SUP])
			continue;
		if (port)
			leave(peer, "its port is down");
		else if (atomic_load_explicit(&peer->told_lost, memory_order_acquire))
			leave(peer, "the peer says so");
	}
}

/* ---- what has to be done again
 * --------------------------------------------------------------- */

void mpib_gin_again(struct mpib_gin_request *request)
{
	if (request->again)
		return;
	request->again = MPIB_GIN_AGAIN_ALL;
	request->remaining++;
	request->peer->again++;
}

/* Back to the beginning of what SUP was to carry: it begins where SOUT's part
 * ends. */
static void rewind_part(struct mpib_gin_request *request)
{
	const struct mpib_gin_part *sout = &request->part[MPIB_SOUT];
	struct mpib_gin_part *sup = &request->part[MPIB_SUP];
	uint64_t posted = sup->local - (sout->local + sout->left);

	sup->local -= posted;
	sup->remote -= posted;
	sup->left += posted;
	request->again = MPIB_GIN_AGAIN_REST;
}

static void do_again(struct mpib_gin_peer *peer, struct mpib_gin_request *request)
{
	if (request->again == MPIB_GIN_AGAIN_ALL) {
		rewind_part(request);
		peer->done_again++;
		__atomic_store_n(&peer->counters->parts_again[MPIB_SUP],
				 peer->counters->parts_again[MPIB_SUP] + 1, __ATOMIC_RELAXED);
	}
	if (!mpib_gin_post_part(peer, request, MPIB_SUP))
		return;
	request->again = MPIB_GIN_AGAIN_NO;
	request->remaining--; /* of what is not posted */
	peer->again--;
}

/* They are in no list: a request that has its atomic to come is in that of
 * signals. */
static void do_all_again(struct mpib_gin_peer *peer)
{
	struct mpib_gin *gin = peer->gin;

	mpib_watch_lock(); /* contexts come and go in the service thread */
	for (struct mpib_gin_context *c = gin->contexts; c; c = c->next)
		for (size_t k = 0; k < c->count && peer->again && !gin->error; k++)
			if (c->requests[k].again && c->requests[k].peer == peer)
				do_again(peer, &c->requests[k]);
	mpib_watch_unlock();
}

/* ---- the end of it
 * ---------------------------------------------------------------------------
 */

/* One line a mesh is enough: with its port a rank loses all others. */
static void tell(struct mpib_gin_peer *peer)
{
	struct mpib_gin *gin = peer->gin;
	char text[MPIB_TEXT_MAX + 1];

	(void)snprintf(text, sizeof(text),
		       "SUP rail %.70s is lost to %s: %s; SOUT takes over, with %u "
		       "puts and gets that were "
		       "under way, after %llu ms",
		       gin->dev->hca[MPIB_SUP].name, peer->text, peer->lost_cause, peer->done_again,
		       (unsigned long long)(mpib_now_ms() - peer->lost_ms));
	if (gin->told_loss || peer->rank == gin->rank) {
		MPIB_INFO("%s", text);
		return;
	}
	gin->told_loss = true;
	MPIB_WARN("device-initiated communication of rank %u: %s", gin->rank, text);
}

/* Both ends are out of the rail, and its completion queue has nothing more of
 * it. A peer that has closed is out of it, too, and what it would still get
 * fails on SOUT. */
static bool is_quiet(struct mpib_gin_peer *peer)
{
	if (!atomic_load_explicit(&peer->told_lost, memory_order_acquire) &&
	    !atomic_load_explicit(&peer->over, memory_order_acquire))
		return false;
	if (peer->room[MPIB_SUP] != MPIB_GIN_SQ_DEPTH)
		return false;
	if (!peer->quiet_ms)
		peer->quiet_ms = mpib_now_ms();
	return mpib_now_ms() - peer->quiet_ms >= SETTLE_MS;
}

static void go_on(struct mpib_gin_peer *peer)
{
	struct mpib_gin *gin = peer->gin;

	if (peer->again)
		do_all_again(peer);
	if (peer->again || gin->error)
		return;
	peer->left = true;
	peer->unpushed = NULL;
	peer->pushed = peer->pushes;
	gin->leaving--;
	gin->outstanding[MPIB_SUP]--;
	__atomic_store_n(&peer->counters->losses[MPIB_SUP], 1, __ATOMIC_RELAXED);
	tell(peer);
	mpib_gin_pump(peer);
}

void mpib_gin_rails_step(struct mpib_gin *gin)
{
	for (uint32_t k = 0; k < gin->nranks && !gin->error; k++) {
		struct mpib_gin_peer *peer = &gin->peer[k];

		if (!is_leaving(peer))
			continue;
		if (mpib_gin_look(gin) == 0 && is_quiet(peer))
			go_on(peer);
	}
	if (gin->sout.leaving && !gin->error)
		mpib_gin_sout_step(gin);
}
