/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor over a made-up sysfs: a healthy node first, then one fault at a time. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/agent/harness/fresh.h"

#define CTL_OK	      0
#define CTL_FAIL      1
#define CTL_WARN      5
#define CTL_USAGE     2
#define CTL_FORBIDDEN 4

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

/* The kernel's table of routes, in its numbers: SOUT's network is 10.0.1.0/24 and SUP's 10.9.1.0
 * with @sup_mask; where @gateway is not NULL it leads on from SUP. */
static void put_routes(const char *sup_mask, const char *gateway)
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
	put(text, "/proc/net/route");
}

/* A healthy node, and the environment of a job on it. */
static void make_node(void)
{
	char path[TEMPDIR_MAX + 32];

	put_device("mlx5_1", 0, "eth0", "0000:0000:0000:0000:0000:ffff:0a00:0101\n", "9000\n");
	put_device("mlx5_11", 1, "eth1", "0000:0000:0000:0000:0000:ffff:0a09:0101\n", "9000\n");
	put_routes("00FFFFFF", NULL);
	put("\177ELF\2", "/lib/libnccl-net-mpib.so");
	put("\177ELF\2", "/lib/libibverbs.so.1");
	(void)snprintf(path, sizeof(path), "%s/lib", root);
	(void)setenv("LD_LIBRARY_PATH", path, 1);
	(void)setenv("MPIB_HCA_SOUT", "mlx5_1", 1);
	(void)setenv("MPIB_HCA_SUP", "mlx5_11:1", 1);
	(void)setenv("MPIB_MODE", "1", 1);
	(void)setenv("NCCL_NET_PLUGIN", "mpib", 1);
}

static void remove_node(void)
{
	static const char *const names[] = { "LD_LIBRARY_PATH",	    "MPIB_HCA_SOUT",
					     "MPIB_HCA_SUP",	    "MPIB_MODE",
					     "NCCL_NET_PLUGIN",	    "NCCL_NET",
					     "NCCL_IB_HCA",	    "MPIB_IB_GID_INDEX",
					     "MPIB_AGENT_OPTIONAL", "MPIB_ISLAND_PREFIX_LEN" };

	for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
		(void)unsetenv(names[n]);
	tempdir_remove(root);
}

static int set_up(void **state)
{
	(void)agent_set_up(state);
	(void)snprintf(root, sizeof(root), "%s/root", agent.base);
	remove_node();
	make_node();
	return 0;
}

