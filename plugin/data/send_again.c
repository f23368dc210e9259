/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sender's parts that were lost with a rail: which of them have arrived is what the receiver
 * says, and the others are posted again on the rail that is left, the same bytes to the same place.
 * A message alone in its row still has its work requests; the parts of a row of several, or of one
 * that was cut, are cut anew for the port that takes them now.
 *
 * A row's clear-to-send stays in the ring as long as a part of it is missing: its place is the next
 * row's only when this one is done.
 */
#include <arpa/inet.h>

#include "common/split.h"
#include "plugin/connection/news.h"
#include "plugin/data/comm_check.h"
#include "plugin/data/rail_loss.h"
#include "plugin/data/send.h"
#include "plugin/data/times.h"
#include "plugin/wire/imm.h"

void mpib_send_leave_rail(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_group *group = &comm->send.group;
	unsigned int bit = mpib_rail_bit(rail);

	if (comm->mem_mask == MPIB_RAILS_ALL)
		mpib_comm_follow_agent(comm, false);
	/* A rail in reserve has receives when the receiver has said RAIL_DOWN. */
	if (!mpib_rail_usable(comm, !rail) || !(comm->use_mask & mpib_rail_bit(!rail)))
		comm->busy |= MPIB_BUSY_WAITING;
	mpib_times_end(comm);
	comm->send.share_fixed = comm->send.share_last = rail == MPIB_SUP ? 0 : MPIB_SHARE_MAX;
	if (comm->busy & MPIB_BUSY_GROUP)
		group->cut = true; /* mpib_send_missed takes its part on the rail */
	if (comm->busy & MPIB_BUSY_POSTING && group->unposted & bit) {
		mpib_send_missed(comm, rail);
		group->unposted &= (uint8_t)~bit;
		if (!group->unposted)
			comm->busy &= (uint8_t)~MPIB_BUSY_POSTING;
	}
}

void mpib_send_take_rail(struct mpib_comm *comm, unsigned int rail)
{
	for (unsigned int k = 0; k < comm->nqps[rail]; k++) {
		comm->send.qps[rail][k].qp = comm->qp[rail][k];
		comm->send.chained[rail][k] = 0;
	}
	comm->polled[rail] = 0;
	comm->busy &= (uint8_t)~MPIB_BUSY_WAITING;
	if (!mpib_rail_usable(comm, !rail)) {
		comm->send.share_fixed = rail == MPIB_SUP ? MPIB_SHARE_MAX : 0;
		return;
	}
	comm->send.share_fixed = comm->rails->share_fixed;
	mpib_comm_follow_agent(comm, true);
}

int mpib_send_probe(struct mpib_comm *comm, unsigned int rail)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = comm->send.record_addr,
		.wr.rdma.rkey = comm->remote_qps.ring_rkey[rail],
	};

	return -ibv_post_send(comm->qp[rail][0], &wr, &comm->bad);
}

/* Where both ends have settled the loss, nobody else will say that the part has not arrived. */
void mpib_send_missed(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_group *group = &comm->send.group;
	struct mpib_chain *chain = &group->chain[rail];

	chain->at = &chain->wr[MPIB_GROUP_MAX];
	chain->next = NULL;
	if (mpib_rail_state(comm, rail) != MPIB_RAIL_LOST &&
	    mpib_rail_state(comm, rail) != MPIB_RAIL_MADE)
		return;
	group->head->pending |= (uint8_t)mpib_rail_bit(rail);
	mpib_watch_lock();
	mpib_comm_flag(comm, MPIB_FLAG_RAIL);
	mpib_watch_unlock();
}

/* ---- what has arrived ------------------------------------------------------------------------ */

static void credit(struct mpib_request *req, unsigned int part)
{
	const uint8_t bit = (uint8_t)mpib_rail_bit(part);

	req->elsewhere &= (uint8_t)~bit;
	req->pending &= (uint8_t)~bit;
	if (!req->rails) {
		req->remaining &= ~(uint32_t)bit;
		return;
	}
	req->rails &= (uint8_t)~bit;
	for (struct mpib_request *mate = req; !req->rails && mate; mate = mate->mate)
		mate->remaining = 0;
}

/* Parts of the request, or of the row whose first it is, that are not done. */
static unsigned int parts_left(const struct mpib_request *req)
{
	return req->rails ? req->rails : req->remaining & MPIB_RAILS_ALL;
}

