/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor over a made-up sysfs: a healthy node first, then one fault at a time. */
#include <sys/resource.h>

#include "tests/unit/agent/harness.h"

#define CTL_OK	 0
#define CTL_FAIL 1
#define CTL_WARN 5

static struct agent agent;
static char root[TEMPDIR_MAX + 16];

static void put(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(const char *text, const char *format, ...)
{
	char path[512];
	size_t len = (size_t)snprintf(path, sizeof(path), "%s", root);
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

	put("4: ACTIVE\n", "/sys/class/infiniband/%s/ports/1/state", name);
	put("5: LinkUp\n", "/sys/class/infiniband/%s/ports/1/phys_state", name);
	put("100 Gb/sec (4X EDR)\n", "/sys/class/infiniband/%s/ports/1/rate", name);
	put("Ethernet\n", "/sys/class/infiniband/%s/ports/1/link_layer", name);
	put("fe80:0000:0000:0000:5054:00ff:fe12:3456\n", "/sys/class/infiniband/%s/ports/1/gids/0",
	    name);
	put("RoCE v2\n", "/sys/class/infiniband/%s/ports/1/gid_attrs/types/0", name);
	put(gid, "/sys/class/infiniband/%s/ports/1/gids/2", name);
	put("IB/RoCE v1\n", "/sys/class/infiniband/%s/ports/1/gid_attrs/types/2", name);
	put(gid, "/sys/class/infiniband/%s/ports/1/gids/3", name);
	put("RoCE v2\n", "/sys/class/infiniband/%s/ports/1/gid_attrs/types/3", name);
	put(netdev, "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/3", name);
	put(mtu, "/sys/class/net/%s/mtu", netdev);
	put("up\n", "/sys/class/net/%s/operstate", netdev);
	put(name, "/sys/class/infiniband_verbs/uverbs%u/ibdev", number);
	put("", "/dev/infiniband/uverbs%u", number);
	(void)snprintf(pci, sizeof(pci), "../../../devices/0000:%02x:00.0", number + 1);
	put("0\n", "/sys/devices/0000:%02x:00.0/numa_node", number + 1);
	(void)snprintf(link, sizeof(link), "%s/sys/class/infiniband/%s/device", root, name);
	assert_int_equal(symlink(pci, link), 0);
}

/* A healthy node, and the environment of a job on it. */
static void make_node(void)
{
	char path[TEMPDIR_MAX + 32];

	put_device("mlx5_1", 0, "eth0", "0000:0000:0000:0000:0000:ffff:0a00:0101\n", "9000\n");
	put_device("mlx5_11", 1, "eth1", "0000:0000:0000:0000:0000:ffff:0a09:0101\n", "9000\n");
	put("\177ELF\2", "/lib/libnccl-net-mpib.so");
	(void)snprintf(path, sizeof(path), "%s/lib", root);
	(void)setenv("LD_LIBRARY_PATH", path, 1);
	(void)setenv("MPIB_HCA_SOUT", "mlx5_1", 1);
	(void)setenv("MPIB_HCA_SUP", "mlx5_11:1", 1);
	(void)setenv("MPIB_MODE", "1", 1);
	(void)setenv("NCCL_NET_PLUGIN", "mpib", 1);
}

static void remove_node(void)
{
	static const char *const names[] = { "LD_LIBRARY_PATH",	   "MPIB_HCA_SOUT",
					     "MPIB_HCA_SUP",	   "MPIB_MODE",
					     "NCCL_NET_PLUGIN",	   "NCCL_NET",
					     "NCCL_IB_HCA",	   "MPIB_IB_GID_INDEX",
					     "MPIB_AGENT_OPTIONAL" };

	for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
		(void)unsetenv(names[n]);
	tempdir_remove(root);
}

static int set_up(void **state)
{
	(void)state;
	agent_init(&agent);
	(void)snprintf(root, sizeof(root), "%s/root", agent.base);
	remove_node();
	make_node();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	remove_node();
	agent_fini(&agent);
	return 0;
}

static char *doctor(int wanted)
{
	return agent_ctl_words(&agent, wanted, "--json", "--root", root, "doctor", NULL);
}

/* The memlock limit of whoever runs the tests is not a fault of the node; root isn't bound. */
static int healthy(void)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	if (geteuid() == 0 || limit.rlim_cur == RLIM_INFINITY)
		return CTL_OK;
	return limit.rlim_cur < 64u << 20 ? CTL_FAIL : CTL_WARN;
}

static void a_healthy_node_is_ok(void **state)
{
	char *out;

	(void)state;
	agent_start(&agent);
	out = doctor(healthy());
	assert_non_null(strstr(out,
			       "\"check\": \"SOUT mlx5_1:1\", \"found\": \"4: ACTIVE, Ethernet, "
			       "100 Gb/sec (4X EDR)\""));
	assert_non_null(strstr(out, "GID 3: 10.0.1.1, RoCE v2 on eth0"));
	assert_non_null(strstr(out, "GID 3: 10.9.1.1, RoCE v2 on eth1"));
	assert_non_null(strstr(out, "netdev eth1, MTU 9000: RDMA packets of 4096 bytes"));
	assert_non_null(strstr(out, "PCI 0000:02:00.0, NUMA node 0"));
	assert_non_null(strstr(out, "the heartbeat moves"));
	assert_non_null(strstr(out, "libnccl-net-mpib.so (LD_LIBRARY_PATH)"));
	free(out);
}

