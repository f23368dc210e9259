/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isend, in one column: the row, the share, the split, work requests, their post. What completes
 * them is in progress.c.
 *
 * A message alone in its row takes one write-with-immediate on each rail that has bytes. Messages
 * of a group, and those that a port can't carry in one request, are plain writes, and a last
 * write-with-immediate on each rail, which on the leader rail carries the exact sizes into the
 * receiver's completion record; they are filled in as they come and posted once a row.
 *
 * mpib_isend, at the end, finds out whether a message is empty, too long, out of order or meets a
 * slot that is being written, before it changes anything, and leaves such a one to a general
 * function: so it has no call in its middle and saves few registers. The general functions go the
 * same way, they only look at more.
 *
 * A row is the peer's to write. How many messages it has is read once, and every address and key in
 * it is the peer's own affair.
 */
#include "plugin/data/send.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "common/split.h"
#include "plugin/base/result.h"
#include "plugin/data/comm_check.h"
#include "plugin/data/comm_error.h"
#include "plugin/data/policy.h"
#include "plugin/data/rail_loss.h"
#include "plugin/data/times.h"
#include "plugin/wire/imm.h"

/* What a sender keeps busy times for; a constant. */
enum timing {
	TIMING_NOT,  /* it doesn't */
	TIMING_ON,   /* spans go on, of both rails */
	TIMING_EDGE, /* one may begin */
};

static const struct mpib_mr no_mr; /* an empty message may come without */

/* ---- errors and "not now" ------------------------------------------------------------------ */

/* For want of a clear-to-send: 0, or why there will be none any more. */
static int not_now(struct mpib_comm *comm)
{
	comm->counters->stalls++;
	if (mpib_unlikely(atomic_load_explicit(&comm->flags, memory_order_relaxed)))
		return mpib_comm_check(comm);
	return 0;
}

static __attribute__((cold)) int too_large(struct mpib_comm *comm, size_t size,
					   const struct mpib_cts *cts)
{
	char text[160];

	(void)snprintf(text, sizeof(text),
		       "a message of %zu bytes (tag 0x%x) met a receive of %llu bytes: nothing was "
		       "sent",
		       size, cts->tag, (unsigned long long)mpib_cts_size(cts));
	return mpib_comm_fail(comm, -EPROTO, text);
}

/* ---- split, fill in, post ------------------------------------------------------------------ */

/* The first bytes of a message go to SOUT, the last @sup to SUP. */
struct parts {
	size_t sup;
	unsigned int
		rails; /* with bytes; of an empty message the one that isolation would choose */
};

/* A message that @share doesn't divide, or that is too short, takes the rail of the larger part. */
static mpib_always_inline struct parts split(const struct mpib_comm *comm, size_t size,
					     uint32_t share)
{
	if (mpib_split_divides(size, share, comm->send.split_min)) {
		size_t sup = mpib_split_sup(size, share);

		return (struct parts){ sup, sup ? MPIB_RAILS_ALL : mpib_rail_bit(MPIB_SOUT) };
	}
	if (share >= MPIB_SHARE_MAX / 2)
		return (struct parts){ size, mpib_rail_bit(MPIB_SUP) };
	return (struct parts){ 0, mpib_rail_bit(MPIB_SOUT) };
}

/* The same of a sender where a span may begin, which spares a short message that is alone the
 * second rail. */
static mpib_always_inline struct parts split_at_edge(const struct mpib_comm *comm, size_t size,
						     uint32_t share)
{
	if (size < comm->send.split_min_idle && !(comm->polled[MPIB_SOUT] | comm->polled[MPIB_SUP]))
		return split(comm, size, share >= MPIB_SHARE_MAX / 2 ? MPIB_SHARE_MAX : 0);
	return split(comm, size, share);
}

/* @len bytes from @offset on; the rest of the work request is prepared (setup/prepare.c). */
static mpib_always_inline void fill(struct ibv_send_wr *wr, struct ibv_sge *sge, unsigned int rail,
				    const struct mpib_cts *cts, const struct mpib_mr *mr,
				    uint64_t addr, size_t offset, size_t len)
{
	wr->wr.rdma.remote_addr = cts->addr + offset;
	wr->wr.rdma.rkey = cts->rkey[rail];
	sge->addr = addr + offset;
	sge->length = (uint32_t)len;
	sge->lkey = mr->lkey[rail];
}

