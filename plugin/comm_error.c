/* SPDX-License-Identifier: Apache-2.0 */
/* How a connection fails: the first cause is told, once, here and to the peer. */
#include "plugin/comm.h"

#include <errno.h>
#include <stdio.h>

#include "plugin/clock.h"
#include "plugin/log.h"

int mpib_comm_fail(struct mpib_comm *comm, int error, const char *text)
{
	if (comm->error)
		return comm->error;

	comm->error = error;
	comm->busy |= MPIB_BUSY_FAILED;
	MPIB_WARN("%s %s: %s", comm->kind == MPIB_COUNTER_SEND ? "send to" : "receive from",
		  comm->peer_text, text);
	mpib_ctl_send_text(&comm->ctl, MPIB_FRAME_FAIL, text);
	return error;
}

int mpib_comm_check(struct mpib_comm *comm)
{
	unsigned int flags = atomic_load_explicit(&comm->flags, memory_order_acquire);
	char text[MPIB_TEXT_MAX + 1];
	uint64_t now;

	if (comm->error)
		return comm->error;
	if (!flags)
		return 0;
	if (flags & MPIB_FLAG_DEVICE_FATAL)
		return mpib_comm_fail(comm, -EIO, "a device failed (see the line above)");

	now = mpib_now_ms();
	if (!comm->gone_since_ms)
		comm->gone_since_ms = now;
	if (now - comm->gone_since_ms < MPIB_PEER_GONE_GRACE_MS)
		return 0;
	if (flags & MPIB_FLAG_PEER_FAIL)
		(void)snprintf(text, sizeof(text), "the peer failed: %.300s", comm->fail_text);
	else if (flags & MPIB_FLAG_QP_FATAL)
		(void)snprintf(text, sizeof(text), "%s", comm->qp_text);
	else if (flags & MPIB_FLAG_PEER_BYE)
		(void)snprintf(text, sizeof(text),
			       "the peer closed the connection while messages were outstanding");
	else
		(void)snprintf(text, sizeof(text),
			       "the peer's process or host is gone (control connection lost %llu "
			       "ms ago)",
			       (unsigned long long)(now - comm->news_ms));
	return mpib_comm_fail(comm, -ECONNRESET, text);
}

static const char *likely_cause(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "no answer within timeout and retries: peer, cable or switch is down, or "
		       "the GID is wrong";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the peer had no receive posted";
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
		return "the peer's memory registration doesn't allow the write";
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_LEN_ERR:
		return "this end's buffer isn't covered by its registration";
	case IBV_WC_WR_FLUSH_ERR:
		return "the QP had failed before";
	default:
		return "see the status";
	}
}

int mpib_comm_bad_completion(struct mpib_comm *comm, unsigned int rail, const struct ibv_wc *wc)
{
	char text[MPIB_TEXT_MAX + 1];
	uint32_t remote = 0;

	for (unsigned int k = 0; k < comm->nqps[rail]; k++)
		if (comm->qp[rail][k] && comm->qp[rail][k]->qp_num == wc->qp_num)
			remote = comm->remote_qps.qpn[rail][k];
	(void)snprintf(text, sizeof(text), "%s rail %s, QP 0x%x to 0x%x: %s (vendor 0x%x): %s",
		       mpib_rail_name(rail), comm->dev->hca[rail].name, wc->qp_num, remote,
		       mpib_verbs_wc_text(wc->status), wc->vendor_err, likely_cause(wc->status));
	return mpib_comm_fail(comm, wc->status == IBV_WC_LOC_PROT_ERR ? -EIO : -EREMOTEIO, text);
}
