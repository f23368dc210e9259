/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, what they say of themselves, and their events. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "plugin/verbs/verbs.h"
#include "tests/unit/plugin/fake_impl.h"

static const char *const device_names[FAKE_DEVICES] = { "sout", "sup", "sout2", "sup2" };

/* ---- devices -------------------------------------------------------------------------------- */

int mpib_verbs_load(void)
{
	return 0;
}

void mpib_verbs_unload(void)
{
}

bool mpib_verbs_has_iova2(void)
{
	return true;
}

int mpib_verbs_list(struct ibv_device ***ret_list, int *ret_count)
{
	static struct ibv_device *list[FAKE_DEVICES + 1];
	int err;

	fake_lock();
	err = fake_enter(FAKE_LIST);
	for (unsigned int k = 0; k < FAKE_DEVICES; k++) {
		list[k] = &fake.device[k];
		(void)snprintf(list[k]->ibdev_path, sizeof(list[k]->ibdev_path),
			       "/sys/class/infiniband/%s", device_names[k]);
	}
	*ret_count = fake.hidden ? 0 : FAKE_DEVICES;
	fake_unlock();
	if (err)
		return -err;
	*ret_list = list;
	return 0;
}

void mpib_verbs_free_list(struct ibv_device **list)
{
	(void)list;
}

const char *mpib_verbs_device_name(struct ibv_device *device)
{
	return device_names[device - fake.device];
}

int mpib_verbs_open(struct ibv_device *device, struct ibv_context **ret_ctx)
{
	struct fake_context *context;
	int err;

	fake_lock();
	err = fake_enter(FAKE_OPEN);
	if (!err) {
		context = fake_new_object(sizeof(*context));
		context->ctx.device = device;
		context->ctx.async_fd = eventfd(0, EFD_CLOEXEC);
		context->ctx.ops.post_send = fake_post_send;
		context->ctx.ops.post_srq_recv = fake_post_srq_recv;
		context->ctx.ops.poll_cq = fake_poll_cq;
		context->device = (unsigned int)(device - fake.device);
		LIST_INSERT_HEAD(&fake.contexts, context, node);
		*ret_ctx = &context->ctx;
	}
	fake_unlock();
	return -err;
}

void mpib_verbs_close(struct ibv_context *ctx)
{
	struct fake_context *context = (struct fake_context *)ctx;

	if (!ctx)
		return;
	fake_lock();
	RULE(context->children == 0);
	(void)close(ctx->async_fd);
	LIST_REMOVE(context, node);
	fake_free_object(context);
	fake_unlock();
}

int mpib_verbs_query_device(struct ibv_context *ctx, struct ibv_device_attr *ret)
{
	struct fake_limits limits;
	int err;

	fake_lock();
	err = fake_enter(FAKE_QUERY_DEVICE);
	limits = fake.limits;
	fake_unlock();
	memset(ret, 0, sizeof(*ret));
	ret->node_guid = 1 + (uint64_t)(ctx->device - fake.device);
	ret->max_qp = 4096;
	ret->max_sge = 30;
	ret->max_cq = 4096;
	ret->max_mr = 65536;
	ret->max_srq_wr = 8192;
	ret->max_srq = limits.max_srq;
	ret->max_qp_wr = limits.max_qp_wr;
	ret->max_cqe = limits.max_cqe;
	ret->phys_port_cnt = 1;
	return -err;
}

int mpib_verbs_query_port(struct ibv_context *ctx, unsigned int port, struct ibv_port_attr *ret)
{
	struct fake_port as;
	int down;
	int err;

	memset(ret, 0, sizeof(*ret));
	fake_lock();
	err = fake_enter(FAKE_QUERY_PORT);
	ret->max_msg_sz = fake.max_msg;
	as = fake.port[ctx->device - fake.device];
	down = fake.port_down[ctx->device - fake.device];
	fake_unlock();
	if (port != 1)
		return -EINVAL;
	ret->state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	ret->active_mtu = as.mtu;
	ret->gid_tbl_len = 4;
	ret->active_width = as.width;
	ret->active_speed = as.speed <= UINT8_MAX ? (uint8_t)as.speed : 128;
	ret->pkey_tbl_len = 3;
	ret->link_layer = as.link_layer;
	ret->lid = as.lid;
	return -err;
}