/* Each message, or chain, takes the next QP of a rail. */
static inline struct mpib_send_qp *next_qp(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_send_qp *at = comm->send.at[rail];

	comm->send.at[rail] = at->next;
	return at;
}

/* One completion will come of it. If it fails, another rail may have posted: the connection has
 * failed. */
static mpib_always_inline int post(struct mpib_comm *comm, unsigned int rail, struct ibv_qp *qp,
				   struct ibv_send_wr *wr)
{
	int r;

	comm->polled[rail]++;
	r = ibv_post_send(qp, wr, &comm->bad);
	return mpib_unlikely(r) ? mpib_comm_post_failed(comm, rail, "ibv_post_send failed", r) : 0;
}

/* ---- a message alone in its row ------------------------------------------------------------ */

static mpib_always_inline void fill_alone(struct mpib_comm *comm, unsigned int rail,
					  struct mpib_request *req, const struct mpib_cts *cts,
					  const struct mpib_mr *mr, uint64_t addr, size_t offset,
					  size_t len, uint32_t imm)
{
	struct mpib_counter_rail *counters = &comm->counters->rail[rail];

	req->wr[rail].imm_data = imm;
	fill(&req->wr[rail], &req->sge[rail], rail, cts, mr, addr, offset, len);
	counters->bytes += len;
	counters->requests++;
}

/* @rails is a constant. All is filled in before anything is posted: little has to outlive the call
 * then. */
static mpib_always_inline int send_on(struct mpib_comm *comm, unsigned int rails,
				      struct mpib_request *req, const struct mpib_cts *cts,
				      const struct mpib_mr *mr, uint64_t addr, size_t size,
				      size_t sup, uint32_t imm, enum timing timing)
{
	const bool on_sout = rails & mpib_rail_bit(MPIB_SOUT);
	const bool on_sup = rails & mpib_rail_bit(MPIB_SUP);

	req->remaining = rails;
	imm = htonl(imm | mpib_imm_encode(0, rails, 0));
	if (timing == TIMING_EDGE && !(on_sout && on_sup))
		mpib_times_one(comm, on_sup ? MPIB_SUP : MPIB_SOUT, size);
	if (on_sout)
		fill_alone(comm, MPIB_SOUT, req, cts, mr, addr, 0, size - sup, imm);
	if (on_sup)
		fill_alone(comm, MPIB_SUP, req, cts, mr, addr, size - sup, sup, imm);
	if (timing == TIMING_EDGE && on_sout && on_sup)
		mpib_times_both(comm);
	if (on_sout) {
		int r = post(comm, MPIB_SOUT, next_qp(comm, MPIB_SOUT)->qp, &req->wr[MPIB_SOUT]);

		if (!on_sup || mpib_unlikely(r < 0))
			return r;
	}
	return post(comm, MPIB_SUP, next_qp(comm, MPIB_SUP)->qp, &req->wr[MPIB_SUP]);
}

/* @cts is the row at head, which has arrived, has one element and the right tag; the message fits
 * into it, and its parts into a request each. */
static mpib_always_inline int send_alone(struct mpib_comm *comm, const struct mpib_cts *cts,
					 uint32_t head, uint32_t share, void *data, size_t size,
					 uint32_t size_q, const struct mpib_mr *mr,
					 struct mpib_request **ret, enum timing timing)
{
	struct mpib_counter_entry *counters = comm->counters;
	struct mpib_request *req = mpib_request_get(&comm->pool);
	uint32_t imm = mpib_imm_encode(head, 0, size_q);
	uint64_t addr = (uint64_t)(uintptr_t)data;
	struct parts parts;

	if (mpib_unlikely(!req))
		return 0;
	*ret = req;
	req->size = size;
	req->row = head;
	req->mr = mr;
	__atomic_store_n(&comm->send.head, head + 1, __ATOMIC_RELAXED);
	counters->share = share;
	counters->messages++;
	parts = timing == TIMING_EDGE ? split_at_edge(comm, size, share) : split(comm, size, share);
	if (parts.rails == MPIB_RAILS_ALL)
		return send_on(comm, MPIB_RAILS_ALL, req, cts, mr, addr, size, parts.sup, imm,
			       timing);
	if (parts.rails == mpib_rail_bit(MPIB_SUP))
		return send_on(comm, mpib_rail_bit(MPIB_SUP), req, cts, mr, addr, size, size, imm,
			       timing);
	return send_on(comm, mpib_rail_bit(MPIB_SOUT), req, cts, mr, addr, size, 0, imm, timing);
}

