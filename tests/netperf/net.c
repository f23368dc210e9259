/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/net.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "common/macros.h"
#include "tests/netperf/load.h"
#include "tests/netperf/log.h"

/* NCCL hands in its own; nothing here reads events. */
static ncclResult_t no_profiler(void **handle, int type, void *parent, int64_t id, void *data)
{
	(void)handle;
	(void)type;
	(void)parent;
	(void)id;
	(void)data;
	return ncclSuccess;
}

const char *np_result_name(ncclResult_t result)
{
	static const char *const names[] = {
		"ncclSuccess",	     "ncclUnhandledCudaError", "ncclSystemError",
		"ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
		"ncclRemoteError",   "ncclInProgress",	       "ncclTimeout",
	};

	return (unsigned int)result < MPIB_ARRAY_SIZE(names) ? names[result] : "unknown result";
}

bool np_net_open(struct np_net *net, const char *plugin)
{
	*net = (struct np_net){ .config = { NCCL_NET_TRAFFIC_CLASS_UNDEF } };
	net->dl = np_load_plugin(plugin);
	return net->dl != NULL;
}

bool np_net_select(struct np_net *net, int api)
{
	for (int n = NP_API_MAX; n >= NP_API_MIN; n--) {
		char symbol[32];

		if (api && n != api)
			continue;
		(void)snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", n);
		net->table = dlsym(net->dl, symbol);
		if (net->table) {
			net->api = n;
			return true;
		}
	}
	return false;
}

const char *np_net_name(const struct np_net *net)
{
	return net->table ? net->v6->name : NULL;
}

ncclResult_t np_net_init(struct np_net *net, uint64_t comm_id)
{
	ncclResult_t res;

	if (net->api >= 11) {
		net->ctx = NULL;
		return net->v11->init(&net->ctx, comm_id, &net->config, np_log_plugin, no_profiler);
	}
	if (net->inits & (1u << net->api))
		return ncclSuccess;
	res = net->api == 10 ? net->v10->init(np_log_plugin, no_profiler)
			     : net->v6->init(np_log_plugin);
	if (res == ncclSuccess)
		net->inits |= 1u << net->api;
	return res;
}

ncclResult_t np_net_finalize(struct np_net *net)
{
	return net->api >= 11 ? net->v11->finalize(net->ctx) : ncclSuccess;
}

ncclResult_t np_net_devices(struct np_net *net, int *ret_count)
{
	return net->v6->devices(ret_count);
}

/* Some releases of NCCL pass properties that hold garbage, so a field left alone is a bug: each
 * version is read twice, over zeros and over ones, and must give the same. */
static void keep_unset(struct np_props *ret, const char *name, const void *a, const void *b,
		       size_t len)
{
	if (!ret->unset && memcmp(a, b, len) != 0)
		ret->unset = name;
}

#define KEEP_UNSET(field) keep_unset(ret, #field, &zeros.field, &ones.field, sizeof(zeros.field))

#define READ_PROPS(version, extra)                                                                 \
	do {                                                                                       \
		struct mpib_nccl_properties_##version zeros, ones;                                 \
		ncclResult_t res;                                                                  \
                                                                                                   \
		memset(&zeros, 0, sizeof(zeros));                                                  \
		memset(&ones, 0xff, sizeof(ones));                                                 \
		res = net->version->getProperties(dev, &zeros);                                    \
		if (res == ncclSuccess)                                                            \
			res = net->version->getProperties(dev, &ones);                             \
		if (res != ncclSuccess)                                                            \
			return res;                                                                \
		ret->name = zeros.name;                                                            \
		ret->ptr_support = zeros.ptrSupport;                                               \
		ret->speed = zeros.speed;                                                          \
		ret->max_recvs = zeros.maxRecvs;                                                   \
		KEEP_UNSET(name);                                                                  \
		KEEP_UNSET(pciPath);                                                               \
		KEEP_UNSET(guid);                                                                  \
		KEEP_UNSET(ptrSupport);                                                            \
		KEEP_UNSET(speed);                                                                 \
		KEEP_UNSET(port);                                                                  \
		KEEP_UNSET(latency);                                                               \
		KEEP_UNSET(maxComms);                                                              \
		KEEP_UNSET(maxRecvs);                                                              \
		EXTRA_##extra return ncclSuccess;                                                  \
	} while (0)

#define EXTRA_V6
#define EXTRA_V7                                                                                   \
	KEEP_UNSET(netDeviceType);                                                                 \
	KEEP_UNSET(netDeviceVersion);
