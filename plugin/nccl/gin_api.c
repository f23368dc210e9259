/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/nccl/gin_api.h"

#include <errno.h>
#include <string.h>

#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/base/watch.h"
#include "plugin/nccl/api.h"
#include "plugin/verbs/device.h"

/* A put of this size is one call; NCCL's kernels cut larger ones. */
#define MAX_BYTES    ((size_t)1 << 30)
#define CONTEXTS_MAX 1024
#define DEPTH_MAX    4096

static ncclResult_t explained(const char *call, int r)
{
	if (r < 0)
		(void)mpib_log_explain(call, r);
	return mpib_result(r);
}

/* A fork's copy: the kernel's objects behind it are the parent's. */
static bool is_child(void)
{
	return !mpib_watch_is_owner();
}

ncclResult_t mpib_gin_entry_init(void **ctx, uint64_t comm_id, ncclDebugLogger_t logger)
{
	(void)comm_id;
	return mpib_entry_init(ctx, NULL, logger);
}

ncclResult_t mpib_gin_entry_devices(int *ndev)
{
	ncclResult_t result = mpib_entry_devices(ndev);

	/* NCCL takes the same numbers for these devices as for those of the net table. */
	for (int k = 0; result == ncclSuccess && k < *ndev; k++)
		if (mpib_gin_supported(mpib_device_get(k)) < 0)
			*ndev = 0;
	return result;
}

static void fill(struct mpib_nccl_properties_v12 *props, const struct mpib_properties *p, int dev)
{
	memset(props, 0, sizeof(*props));
	props->name = p->name;
	props->pciPath = p->pci_path;
	props->guid = p->guid;
	props->ptrSupport = p->ptr_support;
	props->speed = p->speed_mbps;
	props->port = p->port;
	props->maxComms = p->max_comms;
	props->maxRecvs = 1; /* NCCL's queues are 32 times as long: MPIB_GIN_DEPTH */
	props->netDeviceType = NCCL_NET_DEVICE_GIN_PROXY;
	props->netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION;
	props->vProps.ndevs = 1;
	props->vProps.devs[0] = dev;
	props->maxP2pBytes = MAX_BYTES;
	props->maxCollBytes = MAX_BYTES;
	props->maxMultiRequestSize = 1;
	props->railId = (int16_t)dev;
	props->planeId = NCCL_NET_ID_UNDEF;
}

ncclResult_t mpib_gin_entry_properties_v12(int dev, struct mpib_nccl_properties_v12 *props)
{
	struct mpib_properties p;
	ncclResult_t result = mpib_entry_properties(dev, &p);

	if (result != ncclSuccess || !props)
		return result == ncclSuccess ? ncclInvalidArgument : result;
	fill(props, &p, dev);
	return ncclSuccess;
}

ncclResult_t mpib_gin_entry_properties_v11(int dev, struct mpib_nccl_properties_v11 *props)
{
	struct mpib_nccl_properties_v12 wide;
	ncclResult_t result = mpib_gin_entry_properties_v12(dev, &wide);

	if (result != ncclSuccess || !props)
		return result == ncclSuccess ? ncclInvalidArgument : result;
	memset(props, 0, sizeof(*props));
	props->name = wide.name;
	props->pciPath = wide.pciPath;
	props->guid = wide.guid;
	props->ptrSupport = wide.ptrSupport;
	props->speed = wide.speed;
	props->port = wide.port;
	props->maxComms = wide.maxComms;
	props->maxRecvs = wide.maxRecvs;
	props->netDeviceType = wide.netDeviceType;
	props->netDeviceVersion = wide.netDeviceVersion;
	props->vProps.ndevs = 1;
	props->vProps.devs[0] = dev;
	props->maxP2pBytes = wide.maxP2pBytes;
	props->maxCollBytes = wide.maxCollBytes;
	props->maxMultiRequestSize = wide.maxMultiRequestSize;
	return ncclSuccess;
}

ncclResult_t mpib_gin_entry_connect(void *handles[], int nranks, int rank, int queues,
				    void *listen_comm, void **coll)
{
	struct mpib_gin *gin = NULL;
	int r;

	if (!handles || !listen_comm || !coll || queues < 1 || is_child())
		return ncclInvalidArgument;
	mpib_log_forget();
	r = mpib_gin_connect(listen_comm, handles, nranks, rank, queues, &gin);
	*coll = gin;
	return explained("set-up of device-initiated communication", r);
}

