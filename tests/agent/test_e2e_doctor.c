/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor over a made-up node: a healthy one first, then one fault at a time. */
#include <signal.h>
#include <sys/resource.h>

#include "tests/agent/harness/counters.h"
#include "tests/agent/harness/node.h"

static void a_healthy_node_is_ok(void **state)
{
	char *out;

	(void)state;
	agent_start(&agent);
	out = node_doctor(node_healthy());
	assert_non_null(strstr(out,
			       "\"check\": \"SOUT mlx5_1:1\", \"found\": \"4: ACTIVE, Ethernet, "
			       "100 Gb/sec (4X EDR)\""));
	assert_non_null(strstr(out, "GID 3: 10.0.1.1, RoCE v2 on eth0"));
	assert_non_null(strstr(out, "GID 3: 10.9.1.1, RoCE v2 on eth1"));
	assert_non_null(strstr(out, "netdev eth1, MTU 9000: RDMA packets of 4096 bytes"));
	assert_non_null(strstr(out, "PCI 0000:02:00.0, NUMA node 0"));
	assert_non_null(strstr(out, "10.0.1.1 is of island 10.0.1.0/24, for the agent and "
				    "without it"));
	assert_non_null(strstr(out, "the heartbeat moves"));
	assert_non_null(strstr(out, "libnccl-net-mpib.so (LD_LIBRARY_PATH)"));
	assert_non_null(strstr(out, "libibverbs.so.1 (LD_LIBRARY_PATH)"));
	assert_non_null(strstr(out, "by their speeds mlx5_1 and mlx5_11 share a message as 100:100 "
				    "(50% on SUP)"));
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
		{ "/sys/class/infiniband/mlx5_11/ports/1/rate", "50 Gb/sec (1X HDR)\n", NULL, NULL,
		  CTL_WARN, "SUP mlx5_11 (50 Gb/s) is slower than SOUT mlx5_1 (100 Gb/s)" },
		{ "/sys/class/infiniband/mlx5_11/ports/1/gids/3",
		  "0000:0000:0000:0000:0000:ffff:0a00:014d\n", NULL, NULL, CTL_WARN,
		  "mlx5_1 and mlx5_11 have addresses of one /24 network" },
		{ NULL, NULL, "MPIB_ISLAND_PREFIX_LEN", "25", CTL_WARN,
		  "the agent's islands have a prefix of 24 bits, the job's "
		  "(MPIB_ISLAND_PREFIX_LEN) 25" },
		{ "/sys/class/infiniband_verbs/uverbs1/ibdev", "other\n", NULL, NULL, CTL_FAIL,
		  "device mlx5_11 has no uverbs node" },
		{ "/lib/libnccl-net-mpib.so", "text", NULL, NULL, CTL_FAIL,
		  "is no library of 64 bits" },
		{ "/lib/libibverbs.so.1", "text", NULL, NULL, CTL_FAIL,
		  "libibverbs.so.1 (LD_LIBRARY_PATH) can't be read, or is no library of 64 bits" },
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
		{ NULL, NULL, "MPIB_HCA_SUP", "mlx5_1", CTL_FAIL,
		  "MPIB_HCA_SOUT and MPIB_HCA_SUP both name port mlx5_1:1" },
		{ NULL, NULL, "MPIB_HCA_SUP", "mlx5_11,mlx5_1", CTL_FAIL,
		  "MPIB_HCA_SOUT names 1 devices and MPIB_HCA_SUP 2: they pair up by position" },
		{ NULL, NULL, "MPIB_HCA_SUP", "../../net/eth0", CTL_FAIL,
		  "MPIB_HCA_SUP=../../net/eth0: element 1 must be a device's name" },
		{ NULL, NULL, "MPIB_MODE", "2", CTL_FAIL, "\"found\": \"MPIB_MODE=2: must be " },
		{ NULL, NULL, "MPIB_HCA_SOUT", "", CTL_FAIL, "is not set; RDMA devices: mlx5_" },
		{ NULL, NULL, "MPIB_IB_GID_INDEX", "2", CTL_FAIL, "at index 2" },
	};

	if (node_healthy() != CTL_OK) {
		print_message("needs root, or unlimited memlock: the exit code tells one fault\n");
		skip();
	}
	agent_start(&agent);
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		char *out;

		if (rows[n].file)
			node_put(rows[n].text, "%s", rows[n].file);
		if (rows[n].variable)
			(void)setenv(rows[n].variable, rows[n].value, 1);
		out = node_doctor(rows[n].code);
		harness_expect(out, rows[n].part);

		node_remove();
		node_make();
	}
}