/* ---- a row of several messages, or of one that has to be cut ------------------------------- */

static inline unsigned int rail_if_filled(const struct mpib_comm *comm, unsigned int rail)
{
	const struct mpib_chain *chain = &comm->send.group.chain[rail];

	return chain->at < &chain->wr[MPIB_GROUP_MAX] ? mpib_rail_bit(rail) : 0;
}

static mpib_always_inline void fill_chain(struct mpib_comm *comm, unsigned int rail,
					  const struct mpib_cts *cts, const struct mpib_mr *mr,
					  uint64_t addr, size_t offset, size_t len)
{
	struct mpib_wr *wr = --comm->send.group.chain[rail].at;

	fill(&wr->wr, &wr->sge, rail, cts, mr, addr, offset, len);
	comm->counters->rail[rail].bytes += len;
}

/* Pieces of the messages that are too long for one request, as many as the chain takes. True where
 * none is left. */
static __attribute__((noinline, cold)) bool fill_pieces(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_chain *chain = &comm->send.group.chain[rail];
	struct mpib_request *req;

	for (; (req = chain->next); chain->next = req->mate, chain->offset = 0) {
		size_t start = rail == MPIB_SOUT ? 0 : req->size - req->sup_bytes;
		size_t len = rail == MPIB_SOUT ? req->size - req->sup_bytes : req->sup_bytes;

		if (req->size <= comm->send.max_uncut)
			continue; /* was filled in when it came */
		while (chain->offset < len) {
			size_t piece = len - chain->offset;

			if (chain->at == chain->wr)
				return false;
			if (piece > comm->send.max_msg[rail])
				piece = comm->send.max_msg[rail];
			fill_chain(comm, rail, &comm->send.group.row[req->element], req->mr,
				   req->addr, start + chain->offset, piece);
			chain->offset += piece;
		}
	}
	return true;
}

/* The write-with-immediate that ends the row on @rail. The leader takes the record along. */
static mpib_always_inline void fill_final(struct mpib_comm *comm, unsigned int rail)
{
	const struct mpib_group *group = &comm->send.group;
	struct mpib_wr *final = &comm->send.group.chain[rail].wr[MPIB_GROUP_MAX];
	unsigned int slot = (comm->send.head - 1) % MPIB_ROWS;

	final->wr.num_sge = rail == MPIB_SOUT || group->rails == mpib_rail_bit(MPIB_SUP);
	final->wr.imm_data = htonl(mpib_imm_encode(slot, group->rails, MPIB_IMM_SIZE_RECORD));
	final->wr.wr.rdma.remote_addr =
		comm->send.record_addr + slot * MPIB_RECORD_NUMBERS * sizeof(*group->record);
	final->sge.addr = (uint64_t)(uintptr_t)group->record;
	final->sge.length = (1 + group->size) * (uint32_t)sizeof(*group->record);
}

/* The row's chain on @rail up to @last, which asks for a completion and is marked @final or 0. */
static mpib_always_inline int post_chain(struct mpib_comm *comm, unsigned int rail,
					 struct mpib_wr *last, unsigned int len, uint64_t final)
{
	struct mpib_chain *chain = &comm->send.group.chain[rail];
	struct mpib_wr *at = chain->at;
	unsigned int qp = chain->qp->index;

	last->wr.wr_id = comm->send.group.head->index | (uint64_t)len << MPIB_WR_ENTRIES_SHIFT |
			 (uint64_t)qp << MPIB_WR_QP_SHIFT | MPIB_WR_CHAIN | final;
	comm->send.chained[rail][qp] += len;
	chain->at = &chain->wr[MPIB_GROUP_MAX];
	return post(comm, rail, chain->qp->qp, &at->wr);
}

/* A full chain, which doesn't end the row. */
static __attribute__((noinline, cold)) int post_full(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_chain *chain = &comm->send.group.chain[rail];
	struct mpib_wr *last = &chain->wr[MPIB_GROUP_MAX - 1];
	int r;

	last->wr.next = NULL;
	last->wr.send_flags = IBV_SEND_SIGNALED;
	comm->counters->rail[rail].requests += MPIB_GROUP_MAX;
	comm->counters->chained[rail] += MPIB_GROUP_MAX - 1;
	r = post_chain(comm, rail, last, MPIB_GROUP_MAX, 0);
	last->wr.next = &chain->wr[MPIB_GROUP_MAX].wr;
	last->wr.send_flags = 0;
	return r;
}

