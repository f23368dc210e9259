/* SPDX-License-Identifier: Apache-2.0 */
/* Late delivery. A port that goes down loses what is under way, as a rule. But a packet may also
 * wait in a switch, and arrive long after both ends have noticed that the way is gone. Parts are
 * kept here for the time that the device which sent them is set to (a shorter one lets them go),
 * and then reach their QP, if that can still take them. Their sender hears nothing of it while a
 * port is down: for it they are lost. */
#include "tests/fabric/link.h"

#include <stdlib.h>
#include <string.h>

struct fab_late {
	TAILQ_ENTRY(fab_late) node;
	uint64_t since;
	struct fab_pkt *pkt; /* with its payload */
};

static uint64_t late_ns(const struct fab_link *link)
{
	return atomic_load_explicit(&fab_dev_state(link->peer_dev)->late_ns, memory_order_relaxed);
}

void fab_late_hold(struct fab_link *link, const struct fab_pkt *pkt)
{
	struct fab_late *late;

	if (!late_ns(link) || pkt->len > pkt->size - sizeof(*pkt))
		return;
	late = malloc(sizeof(*late));
	if (!late)
		return;
	late->pkt = malloc(pkt->size);
	if (!late->pkt) {
		free(late);
		return;
	}
	memcpy(late->pkt, pkt, sizeof(*pkt) + pkt->len);
	late->since = fab_now();
	TAILQ_INSERT_TAIL(&link->late, late, node);
}

static void drop(struct fab_link *link, struct fab_late *late)
{
	TAILQ_REMOVE(&link->late, late, node);
	free(late->pkt);
	free(late);
}

static void arrive(struct fab_link *link, const struct fab_pkt *pkt)
{
	struct fab_qp *qp = fab_responder_qp(link, pkt);
	uint64_t seq, offset;

	if (!qp)
		return;
	seq = qp->exp_seq;
	offset = qp->exp_off;
	fab_responder_take(link, qp, pkt);
	if (qp->exp_seq != seq || qp->exp_off != offset)
		(void)atomic_fetch_add(&fab_dev_state(link->peer_dev)->late_parts, 1);
	if (link->ack_qp == qp && !fab_link_port_up(link))
		link->ack_qp = NULL; /* no answer gets back either */
}

bool fab_late_due(struct fab_link *link, uint64_t now)
{
	struct fab_late *late = TAILQ_FIRST(&link->late);
	uint64_t due;

	if (!late)
		return false;
	due = late->since + late_ns(link);
	if (due > now) {
		fab_engine_due(due);
		return false;
	}
	late->pkt->due_ns = due;
	arrive(link, late->pkt);
	drop(link, late);
	return true; /* look again: each wants room for an answer */
}

void fab_late_forget(struct fab_link *link)
{
	struct fab_late *late;

	while ((late = TAILQ_FIRST(&link->late)))
		drop(link, late);
}
