/* SPDX-License-Identifier: Apache-2.0 */
/* What a program may ask of a device: its limits, its port, its keys and its GID table. */
#include "tests/fabric/fabric.h"

#include <endian.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>

#undef ibv_query_port

int fab_object_take(struct ibv_context *context, enum fab_object what)
{
	struct fab_context *ctx = fab_context_of(context);
	const struct fab_dev_conf *conf = fab_dev_conf(ctx->dev);
	const uint32_t most[FAB_OBJECTS] = { conf->max_qp, conf->max_cq, conf->max_srq,
					     conf->max_mr };

	if (atomic_fetch_add(&ctx->made[what], 1) < most[what])
		return 0;
	fab_object_drop(context, what);
	return (int)conf->limit_errno;
}

void fab_object_drop(struct ibv_context *context, enum fab_object what)
{
	atomic_fetch_sub(&fab_context_of(context)->made[what], 1);
}

static void fill_device(uint32_t dev, struct ibv_device_attr *attr)
{
	const struct fab_dev_conf *conf = fab_dev_conf(dev);

	*attr = (struct ibv_device_attr){
		.fw_ver = "1.0.0",
		.node_guid = htobe64(conf->guid),
		.sys_image_guid = htobe64(conf->guid),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffff000,
		.vendor_id = 0xfab,
		.vendor_part_id = 1,
		.max_qp = (int)conf->max_qp,
		.max_qp_wr = (int)conf->max_qp_wr,
		.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID,
		.max_sge = (int)conf->max_sge,
		.max_sge_rd = (int)conf->max_sge,
		.max_cq = (int)conf->max_cq,
		.max_cqe = (int)conf->max_cqe,
		.max_mr = (int)conf->max_mr,
		.max_pd = 1 << 20,
		.max_qp_rd_atom = (int)conf->max_rd_atomic,
		.max_res_rd_atom = (int)(conf->max_rd_atomic * 1024),
		.max_qp_init_rd_atom = (int)conf->max_rd_atomic,
		.atomic_cap = conf->atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE,
		.max_srq = (int)conf->max_srq,
		.max_srq_wr = conf->max_srq ? (int)conf->max_srq_wr : 0,
		.max_srq_sge = conf->max_srq ? (int)conf->max_sge : 0,
		.max_pkeys = (uint16_t)conf->pkeys,
		.phys_port_cnt = 1,
	};
}

FAB_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	uint32_t dev = fab_context_of(context)->dev;
	int err = fab_fault(dev, FAB_VERB_QUERY_DEVICE);

	if (!err)
		fill_device(dev, attr);
	return err;
}

int fab_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *in,
			struct ibv_device_attr_ex *attr, size_t len)
{
	struct ibv_device_attr_ex full = { 0 };
	uint32_t dev = fab_context_of(context)->dev;
	int err = fab_fault(dev, FAB_VERB_QUERY_DEVICE);

	if (err)
		return err;
	if ((in && in->comp_mask) || len < sizeof(full.orig_attr))
		return EINVAL;
	fill_device(dev, &full.orig_attr);
	full.phys_port_cnt_ex = 1;
	memcpy(attr, &full, len < sizeof(full) ? len : sizeof(full));
	return 0;
}

/* struct ibv_port_attr of libraries that know speeds beyond eight bits. */
struct port_attr {
	struct ibv_port_attr attr;
	uint32_t active_speed_ex; /* 0 where active_speed says it */
};

/* Lanes and their rate as IB counts them: width code, speed code. */
static void fill_speed(const struct fab_dev_conf *conf, struct port_attr *full)
{
	struct ibv_port_attr *attr = &full->attr;
	static const struct {
		uint32_t gbps;
		uint8_t width, speed;
	} speeds[] = {
		{ 10, 1, 4 },	{ 25, 1, 32 },	{ 40, 2, 4 },	 { 50, 1, 64 },
		{ 100, 2, 32 }, { 200, 2, 64 }, { 400, 2, 128 }, { 800, 4, 128 },
	};
	size_t k = 0;

	while (k + 1 < MPIB_ARRAY_SIZE(speeds) && speeds[k].gbps < conf->speed_gbps)
		k++;
	attr->active_width = speeds[k].width;
	attr->active_speed = speeds[k].speed;
	if (conf->active_width)
		attr->active_width = (uint8_t)conf->active_width;
	if (conf->active_speed > UINT8_MAX) {
		attr->active_speed = 128; /* as the kernel caps it for those of old */
		full->active_speed_ex = conf->active_speed;
	} else if (conf->active_speed) {
		attr->active_speed = (uint8_t)conf->active_speed;
	}
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	enum ibv_mtu code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && 256U << code <= bytes)
		code++;
	return code;
}