ncclResult_t mpib_gin_entry_register(void *coll, const struct mpib_gin_memory *memory, int type,
				     uint64_t flags, void **mhandle)
{
	struct mpib_gin_window *window = NULL;
	struct mpib_gin_memory exact = *memory;
	int r;

	if (!coll || !mhandle || is_child() || (type != NCCL_PTR_HOST && type != NCCL_PTR_CUDA))
		return ncclInvalidArgument;
	exact.strict = flags & NCCL_NET_MR_FLAG_FORCE_SO;
	exact.device = type == NCCL_PTR_CUDA;
	mpib_log_forget();
	r = mpib_gin_register(coll, &exact, &window);
	*mhandle = window;
	return explained("memory can't be registered", r);
}

ncclResult_t mpib_gin_entry_deregister(void *coll, void *mhandle)
{
	return !coll || mpib_entry_is_gone() ? ncclSuccess
					     : mpib_result(mpib_gin_deregister(coll, mhandle));
}

ncclResult_t mpib_gin_entry_close(void *coll)
{
	if (!mpib_entry_is_gone())
		mpib_gin_close(coll);
	return ncclSuccess;
}

int mpib_gin_entry_queues(int contexts, int depth)
{
	const int each = (depth + (int)MPIB_GIN_DEPTH - 1) / (int)MPIB_GIN_DEPTH;

	if (contexts < 1 || contexts > CONTEXTS_MAX || depth < 0 || depth > DEPTH_MAX) {
		MPIB_WARN("%d contexts of %d requests: only up to %d of %d can be", contexts, depth,
			  CONTEXTS_MAX, DEPTH_MAX);
		return 0;
	}
	return contexts * (each ? each : 1);
}

ncclResult_t mpib_gin_entry_context(void *coll, int queues, void **ctx)
{
	struct mpib_gin_context *context;
	int r;

	if (!coll || !ctx || queues < 1)
		return ncclInvalidArgument;
	mpib_log_forget();
	r = mpib_gin_context_new(coll, queues, &context);
	*ctx = context;
	return explained("a context of device-initiated communication", r);
}

ncclResult_t mpib_gin_entry_context_free(void *ctx)
{
	if (!mpib_entry_is_gone())
		mpib_gin_context_free(ctx);
	return ncclSuccess;
}

static ncclResult_t unknown_op(uint32_t op)
{
	MPIB_WARN("signal operation %u is unknown: only INC (%u) and ADD (%u) are", op,
		  NCCL_NET_SIGNAL_OP_INC, NCCL_NET_SIGNAL_OP_ADD);
	return ncclInvalidArgument;
}

ncclResult_t mpib_gin_entry_put(void *ctx, const struct mpib_gin_put_args *args, void **request)
{
	const struct mpib_gin_at from = { args->src, args->src_off };
	const struct mpib_gin_at to = { args->dst, args->dst_off };
	const struct mpib_gin_at signal = { args->signal, args->signal_off };
	struct mpib_gin_request **ret = (struct mpib_gin_request **)request;

	if (!args->signals)
		return mpib_result(mpib_gin_put(ctx, from, args->size, to, args->rank, ret));
	if (args->op != NCCL_NET_SIGNAL_OP_INC && args->op != NCCL_NET_SIGNAL_OP_ADD)
		return unknown_op(args->op);
	return mpib_result(mpib_gin_put_signal(ctx, from, args->size, to, args->rank, signal,
					       args->op == NCCL_NET_SIGNAL_OP_INC ? 1 : args->value,
					       ret));
}

ncclResult_t mpib_gin_entry_get(void *ctx, uint64_t remote_off, void *remote, size_t size,
				uint64_t local_off, void *local, uint32_t rank, void **request)
{
	return mpib_result(mpib_gin_get(ctx, (struct mpib_gin_at){ remote, remote_off }, size,
					(struct mpib_gin_at){ local, local_off }, rank,
					(struct mpib_gin_request **)request));
}

ncclResult_t mpib_gin_entry_flush(void *ctx, void *mhandle, uint32_t rank, void **request)
{
	return mpib_result(mpib_gin_flush(ctx, mhandle, rank, (struct mpib_gin_request **)request));
}

ncclResult_t mpib_gin_entry_test(void *coll, void *request, int *done)
{
	*done = mpib_gin_test(coll, request);
	return ncclSuccess;
}

ncclResult_t mpib_gin_entry_progress(void *coll)
{
	mpib_gin_progress(coll);
	return ncclSuccess;
}

ncclResult_t mpib_gin_entry_last_error(void *coll, bool *has_error)
{
	*has_error = mpib_gin_failed(coll);
	return ncclSuccess;
}
