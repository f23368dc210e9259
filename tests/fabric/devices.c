/* SPDX-License-Identifier: Apache-2.0 */
/* The device list, contexts, and what a program may ask of a device. */
#include "tests/fabric/fabric.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_get_device_list

FAB_EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list;
	uint32_t count = 0;
	int r = fab_engine_prepare();

	if (num)
		*num = 0;
	if (r < 0) {
		errno = -r;
		return NULL;
	}
	list = calloc(FAB_DEVS_MAX + 1, sizeof(*list));
	if (!list)
		return NULL;
	for (uint32_t d = 0; d < fab.conf->devs; d++) {
		struct fab_device *dev;

		if (fab_dev_conf(d)->node != fab.node)
			continue;
		dev = calloc(1, sizeof(*dev));
		if (!dev)
			break;
		dev->index = d;
		dev->dev.node_type = IBV_NODE_CA;
		dev->dev.transport_type = IBV_TRANSPORT_IB;
		(void)snprintf(dev->dev.name, sizeof(dev->dev.name), "%s", fab_dev_conf(d)->name);
		(void)snprintf(dev->dev.dev_name, sizeof(dev->dev.dev_name), "uverbs%u", count);
		(void)snprintf(dev->dev.dev_path, sizeof(dev->dev.dev_path),
			       "/sys/class/infiniband_verbs/uverbs%u", count);
		fab_ibdev_path(d, dev->dev.ibdev_path, sizeof(dev->dev.ibdev_path));
		list[count++] = &dev->dev;
	}
	if (num)
		*num = (int)count;
	return list;
}

/* Devices in use must outlive the list: an opened context has a copy of its own. */
FAB_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	for (uint32_t k = 0; list && list[k]; k++)
		free(mpib_container_of(list[k], struct fab_device, dev));
	free(list);
}

FAB_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

FAB_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return (int)mpib_container_of(device, struct fab_device, dev)->index;
}

FAB_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	uint32_t index = mpib_container_of(device, struct fab_device, dev)->index;

	return htobe64(fab_dev_conf(index)->guid);
}

/* --- contexts --- */

static struct ibv_context *context_fail(struct fab_context *ctx, int err)
{
	if (ctx) {
		if (ctx->verbs.context.async_fd >= 0)
			(void)close(ctx->verbs.context.async_fd);
		if (ctx->event_fd >= 0)
			(void)close(ctx->event_fd);
		free(ctx->verbs.context.device
			     ? mpib_container_of(ctx->verbs.context.device, struct fab_device, dev)
			     : NULL);
		free(ctx);
	}
	errno = err;
	return NULL;
}

static void ops_set(struct fab_context *ctx)
{
	struct ibv_context *context = &ctx->verbs.context;

	ctx->verbs.sz = sizeof(ctx->verbs);
	ctx->verbs.query_port = fab_query_port;
	ctx->verbs.query_device_ex = fab_query_device_ex;
	ctx->verbs.create_qp_ex = fab_create_qp_ex;
	context->abi_compat = __VERBS_ABI_IS_EXTENDED;
	context->num_comp_vectors = 1;
	context->cmd_fd = -1;
	context->ops.poll_cq = fab_poll_cq;
	context->ops.req_notify_cq = fab_req_notify_cq;
	context->ops.post_send = fab_post_send;
	context->ops.post_recv = fab_post_recv;
	context->ops.post_srq_recv = fab_post_srq_recv;
}

FAB_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct fab_device *dev = mpib_container_of(device, struct fab_device, dev), *copy;
	int err = fab_fault(dev->index, FAB_VERB_OPEN_DEVICE), r;
	struct fab_context *ctx;
	int ends[2];

	if (err)
		return context_fail(NULL, err);
	ctx = calloc(1, sizeof(*ctx));
	copy = malloc(sizeof(*copy));
	if (!ctx || !copy) {
		free(copy);
		free(ctx);
		return context_fail(NULL, ENOMEM);
	}
	*copy = *dev;
	ctx->dev = dev->index;
	ctx->verbs.context.device = &copy->dev;
	ctx->verbs.context.async_fd = ctx->event_fd = -1;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return context_fail(ctx, errno);
	ctx->verbs.context.async_fd = ends[0];
	ctx->event_fd = ends[1];
	(void)fcntl(ctx->event_fd, F_SETFL, O_NONBLOCK);
	r = fab_engine_get();
	if (r < 0)
		return context_fail(ctx, -r);
	(void)pthread_mutex_init(&ctx->verbs.context.mutex, NULL);
	(void)pthread_mutex_init(&ctx->event_lock, NULL);
	(void)pthread_cond_init(&ctx->event_cond, NULL);
	TAILQ_INIT(&ctx->events);
	TAILQ_INIT(&ctx->taken);
	ops_set(ctx);
	fab_engine_lock();
	LIST_INSERT_HEAD(&fab.contexts, ctx, node);
	fab_engine_unlock();
	return &ctx->verbs.context;
}

/* As the kernel does when the file is closed: what the program left alive ends; its memory is the
 * program's leak. Engine lock. */
static void forget_leftovers(const struct ibv_context *context)
{
	for (uint32_t k = 0; fab.qp_count && k < FAB_QP_INDEXES; k++) {
		if (fab.qps[k] && fab.qps[k]->qp.context == context) {
			fab_qp_reset(fab.qps[k]);
			fab.qps[k] = NULL;
			fab.qp_count--;
		}
	}
	for (uint32_t k = 0; k < fab.mr_max; k++) {
		if (fab.mrs[k] && fab.mrs[k]->mr.context == context) {
			fab.locked_bytes -= fab.mrs[k]->locked;
			fab.mrs[k] = NULL;
			fab.mr_count--;
		}
	}
}

FAB_EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct fab_context *ctx = fab_context_of(context);
	struct fab_event *event;

	fab_engine_lock();
	LIST_REMOVE(ctx, node);
	forget_leftovers(context);
	fab_engine_unlock();
	while ((event = TAILQ_FIRST(&ctx->events))) {
		TAILQ_REMOVE(&ctx->events, event, node);
		free(event);
	}
	while ((event = TAILQ_FIRST(&ctx->taken))) {
		TAILQ_REMOVE(&ctx->taken, event, node);
		free(event);
	}
	(void)pthread_mutex_destroy(&context->mutex);
	(void)pthread_mutex_destroy(&ctx->event_lock);
	(void)pthread_cond_destroy(&ctx->event_cond);
	(void)context_fail(ctx, errno);
	fab_engine_put();
	return 0;
}
