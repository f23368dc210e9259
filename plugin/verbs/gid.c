/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/verbs/gid.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "common/ipv4.h"
#include "plugin/base/env.h"
#include "plugin/verbs/verbs.h"

uint32_t mpib_gid_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	uint32_t be;

	if (memcmp(gid->raw, mapped, sizeof(mapped)) != 0)
		return 0;
	memcpy(&be, gid->raw + 12, sizeof(be));
	return be;
}

/* Whatever the entry is. */
static int read_entry(struct ibv_context *ctx, unsigned int port, unsigned int index,
		      struct mpib_gid *ret, uint32_t *ret_type)
{
	struct ibv_gid_entry entry;
	int r = mpib_verbs_query_gid(ctx, port, index, &entry);

	if (r < 0)
		return r;
	ret->gid = entry.gid;
	ret->index = index;
	ret->ipv4_be = mpib_gid_ipv4(&entry.gid);
	*ret_type = entry.gid_type;
	return 0;
}

/* How libraries and kernels say that an entry is empty, or that its interface has gone. */
static bool is_empty(int r)
{
	return r == -ENODATA || r == -EINVAL || r == -ENOENT || r == -ENODEV;
}

int mpib_gid_check(struct ibv_context *ctx, unsigned int port, unsigned int index,
		   struct mpib_gid *ret)
{
	struct mpib_gid gid;
	uint32_t type;
	int r = read_entry(ctx, port, index, &gid, &type);

	if (r < 0 && !is_empty(r))
		return r;
	if (r < 0 || type != IBV_GID_TYPE_ROCE_V2 || !mpib_ipv4_routable(gid.ipv4_be))
		return -EADDRNOTAVAIL;
	*ret = gid;
	return 0;
}

static int read_wanted(struct ibv_context *ctx, unsigned int port, unsigned int index,
		       struct mpib_gid *ret)
{
	uint32_t type;
	int r = read_entry(ctx, port, index, ret, &type);

	return is_empty(r) ? -EADDRNOTAVAIL : r;
}

int mpib_gid_choose(struct ibv_context *ctx, unsigned int port, unsigned int table_len, int wanted,
		    struct mpib_gid *ret)
{
	int found = -EADDRNOTAVAIL;

	if (table_len > MPIB_GID_INDEX_MAX + 1)
		table_len = MPIB_GID_INDEX_MAX + 1;
	if (wanted >= 0)
		return (unsigned int)wanted < table_len
			       ? read_wanted(ctx, port, (unsigned int)wanted, ret)
			       : -EADDRNOTAVAIL;
	for (unsigned int index = 0; index < table_len; index++) {
		int r = mpib_gid_check(ctx, port, index, ret);

		if (r == 0)
			return 0;
		if (r != -EADDRNOTAVAIL)
			found = r; /* it might have been the one */
	}
	return found;
}