/* Whether the QP takes @n work requests more. */
static inline bool has_room(const struct mpib_comm *comm, unsigned int rail, unsigned int n)
{
	unsigned int qp = comm->send.group.chain[rail].qp->index;

	return comm->send.chained[rail][qp] + n <= MPIB_SQ_CHAINED;
}

static bool is_lost(const struct mpib_comm *comm, unsigned int rail)
{
	return comm->rails && !mpib_rail_usable(comm, rail);
}

/* Of a row with messages that have to be cut, or that met the loss of a rail, all full chains. 1:
 * the last one is next; 0: no room, or an error; 2: the rail is lost. A chain that was refused says
 * so, too, and none may follow it on a queue pair that isn't in ERR yet: the receiver would take
 * the immediate for the end of all. */
static __attribute__((noinline, cold)) int post_pieces(struct mpib_comm *comm, unsigned int rail)
{
	while (!is_lost(comm, rail) && !fill_pieces(comm, rail)) {
		int r;

		if (!has_room(comm, rail, MPIB_GROUP_MAX))
			return 0;
		r = post_full(comm, rail);
		if (r < 0)
			return r;
	}
	if (!is_lost(comm, rail))
		return 1;
	mpib_send_missed(comm, rail);
	return 2;
}

/* What the row has on @rail, a constant, as far as the send queue has room: 1 where it is all
 * posted. */
static mpib_always_inline int post_rail(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_chain *chain = &comm->send.group.chain[rail];
	unsigned int n;
	int r;

	if (mpib_unlikely(comm->send.group.cut)) {
		r = post_pieces(comm, rail);
		if (r != 1)
			return r;
	}
	n = (unsigned int)(&chain->wr[MPIB_GROUP_MAX] - chain->at);
	if (mpib_unlikely(!has_room(comm, rail, n + 1)))
		return 0;
	fill_final(comm, rail);
	comm->counters->rail[rail].requests += n;
	comm->counters->chained[rail] += n - 1;
	r = post_chain(comm, rail, &chain->wr[MPIB_GROUP_MAX], n + 1, MPIB_WR_FINAL);
	return mpib_unlikely(r < 0) ? r : 1;
}

/* What the row has on the rails of @left. */
static mpib_always_inline int post_rails(struct mpib_comm *comm, unsigned int left)
{
	if (left & mpib_rail_bit(MPIB_SOUT)) {
		int r = post_rail(comm, MPIB_SOUT);

		if (mpib_unlikely(r < 0))
			return r;
		if (mpib_likely(r))
			left &= ~mpib_rail_bit(MPIB_SOUT);
	}
	if (left & mpib_rail_bit(MPIB_SUP)) {
		int r = post_rail(comm, MPIB_SUP);

		if (mpib_unlikely(r < 0))
			return r;
		if (mpib_likely(r))
			left &= ~mpib_rail_bit(MPIB_SUP);
	}
	comm->send.group.unposted = (uint8_t)left;
	comm->busy &= (uint8_t) ~(MPIB_BUSY_GROUP | MPIB_BUSY_POSTING);
	if (mpib_unlikely(left))
		comm->busy |= MPIB_BUSY_POSTING;
	return 0;
}

int mpib_send_continue(struct mpib_comm *comm)
{
	return post_rails(comm, comm->send.group.unposted);
}

/* What the messages that have to be cut add to the rails and to the record. */
static __attribute__((noinline, cold)) unsigned int start_cut(struct mpib_comm *comm)
{
	struct mpib_group *group = &comm->send.group;
	unsigned int rails = 0;

	for (const struct mpib_request *req = group->head; req; req = req->mate) {
		if (req->size <= comm->send.max_uncut)
			continue;
		rails |= req->sup_bytes ? mpib_rail_bit(MPIB_SUP) : 0;
		rails |= req->sup_bytes < req->size ? mpib_rail_bit(MPIB_SOUT) : 0;
		group->record[0] += req->sup_bytes;
	}
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		group->chain[rail].next = group->head;
		group->chain[rail].offset = 0;
	}
	return rails;
}

