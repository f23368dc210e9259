/* SPDX-License-Identifier: Apache-2.0 */
/* The seven tables of the loopback plugin and their adapters. */
#include "tests/netperf/loopback.h"

#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static char device_name[] = "loop0";

/* Fields that every version has; v6 to v8 end with them but for the device type. */
#define FILL_BASE(props)                                                                           \
	do {                                                                                       \
		if (dev != 0)                                                                      \
			return ncclInvalidArgument;                                                \
		(props)->name = device_name;                                                       \
		(props)->pciPath = NULL;                                                           \
		(props)->guid = 0x6c6f6f70;                                                        \
		(props)->ptrSupport = NCCL_PTR_HOST;                                               \
		(props)->speed = 10000;                                                            \
		if (lb_fault() != LB_PROPS)                                                        \
			(props)->port = 1;                                                         \
		(props)->latency = 0;                                                              \
		(props)->maxComms = 65536;                                                         \
		(props)->maxRecvs = LB_MAX_RECVS;                                                  \
	} while (0)
#define FILL_TYPE(props)                                                                           \
	do {                                                                                       \
		(props)->netDeviceType = NCCL_NET_DEVICE_HOST;                                     \
		(props)->netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION;                       \
	} while (0)
#define FILL_V9(props)                                                                             \
	do {                                                                                       \
		FILL_TYPE(props);                                                                  \
		(props)->regIsGlobal = 0;                                                          \
		(props)->forceFlush = 0;                                                           \
		memset(&(props)->vProps, 0, sizeof((props)->vProps));                              \
		(props)->vProps.ndevs = 1;                                                         \
		(props)->maxP2pBytes = 1 << 30;                                                    \
		(props)->maxCollBytes = 1 << 30;                                                   \
	} while (0)

static ncclResult_t props_v6(int dev, struct mpib_nccl_properties_v6 *props)
{
	FILL_BASE(props);
	return ncclSuccess;
}

static ncclResult_t props_v7(int dev, struct mpib_nccl_properties_v7 *props)
{
	FILL_BASE(props);
	FILL_TYPE(props);
	return ncclSuccess;
}

static ncclResult_t props_v8(int dev, struct mpib_nccl_properties_v8 *props)
{
	FILL_BASE(props);
	FILL_TYPE(props);
	props->regIsGlobal = 0;
	return ncclSuccess;
}

static ncclResult_t props_v9(int dev, struct mpib_nccl_properties_v9 *props)
{
	FILL_BASE(props);
	FILL_V9(props);
	return ncclSuccess;
}

static ncclResult_t props_v11(int dev, struct mpib_nccl_properties_v11 *props)
{
	FILL_BASE(props);
	FILL_V9(props);
	props->maxMultiRequestSize = 1;
	return ncclSuccess;
}

static ncclResult_t props_v12(int dev, struct mpib_nccl_properties_v12 *props)
{
	FILL_BASE(props);
	FILL_V9(props);
	props->maxMultiRequestSize = 1;
	props->railId = NCCL_NET_ID_UNDEF;
	props->planeId = NCCL_NET_ID_UNDEF;
	return ncclSuccess;
}

static ncclResult_t init_v10(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
	return profiler ? lb_init(logger) : ncclInvalidArgument;
}

/* The context's address is its identity: a call with another one is a bug of the driver. */
static char context;

static ncclResult_t init_v11(void **ctx, uint64_t comm_id, struct mpib_nccl_config *config,
			     ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
	(void)comm_id;
	*ctx = &context;
	return config && profiler ? lb_init(logger) : ncclInvalidArgument;
}

static ncclResult_t finalize_v11(void *ctx)
{
	return ctx == &context ? lb_finalize() : ncclInvalidArgument;
}

static ncclResult_t listen_v11(void *ctx, int dev, void *handle, void **listen_comm)
{
	return ctx == &context ? lb_listen(dev, handle, listen_comm) : ncclInvalidArgument;
}

static ncclResult_t connect_v7(int dev, void *handle, void **send_comm,
			       struct mpib_nccl_device_handle **device)
{
	(void)device;
	return lb_connect(dev, handle, send_comm);
}

static ncclResult_t connect_v10(int dev, struct mpib_nccl_config *config, void *handle,
				void **send_comm, struct mpib_nccl_device_handle **device)
{
	(void)config;
	return connect_v7(dev, handle, send_comm, device);
}

static ncclResult_t connect_v11(void *ctx, int dev, void *handle, void **send_comm,
				struct mpib_nccl_device_handle **device)
{
	return ctx == &context ? connect_v7(dev, handle, send_comm, device) : ncclInvalidArgument;
}

static ncclResult_t accept_v7(void *listen_comm, void **recv_comm,
			      struct mpib_nccl_device_handle **device)
{
	(void)device;
	return lb_accept(listen_comm, recv_comm);
}

static ncclResult_t reg_v6(void *comm, void *data, int size, int type, void **mhandle)
{
	return lb_reg(comm, data, (size_t)size, type, mhandle);
}

