/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/verbs/port.h"

#include <errno.h>
#include <string.h>

#include "common/ipv4.h"
#include "common/macros.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/verbs/async.h"

struct code {
	unsigned int code, value;
};

/* Code 0 is a driver that tells none: the least. */
static const struct code widths[] = {
	{ 0, 1 }, { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 }
};
static const struct code speeds[] = { { 0, 2500 },     { 1, 2500 },    { 2, 5000 },   { 4, 10000 },
				      { 8, 10000 },    { 16, 14000 },  { 32, 25000 }, { 64, 50000 },
				      { 128, 100000 }, { 256, 200000 } };

static unsigned int value_of(const struct code *codes, size_t n, unsigned int code,
			     unsigned int otherwise, bool *known)
{
	for (size_t k = 0; k < n; k++)
		if (codes[k].code == code)
			return codes[k].value;
	*known = false;
	return otherwise;
}

unsigned int mpib_speed_mbps(unsigned int active_width, unsigned int active_speed, bool *ret_known)
{
	size_t last = MPIB_ARRAY_SIZE(speeds) - 1;

	*ret_known = true;
	return value_of(widths, MPIB_ARRAY_SIZE(widths), active_width, 4, ret_known) *
	       value_of(speeds, MPIB_ARRAY_SIZE(speeds), active_speed, speeds[last].value,
			ret_known);
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

static int unreadable(const struct mpib_hca *hca, int r)
{
	MPIB_WARN("%s rail %s: the GID table can't be read: %s", mpib_rail_name(hca->rail),
		  hca->name, strerror(-r));
	return mpib_error_of_host(r);
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
	if (mpib_hca_failed(hca))
		return -EIO;
	if (r < 0 && r != -EADDRNOTAVAIL)
		return unreadable(hca, r);
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
	int r;

	r = mpib_gid_choose(hca->ctx, hca->port, (unsigned int)attr->gid_tbl_len, index, ret);
	if (r < 0) {
		if (mpib_hca_failed(hca))
			return -EIO;
		if (r != -EADDRNOTAVAIL)
			return unreadable(hca, r);
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

/* An entry of @wanted's number, whatever its membership, or with none wanted any entry: the first
 * that is a full member, or else the first. RoCE has the default partition alone. */
static int choose_pkey(struct mpib_hca *hca, const struct mpib_env *env,
		       const struct ibv_port_attr *attr, uint16_t *ret_pkey, uint16_t *ret_index)
{
	bool any = env->pkey < 0, found = false;
	uint16_t pkey;

	*ret_pkey = MPIB_PKEY_DEFAULT;
	*ret_index = 0;
	if (attr->link_layer != IBV_LINK_LAYER_INFINIBAND)
		return 0;
	for (unsigned int k = 0; k < attr->pkey_tbl_len; k++) {
		if (mpib_verbs_query_pkey(hca->ctx, hca->port, k, &pkey) < 0 ||
		    (!any && (pkey ^ (unsigned int)env->pkey) & MPIB_PKEY_NUMBER) ||
		    (found && !(pkey & MPIB_PKEY_FULL)))
			continue;
		*ret_pkey = pkey;
		*ret_index = (uint16_t)k;
		found = true;
		if (pkey & MPIB_PKEY_FULL)
			return 0;
	}
	if (found)
		return 0;
	if (mpib_hca_failed(hca))
		return -EIO;
	if (any)
		MPIB_WARN("%s rail %s: the port is in no partition: ask the subnet manager's "
			  "operator",
			  mpib_rail_name(hca->rail), hca->name);
	else
		MPIB_WARN("%s rail %s: the port is not in partition 0x%04x (MPIB_IB_PKEY, a key "
			  "and not an index)",
			  mpib_rail_name(hca->rail), hca->name, (unsigned int)env->pkey);
	return -MPIB_EUSAGE;
}

int mpib_hca_describe(struct mpib_hca *hca, const struct mpib_env *env, struct mpib_peer *ret,
		      struct mpib_source *ret_source)
{
	struct mpib_gid *ret_gid = &ret_source->gid;
	struct ibv_port_attr attr;
	int r;

	if (mpib_hca_failed(hca))
		return -EIO;
	r = mpib_verbs_query_port(hca->ctx, hca->port, &attr);

	if (r < 0 && mpib_hca_failed(hca))
		return -EIO;
	if (r < 0) {
		MPIB_WARN("%s rail %s: the port can't be queried: %s", mpib_rail_name(hca->rail),
			  hca->name, strerror(-r));
		return mpib_error_of_host(r);
	}

	r = attr.link_layer == IBV_LINK_LAYER_INFINIBAND ? choose_ib(hca, env, &attr, ret_gid)
							 : choose_roce(hca, env, &attr, ret_gid);
	if (r == 0)
		r = choose_pkey(hca, env, &attr, &ret->rail[hca->rail].pkey,
				&ret_source->pkey_index);
	if (r < 0)
		return r;

	memcpy(ret->rail[hca->rail].gid, ret_gid->gid.raw, MPIB_GID_SIZE);
	ret->rail[hca->rail].ipv4_be = ret_gid->ipv4_be;
	ret->rail[hca->rail].mtu = (uint8_t)attr.active_mtu;
	ret->rail[hca->rail].link_layer = attr.link_layer;
	ret->rail[hca->rail].lid = attr.lid;
	memcpy(ret->rail[hca->rail].hca, hca->name, sizeof(hca->name));
	return 0;
}

bool mpib_port_is_down(const struct mpib_hca *hca)
{
	struct ibv_port_attr attr;

	return mpib_verbs_query_port(hca->ctx, hca->port, &attr) == 0 &&
	       attr.state != IBV_PORT_ACTIVE;
}