int fab_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		   size_t len)
{
	uint32_t dev = fab_context_of(context)->dev;
	const struct fab_dev_conf *conf = fab_dev_conf(dev);
	bool up = atomic_load(&fab_dev_state(dev)->port_up) != 0;
	int err = fab_fault(dev, FAB_VERB_QUERY_PORT);
	struct port_attr full = { .attr = {
					  .state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
					  .max_mtu = mtu_code(conf->mtu),
					  .active_mtu = mtu_code(conf->mtu),
					  .gid_tbl_len = FAB_GIDS_MAX,
					  .port_cap_flags = IBV_PORT_CM_SUP,
					  .max_msg_sz = conf->max_msg,
					  .pkey_tbl_len = (uint16_t)conf->pkeys,
					  .max_vl_num = 1,
					  .phys_state = up ? 5 : 3,
					  .link_layer = conf->infiniband ? IBV_LINK_LAYER_INFINIBAND
									 : IBV_LINK_LAYER_ETHERNET,
				  } };

	if (err)
		return err;
	if (port != 1)
		return EINVAL;
	if (conf->infiniband)
		full.attr.lid = fab_lid(dev);
	fill_speed(conf, &full);
	memset(attr, 0, len);
	memcpy(attr, &full, len < sizeof(full) ? len : sizeof(full));
	return 0;
}

/* The old call knows the attributes of old only. */
FAB_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
			      struct _compat_ibv_port_attr *attr)
{
	return fab_query_port(context, port, (struct ibv_port_attr *)attr,
			      offsetof(struct ibv_port_attr, port_cap_flags2));
}

FAB_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	const struct fab_dev_conf *conf = fab_dev_conf(fab_context_of(context)->dev);

	if (port != 1 || index < 0 || (uint32_t)index >= conf->pkeys) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(conf->pkey[index]);
	return 0;
}

FAB_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	const struct fab_dev_conf *conf = fab_dev_conf(fab_context_of(context)->dev);

	for (uint32_t k = 0; port == 1 && k < conf->pkeys; k++)
		if (conf->pkey[k] == be16toh(pkey))
			return (int)k;
	return -1;
}

/* --- GIDs --- */

static int get_gid(struct ibv_context *context, uint32_t port, int index, struct fab_gid *ret_gid)
{
	uint32_t dev = fab_context_of(context)->dev;
	int err = fab_fault(dev, FAB_VERB_QUERY_GID);

	if (err)
		return err;
	if (port != 1 || index < 0 || index >= FAB_GIDS_MAX)
		return EINVAL;
	fab_state_gid_get(fab_dev_state(dev), (unsigned int)index, ret_gid);
	return 0;
}

/* An empty entry reads as all zeroes here, as in sysfs; the extended call says ENODATA. */
FAB_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
			     union ibv_gid *gid)
{
	struct fab_gid entry;
	int err = get_gid(context, port, index, &entry);

	if (err) {
		errno = err;
		return -1;
	}
	memcpy(gid->raw, entry.raw, sizeof(gid->raw));
	return 0;
}

static void fill_entry(struct ibv_context *context, uint32_t index, const struct fab_gid *gid,
		       struct ibv_gid_entry *entry)
{
	memset(entry, 0, sizeof(*entry));
	memcpy(entry->gid.raw, gid->raw, 16);
	entry->gid_index = index;
	entry->port_num = 1;
	if (fab_dev_conf(fab_context_of(context)->dev)->infiniband)
		entry->gid_type = IBV_GID_TYPE_IB;
	else
		entry->gid_type =
			gid->type == FAB_GID_V2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	if (entry->gid_type != IBV_GID_TYPE_IB)
		entry->ndev_ifindex = if_nametoindex("lo");
}

FAB_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
				 struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry full;
	struct fab_gid gid;
	int err;

	if (flags)
		return EOPNOTSUPP;
	err = get_gid(context, port, (int)index, &gid);
	if (err)
		return err;
	if (gid.type == FAB_GID_NONE)
		return ENODATA;
	fill_entry(context, index, &gid, &full);
	memcpy(entry, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

FAB_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
					size_t max, uint32_t flags, size_t size)
{
	size_t count = 0;

	if (flags || size < sizeof(*entries))
		return -EOPNOTSUPP;
	for (int k = 0; k < FAB_GIDS_MAX; k++) {
		struct fab_gid gid;
		int err = get_gid(context, 1, k, &gid);

		if (err)
			return -err;
		if (gid.type == FAB_GID_NONE)
			continue;
		if (count == max)
			return -EINVAL;
		fill_entry(context, (uint32_t)k, &gid,
			   (struct ibv_gid_entry *)((char *)entries + count++ * size));
	}
	return (ssize_t)count;
}

/* What ibv_devinfo asks: 0 is IB or RoCE v1, 1 is RoCE v2. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
		       unsigned int *type);
FAB_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
				  unsigned int *type)
{
	struct fab_gid gid;
	int err = get_gid(context, port, (int)index, &gid);

	if (err) {
		errno = err;
		return -1;
	}
	*type = gid.type == FAB_GID_V2 ? 1 : 0;
	return 0;
}
