/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in configuration, GID table entries, and what identifies a configuration. */
#include "tests/fabric/config.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The table that a RoCE NIC shows once its netdev has an address: link-local v1 and v2, then the
 * IPv4-mapped pair. */
void fab_gids_from_ipv4(struct fab_dev_conf *dev, const struct in_addr *ip)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	uint8_t local[16] = { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0xff, 0xfe };
	unsigned int k;

	memcpy(local + 13, (const uint8_t *)&ip->s_addr + 1, 3);
	local[9] = ((const uint8_t *)&ip->s_addr)[0];
	memset(dev->gid, 0, sizeof(dev->gid));
	for (k = 0; k < 4; k++) {
		if (k < 2) {
			memcpy(dev->gid[k].raw, local, 16);
		} else {
			memcpy(dev->gid[k].raw, mapped, 12);
			memcpy(dev->gid[k].raw + 12, &ip->s_addr, 4);
		}
		dev->gid[k].type = k & 1 ? FAB_GID_V2 : FAB_GID_V1;
	}
	if (!dev->guid)
		dev->guid = 0x0200000000000000ULL | ntohl(ip->s_addr);
}

void fab_gids_from_guid(struct fab_dev_conf *dev)
{
	static const uint8_t prefix[8] = { 0xfe, 0x80 };
	uint64_t guid_be = htobe64(dev->guid);

	memcpy(dev->gid[0].raw, prefix, 8);
	memcpy(dev->gid[0].raw + 8, &guid_be, 8);
	dev->gid[0].type = FAB_GID_V1;
}

int fab_gid_parse(const char *text, struct fab_gid *ret_gid)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	struct fab_gid gid = { 0 };
	const char *slash = strchr(text, '/');
	char addr[64];

	if (strcmp(text, "-") == 0) {
		*ret_gid = gid;
		return 0;
	}
	if (!slash || (size_t)(slash - text) >= sizeof(addr))
		return -EINVAL;
	memcpy(addr, text, slash - text);
	addr[slash - text] = '\0';
	if (strcmp(slash, "/v1") == 0)
		gid.type = FAB_GID_V1;
	else if (strcmp(slash, "/v2") == 0)
		gid.type = FAB_GID_V2;
	else
		return -EINVAL;
	if (inet_pton(AF_INET, addr, gid.raw + 12) == 1)
		memcpy(gid.raw, mapped, 12);
	else if (inet_pton(AF_INET6, addr, gid.raw) != 1)
		return -EINVAL;
	*ret_gid = gid;
	return 0;
}

void fab_config_default(struct fab_config *ret_conf)
{
	static const char text[] = "[fabric]\nname = two-nodes\n"
				   "[device sout]\n[device sup]\n"
				   "[node 1]\nsout.address = 10.0.1.1\nsup.address = 10.9.1.1\n"
				   "[node 2]\nsout.address = 10.0.1.2\nsup.address = 10.9.1.2\n";
	char err[128];

	if (fab_config_parse(text, sizeof(text) - 1, ret_conf, err, sizeof(err)) < 0)
		abort(); /* the text above is ours: only memory can be short */
}

uint32_t fab_config_hash(const struct fab_config *conf)
{
	const uint8_t *byte = (const uint8_t *)conf;
	uint32_t hash = 2166136261U;

	for (size_t k = 0; k < sizeof(*conf); k++)
		hash = (hash ^ byte[k]) * 16777619U;
	return hash;
}
