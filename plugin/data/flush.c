/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/data/flush.h"

#include <errno.h>

#include "plugin/base/result.h"
#include "plugin/data/comm_check.h"
#include "plugin/data/comm_error.h"

static int post_read(struct mpib_comm *comm, unsigned int rail, void *from,
		     const struct mpib_mr *mr, const struct mpib_request *req)
{
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)comm->recv.flush_scratch,
		.length = 1,
		.lkey = comm->ring_mr->lkey[rail],
	};
	struct ibv_send_wr wr = {
		.wr_id = req->index,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = (uint64_t)(uintptr_t)from,
		.wr.rdma.rkey = mr->rkey[rail],
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(comm->recv.flush_qp[rail], &wr, &bad);
}

static int flush(struct mpib_comm *comm, int n, void **data, const int *sizes, struct mpib_mr **mrs,
		 struct mpib_request **ret)
{
	/* What a rail that is lost has brought was written before its queue pairs went to ERR, and
	 * is in its place: docs/failover.md. */
	const unsigned int rails = comm->recv.carried & comm->use_mask;
	struct mpib_request *req;
	int last = -1;

	*ret = NULL;
	if (comm->error)
		return comm->error;
	for (int k = 0; k < n; k++)
		if (sizes[k] > 0)
			last = k;
	if (last < 0 || !rails ||
	    !comm->recv.flush_qp[rails & mpib_rail_bit(MPIB_SOUT) ? MPIB_SOUT : MPIB_SUP])
		return 0;

	req = mpib_request_get(&comm->pool);
	if (!req)
		return mpib_comm_fail(comm, -EIO, "no request is left for a flush");
	req->count = 0;
	req->imm = 0;
	req->remaining = rails * MPIB_REMAINING_ONE;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r;

		if (!(rails & mpib_rail_bit(rail)))
			continue;
		r = post_read(comm, rail, data[last], mrs[last], req);
		if (!r)
			continue;
		r = mpib_comm_post_failed(comm, rail, "a flush can't be posted", r);
		if (r < 0)
			return r;
		/* The rail is lost by that; what the other one has brought is still waited for. */
		req->remaining &= ~(mpib_rail_bit(rail) * MPIB_REMAINING_ONE);
	}
	/* The read is local: that the peer went, before, says nothing against it. */
	comm->gone_since_ms = 0;
	comm->counters->flushes++;
	*ret = req;
	return 0;
}

ncclResult_t mpib_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhandles,
			 void **request)
{
	return mpib_result(flush(recv_comm, n, data, sizes, (struct mpib_mr **)mhandles,
				 (struct mpib_request **)request));
}