static ncclResult_t isend_v6(void *comm, void *data, int size, int tag, void *mhandle,
			     void **request)
{
	return lb_isend(comm, data, (size_t)size, tag, mhandle, request);
}

static ncclResult_t isend_v10(void *comm, void *data, size_t size, int tag, void *mhandle,
			      void *phandle, void **request)
{
	return phandle ? lb_isend(comm, data, size, tag, mhandle, request) : ncclInvalidArgument;
}

static ncclResult_t irecv_v6(void *comm, int n, void **data, int *sizes, int *tags, void **mhandles,
			     void **request)
{
	size_t wide[LB_MAX_RECVS];

	if (n < 1 || n > LB_MAX_RECVS)
		return ncclInvalidArgument;
	for (int k = 0; k < n; k++)
		wide[k] = (size_t)sizes[k];
	return lb_irecv(comm, n, data, wide, tags, mhandles, request);
}

static ncclResult_t irecv_v9(void *comm, int n, void **data, size_t *sizes, int *tags,
			     void **mhandles, void **request)
{
	return lb_irecv(comm, n, data, sizes, tags, mhandles, request);
}

static ncclResult_t irecv_v10(void *comm, int n, void **data, size_t *sizes, int *tags,
			      void **mhandles, void **phandles, void **request)
{
	return phandles && phandles[n - 1] ? lb_irecv(comm, n, data, sizes, tags, mhandles, request)
					   : ncclInvalidArgument;
}

static ncclResult_t iflush(void *comm, int n, void **data, int *sizes, void **mhandles,
			   void **request)
{
	(void)comm;
	(void)n;
	(void)data;
	(void)sizes;
	(void)mhandles;
	*request = NULL;
	return ncclSuccess;
}

#define COMMON                                                                                     \
	.name = LB_NAME, .devices = lb_devices, .deregMr = lb_dereg, .iflush = iflush,             \
	.test = lb_test, .closeSend = lb_close, .closeRecv = lb_close,                             \
	.closeListen = lb_close_listen

extern const struct mpib_nccl_net_v6 ncclNetPlugin_v6;
extern const struct mpib_nccl_net_v7 ncclNetPlugin_v7;
extern const struct mpib_nccl_net_v8 ncclNetPlugin_v8;
extern const struct mpib_nccl_net_v9 ncclNetPlugin_v9;
extern const struct mpib_nccl_net_v10 ncclNetPlugin_v10;
extern const struct mpib_nccl_net_v11 ncclNetPlugin_v11;
extern const struct mpib_nccl_net_v12 ncclNetPlugin_v12;

EXPORT const struct mpib_nccl_net_v6 ncclNetPlugin_v6 = {
	COMMON,
	.init = lb_init,
	.getProperties = props_v6,
	.listen = lb_listen,
	.connect = lb_connect,
	.accept = lb_accept,
	.regMr = reg_v6,
	.isend = isend_v6,
	.irecv = irecv_v6,
};
EXPORT const struct mpib_nccl_net_v7 ncclNetPlugin_v7 = {
	COMMON,
	.init = lb_init,
	.getProperties = props_v7,
	.listen = lb_listen,
	.connect = connect_v7,
	.accept = accept_v7,
	.regMr = reg_v6,
	.isend = isend_v6,
	.irecv = irecv_v6,
};
EXPORT const struct mpib_nccl_net_v8 ncclNetPlugin_v8 = {
	COMMON,
	.init = lb_init,
	.getProperties = props_v8,
	.listen = lb_listen,
	.connect = connect_v7,
	.accept = accept_v7,
	.regMr = lb_reg,
	.isend = isend_v6,
	.irecv = irecv_v6,
};
EXPORT const struct mpib_nccl_net_v9 ncclNetPlugin_v9 = {
	COMMON,
	.init = lb_init,
	.getProperties = props_v9,
	.listen = lb_listen,
	.connect = connect_v7,
	.accept = accept_v7,
	.regMr = lb_reg,
	.isend = lb_isend,
	.irecv = irecv_v9,
};
EXPORT const struct mpib_nccl_net_v10 ncclNetPlugin_v10 = {
	COMMON,
	.init = init_v10,
	.getProperties = props_v9,
	.listen = lb_listen,
	.connect = connect_v10,
	.accept = accept_v7,
	.regMr = lb_reg,
	.isend = isend_v10,
	.irecv = irecv_v10,
};
EXPORT const struct mpib_nccl_net_v11 ncclNetPlugin_v11 = {
	COMMON,
	.init = init_v11,
	.getProperties = props_v11,
	.listen = listen_v11,
	.connect = connect_v11,
	.accept = accept_v7,
	.regMr = lb_reg,
	.isend = isend_v10,
	.irecv = irecv_v10,
	.finalize = finalize_v11,
};
EXPORT const struct mpib_nccl_net_v12 ncclNetPlugin_v12 = {
	COMMON,
	.init = init_v11,
	.getProperties = props_v12,
	.listen = listen_v11,
	.connect = connect_v11,
	.accept = accept_v7,
	.regMr = lb_reg,
	.isend = isend_v10,
	.irecv = irecv_v10,
	.finalize = finalize_v11,
};
