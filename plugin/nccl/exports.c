/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that NCCL looks up, and their thin adapters; nothing else. makeVDevice stays NULL and
 * vProps name one device: NCCL 2.24 to 2.26 fail or loop on a refusing function, and 2.29.2 to
 * 2.30.4 switch features off for a plugin that reports two. */
#include <string.h>

#include "plugin/data/flush.h"
#include "plugin/data/progress.h"
#include "plugin/data/recv.h"
#include "plugin/data/send.h"
#include "plugin/nccl/api.h"

#define EXPORT __attribute__((visibility("default")))
#define NAME   "MPIB"

/* ---- init ----------------------------------------------------------------------------------- */

static ncclResult_t init_v6(ncclDebugLogger_t logger)
{
	return mpib_entry_init_legacy(logger);
}

static ncclResult_t init_v10(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
	(void)profiler;
	return mpib_entry_init_legacy(logger);
}

static ncclResult_t init_v11(void **ctx, uint64_t comm_id, struct mpib_nccl_config *config,
			     ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
	(void)comm_id;
	(void)profiler;
	return mpib_entry_init(ctx, config, logger);
}

/* ---- properties ----------------------------------------------------------------------------- */

/* Fields that every version has, by name: their places differ. */
#define FILL_COMMON(props, p)                                                                      \
	do {                                                                                       \
		memset(props, 0, sizeof(*(props)));                                                \
		(props)->name = (p).name;                                                          \
		(props)->pciPath = (p).pci_path;                                                   \
		(props)->guid = (p).guid;                                                          \
		(props)->ptrSupport = (p).ptr_support;                                             \
		(props)->speed = (p).speed_mbps;                                                   \
		(props)->port = (p).port;                                                          \
		(props)->maxComms = (p).max_comms;                                                 \
		(props)->maxRecvs = (p).max_recvs;                                                 \
	} while (0)

#define FILL_SINCE_V7(props)                                                                       \
	do {                                                                                       \
		(props)->netDeviceType = NCCL_NET_DEVICE_HOST;                                     \
		(props)->netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION;                       \
	} while (0)

#define FILL_SINCE_V9(props, p, dev)                                                               \
	do {                                                                                       \
		(props)->vProps.ndevs = 1;                                                         \
		(props)->vProps.devs[0] = dev;                                                     \
		(props)->maxP2pBytes = (p).max_bytes;                                              \
		(props)->maxCollBytes = (p).max_bytes;                                             \
	} while (0)

#define GET_PROPERTIES(version, fill)                                                              \
	static ncclResult_t get_properties_v##version(                                             \
		int dev, struct mpib_nccl_properties_v##version *props)                            \
	{                                                                                          \
		struct mpib_properties p;                                                          \
		ncclResult_t result;                                                               \
                                                                                                   \
		if (!props)                                                                        \
			return ncclInvalidArgument;                                                \
		result = mpib_entry_properties(dev, &p);                                           \
		if (result != ncclSuccess)                                                         \
			return result;                                                             \
		FILL_COMMON(props, p);                                                             \
		fill;                                                                              \
		return ncclSuccess;                                                                \
	}

GET_PROPERTIES(7, FILL_SINCE_V7(props))
GET_PROPERTIES(8, FILL_SINCE_V7(props))
GET_PROPERTIES(9, FILL_SINCE_V7(props); FILL_SINCE_V9(props, p, dev))
GET_PROPERTIES(11, FILL_SINCE_V7(props); FILL_SINCE_V9(props, p, dev);
	       props->maxMultiRequestSize = 1)
GET_PROPERTIES(12, FILL_SINCE_V7(props); FILL_SINCE_V9(props, p, dev);
	       props->maxMultiRequestSize = 1; props->railId = (int16_t)dev;
	       props->planeId = NCCL_NET_ID_UNDEF)

/* ---- connections ---------------------------------------------------------------------------- */

static ncclResult_t listen_v6(int dev, void *handle, void **listen_comm)
{
	return mpib_entry_listen(NULL, dev, handle, listen_comm);
}

static ncclResult_t connect_v7(int dev, void *handle, void **send_comm,
			       struct mpib_nccl_device_handle **device)
{
	(void)device;
	return mpib_entry_connect(dev, NCCL_NET_TRAFFIC_CLASS_UNDEF, handle, send_comm);
}

static ncclResult_t connect_v10(int dev, struct mpib_nccl_config *config, void *handle,
				void **send_comm, struct mpib_nccl_device_handle **device)
{
	(void)device;
	return mpib_entry_connect(dev, config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF,
				  handle, send_comm);
}

