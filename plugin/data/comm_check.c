/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/data/comm_check.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "plugin/connection/news.h"
#include "plugin/data/comm_error.h"
#include "plugin/data/rail_loss.h"
#include "plugin/verbs/async.h"

static int device_lost(struct mpib_comm *comm)
{
	char text[MPIB_TEXT_MAX + 1] = "a device is lost";

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		const struct mpib_hca *hca = &comm->dev->hca[rail];

		if (comm->data_mask & mpib_rail_bit(rail) &&
		    atomic_load_explicit(&hca->fatal, memory_order_acquire))
			(void)snprintf(text, sizeof(text), "%s rail %s: the device is lost: %s",
				       mpib_rail_name(rail), hca->name, hca->lost_text);
	}
	return mpib_comm_fail_as(comm, -EIO, MPIB_FAIL_DEVICE, text);
}

/* What the helper thread has, or would have, told by now. */
static unsigned int look(struct mpib_comm *comm)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (comm->data_mask & mpib_rail_bit(rail))
			mpib_async_look(&comm->dev->hca[rail]);
	return atomic_load_explicit(&comm->flags, memory_order_acquire);
}

int mpib_comm_verb_failed(struct mpib_comm *comm, const char *text)
{
	if (comm->error)
		return comm->error;
	return look(comm) & MPIB_FLAG_DEVICE_FATAL ? device_lost(comm)
						   : mpib_comm_fail(comm, -EIO, text);
}

__attribute__((cold)) int mpib_comm_post_failed(struct mpib_comm *comm, unsigned int rail,
						const char *what, int r)
{
	char text[160];

	if (mpib_rail_failed(comm, rail, IBV_WC_GENERAL_ERR))
		return 0;
	(void)snprintf(text, sizeof(text), "%s rail %s: %s: %s", mpib_rail_name(rail),
		       comm->dev->hca[rail].name, what, strerror(r < 0 ? -r : r));
	return mpib_comm_verb_failed(comm, text);
}

static int peer_failed(struct mpib_comm *comm)
{
	char text[MPIB_TEXT_MAX + 1];

	(void)snprintf(text, sizeof(text), "the peer failed: %.300s", comm->fail_text);
	return mpib_comm_fail(comm, comm->fail_device ? -EIO : -ECONNRESET, text);
}

/* True once, where the peer's BYE tells that all rows that were posted have arrived: their requests
 * are done from here on, whatever becomes of the acknowledgements, and no rail is polled any more.
 * What was not posted stays as it is, and further sends are for mpib_comm_check. */
static bool all_arrived(struct mpib_comm *comm)
{
	unsigned int flags = atomic_load_explicit(&comm->flags, memory_order_acquire);
	bool out[MPIB_REQUESTS_MAX];

	if (!(flags & MPIB_FLAG_PEER_ROWS) || comm->bye_rows != comm->send.head || comm->error ||
	    comm->busy & MPIB_BUSY_CLOSED)
		return false;
	memset(out, true, sizeof(out));
	for (const struct mpib_request *req = comm->pool.free; req; req = req->mate)
		out[req->index] = false;
	if (comm->send.group.left) /* being collected, in the row that comes next */
		for (const struct mpib_request *req = comm->send.group.head; req; req = req->mate)
			out[req->index] = false;
	for (unsigned int k = 0; k < MPIB_REQUESTS_MAX; k++) {
		struct mpib_request *req = &comm->pool.requests[k];

		if (!out[k])
			continue;
		req->remaining = 0;
		req->rails = req->elsewhere = req->pending = 0;
	}
	comm->polled[MPIB_SOUT] = comm->polled[MPIB_SUP] = 0;
	comm->send.group.left = 0;
	comm->busy = MPIB_BUSY_CLOSED;
	return true;
}

