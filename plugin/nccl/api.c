/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/nccl/api.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/versions.h"
#include "plugin/agent/agent_link.h"
#include "plugin/base/counters.h"
#include "plugin/base/exit.h"
#include "plugin/base/job.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/base/watch.h"
#include "plugin/gin/gin.h"
#include "plugin/setup/comm_life.h"
#include "plugin/setup/connect.h"
#include "plugin/verbs/device.h"
#include "plugin/verbs/mr.h"

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
	char list[1024];

	MPIB_INFO("MPIB " MPIB_VERSION " (wire " MPIB_WIRE_TEXT ", contract " MPIB_CONTRACT_TEXT
		  "): mode %s, island prefix /%d, QPs SOUT %d SUP %d, timeout "
		  "%d, retries %d, TC %d, SL %d%s%s",
		  env->mode == MPIB_MODE_ADVANCED ? "advanced" : "vanilla", env->prefix_len,
		  env->qps[MPIB_SOUT], env->qps[MPIB_SUP], env->timeout, env->retry_cnt, env->tc,
		  env->sl, env->mode == MPIB_MODE_ADVANCED ? ", agent at " : "",
		  env->mode == MPIB_MODE_ADVANCED ? env->agent_dir : "");
	MPIB_INFO("from the environment:%s", mpib_env_list(env, MPIB_ENV_OWN, list, sizeof(list)));
	if (*mpib_env_list(env, MPIB_ENV_NCCL, list, sizeof(list)))
		MPIB_INFO("from NCCL's settings:%s", list);
	if (*mpib_env_list_unused(list, sizeof(list)))
		MPIB_INFO("set for NCCL and not used by MPIB (see mpib(7)):%s", list);
	MPIB_INFO("by default:%s", mpib_env_list(env, MPIB_ENV_DEFAULT, list, sizeof(list)));
}

/* A forked child (a data loader, say) must not keep the parent's connections open, or the peers
 * would not see the parent's end. It can't use them either, nor give anything back: the kernel's
 * objects behind them are the parent's. */
static void fork_child(void)
{
	/* A thread that was in init or finalize doesn't exist here. */
	(void)pthread_mutex_init(&process.lock, NULL);
	mpib_comms_fork_child();
	mpib_gin_fork_child();
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
	mpib_process_watch_exit();
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
	mpib_gin_close_all();
	mpib_connect_free_all();
	mpib_comm_free_all();
	mpib_mr_free_all();
	mpib_agent_link_close();
	mpib_devices_close();
	mpib_counters_close();
	mpib_watch_put();
}

/* No failure is silent: where nobody below wrote a line, one is written here. */
static ncclResult_t explained(const char *call, int r)
{
	if (r < 0)
		(void)mpib_log_explain(call, r);
	return mpib_result(r);
}

static ncclResult_t init_failed(ncclDebugLogger_t logger)
{
	mpib_log_set(logger);
	mpib_log_forget();
	return explained("init", -ENOMEM);
}

ncclResult_t mpib_entry_init(void **ctx, struct mpib_nccl_config *config, ncclDebugLogger_t logger)
{
	struct context *context;
	int r = 0;

	if (!ctx)
		return ncclInvalidArgument;
	context = calloc(1, sizeof(*context));
	if (!context)
		return init_failed(logger);
	context->traffic_class = config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF;

	(void)pthread_mutex_lock(&process.lock);
	mpib_log_set(logger);
	mpib_log_forget();
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
	return explained("init", r);
}

