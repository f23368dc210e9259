/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of device-initiated communication, and their thin adapters; nothing else. */
#include "plugin/nccl/api.h"
#include "plugin/nccl/gin_api.h"

#define EXPORT __attribute__((visibility("default")))
#define NAME   "MPIB"

static ncclResult_t connect_v11(void *ctx, void *handles[], int nranks, int rank, void *listen_comm,
				void **coll)
{
	(void)ctx;
	return mpib_gin_entry_connect(handles, nranks, rank, 1, listen_comm, coll);
}

/* Code on the device names memory by @gin_handle, and so do the puts and signals that NCCL's proxy
 * hands on for it (gin_host_proxy.cc of NCCL 2.28.9): here it is the same as @mhandle. NULL: a
 * table without it. */
static ncclResult_t register_gin(void *coll, const struct mpib_gin_memory *memory, int type,
				 uint64_t flags, void **mhandle, void **gin_handle)
{
	ncclResult_t result = mpib_gin_entry_register(coll, memory, type, flags, mhandle);

	if (gin_handle)
		*gin_handle = result == ncclSuccess ? *mhandle : NULL;
	return result;
}

static ncclResult_t register_v11(void *coll, void *data, size_t size, int type, uint64_t flags,
				 void **mhandle, void **gin_handle)
{
	const struct mpib_gin_memory memory = { .addr = data, .size = size, .fd = -1 };

	return register_gin(coll, &memory, type, flags, mhandle, gin_handle);
}

static ncclResult_t register_dmabuf_v11(void *coll, void *data, size_t size, int type,
					uint64_t offset, int fd, uint64_t flags, void **mhandle,
					void **gin_handle)
{
	const struct mpib_gin_memory memory = {
		.addr = data, .size = size, .offset = offset, .fd = fd
	};

	if (fd < 0)
		return ncclInvalidArgument;
	return register_gin(coll, &memory, type, flags, mhandle, gin_handle);
}

/* Fields of the arguments, which have the same names everywhere. */
#define PUT_ARGS                                                                                   \
	.src_off = src_off, .src = src, .size = size, .dst_off = dst_off, .dst = dst, .rank = rank
#define SIGNAL_ARGS                                                                                \
	.signals = true, .signal_off = signal_off, .signal = signal, .value = value, .op = op

static ncclResult_t put_v11(void *coll, uint64_t src_off, void *src, size_t size, uint64_t dst_off,
			    void *dst, uint32_t rank, void **request)
{
	const struct mpib_gin_put_args args = { PUT_ARGS };

	return mpib_gin_entry_put(mpib_gin_own_context(coll), &args, request);
}

static ncclResult_t put_signal_v11(void *coll, uint64_t src_off, void *src, size_t size,
				   uint64_t dst_off, void *dst, uint32_t rank, uint64_t signal_off,
				   void *signal, uint64_t value, uint32_t op, void **request)
{
	const struct mpib_gin_put_args args = { PUT_ARGS, SIGNAL_ARGS };

	return mpib_gin_entry_put(mpib_gin_own_context(coll), &args, request);
}

/* ---- v12: several connections and contexts --------------------------------------------------- */

static ncclResult_t connect_v12(void *ctx, void *handles[], int nranks, int rank, int connections,
				int depth, void *listen_comm, void **coll)
{
	const int queues =
		mpib_gin_entry_queues(connections > 0 ? connections : 1, depth > 0 ? depth : 0);

	(void)ctx;
	return queues ? mpib_gin_entry_connect(handles, nranks, rank, queues, listen_comm, coll)
		      : ncclInvalidArgument;
}

static ncclResult_t put_v12(void *coll, uint64_t src_off, void *src, size_t size, uint64_t dst_off,
			    void *dst, uint32_t rank, int connection, void **request)
{
	(void)connection;
	return put_v11(coll, src_off, src, size, dst_off, dst, rank, request);
}

static ncclResult_t put_signal_v12(void *coll, uint64_t src_off, void *src, size_t size,
				   uint64_t dst_off, void *dst, uint32_t rank, uint64_t signal_off,
				   void *signal, uint64_t value, uint32_t op, int connection,
				   void **request)
{
	(void)connection;
	return put_signal_v11(coll, src_off, src, size, dst_off, dst, rank, signal_off, signal,
			      value, op, request);
}

