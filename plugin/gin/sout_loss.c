/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SOUT is lost, and its mesh goes on by SUP, signals too: where all ranks are of one island, and as
 * one. Two devices' atomics on a word aren't atomic with each other, so a rank takes none by SUP
 * before it takes none by SOUT any more, from nobody.
 *
 * A rank that learns of the loss (its port, a request that failed, a peer) moves all its QPs of
 * SOUT to ERR, and then allows atomics on SUP's. When what these QPs have taken stands still, it
 * tells each peer (CLOSED) the number of the packet that its QP would have taken next. By then what
 * they took is in memory, too: SETTLE_MS and more after the NIC had it.
 *
 * RC takes packets in order, and each end counts them: a peer that has posted so many, and knows
 * which of its requests had no answer, knows from that number which of them were done, each
 * fetch-and-add among them. The others are done now, in their order, by SUP. A signal there is
 * behind its data on one QP, so nothing has to be pushed any more.
 *
 * A number that can't be right, and a device that doesn't count, fail the mesh: never a guess.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/base/watch.h"
#include "plugin/gin/post.h"
#include "plugin/gin/times.h"

#define SETTLE_MS    3
#define PACKETS	     (1u << 24) /* so many have a number of their own */
#define PACKETS_MAX  (PACKETS / 2)
#define PACKETS_MASK (PACKETS - 1)

/* ---- whether it can be ----------------------------------------------------------------------- */

static const char *judge(const struct mpib_gin *gin)
{
	if (!gin->env.failover)
		return "MPIB_FAILOVER=0";
	if (gin->dev->hca[MPIB_SUP].attr.atomic_cap == IBV_ATOMIC_NONE)
		return "it has no atomics";
	for (uint32_t k = 0; k < gin->nranks; k++) {
		if (!gin->peer[k].intra)
			return "ranks of other islands are reached by SOUT alone";
		if (!gin->peer[k].failover)
			return "MPIB_FAILOVER=0 at other ranks";
	}
	return NULL;
}

void mpib_gin_sout_judge(struct mpib_gin *gin)
{
	mpib_watch_lock();
	gin->sout.why_not = judge(gin);
	mpib_watch_unlock();
}

const char *mpib_gin_sout_why_not(const struct mpib_gin *gin)
{
	for (uint32_t k = 0; !gin->sout.why_not && k < gin->nranks; k++)
		if (gin->peer[k].said_lost)
			return "SUP is lost, too";
	return gin->sout.why_not;
}

/* ---- this end leaves the rail ---------------------------------------------------------------- */

/* Its own end: progress finds it there. */
static void give_up(struct mpib_gin *gin, const char *text)
{
	mpib_gin_over(&gin->peer[gin->rank], MPIB_GIN_GONE, text);
}

static int allow_atomics(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.qp_access_flags =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	return mpib_verbs_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS);
}

void mpib_gin_sout_close(struct mpib_gin *gin, const char *cause)
{
	struct ibv_qp_attr attr;
	int r = 0;

	mpib_watch_assert_locked();
	if (atomic_load_explicit(&gin->sout.closed, memory_order_relaxed))
		return;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_ERR;
#ifndef MPIB_GIN_WRONG_EARLY /* must fail its tests: answers, and others' atomics still come */
	for (uint32_t k = 0; k < gin->nranks && r == 0; k++)
		r = mpib_verbs_modify_qp(gin->peer[k].qp[MPIB_SOUT], &attr, IBV_QP_STATE);
#endif
	for (uint32_t k = 0; k < gin->nranks && r == 0; k++)
		r = allow_atomics(gin->peer[k].qp[MPIB_SUP]);
	if (r < 0)
		give_up(gin, "SOUT is lost, and its QPs can't be left");
	gin->sout.cause = cause;
	gin->sout.begin_ms = gin->sout.quiet_ms = mpib_now_ms();
	atomic_store_explicit(&gin->sout.closed, 1, memory_order_release);
	atomic_store_explicit(&gin->news, 1, memory_order_release);
}