/* All of the row is here. */
static __attribute__((noinline)) int post_row(struct mpib_comm *comm)
{
	struct mpib_group *group = &comm->send.group;
	unsigned int rails = rail_if_filled(comm, MPIB_SOUT) | rail_if_filled(comm, MPIB_SUP);

	group->record[0] = comm->counters->rail[MPIB_SUP].bytes - group->sup_before;
	if (mpib_unlikely(group->cut))
		rails |= start_cut(comm);
	if (mpib_unlikely(!rails))
		rails = split(comm, 0, mpib_policy_share(comm)).rails;
	group->rails = (uint8_t)rails;
	group->head->rails = group->head->parts = (uint8_t)rails;
	group->head->row = comm->send.head;
	if (rails & mpib_rail_bit(MPIB_SOUT))
		group->chain[MPIB_SOUT].qp = next_qp(comm, MPIB_SOUT);
	if (rails & mpib_rail_bit(MPIB_SUP))
		group->chain[MPIB_SUP].qp = next_qp(comm, MPIB_SUP);
	__atomic_store_n(&comm->send.head, comm->send.head + 1, __ATOMIC_RELAXED);
	return post_rails(comm, rails);
}

/* Message @k of the row, @cts, which fits. Constants: @whole, each of its parts is one request;
 * @timed, busy times may be kept. */
static mpib_always_inline int send_in_group(struct mpib_comm *comm, unsigned int k,
					    const struct mpib_cts *cts, uint32_t share, void *data,
					    size_t size, const struct mpib_mr *mr, bool whole,
					    bool timed, struct mpib_request **ret)
{
	struct mpib_counter_entry *counters = comm->counters;
	struct mpib_group *group = &comm->send.group;
	struct mpib_request *req = mpib_request_get(&comm->pool);
	uint64_t addr = (uint64_t)(uintptr_t)data;
	uint32_t left = group->left & ~(1u << k);
	size_t sup;

	if (mpib_unlikely(!req))
		return 0;
	*ret = req;
	sup = split(comm, size, share).sup;
	req->mate = group->head;
	req->remaining = MPIB_REMAINING_ONE;
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
	if (whole && mpib_likely(sup))
		fill_chain(comm, MPIB_SUP, cts, mr, addr, size - sup, sup);
	if (whole && mpib_likely(size - sup))
		fill_chain(comm, MPIB_SOUT, cts, mr, addr, 0, size - sup);
	if (left)
		return 0;
	if (timed && comm->busy & MPIB_BUSY_IDLE)
		mpib_times_row(comm);
	return post_row(comm);
}

/* Looks at the row at head: 1 and a group is being collected, 0 not now, or an error. */
static int begin_group(struct mpib_comm *comm)
{
	struct mpib_group *group = &comm->send.group;
	unsigned int slot = comm->send.head % MPIB_ROWS, n;
	struct mpib_cts *row = comm->send.cts[slot].element;

	if (comm->busy & MPIB_BUSY_POSTING)
		return 0; /* test() goes on with it */
	if (mpib_cts_seq(&row[0]) != comm->send.head + 1)
		return not_now(comm);
	n = atomic_load_explicit((_Atomic uint8_t *)&row[0].count, memory_order_relaxed);
	if (n == 0 || n > MPIB_GROUP_MAX)
		return mpib_comm_fail(comm, -EPROTO, "a clear-to-send row names a wrong count");
	/* All of it must be here. */
	for (unsigned int k = 1; k < n; k++)
		if (mpib_cts_seq(&row[k]) != comm->send.head + 1)
			return not_now(comm);

	group->row = row;
	group->size = n;
	group->left = (1u << n) - 1;
	group->record = &comm->send.records[slot * MPIB_RECORD_NUMBERS];
	group->sup_before = comm->counters->rail[MPIB_SUP].bytes;
	group->head = NULL;
	group->cut = false;
	comm->busy |= MPIB_BUSY_GROUP;
	return 1;
}

/* The first message of the row that has @tag and is not matched yet; MPIB_GROUP_MAX: none. */
static unsigned int find(const struct mpib_group *group, uint32_t tag)
{
	for (unsigned int k = 0; k < group->size; k++)
		if (group->left & 1u << k && group->row[k].tag == tag)
			return k;
	return MPIB_GROUP_MAX;
}

/* ---- isend --------------------------------------------------------------------------------- */