int mpib_comm_check(struct mpib_comm *comm)
{
	unsigned int flags = atomic_load_explicit(&comm->flags, memory_order_acquire);
	char text[MPIB_TEXT_MAX + 1];
	uint64_t now;

	if (comm->error)
		return comm->error;
	if (flags & MPIB_FLAG_LOOK) {
		int r = mpib_stall_look(comm);

		if (r < 0)
			return r;
		flags = atomic_load_explicit(&comm->flags, memory_order_acquire);
	}
	if (flags & MPIB_FLAG_RAIL) {
		int r = mpib_rails_step(comm);

		if (r < 0)
			return r;
		flags = atomic_load_explicit(&comm->flags, memory_order_acquire);
	}
	flags &= ~(unsigned int)(MPIB_FLAG_RAIL | MPIB_FLAG_LOOK);
	if (!flags)
		return 0;
	/* BYE may tell that all is done, whatever happened since. */
	if (comm->kind == MPIB_COUNTER_SEND && all_arrived(comm))
		return 0;
	if (flags & MPIB_FLAG_DEVICE_FATAL)
		return device_lost(comm);

	now = mpib_now_ms();
	if (!comm->gone_since_ms)
		comm->gone_since_ms = now;
	if (now - comm->gone_since_ms < MPIB_PEER_GONE_GRACE_MS)
		return 0;
	if (flags & MPIB_FLAG_PEER_FAIL)
		return peer_failed(comm);
	if (flags & MPIB_FLAG_QP_FATAL)
		(void)snprintf(text, sizeof(text), "%s", comm->qp_text);
	else if (flags & MPIB_FLAG_FLUSHED)
		return mpib_comm_fail(comm, -EREMOTEIO, comm->flush_text);
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

/* What a peer that has failed and gives its memory back, or has lost its device, leaves to see. */
static bool is_consequence(enum ibv_wc_status status)
{
	return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
	       status == IBV_WC_REM_OP_ERR || status == IBV_WC_RETRY_EXC_ERR ||
	       status == IBV_WC_WR_FLUSH_ERR;
}

int mpib_comm_bad_completion(struct mpib_comm *comm, unsigned int rail, const struct ibv_wc *wc)
{
	char text[sizeof(comm->flush_text)];
	uint32_t remote = 0;
	bool closed = mpib_comm_peer_closed(comm); /* or has failed: both are read */
	unsigned int flags;

	if (comm->kind == MPIB_COUNTER_SEND && closed && all_arrived(comm))
		return -ECONNRESET; /* of nothing that anybody waits for */
	if (comm->error)
		return comm->error;
	flags = look(comm);
	if (flags & MPIB_FLAG_DEVICE_FATAL)
		return device_lost(comm);
	if (mpib_rail_failed(comm, rail, wc->status))
		return 0;
	if (is_consequence(wc->status) && flags & MPIB_FLAG_PEER_FAIL)
		return peer_failed(comm);
	for (unsigned int k = 0; k < comm->nqps[rail]; k++)
		if (comm->qp[rail][k] && comm->qp[rail][k]->qp_num == wc->qp_num)
			remote = comm->remote_qps.qpn[rail][k];
	(void)snprintf(text, sizeof(text), "%s rail %s, QP 0x%x to 0x%x: %s (vendor 0x%x): %s",
		       mpib_rail_name(rail), comm->dev->hca[rail].name, wc->qp_num, remote,
		       mpib_verbs_wc_text(wc->status), wc->vendor_err, likely_cause(wc->status));
	if (wc->status != IBV_WC_WR_FLUSH_ERR)
		return mpib_comm_fail(comm, wc->status == IBV_WC_LOC_PROT_ERR ? -EIO : -EREMOTEIO,
				      text);
	if (flags & MPIB_FLAG_QP_FATAL)
		return mpib_comm_fail(comm, -EREMOTEIO, comm->qp_text);
	/* Only a failure flushes, and this end has seen none: an event is on its way. */
	if (!(flags & MPIB_FLAG_FLUSHED)) {
		memcpy(comm->flush_text, text, sizeof(text));
		(void)atomic_fetch_or_explicit(&comm->flags, MPIB_FLAG_FLUSHED,
					       memory_order_relaxed);
	}
	return 0;
}
