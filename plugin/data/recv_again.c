/* SPDX-License-Identifier: Apache-2.0 */
/* A receiver's part in the loss of a rail: receives for what comes again on the other one, what has
 * arrived, and the clear-to-sends that nobody may have got. */
#include <string.h>

#include "plugin/data/comm_check.h"
#include "plugin/data/progress.h"
#include "plugin/data/rail_loss.h"
#include "plugin/verbs/srq.h"
#include "plugin/wire/imm.h"

static struct mpib_request *row_at(const struct mpib_comm *comm, uint32_t row)
{
	return comm->recv.row[row % MPIB_ROWS];
}

static unsigned int rows_open(const struct mpib_comm *comm)
{
	unsigned int n = 0;

	for (unsigned int slot = 0; slot < MPIB_ROWS; slot++)
		n += comm->recv.row[slot] != NULL;
	return n;
}

/* Whether the rail has queue pairs, able to receive. */
static bool receives_on(const struct mpib_comm *comm, unsigned int rail)
{
	return !mpib_rail_stopped(comm, rail) && mpib_rail_state(comm, rail) <= MPIB_RAIL_MADE;
}

/* A row posted now, with one receive on each rail, could be divided by a sender that hasn't heard
 * of the loss. */
static void hold_rows(struct mpib_comm *comm)
{
	comm->rails->hold = true;
	comm->rails->ever = comm->recv.trim = true;
	comm->recv.one_until = comm->recv.tail; /* mpib_irecv goes by irecv_general */
}

bool mpib_recv_reserve_extra(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rails *rails = comm->rails;
	struct mpib_hca *hca = comm->recv.hca[!rail];
	/* SOUT in reserve has none of theirs yet, and a group may be divided as SUP is lost. */
	const unsigned int each = comm->use_mask & mpib_rail_bit(!rail) ? 1 : 2;
	unsigned int want = each * rows_open(comm), have = 0;

	if (rails->extra & mpib_rail_bit(rail))
		return true;
	while (have < want && mpib_srq_reserve(hca))
		have++;
	if (have < want) {
		while (have--)
			mpib_srq_release(hca);
		return false;
	}
	comm->recv.reserved[!rail] += have;
	rails->extra |= (uint8_t)mpib_rail_bit(rail);
	hold_rows(comm);
	return true;
}

void mpib_recv_arrived(const struct mpib_comm *comm, struct mpib_rail_down *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->rows = comm->recv.tail;
	for (unsigned int slot = 0; slot < MPIB_ROWS; slot++) {
		const struct mpib_request *req = comm->recv.row[slot];
		unsigned int parts = MPIB_RAILS_ALL;

		if (req)
			parts = req->imm ? mpib_imm_mask(req->imm) & ~(unsigned int)req->left : 0;
		for (unsigned int part = 0; part < MPIB_RAIL_MAX; part++)
			if (parts & mpib_rail_bit(part))
				mpib_rail_down_mark(ret, slot, part);
	}
}

/* Flushes don't wait for a read of the lost rail: what they are for is in its place by now
 * (docs/failover.md). */
static void end_flushes(struct mpib_comm *comm, unsigned int rail)
{
	for (unsigned int k = 0; k < MPIB_REQUESTS_MAX; k++)
		if (!comm->pool.requests[k].count)
			comm->pool.requests[k].remaining &=
				~(mpib_rail_bit(rail) * MPIB_REMAINING_ONE);
}

/* From here on each row has the receives that it may need; its clear-to-send has to have a rail. */
static void follow_cts_rail(struct mpib_comm *comm)
{
	comm->rails->hold = !mpib_rail_usable(comm, comm->recv.cts_rail);
}

int mpib_recv_leave_rail(struct mpib_comm *comm, unsigned int rail, struct mpib_rail_down *ret)
{
	int r = mpib_poll_rail(comm, rail);

	if (r < 0)
		return r;
	hold_rows(comm);
	if (receives_on(comm, !rail) && !mpib_recv_reserve_extra(comm, rail))
		return 0;
	comm->polled[rail] = 0;
	for (; comm->recv.reserved[rail]; comm->recv.reserved[rail]--)
		mpib_srq_release(comm->recv.hca[rail]);
	end_flushes(comm, rail);
	mpib_recv_arrived(comm, ret);
	follow_cts_rail(comm);
	return 1;
}

/* Clear-to-sends go by QP 0 of @rail from here on. */
static void move_cts(struct mpib_comm *comm, unsigned int rail)
{
	comm->rails->stall.asking = false;
	comm->recv.cts_rail = rail;
	comm->recv.cts_qp = comm->qp[rail][0];
	comm->recv.cts_count = &comm->counters->rail[rail].cts;
	comm->recv.inline_room = comm->recv.inline_on[rail];
	comm->recv.cts_sge.lkey = comm->ring_mr->lkey[rail];
	comm->recv.cts_wr.wr.rdma.rkey = comm->remote_qps.ring_rkey[rail];
}