/* ---- contexts: of proxies, only those from v13 on are asked for them ------------------------- */

static ncclResult_t create_context_v11(void *coll, int signals, int counters, void **gin_ctx,
				       struct mpib_nccl_device_handle **device)
{
	(void)signals;
	(void)counters;
	if (device)
		*device = NULL;
	return mpib_gin_entry_context(coll, 1, gin_ctx);
}

static ncclResult_t create_context_v12(void *coll, int signals, int counters, int contexts,
				       void **gin_ctx, struct mpib_nccl_device_handle **device)
{
	(void)signals;
	(void)counters;
	if (device)
		*device = NULL;
	return mpib_gin_entry_context(coll, mpib_gin_entry_queues(contexts, 0), gin_ctx);
}

static ncclResult_t create_context_v13(void *coll, struct mpib_nccl_gin_config_v13 *config,
				       void **gin_ctx, struct mpib_nccl_device_handle **device)
{
	if (!config)
		return ncclInvalidArgument;
	if (device)
		*device = NULL;
	return mpib_gin_entry_context(
		coll,
		mpib_gin_entry_queues(config->nContexts,
				      config->queueDepth > 0 ? config->queueDepth : 0),
		gin_ctx);
}

static ncclResult_t create_context_v14(void *coll, struct mpib_nccl_rma_config_v14 *config,
				       void **rma_ctx)
{
	return config ? mpib_gin_entry_context(coll, mpib_gin_entry_queues(config->nContexts, 0),
					       rma_ctx)
		      : ncclInvalidArgument;
}

/* Asked with the mesh up to v12, and with a context from v13 on. */
static ncclResult_t progress_v13(void *ctx)
{
	return mpib_gin_entry_progress(mpib_gin_of(ctx));
}

static ncclResult_t last_error(void *ctx, bool *has_error)
{
	return mpib_gin_entry_last_error(mpib_gin_of(ctx), has_error);
}

/* ---- v13: contexts in the place of the mesh, and gets ---------------------------------------- */

static ncclResult_t put_v13(void *ctx, int context, uint64_t src_off, void *src, size_t size,
			    uint64_t dst_off, void *dst, uint32_t rank, void **request)
{
	const struct mpib_gin_put_args args = { PUT_ARGS };

	(void)context;
	return mpib_gin_entry_put(ctx, &args, request);
}

static ncclResult_t put_signal_v13(void *ctx, int context, uint64_t src_off, void *src, size_t size,
				   uint64_t dst_off, void *dst, uint32_t rank, uint64_t signal_off,
				   void *signal, uint64_t value, uint32_t op, void **request)
{
	const struct mpib_gin_put_args args = { PUT_ARGS, SIGNAL_ARGS };

	(void)context;
	return mpib_gin_entry_put(ctx, &args, request);
}

static ncclResult_t get_v13(void *ctx, int context, uint64_t remote_off, void *remote, size_t size,
			    uint64_t local_off, void *local, uint32_t rank, void **request)
{
	(void)context;
	return mpib_gin_entry_get(ctx, remote_off, remote, size, local_off, local, rank, request);
}

static ncclResult_t flush_v13(void *ctx, int context, void *mhandle, uint32_t rank, void **request)
{
	(void)context;
	return mpib_gin_entry_flush(ctx, mhandle, rank, request);
}

/* ---- RMA: the same for puts from the host. Every signal is strong: of a put that NCCL cuts, and
 * of one with a signal of its own, it gives the signal apart, marked as the user marked it.
 * ---------- */

static ncclResult_t register_v14(void *coll, void *data, size_t size, int type, uint64_t flags,
				 void **mhandle)
{
	return register_v11(coll, data, size, type, flags, mhandle, NULL);
}

static ncclResult_t register_dmabuf_v14(void *coll, void *data, size_t size, int type,
					uint64_t offset, int fd, uint64_t flags, void **mhandle)
{
	return register_dmabuf_v11(coll, data, size, type, offset, fd, flags, mhandle, NULL);
}