uint32_t mpib_verbs_port_speed(struct ibv_context *ctx, unsigned int port,
			       const struct ibv_port_attr *attr)
{
	struct fake_port as;

	fake_get_port((unsigned int)(ctx->device - fake.device), &as);
	return port == 1 ? as.speed : attr->active_speed;
}

int mpib_verbs_query_pkey(struct ibv_context *ctx, unsigned int port, unsigned int index,
			  uint16_t *ret)
{
	struct fake_port as;

	fake_get_port((unsigned int)(ctx->device - fake.device), &as);
	if (port != 1 || index >= sizeof(as.pkey) / sizeof(as.pkey[0]) || !as.pkey[index])
		return -ENODATA;
	*ret = as.pkey[index];
	return 0;
}

int mpib_verbs_query_gid(struct ibv_context *ctx, unsigned int port, unsigned int index,
			 struct ibv_gid_entry *ret)
{
	bool infiniband, routable;
	struct fake_port as;
	uint32_t ip;
	int err;

	fake_lock();
	err = fake_enter(FAKE_QUERY_GID);
	as = fake.port[ctx->device - fake.device];
	fake_unlock();
	ip = htonl(as.ip);
	routable = ip != 0 && index >= as.gid_first && index < as.gid_end;
	infiniband = as.link_layer == IBV_LINK_LAYER_INFINIBAND;
	memset(ret, 0, sizeof(*ret));
	if (err)
		return -err;
	if (index > 3)
		return -ENODATA;
	ret->gid_index = index;
	ret->port_num = port;
	ret->gid_type = index & 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	if (infiniband && index)
		return -ENODATA;
	if (infiniband)
		ret->gid_type = IBV_GID_TYPE_IB;
	if (!routable) {
		ret->gid.raw[0] = 0xfe;
		ret->gid.raw[1] = 0x80;
	} else {
		ret->gid.raw[10] = ret->gid.raw[11] = 0xff;
	}
	memcpy(ret->gid.raw + 12, &ip, 4);
	return 0;
}

/* ---- events --------------------------------------------------------------------------------- */

void fake_event(unsigned int device, enum ibv_event_type type)
{
	fake_port_event(device, type, 1);
}

void fake_port_event(unsigned int device, enum ibv_event_type type, int port)
{
	struct fake_context *context;
	uint64_t one = 1;
	struct fake_qp *qp;

	fake_lock();
	LIST_FOREACH(context, &fake.contexts, node)
	{
		struct ibv_async_event *event = &context->event[context->events];

		if (context->device != device || context->events == FAKE_EVENTS_MAX)
			continue;
		event->event_type = type;
		event->element.port_num = port;
		LIST_FOREACH(qp, &fake.qps, node)
		{
			if (qp->device != device || type > IBV_EVENT_QP_ACCESS_ERR)
				continue;
			if (type == IBV_EVENT_CQ_ERR)
				event->element.cq = qp->qp.recv_cq;
			else
				event->element.qp = &qp->qp;
		}
		context->events++;
		(void)!write(context->ctx.async_fd, &one, sizeof(one));
	}
	fake_unlock();
}

int mpib_verbs_async_event(struct ibv_context *ctx, struct ibv_async_event *ret)
{
	struct fake_context *context = (struct fake_context *)ctx;
	uint64_t value;
	int r = 0;

	fake_lock();
	(void)!read(ctx->async_fd, &value, sizeof(value));
	if (context->events) {
		*ret = context->event[--context->events];
		r = 1;
	}
	fake_unlock();
	return r;
}

void mpib_verbs_ack_event(struct ibv_async_event *event)
{
	(void)event;
}

const char *mpib_verbs_wc_text(enum ibv_wc_status status)
{
	return status == IBV_WC_REM_ACCESS_ERR ? "remote access error" : "bad status";
}

const char *mpib_verbs_event_text(enum ibv_event_type type)
{
	return type == IBV_EVENT_DEVICE_FATAL ? "device fatal" : "some event";
}