static int group_general(struct mpib_comm *comm, void *data, size_t size, int tag,
			 const struct mpib_mr *mr, struct mpib_request **ret)
{
	struct mpib_group *group = &comm->send.group;
	const struct mpib_cts *cts;
	unsigned int k;

	if (mpib_unlikely(comm->busy & (MPIB_BUSY_FAILED | MPIB_BUSY_CLOSED | MPIB_BUSY_WAITING)))
		return comm->error ? comm->error : not_now(comm);
	if (!group->left) {
		int r = begin_group(comm);

		if (r <= 0)
			return r;
	}
	k = find(group, (uint32_t)tag);
	if (k == MPIB_GROUP_MAX)
		return not_now(comm);
	cts = &group->row[k];
	if (mpib_unlikely(size > mpib_cts_size(cts)))
		return too_large(comm, size, cts);
	if (mpib_unlikely(!comm->pool.free))
		return 0;
	if (!mr)
		mr = &no_mr;
	if (mpib_likely(size <= comm->send.max_uncut))
		return send_in_group(comm, k, cts, mpib_policy_share(comm), data, size, mr, true,
				     true, ret);
	group->cut = true;
	return send_in_group(comm, k, cts, mpib_policy_share(comm), data, size, mr, false, true,
			     ret);
}

static int alone_general(struct mpib_comm *comm, void *data, size_t size, int tag,
			 const struct mpib_mr *mr, struct mpib_request **ret)
{
	const struct mpib_cts *cts = comm->send.cts[comm->send.head % MPIB_ROWS].element;
	uint32_t share = mpib_policy_share(comm);
	size_t sup = split(comm, size, share).sup;
	struct mpib_request *req;
	int r;

	mpib_times_follow(comm);
	if (size > mpib_cts_size(cts))
		return too_large(comm, size, cts);
	if (size - sup > comm->send.max_msg[MPIB_SOUT] || sup > comm->send.max_msg[MPIB_SUP] ||
	    size > comm->send.ar_above)
		return group_general(comm, data, size, tag, mr, ret);
	req = comm->pool.free;
	if (mpib_unlikely(!req))
		return 0;
	/* An empty message has no element, and needs no registration. */
	req->wr[MPIB_SOUT].num_sge = req->wr[MPIB_SUP].num_sge = size != 0;
	r = send_alone(comm, cts, comm->send.head, share, data, size, mpib_imm_size_q(size),
		       mr ? mr : &no_mr, ret,
		       comm->busy & MPIB_BUSY_TIMED ? TIMING_EDGE : TIMING_NOT);
	req->wr[MPIB_SOUT].num_sge = req->wr[MPIB_SUP].num_sge = 1;
	return r;
}

static __attribute__((noinline)) ncclResult_t isend_not_now(struct mpib_comm *comm)
{
	return mpib_result(not_now(comm));
}

static __attribute__((noinline)) ncclResult_t isend_alone_general(struct mpib_comm *comm,
								  void *data, size_t size, int tag,
								  void *mr,
								  struct mpib_request **ret)
{
	return mpib_result(alone_general(comm, data, size, tag, mr, ret));
}

static __attribute__((noinline)) ncclResult_t isend_group_general(struct mpib_comm *comm,
								  void *data, size_t size, int tag,
								  void *mr,
								  struct mpib_request **ret)
{
	return mpib_result(group_general(comm, data, size, tag, mr, ret));
}

static mpib_always_inline ncclResult_t isend_row(struct mpib_comm *comm, void *data, size_t size,
						 int tag, void *mr, struct mpib_request **ret,
						 enum timing timing)
{
	/* That times aren't asked for any more may be noticed at the next edge. */
	static const enum mpib_hint_want wanted[] = {
		[TIMING_NOT] = MPIB_HINT_WANT_GIVEN,
		[TIMING_ON] = MPIB_HINT_WANT_ANY,
		[TIMING_EDGE] = MPIB_HINT_WANT_TIMED,
	};
	uint32_t share, head = comm->send.head;
	const struct mpib_cts *cts = comm->send.cts[head % MPIB_ROWS].element;

	if (mpib_cts_seq(cts) != head + 1)
		return isend_not_now(comm);
	if (mpib_unlikely(cts->count != 1))
		return isend_group_general(comm, data, size, tag, mr, ret);
	if (mpib_unlikely(cts->tag != (uint32_t)tag))
		return isend_not_now(comm);
	if (mpib_unlikely(size > cts->size_low) ||
	    mpib_unlikely(size - 1 >= comm->send.max_whole) || mpib_unlikely(!mr) ||
	    mpib_unlikely(!mpib_policy_try(comm, wanted[timing], &share)))
		return isend_alone_general(comm, data, size, tag, mr, ret);
	return mpib_result(send_alone(comm, cts, head, share, data, size, mpib_imm_units(size), mr,
				      ret, timing));
}