static void each_fault_is_named_with_its_cure(void **state)
{
	static const struct {
		const char *file; /* gets @text; NULL: none */
		const char *text;
		const char *variable; /* gets @value; NULL: none */
		const char *value;
		int code;
		const char *part;
	} rows[] = {
		{ "/sys/class/infiniband/mlx5_11/ports/1/state", "1: DOWN\n", NULL, NULL, CTL_FAIL,
		  "\"check\": \"SUP mlx5_11:1\", \"found\": \"port is 1: DOWN (physically 5: "
		  "LinkUp)\"" },
		{ "/sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/3", "IB/RoCE v1\n", NULL,
		  NULL, CTL_FAIL, "no RoCE v2 GID with an IPv4 address" },
		{ "/sys/class/infiniband/mlx5_1/ports/1/gids/3",
		  "0000:0000:0000:0000:0000:ffff:a9fe:0101\n", NULL, NULL, CTL_FAIL,
		  "no RoCE v2 GID with an IPv4 address" },
		{ "/sys/class/net/eth0/mtu", "1500\n", NULL, NULL, CTL_WARN,
		  "netdev eth0 has MTU 1500: RDMA packets of 1024 bytes" },
		{ "/sys/class/net/eth1/operstate", "down\n", NULL, NULL, CTL_FAIL,
		  "netdev eth1 is down" },
		{ "/sys/devices/0000:02:00.0/numa_node", "1\n", NULL, NULL, CTL_WARN,
		  "mlx5_1 is at NUMA node 0, mlx5_11 at 1" },
		{ "/sys/class/infiniband_verbs/uverbs1/ibdev", "other\n", NULL, NULL, CTL_FAIL,
		  "device mlx5_11 has no uverbs node" },
		{ "/lib/libnccl-net-mpib.so", "text", NULL, NULL, CTL_FAIL,
		  "is no library of 64 bits" },
		{ "/etc/nccl.conf", "NCCL_DEBUG=INFO\nNCCL_NET=Socket\n", NULL, NULL, CTL_FAIL,
		  "NCCL_NET=Socket makes NCCL take that network" },
		{ NULL, NULL, "NCCL_NET", "IB", CTL_FAIL, "NCCL_NET=IB makes NCCL" },
		{ NULL, NULL, "NCCL_NET_PLUGIN", "none", CTL_FAIL, "leads past MPIB" },
		{ NULL, NULL, "NCCL_NET_PLUGIN", "", CTL_WARN, "looks for another plugin" },
		{ NULL, NULL, "NCCL_IB_HCA", "mlx5_2", CTL_WARN,
		  "set MPIB_HCA_SOUT and MPIB_HCA_SUP" },
		{ NULL, NULL, "LD_LIBRARY_PATH", "/nonexistent", CTL_OK, "(a standard directory)" },
		{ NULL, NULL, "MPIB_HCA_SUP", "mlx5_2", CTL_FAIL,
		  "no RDMA device mlx5_2; there are: " },
		{ NULL, NULL, "MPIB_HCA_SUP", "mlx5_11:2", CTL_FAIL, "has no port 2" },
		{ NULL, NULL, "MPIB_HCA_SUP", "mlx5_1", CTL_FAIL, "both rails are mlx5_1:1" },
		{ NULL, NULL, "MPIB_HCA_SUP", "mlx5_11,mlx5_1", CTL_FAIL, "don't pair up" },
		{ NULL, NULL, "MPIB_HCA_SUP", "../../net/eth0", CTL_FAIL, "what is no name" },
		{ NULL, NULL, "MPIB_HCA_SOUT", "", CTL_FAIL, "is not set; RDMA devices: mlx5_" },
		{ NULL, NULL, "MPIB_IB_GID_INDEX", "2", CTL_FAIL, "at index 2" },
	};

	if (healthy() != CTL_OK) {
		print_message("needs root, or unlimited memlock: the exit code tells one fault\n");
		skip();
	}
	agent_start(&agent);
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		char *out;

		if (rows[n].file)
			put(rows[n].text, "%s", rows[n].file);
		if (rows[n].variable)
			(void)setenv(rows[n].variable, rows[n].value, 1);
		out = doctor(rows[n].code);
		harness_expect(out, rows[n].part);

		remove_node();
		make_node();
	}
}

static void without_an_agent_it_depends_on_the_mode(void **state)
{
	(void)state;
	harness_expect(doctor(CTL_FAIL), "\"check\": \"agent\", \"found\": \"none serves ");
	(void)setenv("MPIB_MODE", "0", 1);
	harness_expect(doctor(healthy()), "MPIB_MODE is not 1, so none is needed");
	(void)setenv("MPIB_MODE", "1", 1);
	(void)setenv("MPIB_AGENT_OPTIONAL", "1", 1);
	if (healthy() == CTL_OK)
		harness_expect(doctor(CTL_WARN), "systemctl start mpib-agentd");
}

static void a_small_memlock_limit_is_told(void **state)
{
	struct rlimit small = { .rlim_cur = 64 << 10 };
	const char *args[] = { "--json", "--root", root, "doctor", NULL };
	char *out = NULL;
	struct rlimit before;

	(void)state;
	if (geteuid() != 0) {
		print_message("needs root to become another user\n");
		skip();
	}
	agent_start(&agent);
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
	small.rlim_max = before.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &small), 0);
	assert_int_equal(agent_ctl(&agent, HARNESS_NOBODY, args, &out), CTL_FAIL);
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
	assert_non_null(strstr(out, "this shell may pin 64 KiB only"));
	/* and this user may not open the devices, which are root's */
	assert_non_null(strstr(out, "/dev/infiniband/uverbs0: Permission denied"));
	free(out);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_healthy_node_is_ok),
		T(each_fault_is_named_with_its_cure),
		T(without_an_agent_it_depends_on_the_mode),
		T(a_small_memlock_limit_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