unsigned int mpib_send_settle(struct mpib_comm *comm, unsigned int rail,
			      const struct mpib_rail_down *down)
{
	unsigned int moved = 0;

	/* None of these completes any more. A write into a mailbox that failed was one too many. */
	comm->counters->chained[rail] += (uint64_t)(int32_t)comm->polled[rail];
	comm->polled[rail] = 0;
	if (comm->rails->again.head && comm->rails->again.rail == rail)
		comm->rails->again.head = NULL; /* all of it, from its beginning */
	for (unsigned int k = 0; k < MPIB_REQUESTS_MAX; k++) {
		struct mpib_request *req = &comm->pool.requests[k];

		for (unsigned int part = 0; part < MPIB_RAIL_MAX; part++) {
			const unsigned int bit = mpib_rail_bit(part);

			if (!(parts_left(req) & bit) || req->pending & bit ||
			    (req->elsewhere & bit ? !part : part) != rail)
				continue;
			if (mpib_rail_has_arrived(down, req->row, part)) {
				credit(req, part);
				continue;
			}
			req->pending |= (uint8_t)bit;
			req->elsewhere &= (uint8_t)~bit;
			moved++;
		}
	}
	if (mpib_rail_usable(comm, !rail))
		comm->busy &= (uint8_t)~MPIB_BUSY_WAITING;
	return moved;
}

void mpib_send_again_completed(struct mpib_comm *comm, uint64_t id, unsigned int rail)
{
	comm->send.chained[rail][MPIB_WR_QP(id)] -= MPIB_WR_ENTRIES(id);
	if (id & MPIB_WR_AGAIN_FINAL)
		credit(&comm->pool.requests[MPIB_WR_INDEX(id)],
		       id & MPIB_WR_OTHER_PART ? !rail : rail);
}

/* ---- posting again --------------------------------------------------------------------------- */

/* A QP of the rail whose send queue takes @n more; NULL: none. */
static const struct mpib_send_qp *qp_with_room(struct mpib_comm *comm, unsigned int rail,
					       unsigned int n)
{
	for (unsigned int k = 0; k < comm->nqps[rail]; k++) {
		const struct mpib_send_qp *qp = comm->send.at[rail];

		comm->send.at[rail] = qp->next;
		if (comm->send.chained[rail][qp->index] + n <= MPIB_SQ_CHAINED)
			return qp;
	}
	return NULL;
}

static void count(struct mpib_comm *comm, unsigned int rail, uint64_t bytes)
{
	comm->counters->rail[rail].bytes += bytes;
	/* What a row that is being collected has on SUP is told by the difference. */
	if (rail == MPIB_SUP)
		comm->send.group.sup_before += bytes;
}

/* The immediate of @part of a row with @parts, which goes on @rail. */
static uint32_t immediate(uint32_t row, unsigned int parts, uint32_t size_q, unsigned int part,
			  unsigned int rail)
{
	unsigned int mask =
		rail == part ? parts : mpib_replay_mask(part, parts == mpib_rail_bit(part));

	return htonl(mpib_imm_encode(row, mask, size_q));
}

static uint64_t wr_id(const struct mpib_request *req, const struct mpib_send_qp *qp,
		      unsigned int entries)
{
	return req->index | (uint64_t)entries << MPIB_WR_ENTRIES_SHIFT |
	       (uint64_t)qp->index << MPIB_WR_QP_SHIFT | MPIB_WR_CHAIN | MPIB_WR_AGAIN;
}

static int post(struct mpib_comm *comm, unsigned int rail, const struct mpib_send_qp *qp,
		struct ibv_send_wr *wr, unsigned int entries)
{
	int r;

	comm->send.chained[rail][qp->index] += entries;
	comm->polled[rail]++;
	r = ibv_post_send(qp->qp, wr, &comm->bad);
	return r ? mpib_comm_post_failed(comm, rail, "ibv_post_send failed", r) : 1;
}

int mpib_send_ask(struct mpib_comm *comm, unsigned int rail)
{
	const struct mpib_send_qp *qp = qp_with_room(comm, rail, 1);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = comm->send.record_addr,
		.wr.rdma.rkey = comm->remote_qps.ring_rkey[rail],
	};
	int r;

	if (!qp)
		return 0;
	wr.wr_id = 1ull << MPIB_WR_ENTRIES_SHIFT | (uint64_t)qp->index << MPIB_WR_QP_SHIFT |
		   MPIB_WR_CHAIN | MPIB_WR_AGAIN;
	comm->counters->chained[rail]--; /* it completes, and isn't one of `requests` */
	r = post(comm, rail, qp, &wr, 1);
	return r < 0 ? r : 0;
}

