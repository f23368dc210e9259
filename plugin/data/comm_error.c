/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/data/comm_error.h"

#include "plugin/base/log.h"
#include "plugin/base/watch.h"

int mpib_comm_fail_as(struct mpib_comm *comm, int error, enum mpib_fail_kind kind, const char *text)
{
	uint8_t payload[MPIB_FRAME_PAYLOAD_MAX];

	if (comm->error)
		return comm->error;

	comm->error = error;
	comm->busy |= MPIB_BUSY_FAILED;
	MPIB_WARN("%s %s: %s", comm->kind == MPIB_COUNTER_SEND ? "send to" : "receive from",
		  comm->peer_text, text);
	/* A rail's own thread may have something to say, too. */
	mpib_watch_lock();
	mpib_ctl_send_last(&comm->ctl, MPIB_FRAME_FAIL, payload,
			   mpib_fail_encode(payload, kind, text));
	mpib_watch_unlock();
	return error;
}

int mpib_comm_fail(struct mpib_comm *comm, int error, const char *text)
{
	return mpib_comm_fail_as(comm, error, MPIB_FAIL_OTHER, text);
}
