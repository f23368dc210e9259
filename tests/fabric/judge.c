/* SPDX-License-Identifier: Apache-2.0 */
/* What programs may not do and a NIC doesn't tell: it loses an addition now and then, or is at the
 * mercy of the other end's firmware. Here it is a line, a count in the shared state, and an error
 * of the request. */
#include "tests/fabric/fabric.h"

#include <inttypes.h>
#include <stdio.h>

#define WORDS	     8192 /* remembered; a newer word may drive out an older one */
#define IN_FLIGHT_MS 100
#define LINES_MAX    10

/* The last atomic on 8 bytes of memory. */
static struct word {
	const uint8_t *at;
	uint32_t dev, qpn;
	uint64_t when;
} words[WORDS]; /* engine lock */

/* Counts a mistake; true: there is a line for it, too. A refusal waits for the answers that the QP
 * owes, and the request is looked at again: it is one mistake. */
static bool may_tell(const struct fab_qp *qp)
{
	static unsigned int lines; /* engine lock */

	if (qp->pending_reads)
		return false;
	(void)atomic_fetch_add(&fab_dev_state(qp->dev)->mistakes, 1);
	return lines++ < LINES_MAX;
}

/* Its answer may still be on its way, or its turn in the device not be over. */
static bool in_flight(const struct word *word, uint64_t now)
{
	const struct fab_qp *qp = fab.qps[word->qpn % FAB_QP_INDEXES];
	int state = qp && qp->qp.qp_num == word->qpn ? atomic_load(&qp->state) : IBV_QPS_RESET;

	return now - word->when < IN_FLIGHT_MS * 1000000ULL &&
	       (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD);
}

bool fab_judge_atomic(const struct fab_qp *qp, const uint8_t *at)
{
	struct word *word = &words[((uintptr_t)at >> 3) % WORDS];
	uint64_t now = fab_now();

	if (word->at == at && word->dev != qp->dev && in_flight(word, now)) {
		if (may_tell(qp))
			(void)fprintf(stderr,
				      "mpib-fabric: MISTAKE: an atomic on the word at %p through "
				      "%s, %" PRIu64 " us after one through %s: two devices' "
				      "atomics aren't atomic with each other\n",
				      (const void *)at, fab_dev_conf(qp->dev)->name,
				      (now - word->when) / 1000, fab_dev_conf(word->dev)->name);
		return false;
	}
	*word = (struct word){ .at = at, .dev = qp->dev, .qpn = qp->qp.qp_num, .when = now };
	return true;
}

bool fab_judge_reads(const struct fab_qp *qp, uint32_t outstanding)
{
	if (outstanding <= qp->attr.max_dest_rd_atomic)
		return true;
	if (may_tell(qp))
		(void)fprintf(stderr,
			      "mpib-fabric: MISTAKE: QP 0x%x of %s has %u READs and atomics of its "
			      "peer outstanding, and max_dest_rd_atomic is %u\n",
			      qp->qp.qp_num, fab_dev_conf(qp->dev)->name, outstanding,
			      qp->attr.max_dest_rd_atomic);
	return false;
}