static int tear_down(void **state)
{
	remove_node();
	return agent_tear_down(state);
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

/* SUP has to reach all of the island that a job goes by. */
static void a_sup_network_smaller_than_the_island_is_told(void **state)
{
	(void)state;
	agent_start(&agent);
	put_routes("C0FFFFFF", NULL);
	harness_expect(doctor(healthy() == CTL_FAIL ? CTL_FAIL : CTL_WARN),
		       "SUP of mlx5_1:1+mlx5_11:1 is in 10.9.1.0/26 on eth1, which is smaller than "
		       "the island 10.0.1.0/24");
	put_routes("C0FFFFFF", "3E01090A"); /* a gateway leads on */
	free(doctor(healthy()));
	put_routes("C0FFFFFF", NULL);
	(void)setenv("MPIB_MODE", "0", 1);
	(void)setenv("MPIB_ISLAND_PREFIX_LEN", "26", 1); /* as small as the network */
	free(doctor(healthy()));
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
		harness_expect(doctor(rows[n].warns && healthy() == CTL_OK ? CTL_WARN : healthy()),
			       rows[n].part);
		assert_int_equal(agent_stop(&agent, SIGTERM), 0);
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

/* In mode 0 one port may be both rails, as the finding of mode 1 says. */
static void one_port_may_be_both_rails_in_mode_0(void **state)
{
	(void)state;
	agent_start(&agent);
	(void)setenv("MPIB_MODE", "0", 1);
	(void)setenv("MPIB_HCA_SUP", "mlx5_1", 1);
	harness_expect(doctor(healthy() == CTL_FAIL ? CTL_FAIL : CTL_WARN),
		       "\"level\": \"WARN\", \"check\": \"rails\", \"found\": \"both rails are "
		       "mlx5_1:1, which MPIB_MODE=1 refuses\"");
}

static void env_lists_every_setting_with_its_origin(void **state)
{
	char *out;

	(void)state;
	agent_start(&agent);
	(void)setenv("NCCL_IB_TIMEOUT", "20", 1);
	put("# NCCL's file\nNCCL_IB_RETRY_CNT=5\nNCCL_IB_TIMEOUT=19\n", "/etc/nccl.conf");
	out = agent_ctl_words(&agent, healthy(), "--json", "--root", root, "--env", "doctor", NULL);
	(void)unsetenv("NCCL_IB_TIMEOUT");

	assert_non_null(strstr(out, "\"check\": \"MPIB_MODE\", \"found\": \"1, set\""));
	assert_non_null(
		strstr(out, "\"MPIB_IB_TIMEOUT\", \"found\": \"20, from NCCL_IB_TIMEOUT\""));
	assert_non_null(
		strstr(out, "\"MPIB_IB_RETRY_CNT\", \"found\": \"5, from NCCL_IB_RETRY_CNT\""));
	assert_non_null(strstr(out, "\"MPIB_SOUT_QP\", \"found\": \"2, by default\""));
	assert_non_null(strstr(out, "\"MPIB_OOB_IF\", \"found\": \"empty, by default\""));
	free(out);
	assert_null(strstr(out = doctor(healthy()), "by default"));
	free(out);
}

/* ---- a running job -------------------------------------------------------------------------- */

struct job {
	pid_t pid;
	int hold; /* the job ends when this is closed */
};

/* cat with environment @env, which is in place when this returns. */
static struct job start_job(char *const env[])
{
	char *const argv[] = { (char *)"cat", NULL };
	int hold[2], started[2];
	struct job job;
	char byte;

	assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
	assert_int_equal(pipe2(started, O_CLOEXEC), 0);
	job.pid = fork();
	assert_true(job.pid >= 0);
	if (job.pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(hold[0], STDIN_FILENO);
		(void)execve("/bin/cat", argv, env);
		(void)!write(started[1], "", 1);
		_exit(1);
	}
	(void)close(hold[0]);
	(void)close(started[1]);
	assert_int_equal(read(started[0], &byte, 1), 0); /* closed by the exec */
	(void)close(started[0]);
	job.hold = hold[1];
	return job;
}

static void end_job(const struct job *job)
{
	(void)close(job->hold);
	assert_int_equal(harness_reap(job->pid), 0);
}

/* doctor --pid of @pid; its stdout, for the caller to free. */
static char *doctor_of(pid_t pid, uid_t uid, int wanted)
{
	char number[16];
	const char *args[] = { "--json", "--root", root, "--pid", number, "doctor", NULL };
	char *out = NULL;

	(void)snprintf(number, sizeof(number), "%d", (int)pid);
	assert_int_equal(agent_ctl(&agent, uid, args, &out), wanted);
	return out;
}

static void a_job_is_looked_at_with_its_own_settings(void **state)
{
	char dir[TEMPDIR_MAX + 32];
	char *env[] = { (char *)"MPIB_HCA_SOUT=mlx5_1",
			(char *)"MPIB_HCA_SUP=mlx5_11",
			(char *)"MPIB_MODE=1",
			(char *)"MPIB_IB_TIMOUT=20",
			(char *)"MPIB_IB_TC=\001256",
			(char *)"NCCL_IB_SL=3",
			(char *)"NCCL_IB_HCA=mlx5_2",
			dir,
			NULL };
	struct job job;
	char *out;

	(void)state;
	agent_start(&agent);
	(void)snprintf(dir, sizeof(dir), "MPIB_AGENT_DIR=%s", agent.dir);
	(void)setenv("MPIB_MODE", "0", 1); /* of this shell: not the job's */
	job = start_job(env);
	out = doctor_of(job.pid, geteuid(), CTL_FAIL);

	assert_non_null(strstr(out, "\"check\": \"MPIB_MODE\", \"found\": \"1, set\""));
	assert_non_null(strstr(out, "MPIB_IB_TIMOUT is no setting of MPIB and has no effect; did "
				    "you mean MPIB_IB_TIMEOUT?"));
	assert_non_null(strstr(out, "\"level\": \"FAIL\", \"check\": \"MPIB_IB_TC\", \"found\": "
				    "\"MPIB_IB_TC=\\\\x01256: must be "));
	assert_non_null(strstr(out, "\"MPIB_IB_SL\", \"found\": \"3, from NCCL_IB_SL\""));
	assert_non_null(strstr(out, "NCCL_IB_HCA=mlx5_2 says nothing to MPIB: "));
	assert_non_null(strstr(out, "\"level\": \"OK\", \"check\": \"directory\""));
	free(out);
	end_job(&job);
}

static void a_job_with_another_directory_fails_in_mode_1(void **state)
{
	char dir[TEMPDIR_MAX + 32];
	char *env[] = { (char *)"MPIB_MODE=1", dir, NULL };
	struct job job;

	(void)state;
	agent_start(&agent);
	(void)snprintf(dir, sizeof(dir), "MPIB_AGENT_DIR=%s", agent.base);
	job = start_job(env);
	harness_expect(doctor_of(job.pid, geteuid(), CTL_FAIL),
		       "it has a private /tmp, or another MPIB_AGENT_DIR");
	end_job(&job);

	(void)snprintf(dir, sizeof(dir), "MPIB_AGENT_DIR=%s/none", agent.base);
	job = start_job(env);
	harness_expect(doctor_of(job.pid, geteuid(), CTL_FAIL), "can't see the agent's directory");
	end_job(&job);
}

static void a_job_that_cannot_be_read_is_told(void **state)
{
	char *const env[] = { (char *)"MPIB_MODE=1", NULL };
	char *const none[] = { NULL };
	struct job job = start_job(env);

	(void)state;
	if (geteuid() == 0) {
		free(doctor_of(job.pid, HARNESS_NOBODY, CTL_FORBIDDEN));
		assert_int_equal(agent_log_count(&agent, "ask as that user, or as root"), 1);
	}
	end_job(&job);
	free(doctor_of(job.pid, geteuid(), CTL_FAIL));
	assert_int_equal(agent_log_count(&agent, "there is no process "), 1);

	job = start_job(none);
	free(doctor_of(job.pid, geteuid(), CTL_FAIL));
	assert_int_equal(agent_log_count(&agent, "has no environment"), 1);
	end_job(&job);

	free(agent_ctl_words(&agent, CTL_USAGE, "--pid", "0", "doctor", NULL));
	free(agent_ctl_words(&agent, CTL_USAGE, "--pid", "1x", "doctor", NULL));
	free(agent_ctl_words(&agent, CTL_USAGE, "--pid", "4294967297", "doctor", NULL));
	assert_int_equal(agent_log_count(&agent, "must be a number from 1 to 2147483647"), 3);
}

/* 17 names of 100 KiB that are no settings: each finding is short, and there are few. */
static void a_huge_environment_is_cut(void **state)
{
	enum { ENTRIES = 17, LEN = 100 << 10 };
	char *env[ENTRIES + 1] = { NULL };
	struct job job;
	char *out;

	(void)state;
	for (size_t k = 0; k < ENTRIES; k++) {
		env[k] = malloc(LEN);
		assert_non_null(env[k]);
		memset(env[k], 'A' + (int)k, LEN - 1);
		memcpy(env[k], "MPIB_", 5);
		env[k][LEN - 1] = '\0';
	}
	job = start_job(env);
	out = doctor_of(job.pid, geteuid(), CTL_FAIL);
	assert_non_null(strstr(out, "1 more variables begin with MPIB_ and are no settings"));
	assert_true(strlen(out) < 32768);
	free(out);
	end_job(&job);
	for (size_t k = 0; k < ENTRIES; k++)
		free(env[k]);
}

/* What a process may make of its environment: it is the process's own memory. */
struct scribble {
	char *start;
	size_t size;
	int ready, hold;
};

static int scribble_and_wait(void *arg)
{
	const struct scribble *s = arg;
	char byte;

	for (size_t k = 0; k < s->size; k++)
		s->start[k] = (char)(k % 255 + 1);
	memcpy(s->start, "MPIB_\377=", 7);
	(void)!write(s->ready, "", 1);
	return read(s->hold, &byte, 1) != 0;
}

static char *first_variable; /* where the kernel put the environment */

static void an_environment_of_garbage_without_end_is_read(void **state)
{
	struct scribble s = { .start = first_variable };
	int ready[2], hold[2];
	FILE *file = fopen("/proc/self/environ", "re");
	char byte;
	char *out;
	pid_t pid;

	(void)state;
	assert_non_null(file);
	while (fgetc(file) != EOF)
		s.size++;
	(void)fclose(file);
	assert_true(s.size > 7);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
	s.ready = ready[1];
	s.hold = hold[0];
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)close(hold[1]);
		_exit(scribble_and_wait(&s));
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	out = doctor_of(pid, geteuid(), CTL_FAIL);
	assert_non_null(strstr(out, "MPIB_\\\\xff is no setting of MPIB"));
	free(out);
	(void)close(hold[1]);
	assert_int_equal(harness_reap(pid), 0);
	(void)close(hold[0]);
	(void)close(ready[0]);
	(void)close(ready[1]);
}

/* The job names the file, so it must not be able to stop the one who looks. */
static void a_pipe_as_the_file_of_nccl_does_not_block(void **state)
{
	char path[TEMPDIR_MAX + 32];
	char *const env[] = { (char *)"MPIB_MODE=1", (char *)"NCCL_CONF_FILE=/pipe", NULL };
	struct job job;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/pipe", root);
	assert_int_equal(mkfifo(path, 0600), 0);
	job = start_job(env);
	harness_expect(doctor_of(job.pid, geteuid(), CTL_FAIL), "\"MPIB_MODE\"");
	end_job(&job);
}

int main(int argc, char *argv[], char *envp[])
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_healthy_node_is_ok),
		T(each_fault_is_named_with_its_cure),
		T(a_sup_network_smaller_than_the_island_is_told),
		T(islands_of_the_job_and_of_the_agent_are_compared),
		T(without_an_agent_it_depends_on_the_mode),
		T(a_small_memlock_limit_is_told),
		T(one_port_may_be_both_rails_in_mode_0),
		T(env_lists_every_setting_with_its_origin),
		T(a_job_is_looked_at_with_its_own_settings),
		T(a_job_with_another_directory_fails_in_mode_1),
		T(a_job_that_cannot_be_read_is_told),
		T(a_huge_environment_is_cut),
		T(an_environment_of_garbage_without_end_is_read),
		T(a_pipe_as_the_file_of_nccl_does_not_block),
	};

	(void)argc;
	(void)argv;
	first_variable = envp[0];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
