/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the two HCAs of a fused device look like a pair. */
#include "plugin/verbs/device_pair.h"

#include <stdio.h>
#include <string.h>

#include "common/ipv4.h"
#include "plugin/base/log.h"

/* NUMA node of the HCA, -1 where sysfs doesn't tell. */
static int numa_node(const struct mpib_hca *hca)
{
	char path[sizeof(hca->pci_path) + 16];
	int node = -1;
	FILE *file;

	if (!hca->pci_path[0])
		return -1;
	(void)snprintf(path, sizeof(path), "%s/numa_node", hca->pci_path);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (fscanf(file, "%d", &node) != 1) /* NOLINT(cert-err34-c): a kernel file */
		node = -1;
	(void)fclose(file);
	return node;
}

/* Pairs are made by position; a slip in a list of sixteen names is easy to make and hard to see. */
void mpib_device_check_pair(const struct mpib_device *dev, const uint32_t ipv4_be[MPIB_RAIL_MAX])
{
	const struct mpib_hca *sout = &dev->hca[MPIB_SOUT], *sup = &dev->hca[MPIB_SUP];
	int sout_node = numa_node(sout), sup_node = numa_node(sup);

	if (strcmp(sout->name, sup->name) == 0)
		MPIB_WARN("device %s: both rails are the same port; name two", dev->name);
	else if (sup->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET &&
		 mpib_ipv4_same_prefix(ipv4_be[MPIB_SOUT], ipv4_be[MPIB_SUP], 24))
		MPIB_WARN("device %s: SOUT and SUP have addresses of one /24 network; are they the "
			  "right pair?",
			  dev->name);
	else if (sup->speed_mbps < sout->speed_mbps)
		MPIB_WARN("device %s: SUP (%u Mbit/s) is slower than SOUT (%u Mbit/s); are they "
			  "swapped?",
			  dev->name, sup->speed_mbps, sout->speed_mbps);
	else if (sout_node >= 0 && sup_node >= 0 && sout_node != sup_node)
		MPIB_WARN("device %s: SOUT is on NUMA node %d and SUP on %d; are they the right "
			  "pair?",
			  dev->name, sout_node, sup_node);
}