static __attribute__((noinline)) ncclResult_t isend_alone(struct mpib_comm *comm, void *data,
							  size_t size, int tag, void *mr,
							  struct mpib_request **ret)
{
	return isend_row(comm, data, size, tag, mr, ret, TIMING_NOT);
}

static __attribute__((noinline)) ncclResult_t isend_timed(struct mpib_comm *comm, void *data,
							  size_t size, int tag, void *mr,
							  struct mpib_request **ret)
{
	return isend_row(comm, data, size, tag, mr, ret, TIMING_ON);
}

static __attribute__((noinline)) ncclResult_t isend_edge(struct mpib_comm *comm, void *data,
							 size_t size, int tag, void *mr,
							 struct mpib_request **ret)
{
	return isend_row(comm, data, size, tag, mr, ret, TIMING_EDGE);
}

/* A message of a group that is being collected, where its share may have turned into one that finds
 * itself, or back. */
static __attribute__((noinline)) ncclResult_t isend_group_follow(struct mpib_comm *comm, void *data,
								 size_t size, int tag, void *mr,
								 struct mpib_request **ret)
{
	mpib_times_follow(comm);
	return isend_group_general(comm, data, size, tag, mr, ret);
}

/* The first message of the row that isn't matched, and nothing about it asks for the general
 * function. */
static mpib_always_inline ncclResult_t isend_element(struct mpib_comm *comm, void *data,
						     size_t size, int tag, void *mr,
						     struct mpib_request **ret, bool timed)
{
	const struct mpib_group *group = &comm->send.group;
	unsigned int k = (unsigned int)__builtin_ctz(group->left);
	const struct mpib_cts *cts = &group->row[k];
	uint32_t share;

	if (mpib_unlikely(cts->tag != (uint32_t)tag) || mpib_unlikely(size > cts->size_low) ||
	    mpib_unlikely(size > comm->send.max_whole) || mpib_unlikely(!mr) ||
	    mpib_unlikely(!mpib_policy_try(
		    comm, timed ? MPIB_HINT_WANT_TIMED : MPIB_HINT_WANT_GIVEN, &share)))
		return isend_group_follow(comm, data, size, tag, mr, ret);
	return mpib_result(send_in_group(comm, k, cts, share, data, size, mr, true, timed, ret));
}

static __attribute__((noinline)) ncclResult_t isend_group_timed(struct mpib_comm *comm, void *data,
								size_t size, int tag, void *mr,
								struct mpib_request **ret)
{
	return isend_element(comm, data, size, tag, mr, ret, true);
}

/* An error, a timed sender, a group that waits for the send queues. */
static __attribute__((noinline)) ncclResult_t isend_busy(struct mpib_comm *comm, void *data,
							 size_t size, int tag, void *mr,
							 struct mpib_request **ret)
{
	const unsigned int busy = comm->busy & ~(unsigned int)(MPIB_BUSY_IDLE | MPIB_BUSY_CLOCK);

	if (busy == MPIB_BUSY_TIMED)
		return isend_edge(comm, data, size, tag, mr, ret);
	if (busy == (MPIB_BUSY_TIMED | MPIB_BUSY_GROUP))
		return isend_group_timed(comm, data, size, tag, mr, ret);
	return isend_group_general(comm, data, size, tag, mr, ret);
}

static __attribute__((noinline)) ncclResult_t isend_group(struct mpib_comm *comm, void *data,
							  size_t size, int tag, void *mr,
							  struct mpib_request **ret)
{
	return isend_element(comm, data, size, tag, mr, ret, false);
}

ncclResult_t mpib_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle,
			void **request)
{
	struct mpib_comm *comm = send_comm;
	struct mpib_request **ret = (struct mpib_request **)request;

	*ret = NULL;
	if (!mpib_busy_now(comm))
		return isend_alone(comm, data, size, tag, mhandle, ret);
	if (mpib_busy_now(comm) == MPIB_BUSY_TIMED)
		return isend_timed(comm, data, size, tag, mhandle, ret);
	if (mpib_busy_now(comm) == MPIB_BUSY_GROUP)
		return isend_group(comm, data, size, tag, mhandle, ret);
	return isend_busy(comm, data, size, tag, mhandle, ret);
}