#define EXTRA_V8 EXTRA_V7 KEEP_UNSET(regIsGlobal);
#define EXTRA_V9                                                                                   \
	EXTRA_V8 KEEP_UNSET(forceFlush);                                                           \
	KEEP_UNSET(vProps.ndevs);                                                                  \
	KEEP_UNSET(vProps.devs[0]);                                                                \
	KEEP_UNSET(maxP2pBytes);                                                                   \
	KEEP_UNSET(maxCollBytes);                                                                  \
	ret->vdevs = zeros.vProps.ndevs;
#define EXTRA_V11 EXTRA_V9 KEEP_UNSET(maxMultiRequestSize);
#define EXTRA_V12                                                                                  \
	EXTRA_V11 KEEP_UNSET(railId);                                                              \
	KEEP_UNSET(planeId);

ncclResult_t np_net_props(struct np_net *net, int dev, struct np_props *ret)
{
	*ret = (struct np_props){ 0 };
	switch (net->api) {
	case 6:
		READ_PROPS(v6, V6);
	case 7:
		READ_PROPS(v7, V7);
	case 8:
		READ_PROPS(v8, V8);
	case 9:
		READ_PROPS(v9, V9);
	case 10:
		READ_PROPS(v10, V9);
	case 11:
		READ_PROPS(v11, V11);
	case 12:
		READ_PROPS(v12, V12);
	default:
		return ncclInternalError;
	}
}

ncclResult_t np_net_listen(struct np_net *net, int dev, void *handle, void **listen_comm)
{
	if (net->api >= 11)
		return net->v11->listen(net->ctx, dev, handle, listen_comm);
	return net->v6->listen(dev, handle, listen_comm);
}

ncclResult_t np_net_connect(struct np_net *net, int dev, void *handle, void **send_comm)
{
	struct mpib_nccl_device_handle *device = NULL;

	if (net->api >= 11)
		return net->v11->connect(net->ctx, dev, handle, send_comm, &device);
	if (net->api == 10)
		return net->v10->connect(dev, &net->config, handle, send_comm, &device);
	if (net->api >= 7)
		return net->v7->connect(dev, handle, send_comm, &device);
	return net->v6->connect(dev, handle, send_comm);
}

ncclResult_t np_net_accept(struct np_net *net, void *listen_comm, void **recv_comm)
{
	struct mpib_nccl_device_handle *device = NULL;

	if (net->api >= 7)
		return net->v7->accept(listen_comm, recv_comm, &device);
	return net->v6->accept(listen_comm, recv_comm);
}

ncclResult_t np_net_reg(struct np_net *net, void *comm, void *data, size_t size, void **mhandle)
{
	if (net->api >= 8)
		return net->v8->regMr(comm, data, size, NCCL_PTR_HOST, mhandle);
	if (size > INT32_MAX)
		return ncclInternalError; /* NCCL refuses it before the plugin sees it */
	return net->v6->regMr(comm, data, (int)size, NCCL_PTR_HOST, mhandle);
}

ncclResult_t np_net_dereg(struct np_net *net, void *comm, void *mhandle)
{
	return net->v6->deregMr(comm, mhandle);
}

/* Stands for NCCL's bookkeeping of a step, which a plugin only passes on. */
static char step_handle[64];

ncclResult_t np_net_isend(struct np_net *net, void *comm, void *data, size_t size, int tag,
			  void *mhandle, void **request)
{
	if (net->api >= 10)
		return net->v10->isend(comm, data, size, tag, mhandle, step_handle, request);
	if (net->api == 9)
		return net->v9->isend(comm, data, size, tag, mhandle, request);
	return net->v6->isend(comm, data, (int)size, tag, mhandle, request);
}

ncclResult_t np_net_irecv(struct np_net *net, void *comm, int n, void **data, size_t *sizes,
			  int *tags, void **mhandles, void **request)
{
	void *phandles[NP_RECVS_MAX];
	int narrow[NP_RECVS_MAX];

	if (net->api == 9)
		return net->v9->irecv(comm, n, data, sizes, tags, mhandles, request);
	for (int k = 0; k < n; k++) {
		phandles[k] = step_handle;
		narrow[k] = (int)sizes[k];
	}
	if (net->api >= 10)
		return net->v10->irecv(comm, n, data, sizes, tags, mhandles, phandles, request);
	return net->v6->irecv(comm, n, data, narrow, tags, mhandles, request);
}

ncclResult_t np_net_test(struct np_net *net, void *request, int *done, int *sizes)
{
	return net->v6->test(request, done, sizes);
}

ncclResult_t np_net_close_send(struct np_net *net, void *comm)
{
	return net->v6->closeSend(comm);
}

ncclResult_t np_net_close_recv(struct np_net *net, void *comm)
{
	return net->v6->closeRecv(comm);
}

ncclResult_t np_net_close_listen(struct np_net *net, void *comm)
{
	return net->v6->closeListen(comm);
}
