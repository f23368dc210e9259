/* SPDX-License-Identifier: Apache-2.0 */
/* What an open HCA is at the moment: speed, GID and address, MTU. */
#include "plugin/device.h"

#include <errno.h>
#include <string.h>

#include "common/ipv4.h"
#include "plugin/log.h"
#include "plugin/result.h"

unsigned int mpib_speed_mbps(unsigned int active_width, unsigned int active_speed)
{
	static const struct {
		unsigned int code, value;
	} widths[] = { { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 } },
	  speeds[] = { { 1, 2500 },   { 2, 5000 },   { 4, 10000 },  { 8, 10000 },
		       { 16, 14000 }, { 32, 25000 }, { 64, 50000 }, { 128, 100000 } };
	unsigned int lanes = 1, rate = 2500;

	for (size_t k = 0; k < sizeof(widths) / sizeof(widths[0]); k++)
		if (widths[k].code == active_width)
			lanes = widths[k].value;
	for (size_t k = 0; k < sizeof(speeds) / sizeof(speeds[0]); k++)
		if (speeds[k].code == active_speed)
			rate = speeds[k].value;
	return lanes * rate;
}

/* The entry that the last search found, read again: a table has up to 256 entries, and each is a
 * system call or two. It serves as long as it is one that a search would take; an address that
 * changed is the entry's new one, or the entry is empty and the search finds the new one. */
static int search(struct mpib_hca *hca, const struct ibv_port_attr *attr, struct mpib_gid *ret)
{
	unsigned int at = atomic_load_explicit(&hca->gid_at, memory_order_relaxed);
	int r;

	if (at && mpib_gid_check(hca->ctx, hca->port, at - 1, ret) == 0)
		return 0;
	r = mpib_gid_choose(hca->ctx, hca->port, (unsigned int)attr->gid_tbl_len, -1, ret);
	atomic_store_explicit(&hca->gid_at, r < 0 ? 0 : ret->index + 1, memory_order_relaxed);
	return r;
}

static int choose_roce(struct mpib_hca *hca, const struct mpib_env *env,
		       const struct ibv_port_attr *attr, struct mpib_gid *ret)
{
	int r = env->gid_index < 0
			? search(hca, attr, ret)
			: mpib_gid_choose(hca->ctx, hca->port, (unsigned int)attr->gid_tbl_len,
					  env->gid_index, ret);

	if (r == 0 && ret->ipv4_be)
		return 0;
	if (env->gid_index >= 0)
		MPIB_WARN("%s rail %s: GID %d (MPIB_IB_GID_INDEX) is empty or carries no IPv4 "
			  "address",
			  mpib_rail_name(hca->rail), hca->name, env->gid_index);
	else
		MPIB_WARN("%s rail %s: no RoCE v2 GID with a routable IPv4 address; give its "
			  "network interface an address",
			  mpib_rail_name(hca->rail), hca->name);
	return -MPIB_EUSAGE;
}

/* InfiniBand GIDs carry no IPv4 address, and the node's name in islands and flows is one: the user
 * gives it, for both rails. */
static int choose_ib(struct mpib_hca *hca, const struct mpib_env *env,
		     const struct ibv_port_attr *attr, struct mpib_gid *ret)
{
	int index = env->gid_index < 0 ? 0 : env->gid_index;
	uint32_t addr_be;

	if (mpib_gid_choose(hca->ctx, hca->port, (unsigned int)attr->gid_tbl_len, index, ret) < 0) {
		MPIB_WARN("%s rail %s: GID %d of the InfiniBand port is empty",
			  mpib_rail_name(hca->rail), hca->name, index);
		return -MPIB_EUSAGE;
	}
	if (mpib_ipv4_parse(env->node_addr, &addr_be) < 0) {
		MPIB_WARN("%s rail %s is an InfiniBand port, which has no IPv4 address: set "
			  "MPIB_NODE_ADDR to one that stands for this node (now \"%s\")",
			  mpib_rail_name(hca->rail), hca->name, env->node_addr);
		return -MPIB_EUSAGE;
	}
	ret->ipv4_be = addr_be;
	return 0;
}

bool mpib_hca_failed(struct mpib_hca *hca)
{
	if (!atomic_load_explicit(&hca->fatal, memory_order_acquire))
		return false;
	MPIB_WARN("%s rail %s failed earlier in this process: no new connections; start it anew",
		  mpib_rail_name(hca->rail), hca->name);
	return true;
}

int mpib_hca_describe(struct mpib_hca *hca, const struct mpib_env *env, struct mpib_peer *ret,
		      struct mpib_gid *ret_gid)
{
	struct ibv_port_attr attr;
	int r;

	if (mpib_hca_failed(hca))
		return -EIO;
	r = mpib_verbs_query_port(hca->ctx, hca->port, &attr);

	if (r < 0) {
		MPIB_WARN("%s rail %s: the port can't be queried: %s", mpib_rail_name(hca->rail),
			  hca->name, strerror(-r));
		return r;
	}

	r = attr.link_layer == IBV_LINK_LAYER_INFINIBAND ? choose_ib(hca, env, &attr, ret_gid)
							 : choose_roce(hca, env, &attr, ret_gid);
	if (r < 0)
		return r;

	memcpy(ret->rail[hca->rail].gid, ret_gid->gid.raw, 16);
	ret->rail[hca->rail].ipv4_be = ret_gid->ipv4_be;
	ret->rail[hca->rail].mtu = (uint8_t)attr.active_mtu;
	ret->rail[hca->rail].link_layer = attr.link_layer;
	ret->rail[hca->rail].lid = attr.lid;
	memcpy(ret->rail[hca->rail].hca, hca->name, sizeof(hca->name));
	return 0;
}