/* What each QP has taken. False: that has moved since the last look, or can't be told. */
static bool look_at_packets(struct mpib_gin *gin)
{
	bool same = true;

	for (uint32_t k = 0; k < gin->nranks; k++) {
		struct mpib_gin_peer *peer = &gin->peer[k];
		struct ibv_qp_attr attr;

		memset(&attr, 0, sizeof(attr));
		if (mpib_verbs_query_qp(peer->qp[MPIB_SOUT], &attr, IBV_QP_RQ_PSN) < 0) {
			give_up(gin, "SOUT is lost, and what it brought can't be told");
			gin->sout.answered = true;
			return false;
		}
		same &= peer->next_packet == (attr.rq_psn & PACKETS_MASK);
		peer->next_packet = attr.rq_psn & PACKETS_MASK;
	}
	return same;
}

void mpib_gin_sout_answer(struct mpib_gin *gin)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];
	struct mpib_gin_closed closed = { .counts = false };

	mpib_watch_assert_locked();
	if (!atomic_load_explicit(&gin->sout.closed, memory_order_relaxed) || gin->sout.answered ||
	    mpib_now_ms() - gin->sout.quiet_ms < SETTLE_MS)
		return;
	if (!look_at_packets(gin)) {
		gin->sout.quiet_ms = mpib_now_ms();
		return;
	}
	gin->sout.answered = true;
	for (uint32_t k = 0; k < gin->nranks; k++)
		closed.counts |= gin->peer[k].next_packet != 0;
	for (uint32_t k = 0; k < gin->nranks; k++) {
		struct mpib_gin_peer *peer = &gin->peer[k];

		closed.packet = peer->next_packet;
#ifdef MPIB_GIN_WRONG_RANGE /* must fail its tests: a number that can't be */
		closed.packet = (closed.packet + PACKETS_MAX) & PACKETS_MASK;
#endif
		if (peer->rank == gin->rank) {
			peer->told_packet = closed.packet;
			peer->told_counts = closed.counts;
			atomic_store_explicit(&peer->told_closed, 1, memory_order_release);
		} else if (peer->ctl.fd >= 0) {
			(void)mpib_ctl_send(&peer->ctl, MPIB_GIN_FRAME_CLOSED, payload,
					    mpib_gin_closed_encode(payload, &closed));
		}
	}
}

void mpib_gin_sout_told(struct mpib_gin_peer *peer, const struct mpib_frame *frame)
{
	const char *why = mpib_gin_sout_why_not(peer->gin);
	char text[MPIB_TEXT_MAX + 1];
	struct mpib_gin_closed closed;

	mpib_watch_assert_locked();
	if (mpib_gin_closed_decode(frame->payload, frame->payload_len, &closed) < 0 ||
	    atomic_load_explicit(&peer->told_closed, memory_order_relaxed)) {
		mpib_gin_over(peer, MPIB_GIN_GONE, "what it says of SOUT can't be");
		return;
	}
	if (why) {
		(void)snprintf(text, sizeof(text),
			       "it has left SOUT, and here SUP can't take over: %.200s", why);
		mpib_gin_over(peer, MPIB_GIN_GONE, text);
		return;
	}
	mpib_gin_sout_close(peer->gin, "another rank says so");
	peer->told_packet = closed.packet;
	peer->told_counts = closed.counts;
	atomic_store_explicit(&peer->told_closed, 1, memory_order_release);
	atomic_store_explicit(&peer->gin->news, 1, memory_order_release);
}

/* ---- progress leaves it ---------------------------------------------------------------------- */

static void leave(struct mpib_gin *gin)
{
	gin->sout.leaving = true;
	gin->leaving++;
	gin->outstanding[MPIB_SUP]++; /* so that progress comes by */
	for (uint32_t k = 0; k < gin->nranks; k++)
		if (gin->peer[k].timed)
			mpib_gin_times_follow(&gin->peer[k], false);
}

void mpib_gin_sout_hear(struct mpib_gin *gin)
{
	if (!gin->sout.leaving && atomic_load_explicit(&gin->sout.closed, memory_order_acquire))
		leave(gin);
}

static bool begins(struct mpib_gin_peer *peer, const struct ibv_wc *wc)
{
	struct mpib_gin *gin = peer->gin;
	const char *why;

	if (!mpib_gin_says_lost(wc->status) || mpib_gin_look(gin) < 0 ||
	    atomic_load_explicit(&peer->over, memory_order_acquire) != MPIB_GIN_LIVE)
		return false;
	mpib_watch_lock();
	why = mpib_gin_sout_why_not(gin);
	if (!why)
		mpib_gin_sout_close(gin, "a request failed");
	mpib_watch_unlock();
	if (why)
		return false;
	leave(gin);
	return true;
}

