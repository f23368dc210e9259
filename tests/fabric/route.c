/* SPDX-License-Identifier: Apache-2.0 */
/* Which device an address handle leads to, and where a device stands in the machine. */
#include "tests/fabric/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool reaches(uint32_t from_dev, uint32_t to_dev)
{
	const struct fab_dev_conf *from = fab_dev_conf(from_dev), *to = fab_dev_conf(to_dev);

	if (strcmp(from->network, to->network) != 0 || from->infiniband != to->infiniband)
		return false;
	return !(from->scoped || to->scoped) ||
	       strcmp(fab.conf->node[from->node].island, fab.conf->node[to->node].island) == 0;
}

static bool owns_gid(uint32_t dev, const union ibv_gid *gid)
{
	for (unsigned int g = 0; g < FAB_GIDS_MAX; g++) {
		struct fab_gid entry;

		fab_state_gid_get(fab_dev_state(dev), g, &entry);
		if (entry.type != FAB_GID_NONE && memcmp(entry.raw, gid->raw, 16) == 0)
			return true;
	}
	return false;
}

/* InfiniBand goes by LID; a global route must name the same port. */
uint32_t fab_route(uint32_t dev, const struct ibv_ah_attr *ah)
{
	uint32_t d;

	for (d = 0; d < fab.conf->devs; d++) {
		if (!reaches(dev, d))
			continue;
		if (fab_dev_conf(dev)->infiniband && fab_lid(d) != ah->dlid)
			continue;
		if (!ah->is_global || owns_gid(d, &ah->grh.dgid))
			return d;
	}
	return d;
}

/* A peer on this network whose address is known but that no route leads to: a kernel finds no way
 * to resolve it and refuses RTR. An address that nobody has may lie behind a router: no answer. */
bool fab_out_of_scope(uint32_t dev, const struct ibv_ah_attr *ah)
{
	if (fab_dev_conf(dev)->infiniband || fab_route(dev, ah) < fab.conf->devs)
		return false;
	for (uint32_t d = 0; d < fab.conf->devs; d++)
		if (strcmp(fab_dev_conf(dev)->network, fab_dev_conf(d)->network) == 0 &&
		    owns_gid(d, &ah->grh.dgid))
			return true;
	return false;
}

/* The folder of the device in the meeting directory, its link `device` to the PCI device. */
static int make_folder(uint32_t dev, char *ret_path, size_t size)
{
	const struct fab_dev_conf *conf = fab_dev_conf(dev);
	int dir = fab.meeting.dir_fd;
	char self[32], link[FAB_NAME_MAX + 48], target[FAB_NAME_MAX + 56];
	ssize_t len;

	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", dir);
	len = readlink(self, ret_path, size - 1);
	if (len < 0)
		return -errno;
	ret_path[len] = '\0';
	(void)snprintf(link, sizeof(link), "sysfs-%u-%s", conf->node, conf->name);
	if ((size_t)len + 1 + strlen(link) >= size)
		return -ENAMETOOLONG;
	(void)snprintf(ret_path + len, size - (size_t)len, "/%s", link);
	if (mkdirat(dir, link, 0700) < 0 && errno != EEXIST)
		return -errno;
	(void)snprintf(target, sizeof(target), "%s/device", link);
	return symlinkat(conf->pci, dir, target) < 0 && errno != EEXIST ? -errno : 0;
}

void fab_ibdev_path(uint32_t dev, char *ret_path, size_t size)
{
	if (!fab_dev_conf(dev)->pci[0] || make_folder(dev, ret_path, size) < 0)
		(void)snprintf(ret_path, size, "/sys/class/infiniband/%s", fab_dev_conf(dev)->name);
}