ncclResult_t mpib_entry_init_legacy(ncclDebugLogger_t logger)
{
	int r = 0;

	(void)pthread_mutex_lock(&process.lock);
	mpib_log_set(logger);
	mpib_log_forget();
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

ncclResult_t mpib_entry_finalize(void *ctx)
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

int mpib_entry_traffic_class(void *ctx)
{
	int traffic_class = NCCL_NET_TRAFFIC_CLASS_UNDEF;

	(void)pthread_mutex_lock(&process.lock);
	for (const struct context *c = process.contexts; c; c = c->next)
		if (c == ctx)
			traffic_class = c->traffic_class;
	(void)pthread_mutex_unlock(&process.lock);
	return traffic_class;
}

/* At dlclose, whatever NCCL has dropped, everything is given back: no thread can be in code that is
 * about to go. At an exit in the middle of a job there may be threads in it. So only the
 * plugin's own threads are ended, which must not run in code that is gone, and the kernel does the
 * rest; without connections no thread is in it. In a forked child nothing of the parent's may be
 * touched. */
__attribute__((destructor)) static void unload(void)
{
	struct context *next;

	if (!mpib_watch_is_owner())
		return;
	if (mpib_process_exits() &&
	    (mpib_comms_first() || mpib_listeners_any() || mpib_gin_any())) {
		mpib_jobs_stop();
		mpib_watch_stop();
		return;
	}
	if (process.references)
		stop();
	process.references = 0;
	for (struct context *c = process.contexts; c; c = next) {
		next = c->next;
		free(c);
	}
	process.contexts = NULL;
	if (!mpib_process_exits())
		mpib_verbs_unload();
}

ncclResult_t mpib_entry_devices(int *ndev)
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

ncclResult_t mpib_entry_properties(int index, struct mpib_properties *ret)
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

ncclResult_t mpib_entry_listen(void *ctx, int index, void *handle, void **listen_comm)
{
	struct mpib_listener *listener = NULL;
	struct mpib_device *dev = device(index);
	int r;

	(void)ctx;
	if (!dev || !handle || !listen_comm)
		return ncclInvalidArgument;
	if (is_child())
		return mpib_result(refuse_child());
	mpib_log_forget();
	r = mpib_listen(dev, &process.env, handle, &listener);
	*listen_comm = listener;
	return explained("listen", r);
}

ncclResult_t mpib_entry_connect(int index, int traffic_class, void *handle, void **send_comm)
{
	struct mpib_device *dev = device(index);
	struct mpib_comm *comm = NULL;
	int r;

	if (!dev || !handle || !send_comm)
		return ncclInvalidArgument;
	if (is_child())
		return mpib_result(refuse_child());
	mpib_log_forget();
	r = mpib_connect(dev, &process.env, traffic_class, handle, &comm);
	*send_comm = comm;
	return explained("connect", r);
}

ncclResult_t mpib_entry_accept(void *listen_comm, void **recv_comm)
{
	struct mpib_comm *comm = NULL;
	int r;

	if (!listen_comm || !recv_comm)
		return ncclInvalidArgument;
	if (is_child())
		return mpib_result(refuse_child());
	mpib_log_forget();
	r = mpib_accept(listen_comm, &comm);
	*recv_comm = comm;
	return explained("accept", r);
}

ncclResult_t mpib_entry_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
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
	mpib_log_forget();
	r = mpib_mr_new(c->dev, c->mem_mask, data, size, MPIB_MR_ACCESS, &mr);
	*mhandle = mr;
	return explained("memory can't be registered", r);
}

ncclResult_t mpib_entry_reg_mr_dmabuf(void *comm, void *data, size_t size, int type,
				      uint64_t offset, int fd, void **mhandle)
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
	r = mpib_mr_new_dmabuf(c->dev, c->mem_mask, data, size, offset, fd, peer_memory, &mr);
	if (r < 0 && peer_memory) {
		MPIB_INFO("%s: DMA-BUF refused (%s): using peer memory", c->dev->name,
			  strerror(-r));
		r = mpib_mr_new(c->dev, c->mem_mask, data, size, MPIB_MR_ACCESS, &mr);
	}
	*mhandle = mr;
	return mpib_result(r);
}

/* What a child inherited isn't its own to give back; and the last finalize has given back all that
 * was made before it. */
bool mpib_entry_is_gone(void)
{
	bool over;

	(void)pthread_mutex_lock(&process.lock);
	over = process.references == 0;
	(void)pthread_mutex_unlock(&process.lock);
	return over || is_child();
}

ncclResult_t mpib_entry_dereg_mr(void *comm, void *mhandle)
{
	(void)comm;
	return mpib_entry_is_gone() ? ncclSuccess : mpib_result(mpib_mr_free(mhandle));
}

ncclResult_t mpib_entry_close(void *comm)
{
	if (!mpib_entry_is_gone())
		mpib_comm_free(comm);
	return ncclSuccess;
}

ncclResult_t mpib_entry_close_listen(void *listen_comm)
{
	if (!mpib_entry_is_gone())
		mpib_listener_free(listen_comm);
	return ncclSuccess;
}