/* SUP has to reach all of the island that a job goes by. */
static void a_sup_network_smaller_than_the_island_is_told(void **state)
{
	(void)state;
	agent_start(&agent);
	node_put_routes("C0FFFFFF", NULL);
	harness_expect(node_doctor(node_healthy() == CTL_FAIL ? CTL_FAIL : CTL_WARN),
		       "SUP of mlx5_1:1+mlx5_11:1 is in 10.9.1.0/26 on eth1, which is smaller than "
		       "the island 10.0.1.0/24");
	node_put_routes("C0FFFFFF", "3E01090A"); /* a gateway leads on */
	free(node_doctor(node_healthy()));
	node_put_routes("C0FFFFFF", NULL);
	(void)setenv("MPIB_MODE", "0", 1);
	(void)setenv("MPIB_ISLAND_PREFIX_LEN", "26", 1); /* as small as the network */
	free(node_doctor(node_healthy()));
}

static void islands_of_the_job_and_of_the_agent_are_compared(void **state)
{
	static const struct {
		const char *ini;
		int warns;
		const char *part;
	} rows[] = {
		{ "[islands]\nA = 10.0.1.0/24, 10.0.7.0/24\nB = 10.0.2.0/24\n", 0,
		  "10.0.1.1 is of island A (10.0.1.0/24); without the agent a job goes by "
		  "10.0.1.0/24" },
		{ "[islands]\nA = 10.0.0.0/16\n", 0, "10.0.1.1 is of island A (10.0.0.0/16)" },
		{ "[islands]\nA = 10.0.1.0/25\nB = 10.0.1.128/25\n", 1,
		  "10.0.1.1 is of island A, and 10.0.1.128/25 inside the job's 10.0.1.0/24 "
		  "(MPIB_ISLAND_PREFIX_LEN=24) of island B" },
		{ "[islands]\nA = 10.0.1.0/24\nB = 10.0.1.9/32\n", 1, "10.0.1.9/32 inside" },
		{ "[islands]\nB = 10.0.2.0/24\n", 1,
		  "10.0.1.1 is in none of the 1 islands that the policy names, and its island is "
		  "10.0.1.0/24" },
		{ "[islands]\nprefix_len = 16\n", 1,
		  "the agent's islands have a prefix of 16 bits, the job's "
		  "(MPIB_ISLAND_PREFIX_LEN) 24" },
	};

	(void)state;
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		agent_write_ini(&agent, rows[n].ini);
		agent_start(&agent);
		harness_expect(node_doctor(rows[n].warns && node_healthy() == CTL_OK
						   ? CTL_WARN
						   : node_healthy()),
			       rows[n].part);
		assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	}
}

static void without_an_agent_it_depends_on_the_mode(void **state)
{
	(void)state;
	harness_expect(node_doctor(CTL_FAIL), "\"check\": \"agent\", \"found\": \"none serves ");
	(void)setenv("MPIB_MODE", "0", 1);
	harness_expect(node_doctor(node_healthy()), "MPIB_MODE is not 1, so none is needed");
	(void)setenv("MPIB_MODE", "1", 1);
	(void)setenv("MPIB_AGENT_OPTIONAL", "1", 1);
	if (node_healthy() == CTL_OK)
		harness_expect(node_doctor(CTL_WARN), "systemctl start mpib-agentd");
}

