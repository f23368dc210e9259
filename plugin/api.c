/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/api.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/agent_link.h"
#include "plugin/connect.h"
#include "plugin/counters.h"
#include "plugin/device.h"
#include "plugin/log.h"
#include "plugin/result.h"
#include "plugin/watch.h"

/* A receive that NCCL could post must stay reportable as an int. */
#define MAX_BYTES ((size_t)1 << 30)

struct context {
	int traffic_class;
	struct context *next;
};

static struct {
	pthread_mutex_t lock; /* init and finalize; NCCL serialises them, other users may not */
	unsigned int references;
	bool legacy; /* one of the references is that of the tables without finalize */
	struct mpib_env env;
	struct context *contexts;
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void log_settings(void)
{
	const struct mpib_env *env = &process.env;
	char list[640];

	MPIB_INFO("MPIB " MPIB_VERSION ": mode %s, island prefix /%d, QPs SOUT %d SUP %d, timeout "
		  "%d, retries %d, TC %d, SL %d%s%s",
		  env->mode == MPIB_MODE_ADVANCED ? "advanced" : "vanilla", env->prefix_len,
		  env->qps[MPIB_SOUT], env->qps[MPIB_SUP], env->timeout, env->retry_cnt, env->tc,
		  env->sl, env->mode == MPIB_MODE_ADVANCED ? ", agent at " : "",
		  env->mode == MPIB_MODE_ADVANCED ? env->agent_dir : "");
	MPIB_INFO("from the environment:%s", mpib_env_list(true, list, sizeof(list)));
	MPIB_INFO("by default:%s", mpib_env_list(false, list, sizeof(list)));
}

/* A forked child (a data loader, say) must not keep the parent's connections open, or the peers
 * would not see the parent's end. It can't use them either, nor give anything back: the kernel's
 * objects behind them are the parent's. */
static void fork_child(void)
{
	/* A thread that was in init or finalize doesn't exist here. */
	(void)pthread_mutex_init(&process.lock, NULL);
	mpib_comms_fork_child();
	mpib_listeners_fork_child();
	mpib_agent_link_fork_child();
	mpib_watch_fork_child();
}

/* Once the devices are open: a handler registered later takes its lock earlier, and the helper
 * thread enters verbs with the watch lock held. What libraries below take at a fork has to come
 * after it. */
static void watch_forks(void)
{
	static bool watched;

	if (!watched &&
	    pthread_atfork(mpib_watch_fork_prepare, mpib_watch_fork_parent, fork_child) == 0)
		mpib_watch_forks_handled();
	watched = true;
}

static bool is_child(void)
{
	return !mpib_watch_is_owner();
}

static int refuse_child(void)
{
	MPIB_WARN("this process is a fork of one that uses MPIB, and can't use what it inherited: "
		  "start it anew (fork and exec, or spawn)");
	return -MPIB_EUSAGE;
}

/* First reference: everything, or nothing. */
static int start(void)
{
	int r = mpib_env_read(&process.env);

	if (r < 0)
		return r;
	r = mpib_watch_get();
	if (r < 0)
		return r;
	log_settings();
	r = mpib_devices_open(&process.env);
	if (r < 0)
		goto put_watch;
	watch_forks();
	if (process.env.mode == MPIB_MODE_ADVANCED) {
		r = mpib_agent_link_open(&process.env);
		if (r < 0)
			goto close_devices;
	}
	return 0;

close_devices:
	mpib_devices_close();
put_watch:
	mpib_watch_put();
	return r;
}

static void stop(void)
{
	mpib_connect_free_all();
	mpib_comm_free_all();
	mpib_agent_link_close();
	mpib_devices_close();
	mpib_counters_close();
	mpib_watch_put();
}

ncclResult_t mpib_api_init(void **ctx, struct mpib_nccl_config *config, ncclDebugLogger_t logger)
{
	struct context *context;
	int r = 0;

	if (!ctx)
		return ncclInvalidArgument;
	context = calloc(1, sizeof(*context));
	if (!context)
		return ncclSystemError;
	context->traffic_class = config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF;

	(void)pthread_mutex_lock(&process.lock);
	mpib_log_set(logger);
	if (process.references && is_child())
		r = refuse_child();
	else if (process.references == 0)
		r = start();
	if (r == 0) {
		process.references++;
		context->next = process.contexts;
		process.contexts = context;
		*ctx = context;
	} else {
		free(context);
	}
	(void)pthread_mutex_unlock(&process.lock);
	return mpib_result(r);
}

ncclResult_t mpib_api_init_legacy(ncclDebugLogger_t logger)
{
	int r = 0;

	(void)pthread_mutex_lock(&process.lock);
	mpib_log_set(logger);
	if (process.references && is_child()) {
		r = refuse_child();
	} else if (!process.legacy) {
		if (process.references == 0)
			r = start();
		if (r == 0) {
			process.references++;
			process.legacy = true;
		}
	}
	(void)pthread_mutex_unlock(&process.lock);
	return mpib_result(r);
}

ncclResult_t mpib_api_finalize(void *ctx)
{
	struct context **at, *context = ctx;

	(void)pthread_mutex_lock(&process.lock);
	for (at = &process.contexts; *at && *at != context; at = &(*at)->next)
		;
	if (context && *at) {
		*at = context->next;
		free(context);
		if (--process.references == 0 && mpib_watch_is_owner())
			stop();
	}
	(void)pthread_mutex_unlock(&process.lock);
	return ncclSuccess;
}

int mpib_api_traffic_class(void *ctx)
{
	int traffic_class = NCCL_NET_TRAFFIC_CLASS_UNDEF;

	(void)pthread_mutex_lock(&process.lock);
	for (const struct context *c = process.contexts; c; c = c->next)
		if (c == ctx)
			traffic_class = c->traffic_class;
	(void)pthread_mutex_unlock(&process.lock);
	return traffic_class;
}

/* At dlclose without finalize (tables before v11), and at exit. Without connections everything is
 * given back; with some, at an exit in the middle of a job, only the helper thread is ended: it
 * must not run in code that is gone. In a forked child nothing of the parent's may be touched. */
__attribute__((destructor)) static void unload(void)
{
	if (!process.references || !mpib_watch_is_owner())
		return;
	if (mpib_comms_any() || mpib_listeners_any())
		mpib_watch_stop();
	else
		stop();
}

ncclResult_t mpib_api_devices(int *ndev)
{
	if (!ndev)
		return ncclInvalidArgument;
	*ndev = mpib_device_count();
	return ncclSuccess;
}

static struct mpib_device *device(int index)
{
	struct mpib_device *dev = mpib_device_get(index);

