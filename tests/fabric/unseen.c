/* SPDX-License-Identifier: Apache-2.0 */
/* Writes that are acknowledged and not yet in memory. An acknowledgement says that a write has
 * reached the other NIC, not that whoever reads the memory there by another way can see it. Parts
 * of plain writes are kept here until something that goes the same way behind them pushes them: an
 * immediate, a SEND, a READ or an atomic of the same QP, a READ that the process makes from itself
 * through the device; or until the device's time is over. */
#include "tests/fabric/link.h"

#include <stdlib.h>
#include <string.h>

#define HELD_MAX_BYTES (64U << 20) /* a link; the oldest make room */

struct fab_unseen {
	TAILQ_ENTRY(fab_unseen) node;
	struct ibv_pd *pd; /* to compare with: it may be gone */
	uint64_t addr, since;
	uint32_t qpn, rkey, len;
	uint8_t data[];
};

static uint64_t unseen_ns(uint32_t dev)
{
	return atomic_load_explicit(&fab_dev_state(dev)->unseen_ns, memory_order_relaxed);
}

/* A key that is gone leaves nothing to write to. */
static void place(struct fab_link *link, struct fab_unseen *held)
{
	struct fab_mr *mr =
		fab_mr_find(held->rkey, held->pd, held->addr, held->len, IBV_ACCESS_REMOTE_WRITE);

	TAILQ_REMOVE(&link->unseen, held, node);
	link->unseen_bytes -= held->len;
	if (mr && fab_pages_kept(mr, held->addr, held->len))
		fab_copy_in(mr, fab_mr_at(mr, held->addr), held->data, held->len);
	free(held);
}

bool fab_unseen_hold(struct fab_link *link, const struct fab_qp *qp, const struct fab_pkt *pkt,
		     const uint8_t *data)
{
	struct fab_unseen *held;
	uint64_t ns = unseen_ns(qp->dev);

	if (!ns || pkt->len > HELD_MAX_BYTES)
		return false;
	held = malloc(sizeof(*held) + pkt->len);
	if (!held)
		return false;
	while (link->unseen_bytes > HELD_MAX_BYTES - pkt->len)
		place(link, TAILQ_FIRST(&link->unseen));
	held->pd = qp->qp.pd;
	held->addr = pkt->raddr + pkt->offset;
	held->since = fab_now();
	held->qpn = qp->qp.qp_num;
	held->rkey = pkt->rkey;
	held->len = pkt->len;
	memcpy(held->data, data, pkt->len);
	TAILQ_INSERT_TAIL(&link->unseen, held, node);
	link->unseen_bytes += pkt->len;
	(void)atomic_fetch_add(&fab_dev_state(qp->dev)->unseen_parts, 1);
	fab_engine_due(held->since + ns);
	return true;
}

static void place_of(struct fab_link *link, uint32_t qpn)
{
	struct fab_unseen *held, *next;

	TAILQ_FOREACH_SAFE(held, &link->unseen, node, next)
	{
		if (held->qpn == qpn)
			place(link, held);
	}
}

void fab_unseen_place(struct fab_link *link, const struct fab_qp *qp)
{
	if (!TAILQ_EMPTY(&link->unseen))
		place_of(link, qp->qp.qp_num);
}

void fab_unseen_place_device(uint32_t dev)
{
	struct fab_link *link;

	TAILQ_FOREACH(link, &fab.links, node)
	if (link->responder && link->local_dev == dev)
		fab_unseen_place_all(link);
}

void fab_unseen_place_all(struct fab_link *link)
{
	while (!TAILQ_EMPTY(&link->unseen))
		place(link, TAILQ_FIRST(&link->unseen));
}

void fab_unseen_settle(const struct fab_mr *mr)
{
	struct fab_unseen *held, *next;
	struct fab_link *link;

	TAILQ_FOREACH(link, &fab.links, node)
	{
		TAILQ_FOREACH_SAFE(held, &link->unseen, node, next)
		{
			if (held->rkey == mr->mr.rkey)
				place(link, held);
		}
	}
}

bool fab_unseen_due(struct fab_link *link, uint64_t now)
{
	struct fab_unseen *held;
	bool moved = false;

	while ((held = TAILQ_FIRST(&link->unseen))) {
		uint64_t due = held->since + unseen_ns(link->local_dev);

		if (due > now) {
			fab_engine_due(due);
			break;
		}
		place(link, held);
		moved = true;
	}
	return moved;
}