static void a_small_memlock_limit_is_told(void **state)
{
	struct rlimit small = { .rlim_cur = 64 << 10 };
	const char *args[] = { "--json", "--root", node_root, "doctor", NULL };
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

static void a_flow_without_a_rail_is_a_warning(void **state)
{
	struct mpib_counters_header *header;
	struct mpib_counter_entry *entry;
	int socket;
	int fd;

	(void)state;
	agent_start(&agent);
	harness_expect(
		node_doctor(node_healthy()),
		"\"check\": \"lost rails\", \"found\": \"none, of 0 connections that tell\"");
	header = counters_make(MPIB_COUNTERS_SIZE, F_SEAL_SHRINK, &fd);
	header->features = MPIB_COUNTERS_HAVE_FAILOVER;
	entry = counters_entry(header, 0);
	*entry = (struct mpib_counter_entry){ .kind = MPIB_COUNTER_SEND,
					      .conn_id = 7,
					      .rails_up = 1,
					      .losses = { 0, 1 },
					      .state = MPIB_COUNTER_LIVE };
	entry->rail[1].bytes = 12345;
	socket = agent_connect(&agent);
	assert_int_equal(agent_register(socket, 7, test_ip("10.0.1.1"), test_ip("10.0.2.5")).status,
			 0);
	assert_int_equal(counters_hand_over(socket, fd, 1, MPIB_COUNTERS_SIZE), MPIB_STATUS_OK);
	counters_await_flows(&agent, "\"sup_sent\": 12345");
	harness_expect(node_doctor(node_healthy() == CTL_FAIL ? CTL_FAIL : CTL_WARN),
		       "{\"level\": \"WARN\", \"check\": \"lost rails\", \"found\": \"1 of 1 "
		       "connections, of 1 flow, have lost SUP and take the other rail whole: 1 of "
		       "10.0.1.1-10.0.2.5, ...\", \"cure\": \"look at ");

	entry->rails_up = 0;
	entry->losses[0] = 1;
	entry->rail[1].bytes = 23456;
	counters_await_flows(&agent, "\"sup_sent\": 23456");
	harness_expect(node_doctor(node_healthy() == CTL_FAIL ? CTL_FAIL : CTL_WARN),
		       "have lost SUP and no rail is left to some: ");
	(void)close(socket);
	(void)close(fd);
}

/* In mode 0 one port may be both rails, as the finding of mode 1 says. */
static void one_port_may_be_both_rails_in_mode_0(void **state)
{
	(void)state;
	agent_start(&agent);
	(void)setenv("MPIB_MODE", "0", 1);
	(void)setenv("MPIB_HCA_SUP", "mlx5_1", 1);
	harness_expect(node_doctor(node_healthy() == CTL_FAIL ? CTL_FAIL : CTL_WARN),
		       "\"level\": \"WARN\", \"check\": \"rails\", \"found\": \"both rails are "
		       "mlx5_1:1, which MPIB_MODE=1 refuses\"");
}

static void env_lists_every_setting_with_its_origin(void **state)
{
	char *out;

	(void)state;
	agent_start(&agent);
	(void)setenv("NCCL_IB_TIMEOUT", "20", 1);
	node_put("# NCCL's file\nNCCL_IB_RETRY_CNT=5\nNCCL_IB_TIMEOUT=19\n", "/etc/nccl.conf");
	out = agent_ctl_words(&agent, node_healthy(), "--json", "--root", node_root, "--env",
			      "doctor", NULL);
	(void)unsetenv("NCCL_IB_TIMEOUT");

	assert_non_null(strstr(out, "\"check\": \"MPIB_MODE\", \"found\": \"1, set\""));
	assert_non_null(
		strstr(out, "\"MPIB_IB_TIMEOUT\", \"found\": \"20, from NCCL_IB_TIMEOUT\""));
	assert_non_null(
		strstr(out, "\"MPIB_IB_RETRY_CNT\", \"found\": \"5, from NCCL_IB_RETRY_CNT\""));
	assert_non_null(strstr(out, "\"MPIB_SOUT_QP\", \"found\": \"2, by default\""));
	assert_non_null(strstr(out, "\"MPIB_OOB_IF\", \"found\": \"empty, by default\""));
	free(out);
	assert_null(strstr(out = node_doctor(node_healthy()), "by default"));
	free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		NODE_TEST(a_healthy_node_is_ok),
		NODE_TEST(each_fault_is_named_with_its_cure),
		NODE_TEST(a_sup_network_smaller_than_the_island_is_told),
		NODE_TEST(islands_of_the_job_and_of_the_agent_are_compared),
		NODE_TEST(without_an_agent_it_depends_on_the_mode),
		NODE_TEST(a_small_memlock_limit_is_told),
		NODE_TEST(a_flow_without_a_rail_is_a_warning),
		NODE_TEST(one_port_may_be_both_rails_in_mode_0),
		NODE_TEST(env_lists_every_setting_with_its_origin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
