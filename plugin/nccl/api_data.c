/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points of the data path. The usual message is handled right here, in a function that
 * saves few registers; what is unusual is in functions of its own, whose results are translated
 * there. */
#include "plugin/nccl/api.h"

#include "plugin/base/result.h"
#include "plugin/data/flush.h"
#include "plugin/data/recv.h"
#include "plugin/data/send_group.h"

static __attribute__((noinline)) ncclResult_t isend_not_now(struct mpib_send_comm *send)
{
	return mpib_result(mpib_send_not_now(send));
}

static __attribute__((noinline)) ncclResult_t isend_odd(struct mpib_send_comm *send, void *data,
							size_t size, int tag, void *mr,
							struct mpib_request **ret)
{
	return mpib_result(mpib_isend_odd(send, data, size, tag, mr, ret));
}

static __attribute__((noinline)) ncclResult_t isend_group_odd(struct mpib_send_comm *send,
							      void *data, size_t size, int tag,
							      void *mr, struct mpib_request **ret)
{
	return mpib_result(mpib_isend_group(send, data, size, tag, mr, ret));
}

static __attribute__((noinline)) ncclResult_t isend_group(struct mpib_send_comm *send, void *data,
							  size_t size, int tag, void *mr,
							  struct mpib_request **ret)
{
	unsigned int k;
	uint32_t share;

	if (mpib_unlikely(!mpib_group_usual(send, size, (uint32_t)tag, mr, &k, &share)))
		return isend_group_odd(send, data, size, tag, mr, ret);
	return mpib_result(mpib_group_add(send, k, share, data, size, mr, ret));
}

static __attribute__((noinline)) ncclResult_t isend_alone(struct mpib_send_comm *send, void *data,
							  size_t size, int tag, void *mr,
							  struct mpib_request **ret)
{
	uint32_t share, head = send->head;
	const struct mpib_cts *cts = send->cts[head % MPIB_ROWS].element;

	if (mpib_cts_seq(cts) != head + 1)
		return isend_not_now(send);
	if (mpib_unlikely(cts->count != 1))
		return isend_group_odd(send, data, size, tag, mr, ret);
	if (mpib_unlikely(cts->tag != (uint32_t)tag))
		return isend_not_now(send);
	if (mpib_unlikely(!mpib_send_usual(send, cts, size, mr, &share)))
		return isend_odd(send, data, size, tag, mr, ret);
	return mpib_result(mpib_isend_one(send, cts, head, share, data, size, mr, ret));
}

ncclResult_t mpib_api_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle,
			    void **request)
{
	struct mpib_send_comm *send = mpib_send_comm(send_comm);
	struct mpib_request **ret = (struct mpib_request **)request;

	*ret = NULL;
	/* An error, a group that is being collected, or one that waits for the send queues. */
	if (send->base.busy)
		return isend_group(send, data, size, tag, mhandle, ret);
	return isend_alone(send, data, size, tag, mhandle, ret);
}

static __attribute__((noinline)) ncclResult_t irecv_row(struct mpib_recv_comm *recv, int n,
							void **data, const size_t *sizes,
							const int *tags, struct mpib_mr **mrs,
							struct mpib_request **ret)
{
	return mpib_result(mpib_irecv_row(recv, n, data, sizes, tags, mrs, ret));
}

ncclResult_t mpib_api_irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
			    void **mhandles, void **request)
{
	struct mpib_recv_comm *recv = mpib_recv_comm(recv_comm);
	struct mpib_mr **mrs = (struct mpib_mr **)mhandles;
	struct mpib_request **ret = (struct mpib_request **)request;

	*ret = NULL;
	if (mpib_unlikely(n != 1 || !mpib_recv_usual(recv, mrs[0])))
		return irecv_row(recv, n, data, sizes, tags, mrs, ret);
	return mpib_result(mpib_irecv_one(recv, data[0], sizes[0], tags[0], mrs[0], ret));
}

ncclResult_t mpib_api_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhandles,
			     void **request)
{
	return mpib_result(mpib_iflush(recv_comm, n, data, sizes, (struct mpib_mr **)mhandles,
				       (struct mpib_request **)request));
}

/* Apart from mpib_api_test, which then has nothing to save. */
static __attribute__((noinline)) ncclResult_t test_pending(struct mpib_request *req, int *done,
							   int *sizes)
{
	return mpib_result(mpib_test_pending(req, done, sizes));
}

ncclResult_t mpib_api_test(void *request, int *done, int *sizes)
{
	struct mpib_request *req = request;

	*done = 0;
	if (req->remaining)
		return test_pending(req, done, sizes);
	return mpib_result(mpib_test_done(req, done, sizes));
}