	if (!dev)
		MPIB_WARN("device %d doesn't exist: there are %d", index, mpib_device_count());
	return dev;
}

ncclResult_t mpib_api_properties(int index, struct mpib_properties *ret)
{
	struct mpib_device *dev = device(index);
	int per_comm = process.env.qps[MPIB_SOUT] + process.env.qps[MPIB_SUP];
	int max_qp;

	if (!dev || !ret)
		return ncclInvalidArgument;

	max_qp = dev->hca[MPIB_SOUT].attr.max_qp;
	if (dev->hca[MPIB_SUP].attr.max_qp < max_qp)
		max_qp = dev->hca[MPIB_SUP].attr.max_qp;
	memset(ret, 0, sizeof(*ret));
	ret->name = dev->name;
	ret->pci_path = dev->hca[MPIB_SOUT].pci_path[0] ? dev->hca[MPIB_SOUT].pci_path : NULL;
	ret->guid = dev->guid;
	ret->ptr_support = (int)(NCCL_PTR_HOST | dev->ptr_support);
	ret->speed_mbps = (int)(dev->hca[MPIB_SOUT].speed_mbps + dev->hca[MPIB_SUP].speed_mbps);
	ret->port = (int)dev->hca[MPIB_SOUT].port;
	ret->max_comms = max_qp / per_comm > 0 ? max_qp / per_comm : 1;
	ret->max_recvs = MPIB_GROUP_MAX;
	ret->max_bytes = MAX_BYTES;
	return ncclSuccess;
}

ncclResult_t mpib_api_listen(void *ctx, int index, void *handle, void **listen_comm)
{
	struct mpib_listener *listener = NULL;
	struct mpib_device *dev = device(index);
	int r;

	if (!dev || !handle || !listen_comm)
		return ncclInvalidArgument;
	if (is_child())
		return mpib_result(refuse_child());
	r = mpib_listen(dev, &process.env, mpib_api_traffic_class(ctx), handle, &listener);
	*listen_comm = listener;
	return mpib_result(r);
}

ncclResult_t mpib_api_connect(int index, int traffic_class, void *handle, void **send_comm)
{
	struct mpib_device *dev = device(index);
	struct mpib_comm *comm = NULL;
	int r;

	if (!dev || !handle || !send_comm)
		return ncclInvalidArgument;
	if (is_child())
		return mpib_result(refuse_child());
	r = mpib_connect(dev, &process.env, traffic_class, handle, &comm);
	*send_comm = comm;
	return mpib_result(r);
}

ncclResult_t mpib_api_accept(void *listen_comm, void **recv_comm)
{
	struct mpib_comm *comm = NULL;
	int r;

	if (!listen_comm || !recv_comm)
		return ncclInvalidArgument;
	if (is_child())
		return mpib_result(refuse_child());
	r = mpib_accept(listen_comm, &comm);
	*recv_comm = comm;
	return mpib_result(r);
}

ncclResult_t mpib_api_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct mpib_comm *c = comm;
	struct mpib_mr *mr = NULL;
	int r;

