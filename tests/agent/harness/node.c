/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/node.h"

#include <sys/resource.h>

char node_root[TEMPDIR_MAX + 16];

void node_put(const char *text, const char *format, ...)
{
	char path[512];
	size_t len = (size_t)snprintf(path, sizeof(path), "%s", node_root);
	va_list args;
	FILE *file;

	va_start(args, format);
	(void)vsnprintf(path + len, sizeof(path) - len, format, args);
	va_end(args);
	for (char *p = path + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		(void)mkdir(path, 0755);
		*p = '/';
	}
	file = fopen(path, "we");
	assert_non_null(file);
	(void)fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static void put_device(const char *name, unsigned int number, const char *netdev, const char *gid,
		       const char *mtu)
{
	char link[TEMPDIR_MAX + 128];
	char pci[64];

	node_put("4: ACTIVE\n", "/sys/class/infiniband/%s/ports/1/state", name);
	node_put("5: LinkUp\n", "/sys/class/infiniband/%s/ports/1/phys_state", name);
	node_put("100 Gb/sec (4X EDR)\n", "/sys/class/infiniband/%s/ports/1/rate", name);
	node_put("Ethernet\n", "/sys/class/infiniband/%s/ports/1/link_layer", name);
	node_put("fe80:0000:0000:0000:5054:00ff:fe12:3456\n",
		 "/sys/class/infiniband/%s/ports/1/gids/0", name);
	node_put("RoCE v2\n", "/sys/class/infiniband/%s/ports/1/gid_attrs/types/0", name);
	node_put(gid, "/sys/class/infiniband/%s/ports/1/gids/2", name);
	node_put("IB/RoCE v1\n", "/sys/class/infiniband/%s/ports/1/gid_attrs/types/2", name);
	node_put(gid, "/sys/class/infiniband/%s/ports/1/gids/3", name);
	node_put("RoCE v2\n", "/sys/class/infiniband/%s/ports/1/gid_attrs/types/3", name);
	node_put(netdev, "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/3", name);
	node_put(mtu, "/sys/class/net/%s/mtu", netdev);
	node_put("up\n", "/sys/class/net/%s/operstate", netdev);
	node_put(name, "/sys/class/infiniband_verbs/uverbs%u/ibdev", number);
	node_put("", "/dev/infiniband/uverbs%u", number);
	(void)snprintf(pci, sizeof(pci), "../../../devices/0000:%02x:00.0", number + 1);
	node_put("0\n", "/sys/devices/0000:%02x:00.0/numa_node", number + 1);
	(void)snprintf(link, sizeof(link), "%s/sys/class/infiniband/%s/device", node_root, name);
	assert_int_equal(symlink(pci, link), 0);
}

void node_put_routes(const char *sup_mask, const char *gateway)
{
	char text[512];
	int len = snprintf(text, sizeof(text),
			   "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n"
			   "eth0\t00000000\tFE01000A\t0003\t0\t0\t0\t00000000\t0\n"
			   "eth0\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n"
			   "eth1\t0001090A\t00000000\t0001\t0\t0\t0\t%s\t0\n",
			   sup_mask);

	if (gateway)
		(void)snprintf(text + len, sizeof(text) - (size_t)len,
			       "eth1\t0000090A\t%s\t0003\t0\t0\t0\t0000FFFF\t0\n", gateway);
	node_put(text, "/proc/net/route");
}

void node_make(void)
{
	char path[TEMPDIR_MAX + 32];

	put_device("mlx5_1", 0, "eth0", "0000:0000:0000:0000:0000:ffff:0a00:0101\n", "9000\n");
	put_device("mlx5_11", 1, "eth1", "0000:0000:0000:0000:0000:ffff:0a09:0101\n", "9000\n");
	node_put_routes("00FFFFFF", NULL);
	node_put("\177ELF\2", "/lib/libnccl-net-mpib.so");
	node_put("\177ELF\2", "/lib/libibverbs.so.1");
	(void)snprintf(path, sizeof(path), "%s/lib", node_root);
	(void)setenv("LD_LIBRARY_PATH", path, 1);
	(void)setenv("MPIB_HCA_SOUT", "mlx5_1", 1);
	(void)setenv("MPIB_HCA_SUP", "mlx5_11:1", 1);
	(void)setenv("MPIB_MODE", "1", 1);
	(void)setenv("NCCL_NET_PLUGIN", "mpib", 1);
}

void node_remove(void)
{
	static const char *const names[] = { "LD_LIBRARY_PATH",	    "MPIB_HCA_SOUT",
					     "MPIB_HCA_SUP",	    "MPIB_MODE",
					     "NCCL_NET_PLUGIN",	    "NCCL_NET",
					     "NCCL_IB_HCA",	    "MPIB_IB_GID_INDEX",
					     "MPIB_AGENT_OPTIONAL", "MPIB_ISLAND_PREFIX_LEN" };

	for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
		(void)unsetenv(names[n]);
	tempdir_remove(node_root);
}

int node_set_up(void **state)
{
	(void)agent_set_up(state);
	(void)snprintf(node_root, sizeof(node_root), "%s/root", agent.base);
	node_remove();
	node_make();
	return 0;
}

int node_tear_down(void **state)
{
	node_remove();
	return agent_tear_down(state);
}

char *node_doctor(int wanted)
{
	return agent_ctl_words(&agent, wanted, "--json", "--root", node_root, "doctor", NULL);
}

int node_healthy(void)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	if (geteuid() == 0 || limit.rlim_cur == RLIM_INFINITY)
		return CTL_OK;
	return limit.rlim_cur < 64u << 20 ? CTL_FAIL : CTL_WARN;
}
