/* SPDX-License-Identifier: Apache-2.0 */
/* Puts, signals, gets and flushes: what is refused, which rail takes what, and what goes out at
 * once. */
#include <errno.h>
#include <stdio.h>

#include "common/hint.h"
#include "common/split.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/gin/post.h"
#include "plugin/gin/times.h"

/* ---- calls ----------------------------------------------------------------------------------- */

static __attribute__((cold)) int refuse(const struct mpib_gin *gin, const char *what, uint32_t rank,
					uint64_t offset, uint64_t size, uint64_t room)
{
	MPIB_WARN("rank %u: %s: %ju bytes at offset %ju of the %ju that rank %u registered",
		  gin->rank, what, (uintmax_t)size, (uintmax_t)offset, (uintmax_t)room, rank);
	return -MPIB_EARGUMENT;
}

static __attribute__((cold)) int refuse_window(const struct mpib_gin *gin, const char *what)
{
	MPIB_WARN("rank %u: %s isn't memory that was registered with this communicator", gin->rank,
		  what);
	return -MPIB_EARGUMENT;
}

static inline bool fits(uint64_t offset, uint64_t size, uint64_t room)
{
	return offset <= room && size <= room - offset;
}

static inline int check(const struct mpib_gin *gin, struct mpib_gin_at near, struct mpib_gin_at far,
			size_t size, uint32_t rank)
{
	if (mpib_unlikely(!near.window || near.window->gin != gin))
		return refuse_window(gin, "the local end of a put or get");
	if (mpib_unlikely(!far.window || far.window->gin != gin))
		return refuse_window(gin, "the remote end of a put or get");
	if (mpib_unlikely(!fits(near.offset, size, near.window->size)))
		return refuse(gin, "beyond the local memory", gin->rank, near.offset, size,
			      near.window->size);
	if (mpib_unlikely(!fits(far.offset, size, far.window->far[rank].size)))
		return refuse(gin, "beyond the remote memory", rank, far.offset, size,
			      far.window->far[rank].size);
	return 0;
}

static __attribute__((cold)) int cannot(struct mpib_gin *gin, uint32_t rank)
{
	char text[MPIB_TEXT_MAX + 1];
	bool closed = false;

	if (rank >= gin->nranks) {
		MPIB_WARN("rank %u: there is no rank %u, but %u ranks", gin->rank, rank,
			  gin->nranks);
		return -MPIB_EARGUMENT;
	}
	if (gin->error)
		return gin->error;
	(void)atomic_exchange_explicit(&gin->news, 0, memory_order_acq_rel);
	if (mpib_gin_look(gin) < 0)
		return gin->error;
	mpib_gin_hear_lost(gin);
	for (uint32_t k = 0; k < gin->nranks; k++)
		closed |= atomic_load_explicit(&gin->peer[k].over, memory_order_relaxed) != 0;
	if (closed)
		atomic_store_explicit(&gin->news, 1, memory_order_relaxed);
	if (!atomic_load_explicit(&gin->peer[rank].over, memory_order_acquire))
		return 0;
	(void)snprintf(text, sizeof(text), "%s: %.300s", gin->peer[rank].text,
		       gin->peer[rank].over_text);
	return mpib_gin_fail(gin, -ECONNRESET, text);
}

/* Whether the call can begin at all. */
static inline int begin(struct mpib_gin *gin, uint32_t rank)
{
	if (mpib_likely(rank < gin->nranks &&
			!atomic_load_explicit(&gin->news, memory_order_relaxed)))
		return 0;
	return cannot(gin, rank);
}

static __attribute__((cold)) int too_many(const struct mpib_gin *gin)
{
	MPIB_WARN("rank %u: more than %u requests for each rank and context are under way",
		  gin->rank, MPIB_GIN_DEPTH);
	return -MPIB_EUSAGE;
}

static inline struct mpib_gin_request *take(struct mpib_gin_context *context,
					    struct mpib_gin_peer *peer)
{
	struct mpib_gin_request *request = context->free;

	if (mpib_likely(request != NULL)) {
		context->free = request->next;
		context->out++;
		request->peer = peer;
	}
	return request;
}

/* Whether nothing is under way: of a put somebody waits for the end then, not for the rate. */
static inline bool is_alone(const struct mpib_gin *gin)
{
	return !gin->outstanding[MPIB_SOUT] && !gin->outstanding[MPIB_SUP];
}

/* Bytes that go by SUP. */
static size_t by_sup(struct mpib_gin_peer *peer, size_t size, enum mpib_gin_op op)
{
	const struct mpib_hint_entry *hint =
		atomic_load_explicit(&peer->agent.hint, memory_order_acquire);

	if (size <= MPIB_GIN_WHOLE_MAX || !peer->qp[MPIB_SUP])
		return 0;
	if (op == MPIB_GIN_PUT && size <= peer->gin->alone_max && is_alone(peer->gin))
		return 0;
	if (hint) {
		bool timed = mpib_hint_load(&hint->seq) & MPIB_HINT_TIMED;

		(void)mpib_hint_read(hint, &peer->share);
		if (mpib_unlikely(timed != peer->timed && !peer->gin->sout.leaving))
			mpib_gin_times_follow(peer, timed);
	}
	peer->counters->share = peer->share;
	if (mpib_split_divides(size, peer->share, peer->gin->split_min))
		return mpib_split_sup(size, peer->share);
	return peer->share >= MPIB_SHARE_MAX / 2 ? size : 0;
}

