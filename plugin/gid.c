/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "plugin/env.h"
#include "plugin/verbs.h"

uint32_t mpib_gid_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	uint32_t be;

	if (memcmp(gid->raw, mapped, sizeof(mapped)) != 0)
		return 0;
	memcpy(&be, gid->raw + 12, sizeof(be));
	return be;
}

bool mpib_ipv4_routable(uint32_t be)
{
	uint32_t ip = ntohl(be);

	return ip >> 24 != 0 && ip >> 24 != 127 && ip >> 16 != 0xa9fe && ip >> 28 < 0xe;
}

int mpib_gid_choose(struct ibv_context *ctx, unsigned int port, unsigned int table_len, int wanted,
		    struct mpib_gid *ret)
{
	struct ibv_gid_entry entry;
	unsigned int first = wanted < 0 ? 0 : (unsigned int)wanted;
	unsigned int end = wanted < 0 ? table_len : first + 1;

	if (end > MPIB_GID_INDEX_MAX + 1)
		end = MPIB_GID_INDEX_MAX + 1;
	for (unsigned int index = first; index < end && index < table_len; index++) {
		uint32_t ipv4;

		if (mpib_verbs_query_gid(ctx, port, index, &entry) < 0)
			continue;
		ipv4 = mpib_gid_ipv4(&entry.gid);
		if (wanted < 0 &&
		    (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || !mpib_ipv4_routable(ipv4)))
			continue;

		ret->gid = entry.gid;
		ret->index = index;
		ret->ipv4_be = ipv4;
		return 0;
	}

	return -EADDRNOTAVAIL;
}