static void posted(struct mpib_comm *comm, struct mpib_request *req, unsigned int part,
		   unsigned int rail)
{
	const uint8_t bit = (uint8_t)mpib_rail_bit(part);

	req->pending &= (uint8_t)~bit;
	if (rail != part)
		req->elsewhere |= bit;
	comm->counters->parts_again[part]++;
}

static uint64_t final_bits(unsigned int part, unsigned int rail)
{
	return MPIB_WR_AGAIN_FINAL | (rail == part ? 0 : MPIB_WR_OTHER_PART);
}

/* A message alone in its row. 1, 0: no room, or an error. */
static int post_alone(struct mpib_comm *comm, struct mpib_request *req, unsigned int part,
		      unsigned int rail)
{
	const struct mpib_send_qp *qp = qp_with_room(comm, rail, 1);
	struct ibv_send_wr wr = req->wr[part];
	struct ibv_sge sge = req->sge[part];
	uint32_t imm = ntohl(req->wr[part].imm_data);

	if (!qp)
		return 0;
	wr.sg_list = &sge;
	wr.num_sge = sge.length != 0;
	sge.lkey = req->mr->lkey[rail];
	wr.wr.rdma.rkey = comm->send.cts[req->row % MPIB_ROWS].element[0].rkey[rail];
	wr.imm_data = immediate(req->row, mpib_imm_mask(imm), mpib_imm_size(imm), part, rail);
	wr.wr_id = wr_id(req, qp, 1) | final_bits(part, rail);
	comm->counters->rail[rail].requests++;
	count(comm, rail, sge.length);
	posted(comm, req, part, rail);
	return post(comm, rail, qp, &wr, 1);
}

/* The next piece of the row's part, at again->next; false: there is none. */
static bool next_piece(struct mpib_comm *comm, struct mpib_wr *wr)
{
	struct mpib_again *again = &comm->rails->again;

	for (; again->next; again->next = again->next->mate, again->offset = 0) {
		const struct mpib_request *req = again->next;
		const struct mpib_cts *cts =
			&comm->send.cts[again->head->row % MPIB_ROWS].element[req->element];
		size_t start = again->part == MPIB_SOUT ? 0 : req->size - req->sup_bytes;
		size_t len = again->part == MPIB_SOUT ? req->size - req->sup_bytes : req->sup_bytes;
		size_t piece = len - again->offset;

		if (!piece)
			continue;
		if (piece > comm->send.max_msg[again->rail])
			piece = comm->send.max_msg[again->rail];
		wr->wr.wr.rdma.remote_addr = cts->addr + start + again->offset;
		wr->wr.wr.rdma.rkey = cts->rkey[again->rail];
		wr->sge.addr = req->addr + start + again->offset;
		wr->sge.length = (uint32_t)piece;
		wr->sge.lkey = req->mr->lkey[again->rail];
		again->offset += piece;
		return true;
	}
	return false;
}

static void prepare_chain(struct mpib_again *again)
{
	for (unsigned int k = 0; k <= MPIB_GROUP_MAX; k++) {
		struct mpib_wr *wr = &again->wr[k];

		wr->wr.opcode = IBV_WR_RDMA_WRITE;
		wr->wr.send_flags = 0;
		wr->wr.sg_list = &wr->sge;
		wr->wr.num_sge = 1;
		wr->wr.next = k < MPIB_GROUP_MAX ? &again->wr[k + 1].wr : NULL;
	}
}