/* A put of which all goes in one post, with the atomic behind it. @timed: busy times are kept; a
 * constant. */
static mpib_always_inline int put_now(struct mpib_gin_peer *peer, struct mpib_gin_request *request,
				      struct mpib_gin_at from, uint32_t size, struct mpib_gin_at to,
				      bool signals, bool timed)
{
	struct ibv_send_wr *wr = peer->gin->put_wr;
	struct ibv_sge *sge = peer->gin->put_sge;
	const struct mpib_gin_far *far;

	if (size) {
		if (timed) {
			mpib_gin_times_count(peer, MPIB_SOUT, size);
		} else {
			peer->counters->rail[MPIB_SOUT].bytes += size;
			peer->counters->rail[MPIB_SOUT].requests++;
		}
		far = &to.window->far[peer->rank];
		sge[0] = (struct ibv_sge){ from.window->addr + from.offset, size,
					   from.window->lkey[MPIB_SOUT] };
		wr[0].wr.rdma.remote_addr = far->addr + to.offset;
		wr[0].wr.rdma.rkey = far->rkey[MPIB_SOUT];
		wr[0].wr_id = mpib_gin_wr_id(request, signals ? MPIB_GIN_CHAINED : MPIB_GIN_DATA);
		wr[0].send_flags = signals ? 0 : IBV_SEND_SIGNALED;
		wr[0].next = signals ? &wr[1] : NULL;
		/* Where SOUT is lost it is done again by this. */
		request->near = from.window;
		request->far = to.window;
		request->part[MPIB_SOUT] =
			(struct mpib_gin_part){ sge[0].addr + size,
						wr[0].wr.rdma.remote_addr + size, 0 };
		request->sout_bytes = size;
		peer->packets += ((size - 1) >> peer->mtu_shift) + 1;
	}
	if (signals) {
		wr[1].wr.atomic.remote_addr = request->signal_addr;
		wr[1].wr.atomic.rkey = request->signal_far->rkey[MPIB_SOUT];
		wr[1].wr.atomic.compare_add = request->signal_value;
		wr[1].wr_id =
			mpib_gin_wr_id(request, size ? MPIB_GIN_DATA_SIGNAL : MPIB_GIN_SIGNAL);
		peer->reads[MPIB_SOUT]--;
		peer->packets++;
	}
	request->remaining = 1;
	peer->room[MPIB_SOUT] -= (uint16_t)(!!size + signals);
	return mpib_gin_post(peer, MPIB_SOUT, size ? &wr[0] : &wr[1]);
}

static void set_parts(struct mpib_gin_request *request, struct mpib_gin_at near,
		      struct mpib_gin_at far, size_t size, size_t sup)
{
	const struct mpib_gin_peer *peer = request->peer;

	request->part[MPIB_SOUT] = (struct mpib_gin_part){ 0 };
	request->part[MPIB_SUP] = (struct mpib_gin_part){ 0 };
	request->sout_bytes = 0;
	if (!size)
		return;
	request->near = near.window;
	request->far = far.window;
	request->part[MPIB_SOUT].local = near.window->addr + near.offset;
	request->part[MPIB_SOUT].remote = far.window->far[peer->rank].addr + far.offset;
	request->part[MPIB_SOUT].left = size - sup;
	request->part[MPIB_SUP].local = request->part[MPIB_SOUT].local + size - sup;
	request->part[MPIB_SUP].remote = request->part[MPIB_SOUT].remote + size - sup;
	request->part[MPIB_SUP].left = sup;
}

static void put_later(struct mpib_gin_request *request, enum mpib_gin_op op, bool signals)
{
	request->op = (uint8_t)op;
	request->signals = signals;
	request->need = 0;
	request->remaining = 1u + signals;
	mpib_gin_list_add(&request->peer->queue, request);
	mpib_gin_pump(request->peer);
}

/* Nothing of the peer's waits, and nothing of it has to be pushed; @most bytes can be one post. */
static inline bool may_go_now(const struct mpib_gin_peer *peer, size_t size, uint64_t most,
			      bool signals)
{
	if (peer->queue.first || peer->room[MPIB_SOUT] < 2 || size > most ||
	    mpib_gin_signals_by_sup(peer))
		return false;
	return !signals || (!peer->signals.first && !mpib_gin_needs_push(peer) &&
			    peer->pushed == peer->pushes && peer->reads[MPIB_SOUT]);
}