static ncclResult_t connect_v11(void *ctx, int dev, void *handle, void **send_comm,
				struct mpib_nccl_device_handle **device)
{
	(void)device;
	return mpib_entry_connect(dev, mpib_entry_traffic_class(ctx), handle, send_comm);
}

static ncclResult_t accept_v7(void *listen_comm, void **recv_comm,
			      struct mpib_nccl_device_handle **device)
{
	(void)device;
	return mpib_entry_accept(listen_comm, recv_comm);
}

/* ---- memory and messages -------------------------------------------------------------------- */

static ncclResult_t reg_mr_v6(void *comm, void *data, int size, int type, void **mhandle)
{
	if (size < 0)
		return ncclInvalidArgument;
	return mpib_entry_reg_mr(comm, data, (size_t)size, type, mhandle);
}

static ncclResult_t isend_v6(void *comm, void *data, int size, int tag, void *mhandle,
			     void **request)
{
	if (size < 0)
		return ncclInvalidArgument;
	return mpib_isend(comm, data, (size_t)size, tag, mhandle, request);
}

static ncclResult_t isend_v10(void *comm, void *data, size_t size, int tag, void *mhandle,
			      void *phandle, void **request)
{
	(void)phandle;
	return mpib_isend(comm, data, size, tag, mhandle, request);
}

static ncclResult_t irecv_v6(void *comm, int n, void **data, int *sizes, int *tags, void **mhandles,
			     void **request)
{
	size_t wide[8];

	if (n < 1 || n > (int)(sizeof(wide) / sizeof(wide[0])))
		return ncclInvalidArgument;
	for (int k = 0; k < n; k++) {
		if (sizes[k] < 0)
			return ncclInvalidArgument;
		wide[k] = (size_t)sizes[k];
	}
	return mpib_irecv(comm, n, data, wide, tags, mhandles, request);
}

static ncclResult_t irecv_v10(void *comm, int n, void **data, size_t *sizes, int *tags,
			      void **mhandles, void **phandles, void **request)
{
	(void)phandles;
	return mpib_irecv(comm, n, data, sizes, tags, mhandles, request);
}

/* ---- tables --------------------------------------------------------------------------------- */

/* Fields that are the same in every version; ISO C has no way to say it but a macro. */
#define COMMON_FIELDS                                                                              \
	.name = NAME, .devices = mpib_entry_devices, .accept = accept_v7,                          \
	.regMrDmaBuf = mpib_entry_reg_mr_dmabuf, .deregMr = mpib_entry_dereg_mr,                   \
	.iflush = mpib_iflush, .test = mpib_test, .closeSend = mpib_entry_close,                   \
	.closeRecv = mpib_entry_close, .closeListen = mpib_entry_close_listen

EXPORT const struct mpib_nccl_net_v7 ncclNetPlugin_v7 = {
	COMMON_FIELDS,	     .init = init_v6,	    .getProperties = get_properties_v7,
	.listen = listen_v6, .connect = connect_v7, .regMr = reg_mr_v6,
	.isend = isend_v6,   .irecv = irecv_v6,
};

EXPORT const struct mpib_nccl_net_v8 ncclNetPlugin_v8 = {
	COMMON_FIELDS,	     .init = init_v6,	    .getProperties = get_properties_v8,
	.listen = listen_v6, .connect = connect_v7, .regMr = mpib_entry_reg_mr,
	.isend = isend_v6,   .irecv = irecv_v6,
};

EXPORT const struct mpib_nccl_net_v9 ncclNetPlugin_v9 = {
	COMMON_FIELDS,	     .init = init_v6,	    .getProperties = get_properties_v9,
	.listen = listen_v6, .connect = connect_v7, .regMr = mpib_entry_reg_mr,
	.isend = mpib_isend, .irecv = mpib_irecv,
};

EXPORT const struct mpib_nccl_net_v10 ncclNetPlugin_v10 = {
	COMMON_FIELDS,	     .init = init_v10,	     .getProperties = get_properties_v9,
	.listen = listen_v6, .connect = connect_v10, .regMr = mpib_entry_reg_mr,
	.isend = isend_v10,  .irecv = irecv_v10,
};

#define FIELDS_SINCE_V11                                                                           \
	COMMON_FIELDS, .init = init_v11, .listen = mpib_entry_listen, .connect = connect_v11,      \
		       .regMr = mpib_entry_reg_mr, .isend = isend_v10, .irecv = irecv_v10,         \
		       .finalize = mpib_entry_finalize

EXPORT const struct mpib_nccl_net_v11 ncclNetPlugin_v11 = {
	FIELDS_SINCE_V11,
	.getProperties = get_properties_v11,
};

EXPORT const struct mpib_nccl_net_v12 ncclNetPlugin_v12 = {
	FIELDS_SINCE_V11,
	.getProperties = get_properties_v12,
};