/* What irecv told the sender of the row: its request has it where the fast path posted it. */
static int write_cts(struct mpib_comm *comm, uint32_t row)
{
	const unsigned int slot = row % MPIB_ROWS;
	struct mpib_cts_row *out = &comm->recv.cts_out[slot];
	const struct mpib_request *req = row_at(comm, row);
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)out,
		.length = (uint32_t)req->count * (uint32_t)sizeof(struct mpib_cts),
		.lkey = comm->recv.cts_sge.lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = row,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = comm->recv.cts_addr + slot * sizeof(*out),
		.wr.rdma.rkey = comm->recv.cts_wr.wr.rdma.rkey,
	};
	int r;

	if (out->element[0].seq != row + 1)
		out->element[0] = req->cts;
	r = ibv_post_send(comm->recv.cts_qp, &wr, &comm->bad);
	if (r)
		return mpib_comm_post_failed(comm, comm->recv.cts_rail,
					     "clear-to-send can't be posted", r);
	(*comm->recv.cts_count)++;
	return 0;
}

/* Those of rows from @row on that aren't done, on @rail. Returns how many, or an error, which has
 * failed the connection. */
static int write_ctss(struct mpib_comm *comm, unsigned int rail, uint32_t row)
{
	int moved = 0;

	comm->rails->cts_lost = false;
	move_cts(comm, rail);
	follow_cts_rail(comm);
	/* A sender may be behind by no more rows than its ring has. */
	if (comm->recv.tail - row > MPIB_ROWS)
		row = comm->recv.tail - MPIB_ROWS;
	comm->recv.cts_limit = row + MPIB_CTS_DEPTH;
	for (; row != comm->recv.tail; row++) {
		int r = row_at(comm, row) ? write_cts(comm, row) : 0;

		if (r < 0)
			return r;
		moved += row_at(comm, row) != NULL;
	}
	if (!moved)
		comm->recv.cts_limit = comm->recv.tail + MPIB_CTS_DEPTH;
	else if ((int32_t)(comm->recv.cts_limit - comm->recv.tail) < 0)
		comm->recv.cts_limit = comm->recv.tail; /* it is full */
	return moved;
}

int mpib_recv_settle(struct mpib_comm *comm, unsigned int rail, const struct mpib_rail_down *down)
{
	comm->rails->old = comm->recv.tail;
	if (comm->recv.cts_rail != rail)
		return 0;
	if (mpib_rail_usable(comm, !rail))
		return write_ctss(comm, !rail, down->rows);
	comm->rails->cts_lost = true;
	comm->rails->cts_from = down->rows;
	return 0;
}

int mpib_recv_found_rail(struct mpib_comm *comm, unsigned int rail)
{
	return comm->rails->cts_lost ? write_ctss(comm, rail, comm->rails->cts_from) : 0;
}

bool mpib_recv_take_rail(struct mpib_comm *comm, unsigned int rail)
{
	struct mpib_rails *rails = comm->rails;
	unsigned int want = 2 * rows_open(comm), have = 0;

	/* Parts of both rails may come on this one: though the other one is back, too, a part that
	 * waited for one may take this one first. */
	while (have < want && mpib_srq_reserve(comm->recv.hca[rail]))
		have++;
	if (have < want) {
		while (have--)
			mpib_srq_release(comm->recv.hca[rail]);
		return false;
	}
	comm->recv.reserved[rail] = have;
	comm->polled[rail] = 1;
	rails->extra &= (uint8_t)~mpib_rail_bit(rail);
	comm->recv.trim = true;
	rails->old = comm->recv.tail;
	comm->recv.one_until = comm->recv.tail;
	return true;
}

/* Receives that the rows may need on a rail. Where the other one is lost both parts may come here,
 * of each row: a sender whose helper thread has spoken for it goes on to divide until its progress
 * thread comes by. The same goes for rows of that time when the other one is back. */
static unsigned int needed(const struct mpib_comm *comm, unsigned int rail)
{
	const struct mpib_rails *rails = comm->rails;
	unsigned int n = 0;

	if (!(comm->use_mask & mpib_rail_bit(rail)))
		return 0;
	for (uint32_t row = comm->recv.tail - MPIB_ROWS; row != comm->recv.tail; row++) {
		const struct mpib_request *req = row_at(comm, row);
		bool both = rails->off || (int32_t)(row - rails->old) < 0;

		if (req && req->imm)
			n += both || req->left & mpib_rail_bit(rail);
		else if (req)
			n += both ? 2 : 1;
	}
	return n;
}

static bool old_rows_open(const struct mpib_comm *comm)
{
	for (uint32_t row = comm->recv.tail - MPIB_ROWS; row != comm->recv.tail; row++)
		if (row_at(comm, row) && (int32_t)(row - comm->rails->old) < 0)
			return true;
	return false;
}

bool mpib_recv_trim(struct mpib_comm *comm)
{
	struct mpib_rails *rails = comm->rails;

	if (!comm->recv.trim || rails->hold)
		return true;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		unsigned int need = needed(comm, rail);

		for (; comm->recv.reserved[rail] > need; comm->recv.reserved[rail]--)
			mpib_srq_release(comm->recv.hca[rail]);
	}
	if (!rails->off) {
		comm->recv.trim = old_rows_open(comm);
		return true;
	}
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		if (!(comm->use_mask & mpib_rail_bit(rail)))
			continue;
		if (!mpib_srq_reserve(comm->recv.hca[rail]))
			return false;
		comm->recv.reserved[rail]++;
	}
	return true;
}