/* The write-with-immediate that ends the part; the leader's takes the record along. */
static void final_piece(struct mpib_comm *comm, struct mpib_wr *final)
{
	const struct mpib_again *again = &comm->rails->again;
	const struct mpib_request *head = again->head;
	unsigned int slot = head->row % MPIB_ROWS, messages = 0;
	uint64_t *record = &comm->send.records[slot * MPIB_RECORD_NUMBERS];

	for (const struct mpib_request *req = head; req; req = req->mate)
		messages++;
	final->wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	final->wr.imm_data =
		immediate(head->row, head->parts, MPIB_IMM_SIZE_RECORD, again->part, again->rail);
	final->wr.num_sge = again->part == MPIB_SOUT || head->parts == mpib_rail_bit(MPIB_SUP);
	final->wr.wr.rdma.remote_addr =
		comm->send.record_addr + slot * MPIB_RECORD_NUMBERS * sizeof(*record);
	final->wr.wr.rdma.rkey = comm->remote_qps.ring_rkey[again->rail];
	final->sge.addr = (uint64_t)(uintptr_t)record;
	final->sge.length = (1 + messages) * (uint32_t)sizeof(*record);
	final->sge.lkey = comm->ring_mr->lkey[again->rail];
}

/* The part of a row of several, or of a message that was cut, as far as its QP has room. 1, 0, or
 * an error. */
static int post_row(struct mpib_comm *comm)
{
	struct mpib_again *again = &comm->rails->again;
	bool done = false;
	int r = 1;

	while (!done && r > 0) {
		unsigned int n = 0;
		struct mpib_wr *last;

		if (comm->send.chained[again->rail][again->qp->index] + MPIB_GROUP_MAX + 1 >
		    MPIB_SQ_CHAINED)
			return 0;
		prepare_chain(again);
		while (n < MPIB_GROUP_MAX && next_piece(comm, &again->wr[n]))
			count(comm, again->rail, again->wr[n++].sge.length);
		done = n < MPIB_GROUP_MAX;
		if (done)
			final_piece(comm, &again->wr[n++]);
		last = &again->wr[n - 1];
		last->wr.next = NULL;
		last->wr.send_flags = IBV_SEND_SIGNALED;
		last->wr.wr_id = wr_id(again->head, again->qp, n) |
				 (done ? final_bits(again->part, again->rail) : 0);
		comm->counters->rail[again->rail].requests += n;
		comm->counters->chained[again->rail] += n - 1;
		r = post(comm, again->rail, again->qp, &again->wr[0].wr, n);
	}
	if (r > 0) {
		posted(comm, again->head, again->part, again->rail);
		again->head = NULL;
	}
	return r;
}

static int begin_row(struct mpib_comm *comm, struct mpib_request *head, unsigned int part,
		     unsigned int rail)
{
	struct mpib_again *again = &comm->rails->again;

	again->qp = qp_with_room(comm, rail, MPIB_GROUP_MAX + 1);
	if (!again->qp)
		return 0;
	again->head = again->next = head;
	again->offset = 0;
	again->part = part;
	again->rail = rail;
	return post_row(comm);
}

/* Whether the receiver has two receives for the row on the rail that isn't @part's. */
static bool has_two_receives(const struct mpib_comm *comm, unsigned int part, uint32_t row)
{
	/* A row that it may have posted after it made the new queue pairs of @part has one, until
	 * it says that these are lost, too. */
	return mpib_rail_state(comm, part) == MPIB_RAIL_LOST ||
	       (int32_t)(row - comm->rails->made_head[part]) < 0;
}

/* Of a part that waits: its own rail, if that is back, else the other one. MPIB_RAIL_MAX: none. */
static unsigned int rail_for(const struct mpib_comm *comm, unsigned int part, uint32_t row)
{
	if (mpib_rail_usable(comm, part))
		return part;
	return mpib_rail_usable(comm, !part) && has_two_receives(comm, part, row) ? !part
										  : MPIB_RAIL_MAX;
}

int mpib_send_again(struct mpib_comm *comm)
{
	int quiet = 1;

	if (comm->rails->again.head) {
		/* What was posted of it may still be under way: nothing until that is settled. */
		int r = mpib_rail_usable(comm, comm->rails->again.rail) ? post_row(comm) : 0;

		if (r <= 0)
			return r;
	}
	for (unsigned int k = 0; k < 2 * MPIB_REQUESTS_MAX; k++) {
		struct mpib_request *req = &comm->pool.requests[k / 2];
		unsigned int part = k % 2, rail = rail_for(comm, part, req->row);
		int r = 0;

		if (!(req->pending & mpib_rail_bit(part)))
			continue;
		if (rail != MPIB_RAIL_MAX)
			r = req->rails ? begin_row(comm, req, part, rail)
				       : post_alone(comm, req, part, rail);
		if (r < 0 || comm->rails->again.head)
			return r;
		quiet &= r;
	}
	return quiet;
}