static enum mpib_gin_kind kind_of(uint64_t wr_id)
{
	return (enum mpib_gin_kind)(wr_id & MPIB_GIN_KINDS);
}

static struct mpib_gin_request *request_of(uint64_t wr_id)
{
	return (void *)(uintptr_t)(wr_id & ~(uint64_t)MPIB_GIN_KINDS);
}

/* Whatever is posted behind it fails, too, in order, and is kept until the peer has told. Its place
 * in the send queue isn't given back: no more is kept than that has. */
bool mpib_gin_sout_failed(struct mpib_gin_peer *peer, const struct ibv_wc *wc)
{
	struct mpib_gin *gin = peer->gin;
	const bool alone = kind_of(wc->wr_id) == MPIB_GIN_DATA_SIGNAL &&
			   (!peer->failures ||
			    peer->failed[peer->failures - 1] !=
				    mpib_gin_wr_id(request_of(wc->wr_id), MPIB_GIN_CHAINED));

	if (gin->error || peer->off_qp || peer->failures == MPIB_GIN_SQ_DEPTH ||
	    (!gin->sout.leaving && !begins(peer, wc)))
		return false;
	peer->failed[peer->failures++] = wc->wr_id;
	peer->failed_room += alone ? 2 : 1; /* the write of a chain, which had its answer */
	if (kind_of(wc->wr_id) == MPIB_GIN_CHAINED)
		gin->outstanding[MPIB_SOUT]++; /* it has no completion otherwise */
	return true;
}

/* ---- what the peer had got ------------------------------------------------------------------- */

/* Bytes of a failed request, of which the last one of its part was posted last. */
static uint64_t bytes_of(const struct mpib_gin *gin, uint64_t wr_id)
{
	struct mpib_gin_request *request = request_of(wr_id);
	uint64_t bytes = 0;

	if (kind_of(wr_id) == MPIB_GIN_SIGNAL || kind_of(wr_id) == MPIB_GIN_DATA_SIGNAL)
		return 0;
	bytes = request->sout_bytes % gin->max_msg[MPIB_SOUT];
	if (!bytes)
		bytes = gin->max_msg[MPIB_SOUT];
	request->sout_bytes -= bytes;
	return bytes;
}

static int cannot_tell(struct mpib_gin_peer *peer)
{
	char text[MPIB_TEXT_MAX + 1];

	(void)snprintf(text, sizeof(text),
		       "SOUT rail %.70s is lost, and %s can't tell which of %u requests it had got",
		       peer->gin->dev->hca[MPIB_SOUT].name, peer->text, peer->failures);
	return mpib_gin_fail(peer->gin, -ECONNRESET, text);
}

/* Packets of the failed requests that the peer had taken; or an error. */
static int packets_done(struct mpib_gin_peer *peer, uint64_t under_way, uint64_t *ret)
{
	const uint32_t answered = peer->packets - (uint32_t)under_way;

	*ret = (peer->told_packet - answered) & PACKETS_MASK;
#ifdef MPIB_GIN_WRONG_TWICE /* must fail its tests: does again what had no answer */
	*ret = 0;
	return 0;
#endif
	if (under_way == 0) {
		*ret = 0;
		return 0;
	}
	return under_way > PACKETS_MAX || *ret > under_way || !peer->told_counts ? cannot_tell(peer)
										 : 0;
}

/* Those that the peer had got are done; of the others, which stay in the list, data is to be posted
 * once more. READs always are. */
static int sort_failed(struct mpib_gin_peer *peer)
{
	uint64_t bytes[MPIB_GIN_SQ_DEPTH], under_way = 0, done, at = 0;
	uint32_t kept = 0;

	for (uint32_t k = peer->failures; k-- > 0;) {
		bytes[k] = bytes_of(peer->gin, peer->failed[k]);
		under_way += mpib_gin_packets(peer, bytes[k]);
	}
	if (packets_done(peer, under_way, &done) < 0)
		return peer->gin->error;
	for (uint32_t k = 0; k < peer->failures; k++) {
		const uint64_t wr_id = peer->failed[k];
		struct mpib_gin_request *request = request_of(wr_id);

		at += mpib_gin_packets(peer, bytes[k]);
		if (at <= done && kind_of(wr_id) != MPIB_GIN_READ) {
			request->remaining -= kind_of(wr_id) != MPIB_GIN_CHAINED;
			continue;
		}
		request->part[MPIB_SOUT].local -= bytes[k];
		request->part[MPIB_SOUT].remote -= bytes[k];
		request->part[MPIB_SOUT].left += bytes[k];
		peer->failed[kept++] = wr_id;
	}
	peer->failures = kept;
	return 0;
}