	if (!c || !mhandle)
		return ncclInvalidArgument;
	if (type != NCCL_PTR_HOST && type != NCCL_PTR_CUDA)
		return ncclInvalidArgument;
	if (is_child())
		return mpib_result(refuse_child());
	r = mpib_mr_new(c->dev, c->data_mask, data, size, MPIB_MR_ACCESS, &mr);
	*mhandle = mr;
	return mpib_result(r);
}

ncclResult_t mpib_api_reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset,
				    int fd, void **mhandle)
{
	struct mpib_comm *c = comm;
	struct mpib_mr *mr = NULL;
	bool peer_memory;
	int r;

	if (!c || !mhandle)
		return ncclInvalidArgument;
	if (is_child())
		return mpib_result(refuse_child());
	peer_memory = type == NCCL_PTR_CUDA && c->dev->ptr_support & NCCL_PTR_CUDA;
	r = mpib_mr_new_dmabuf(c->dev, c->data_mask, data, size, offset, fd, peer_memory, &mr);
	if (r < 0 && peer_memory) {
		MPIB_INFO("%s: DMA-BUF refused (%s): using peer memory", c->dev->name,
			  strerror(-r));
		r = mpib_mr_new(c->dev, c->data_mask, data, size, MPIB_MR_ACCESS, &mr);
	}
	*mhandle = mr;
	return mpib_result(r);
}

ncclResult_t mpib_api_dereg_mr(void *comm, void *mhandle)
{
	(void)comm;
	return is_child() ? ncclSuccess : mpib_result(mpib_mr_free(mhandle));
}

ncclResult_t mpib_api_close(void *comm)
{
	if (!is_child())
		mpib_comm_free(comm);
	return ncclSuccess;
}

ncclResult_t mpib_api_close_listen(void *listen_comm)
{
	if (!is_child())
		mpib_listener_free(listen_comm);
	return ncclSuccess;
}