static ncclResult_t put_signal_v14(void *ctx, int context, uint64_t src_off, void *src, size_t size,
				   uint64_t dst_off, void *dst, uint32_t rank, uint64_t signal_off,
				   void *signal, uint64_t value, uint32_t op, bool strong,
				   void **request)
{
	(void)strong;
	return put_signal_v13(ctx, context, src_off, src, size, dst_off, dst, rank, signal_off,
			      signal, value, op, request);
}

static ncclResult_t put_v15(void *ctx, int context, uint64_t src_off, void *src, size_t size,
			    uint64_t dst_off, void *dst, uint32_t rank, uint32_t flags,
			    void **request)
{
	(void)flags;
	return put_v13(ctx, context, src_off, src, size, dst_off, dst, rank, request);
}

static ncclResult_t put_signal_v15(void *ctx, int context, uint64_t src_off, void *src, size_t size,
				   uint64_t dst_off, void *dst, uint32_t rank, uint64_t signal_off,
				   void *signal, uint64_t value, uint32_t op, bool strong,
				   uint32_t flags, void **request)
{
	(void)flags;
	return put_signal_v14(ctx, context, src_off, src, size, dst_off, dst, rank, signal_off,
			      signal, value, op, strong, request);
}

static ncclResult_t get_v15(void *ctx, int context, uint64_t remote_off, void *remote, size_t size,
			    uint64_t local_off, void *local, uint32_t rank, uint32_t flags,
			    void **request)
{
	(void)flags;
	return get_v13(ctx, context, remote_off, remote, size, local_off, local, rank, request);
}

/* ---- the tables ------------------------------------------------------------------------------ */

/* Fields that are the same in every version; ISO C has no way to say it but a macro. */
#define COMMON_FIELDS                                                                              \
	.name = NAME, .init = mpib_gin_entry_init, .devices = mpib_gin_entry_devices,              \
	.listen = mpib_entry_listen, .deregMrSym = mpib_gin_entry_deregister,                      \
	.destroyContext = mpib_gin_entry_context_free, .closeColl = mpib_gin_entry_close,          \
	.closeListen = mpib_entry_close_listen, .test = mpib_gin_entry_test,                       \
	.queryLastError = last_error, .finalize = mpib_entry_finalize
#define PUTS(version) .iput = put_##version, .iputSignal = put_signal_##version
#define GIN_FIELDS    COMMON_FIELDS, .regMrSym = register_v11, .regMrSymDmaBuf = register_dmabuf_v11
#define RMA_FIELDS                                                                                 \
	COMMON_FIELDS, .getProperties = mpib_gin_entry_properties_v12, .connect = connect_v11,     \
		       .createContext = create_context_v14, .regMrSym = register_v14,              \
		       .regMrSymDmaBuf = register_dmabuf_v14, .iflush = flush_v13,                 \
		       .rmaProgress = progress_v13

EXPORT const struct mpib_nccl_gin_v11 ncclGinPlugin_v11 = {
	GIN_FIELDS,
	.getProperties = mpib_gin_entry_properties_v11,
	.connect = connect_v11,
	.createContext = create_context_v11,
	.ginProgress = mpib_gin_entry_progress,
	PUTS(v11),
};

EXPORT const struct mpib_nccl_gin_v12 ncclGinPlugin_v12 = {
	GIN_FIELDS,
	.getProperties = mpib_gin_entry_properties_v11,
	.connect = connect_v12,
	.createContext = create_context_v12,
	.ginProgress = mpib_gin_entry_progress,
	PUTS(v12),
};

EXPORT const struct mpib_nccl_gin_v13 ncclGinPlugin_v13 = {
	GIN_FIELDS,
	.getProperties = mpib_gin_entry_properties_v12,
	.connect = connect_v11,
	.createContext = create_context_v13,
	.ginProgress = progress_v13,
	PUTS(v13),
	.iget = get_v13,
	.iflush = flush_v13,
};

EXPORT const struct mpib_nccl_rma_v14 ncclRmaPlugin_v14 = {
	RMA_FIELDS,
	.iput = put_v13,
	.iputSignal = put_signal_v14,
	.iget = get_v13,
};

EXPORT const struct mpib_nccl_rma_v15 ncclRmaPlugin_v15 = {
	RMA_FIELDS,
	PUTS(v15),
	.iget = get_v15,
};