static void go_over(struct mpib_gin_peer *peer)
{
	struct mpib_counter_entry *counters = peer->counters;

	if (sort_failed(peer) < 0)
		return;
	mpib_watch_lock();
	peer->off_qp = peer->qp[MPIB_SOUT];
	peer->qp[MPIB_SOUT] = NULL;
	mpib_watch_unlock();
	peer->room[MPIB_SOUT] = 0; /* so no put goes out at once, as small ones do by SOUT */
	peer->unpushed = NULL;
	peer->again = peer->failures;
	peer->gin->sout.done_again += peer->failures;
	__atomic_store_n(&counters->rails_up, mpib_rail_bit(MPIB_SUP), __ATOMIC_RELAXED);
	__atomic_store_n(&counters->losses[MPIB_SOUT], 1, __ATOMIC_RELAXED);
	__atomic_store_n(&counters->parts_again[MPIB_SOUT],
			 counters->parts_again[MPIB_SOUT] + peer->failures, __ATOMIC_RELAXED);
}

/* In their order, and before all else: then what waited for room on SOUT. */
static void do_again(struct mpib_gin_peer *peer)
{
	while (peer->again) {
		const uint64_t wr_id = peer->failed[peer->redone];
		struct mpib_gin_request *request = request_of(wr_id);
		const enum mpib_gin_kind kind = kind_of(wr_id);

		if (kind == MPIB_GIN_SIGNAL || kind == MPIB_GIN_DATA_SIGNAL) {
			if (!mpib_gin_post_signal(peer, request))
				return;
		} else {
			if (!mpib_gin_post_part(peer, request, MPIB_SOUT))
				return;
			request->remaining -= kind != MPIB_GIN_CHAINED;
		}
		peer->redone++;
		peer->again--;
	}
	mpib_gin_pump(peer);
}

/* ---- the end of it --------------------------------------------------------------------------- */

/* Both ends are out of the rail, and its completion queue has nothing more of it. Of a peer that
 * has closed nobody hears what it had got. */
static bool is_ready(struct mpib_gin_peer *peer)
{
	if (peer->room[MPIB_SOUT] + peer->failed_room != MPIB_GIN_SQ_DEPTH)
		return false;
	if (atomic_load_explicit(&peer->told_closed, memory_order_acquire))
		return true;
	if (!atomic_load_explicit(&peer->over, memory_order_acquire))
		return false;
	/* One that is gone since the step began is told as that. */
	if (peer->failures && mpib_gin_look(peer->gin) == 0)
		(void)cannot_tell(peer);
	return !peer->failures;
}

static void finish(struct mpib_gin *gin)
{
	gin->leaving--;
	gin->outstanding[MPIB_SUP]--;
	MPIB_WARN(
		"device-initiated communication of rank %u: SOUT rail %.70s is lost: %s; SUP takes "
		"over, for signals too, with %u requests that were under way, after %llu ms",
		gin->rank, gin->dev->hca[MPIB_SOUT].name, gin->sout.cause, gin->sout.done_again,
		(unsigned long long)(mpib_now_ms() - gin->sout.begin_ms));
}

void mpib_gin_sout_step(struct mpib_gin *gin)
{
	uint32_t left = 0;
	bool answered;

	if (mpib_gin_look(gin) < 0)
		return;
	mpib_watch_lock();
	mpib_gin_sout_answer(gin);
	answered = gin->sout.answered;
	mpib_watch_unlock();
	if (!answered)
		return;
	for (uint32_t k = 0; k < gin->nranks && !gin->error; k++) {
		struct mpib_gin_peer *peer = &gin->peer[k];

		const bool ready = !peer->off_qp && is_ready(peer);

		if (ready)
			go_over(peer);
		if (peer->off_qp && (ready || peer->again) && !gin->error)
			do_again(peer);
		left += !peer->off_qp || peer->again;
	}
	if (!left && !gin->error)
		finish(gin);
}