/* A put to a peer whose busy times are kept, and what can't go out at once. */
static __attribute__((noinline)) int put_other(struct mpib_gin_request *request,
					       struct mpib_gin_at from, size_t size,
					       struct mpib_gin_at to, size_t sup, bool signals)
{
	struct mpib_gin_peer *peer = request->peer;

	if (peer->timed && sup && sup < size)
		mpib_gin_times_both(peer);
	if (peer->timed && !sup && size &&
	    may_go_now(peer, size, peer->gin->max_msg[MPIB_SOUT], signals)) {
		request->remaining = 0;
		return put_now(peer, request, from, (uint32_t)size, to, signals, true);
	}
	set_parts(request, from, to, size, sup);
	put_later(request, MPIB_GIN_PUT, signals);
	return peer->gin->error;
}

static mpib_always_inline int put(struct mpib_gin_context *context, struct mpib_gin_at from,
				  size_t size, struct mpib_gin_at to, uint32_t rank, bool signals,
				  struct mpib_gin_at signal, uint64_t value,
				  struct mpib_gin_request **ret)
{
	struct mpib_gin *gin = context->gin;
	struct mpib_gin_request *request;
	struct mpib_gin_peer *peer;
	size_t sup;
	int r = begin(gin, rank);

	*ret = NULL;
	if (mpib_likely(r == 0) && size)
		r = check(gin, from, to, size, rank);
	if (signals && r == 0) {
		if (mpib_unlikely(!signal.window || signal.window->gin != gin))
			r = refuse_window(gin, "the signal");
		else if (mpib_unlikely(!fits(signal.offset, 8, signal.window->far[rank].size) ||
				       signal.offset % 8))
			r = refuse(gin, "no place for a signal", rank, signal.offset, 8,
				   signal.window->far[rank].size);
	}
	if (mpib_unlikely(r < 0))
		return r;
	peer = &gin->peer[rank];
	request = take(context, peer);
	if (mpib_unlikely(!request))
		return too_many(gin);
	if (signals) {
		request->signal_addr = signal.window->far[rank].addr + signal.offset;
		request->signal_far = &signal.window->far[rank];
		request->signal_value = value;
	}
	sup = by_sup(peer, size, MPIB_GIN_PUT);
	*ret = request;
	peer->counters->messages++;
	if (mpib_likely(!sup && may_go_now(peer, size, peer->now_max, signals))) {
		request->remaining = 0;
		return size || signals
			       ? put_now(peer, request, from, (uint32_t)size, to, signals, false)
			       : 0;
	}
	return put_other(request, from, size, to, sup, signals);
}

int mpib_gin_put(struct mpib_gin_context *context, struct mpib_gin_at from, size_t size,
		 struct mpib_gin_at to, uint32_t rank, struct mpib_gin_request **ret)
{
	return put(context, from, size, to, rank, false, (struct mpib_gin_at){ 0 }, 0, ret);
}

int mpib_gin_put_signal(struct mpib_gin_context *context, struct mpib_gin_at from, size_t size,
			struct mpib_gin_at to, uint32_t rank, struct mpib_gin_at signal,
			uint64_t value, struct mpib_gin_request **ret)
{
	return put(context, from, size, to, rank, true, signal, value, ret);
}

int mpib_gin_get(struct mpib_gin_context *context, struct mpib_gin_at from, size_t size,
		 struct mpib_gin_at to, uint32_t rank, struct mpib_gin_request **ret)
{
	struct mpib_gin *gin = context->gin;
	struct mpib_gin_request *request;
	int r = begin(gin, rank);

	*ret = NULL;
	if (r == 0 && size)
		r = check(gin, to, from, size, rank);
	if (r < 0)
		return r;
	request = take(context, &gin->peer[rank]);
	if (!request)
		return too_many(gin);
	set_parts(request, to, from, size, by_sup(request->peer, size, MPIB_GIN_GET));
	*ret = request;
	put_later(request, MPIB_GIN_GET, false);
	return gin->error;
}

int mpib_gin_flush(struct mpib_gin_context *context, struct mpib_gin_window *window, uint32_t rank,
		   struct mpib_gin_request **ret)
{
	struct mpib_gin *gin = context->gin;
	struct mpib_gin_request *request;
	struct mpib_gin_peer *peer;
	int r = begin(gin, rank);

	*ret = NULL;
	if (r == 0 && (!window || window->gin != gin))
		r = refuse_window(gin, "what is to be flushed");
	if (r < 0)
		return r;
	peer = &gin->peer[rank];
	request = take(context, peer);
	if (!request)
		return too_many(gin);
	request->far = window;
	request->near = gin->scratch_window;
	request->sout_bytes = 0;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		request->part[rail] = (struct mpib_gin_part){
			.local = gin->scratch_addr + (rail == MPIB_SUP ? 8 : 0),
			.remote = window->far[rank].addr,
			.left = !peer->qp[rail]		     ? 0
				: window->far[rank].size < 8 ? window->far[rank].size
							     : 8,
		};
	*ret = request;
	put_later(request, MPIB_GIN_GET, false);
	return gin->error;
}
