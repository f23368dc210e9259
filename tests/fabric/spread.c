/* SPDX-License-Identifier: Apache-2.0 */
/* Adaptive routing: parts of plain writes take any path and come in any order. A part is held here
 * for a random time and then written, so that memory shows what no program may rely on. The device
 * keeps what RC promises: before an immediate, a SEND, a READ or an atomic of the QP does anything,
 * all writes before it are in memory, and so they are before they are acknowledged. */
#include "tests/fabric/link.h"

#include <stdlib.h>
#include <string.h>

#define HELD_MAX_NS 200000

struct fab_spread {
	TAILQ_ENTRY(fab_spread) node;
	uint32_t qpn, rkey;
	uint64_t addr, due;
	uint32_t len;
	uint8_t data[];
};

static uint32_t next_random(void)
{
	static uint32_t state = 1; /* engine lock */

	state = state * 1664525U + 1013904223U;
	return state >> 8;
}

bool fab_spread_hold(struct fab_link *link, struct fab_qp *qp, const struct fab_pkt *pkt,
		     const uint8_t *data)
{
	struct fab_spread *held = malloc(sizeof(*held) + pkt->len);

	if (!held)
		return false;
	held->qpn = qp->qp.qp_num;
	held->rkey = pkt->rkey;
	held->addr = pkt->raddr + pkt->offset;
	held->len = pkt->len;
	held->due = fab_now() + next_random() % HELD_MAX_NS;
	memcpy(held->data, data, pkt->len);
	if (next_random() & 1)
		TAILQ_INSERT_HEAD(&link->spread, held, node);
	else
		TAILQ_INSERT_TAIL(&link->spread, held, node);
	qp->spread++;
	(void)atomic_fetch_add(&fab_dev_state(qp->dev)->spread_bytes, pkt->len);
	fab_engine_due(held->due);
	return true;
}

/* The QP that the part is for, or NULL: then nobody may write there any more. */
static struct fab_qp *drop(struct fab_link *link, struct fab_spread *held, bool place)
{
	struct fab_qp *qp = fab.qps[held->qpn % FAB_QP_INDEXES];
	struct fab_mr *mr;

	TAILQ_REMOVE(&link->spread, held, node);
	if (qp && qp->qp.qp_num != held->qpn)
		qp = NULL;
	if (qp) {
		qp->spread--;
		mr = fab_mr_find(held->rkey, qp->qp.pd, held->addr, held->len,
				 IBV_ACCESS_REMOTE_WRITE);
		if (place && mr && fab_pages_kept(mr, held->addr, held->len))
			fab_copy_in(mr, fab_mr_at(mr, held->addr), held->data, held->len);
	}
	free(held);
	return qp;
}

void fab_spread_place(struct fab_link *link, const struct fab_qp *qp)
{
	struct fab_spread *held, *next;

	if (!qp->spread)
		return;
	TAILQ_FOREACH_SAFE(held, &link->spread, node, next)
	{
		if (held->qpn == qp->qp.qp_num)
			(void)drop(link, held, true);
	}
}

bool fab_spread_due(struct fab_link *link, uint64_t now)
{
	struct fab_spread *held, *next;
	bool moved = false;

	TAILQ_FOREACH_SAFE(held, &link->spread, node, next)
	{
		struct fab_qp *qp;

		if (held->due > now) {
			fab_engine_due(held->due);
			continue;
		}
		qp = drop(link, held, true);
		moved = true;
		if (qp && !qp->spread)
			fab_responder_ack(link, qp);
	}
	return moved;
}

void fab_spread_forget(struct fab_link *link, const struct fab_qp *qp)
{
	struct fab_spread *held, *next;

	TAILQ_FOREACH_SAFE(held, &link->spread, node, next)
	{
		if (!qp || held->qpn == qp->qp.qp_num)
			(void)drop(link, held, false);
	}
}
