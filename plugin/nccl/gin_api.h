/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points of device-initiated communication, version-neutral, as api.h has those of net. */
#ifndef MPIB_PLUGIN_GIN_API_H
#define MPIB_PLUGIN_GIN_API_H

#include "plugin/base/nccl_gin_abi.h"
#include "plugin/gin/gin.h"

ncclResult_t mpib_gin_entry_init(void **ctx, uint64_t comm_id, ncclDebugLogger_t logger);
/* 0 where a device can't take part: NCCL then does without. */
ncclResult_t mpib_gin_entry_devices(int *ndev);
ncclResult_t mpib_gin_entry_properties_v11(int dev, struct mpib_nccl_properties_v11 *props);
ncclResult_t mpib_gin_entry_properties_v12(int dev, struct mpib_nccl_properties_v12 *props);
/* @queues: of NCCL's for each rank that the mesh itself has requests for. */
ncclResult_t mpib_gin_entry_connect(void *handles[], int nranks, int rank, int queues,
				    void *listen_comm, void **coll);
ncclResult_t mpib_gin_entry_register(void *coll, const struct mpib_gin_memory *memory, int type,
				     uint64_t flags, void **mhandle);
ncclResult_t mpib_gin_entry_deregister(void *coll, void *mhandle);
ncclResult_t mpib_gin_entry_close(void *coll);
/* How many queues of MPIB_GIN_DEPTH @contexts contexts of @depth requests are; 0 where they can't
 * be.
 * @depth 0: as long as NCCL's queues are. */
int mpib_gin_entry_queues(int contexts, int depth);
ncclResult_t mpib_gin_entry_context(void *coll, int queues, void **ctx);
ncclResult_t mpib_gin_entry_context_free(void *ctx);

/* A put, with a signal where @signals. */
struct mpib_gin_put_args {
	uint64_t src_off, dst_off;
	void *src, *dst;
	size_t size;
	uint32_t rank;
	bool signals;
	uint64_t signal_off, value;
	void *signal;
	uint32_t op; /* NCCL_NET_SIGNAL_OP_* */
};

/* @ctx of these three: a context. */
ncclResult_t mpib_gin_entry_put(void *ctx, const struct mpib_gin_put_args *args, void **request);
ncclResult_t mpib_gin_entry_get(void *ctx, uint64_t remote_off, void *remote, size_t size,
				uint64_t local_off, void *local, uint32_t rank, void **request);
ncclResult_t mpib_gin_entry_flush(void *ctx, void *mhandle, uint32_t rank, void **request);
ncclResult_t mpib_gin_entry_test(void *coll, void *request, int *done);
ncclResult_t mpib_gin_entry_progress(void *coll);
ncclResult_t mpib_gin_entry_last_error(void *coll, bool *has_error);

#endif
