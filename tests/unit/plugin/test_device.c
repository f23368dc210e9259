/* SPDX-License-Identifier: Apache-2.0 */
/* Fused devices: which names make which pairs, what sysfs tells of them, what looks wrong in a
 * pair, and what NCCL is told. sysfs is a folder of the test's own. */
#include "tests/unit/plugin/test.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/base/result.h"
#include "plugin/nccl/api.h"
#include "plugin/base/result.h"
#include "plugin/verbs/device.h"
#include "plugin/base/watch.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/pair.h"

enum { SOUT, SUP, SOUT2, SUP2 }; /* devices of fake_verbs.h */

/* ---- sysfs ---------------------------------------------------------------------------------- */

#define SYSFS "/sys/class/infiniband"

static char root[64];

char *__real_realpath(const char *path, char *resolved);
char *__wrap_realpath(const char *path, char *resolved);
DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);

static const char *moved(const char *path, char buf[PATH_MAX])
{
	if (strncmp(path, SYSFS, strlen(SYSFS)) != 0)
		return path;
	(void)snprintf(buf, PATH_MAX, "%s/class%s", root, path + strlen(SYSFS));
	return buf;
}

char *__wrap_realpath(const char *path, char *resolved)
{
	char buf[PATH_MAX];

	return __real_realpath(moved(path, buf), resolved);
}

DIR *__wrap_opendir(const char *path)
{
	char buf[PATH_MAX];

	return __real_opendir(moved(path, buf));
}

__attribute__((format(printf, 1, 2))) static void run(const char *fmt, ...)
{
	char command[1024];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(command, sizeof(command), fmt, args);
	va_end(args);
	assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
}

/* An HCA of sysfs: its `device` is a link to the PCI function's folder, which may be a virtual
 * function's. */
static void sysfs_device(const char *name, const char *pci, int numa_node)
{
	run("mkdir -p %s/class/%s %s/devices/%s && ln -s ../../devices/%s %s/class/%s/device", root,
	    name, root, pci, pci, root, name);
	run("echo %d >%s/devices/%s/numa_node", numa_node, root, pci);
}

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/mpib-device-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	fake_reset_ports();
	pair_env();
	(void)unsetenv("MPIB_MODE");
	(void)unsetenv("MPIB_GPUDIRECT");
	test_log_clear();
	return mpib_watch_get();
}

static int tear_down(void **state)
{
	(void)state;
	mpib_devices_close();
	mpib_watch_put();
	run("rm -rf %s", root);
	return fake_live() == 0 ? 0 : -1;
}

static int open_devices(const char *sout, const char *sup)
{
	struct mpib_env env;
	int r;

	mpib_devices_close();
	test_log_clear();
	(void)setenv("MPIB_HCA_SOUT", sout, 1);
	(void)setenv("MPIB_HCA_SUP", sup, 1);
	r = mpib_env_read(&env);
	return r < 0 ? r : mpib_devices_open(&env);
}

static void set_port(unsigned int device, unsigned int width, unsigned int speed, uint32_t ip)
{
	struct fake_port port;

	fake_get_port(device, &port);
	port.width = (uint8_t)width;
	port.speed = (uint16_t)speed;
	port.ip = ip;
	fake_set_port(device, &port);
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* By position, in the order of the lists, as NCCL sees them. */
static void test_lists_pair_by_position(void **state)
{
	(void)state;
	assert_int_equal(open_devices("sout2,sout", "sup2:1,sup"), 0);
	assert_int_equal(mpib_device_count(), 2);
	assert_string_equal(mpib_device_get(0)->name, "sout2+sup2");
	assert_string_equal(mpib_device_get(1)->name, "sout+sup");
	assert_int_not_equal(mpib_device_get(0)->guid, mpib_device_get(1)->guid);
	assert_null(mpib_device_get(2));
	assert_null(mpib_device_get(-1));
	assert_int_equal(test_log_warnings(), 0);
}

static void test_wrong_lists(void **state)
{
	static const struct {
		const char *sout, *sup, *line;
	} rows[] = {
		{ "", "sup",
		  "MPIB_HCA_SOUT is not set: name both rails' RDMA devices, as in "
		  "MPIB_HCA_SOUT=name MPIB_HCA_SUP=name; there are: sout, sup, sout2, "
		  "sup2" },
		{ "sout", "", "MPIB_HCA_SUP is not set" },
		{ "sout,sout2", "sup", "names 2 devices and MPIB_HCA_SUP 1" },
		{ "sout,", "sup", "MPIB_HCA_SOUT=sout,: it ends with a comma" },
		{ ",sout", "sup", "element 1 is empty" },
		{ "sout", "sup:0", "the port of sup must be a number from 1 to 255" },
		{ "sout", "sup:x", "the port of sup must be a number" },
		{ "sout", "sup:256", "the port of sup must be a number" },
		{ "sout", "sup:2", "port sup:2 can't be queried" },
		{ "sout", "su", "MPIB_HCA_SUP=su: no such RDMA device; there are: sout, sup" },
		{ "sout", "sup22", "MPIB_HCA_SUP=sup22: no such RDMA device" },
		{ "SOUT", "sup", "MPIB_HCA_SOUT=SOUT: no such RDMA device" },
		{ "sout,sout:1", "sup,sup", "name the pair sout:1+sup:1 twice" },
		{ "sout,sout", "sup,sup", "name the pair sout:1+sup:1 twice" },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		assert_true(open_devices(rows[k].sout, rows[k].sup) < 0);
		assert_int_equal(mpib_device_count(), 0);
		assert_logged(rows[k].line);
		assert_int_equal(test_log_warnings(), 1);
		assert_int_equal(fake_live(), 0);
	}
}

/* P05: advanced mode divides a message between two ports; one port in two spellings is one. */
static void test_one_port_twice_in_advanced_mode(void **state)
{
	static const struct {
		const char *sout, *sup;
	} rows[] = { { "sout", "sout" },
		     { "sout", "sout:1" },
		     { "sout:1", "sout" },
		     { "sout:1", "sout:1" },
		     { "sup,sout", "sout,sout:1" } };

	(void)state;
	(void)setenv("MPIB_MODE", "1", 1);
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		assert_int_equal(open_devices(rows[k].sout, rows[k].sup), -MPIB_EUSAGE);
		assert_int_equal(mpib_device_count(), 0);
		assert_logged("MPIB_HCA_SOUT and MPIB_HCA_SUP both name port sout:1: MPIB_MODE=1");
		assert_int_equal(test_log_warnings(), 1);
	}
	assert_int_equal(open_devices("sout", "sup"), 0);
	(void)unsetenv("MPIB_MODE");
	/* With MPIB_MODE=0 it's a warning: see below. */
	assert_int_equal(open_devices("sout", "sout:1"), 0);
	assert_logged("both rails are the same port");
}

static void test_pairs_that_look_wrong(void **state)
{
	(void)state;
	/* One port twice. */
	assert_int_equal(open_devices("sout", "sout"), 0);
	assert_logged("both rails are the same port");
	assert_int_equal(test_log_warnings(), 1);
	/* Addresses of one network. */
	set_port(SUP, 2, 32, 0x0a000102);
	assert_int_equal(open_devices("sout", "sup"), 0);
	assert_logged("SOUT and SUP have addresses of one /24 network");
	assert_int_equal(test_log_warnings(), 1);
	/* Swapped. */
	fake_reset_ports();
	set_port(SUP, 1, 32, 0x0a090101);
	assert_int_equal(open_devices("sout", "sup"), 0);
	assert_logged("SUP (25000 Mbit/s) is slower than SOUT (100000 Mbit/s); are they swapped?");
	assert_int_equal(test_log_warnings(), 1);
	/* NUMA nodes. */
	fake_reset_ports();
	sysfs_device("sout", "pci0000:00/0000:01:00.0", 0);
	sysfs_device("sup", "pci0000:80/0000:81:00.0", 1);
	assert_int_equal(open_devices("sout", "sup"), 0);
	assert_logged("SOUT is on NUMA node 0 and SUP on 1");
	assert_int_equal(test_log_warnings(), 1);
	/* sysfs that doesn't know the node says nothing. */
	run("echo -1 >%s/devices/pci0000:80/0000:81:00.0/numa_node", root);
	assert_int_equal(open_devices("sout", "sup"), 0);
	assert_int_equal(test_log_warnings(), 0);
}

/* SOUT's, of a virtual function too, resolved to a folder that exists; NULL where sysfs has no
 * link, as with rxe. */
static void test_pci_path(void **state)
{
	struct mpib_nccl_config config = { .trafficClass = -1 };
	struct mpib_properties props;
	char expected[128];
	struct stat info;
	void *ctx = NULL;

	(void)state;
	sysfs_device("sout", "pci0000:17/0000:17:02.0/0000:18:00.7", 0);
	assert_int_equal(open_devices("sout,sout2", "sup,sup2"), 0);
	mpib_devices_close();
	assert_int_equal(mpib_entry_init(&ctx, &config, test_logger), ncclSuccess);
	assert_int_equal(mpib_entry_properties(0, &props), ncclSuccess);
	(void)snprintf(expected, sizeof(expected),
		       "%s/devices/pci0000:17/0000:17:02.0/0000:18:00.7", root);
	assert_string_equal(props.pci_path, expected);
	assert_int_equal(stat(props.pci_path, &info), 0);
	assert_int_equal(mpib_entry_properties(1, &props), ncclSuccess);
	assert_null(props.pci_path);
	assert_int_equal(mpib_entry_finalize(ctx), ncclSuccess);
}

/* What NCCL is told of the two together. */
static void test_properties(void **state)
{
	struct mpib_nccl_config config = { .trafficClass = -1 };
	struct mpib_properties props;
	void *ctx = NULL;

	(void)state;
	set_port(SUP, 2, 128, 0x0a090101); /* 4 lanes of 100 Gbit/s */
	(void)setenv("MPIB_HCA_SOUT", "sout,sout2", 1);
	(void)setenv("MPIB_HCA_SUP", "sup,sup2", 1);
	assert_int_equal(mpib_entry_init(&ctx, &config, test_logger), ncclSuccess);
	assert_int_equal(mpib_entry_properties(0, &props), ncclSuccess);
	assert_int_equal(props.speed_mbps, 500000);
	assert_string_equal(props.name, "sout+sup");
	assert_int_equal(props.port, 1);
	assert_int_equal(props.max_recvs, 8);
	assert_int_equal(props.max_comms, 4096 / 6); /* the device's QPs by those of a connection */
	assert_int_equal(props.ptr_support, NCCL_PTR_HOST);
	assert_int_equal(mpib_entry_finalize(ctx), ncclSuccess);
}

/* Beyond the eight bits of old, and beyond what this release knows. */
static void test_newer_speeds(void **state)
{
	(void)state;
	set_port(SUP, 2, 256, 0x0a090101); /* XDR: 4 lanes of 200 Gbit/s */
	assert_int_equal(open_devices("sout", "sup"), 0);
	assert_int_equal(mpib_device_get(0)->hca[MPIB_SUP].speed_mbps, 800000);
	assert_int_equal(test_log_warnings(), 0);
	set_port(SUP, 2, 1024, 0x0a090101);
	assert_int_equal(open_devices("sout", "sup"), 0);
	assert_int_equal(mpib_device_get(0)->hca[MPIB_SUP].speed_mbps, 800000);
	assert_int_equal(test_log_warnings(), 1);
	assert_logged(
		"SUP rail sup:1: speed code 1024 with width code 2 is newer than this release");
	mpib_devices_close();
}

/* Refused where the device is opened, and not by the first connection. */
static void test_devices_that_lack_what_is_needed(void **state)
{
	static const struct {
		struct fake_limits limits;
		const char *line;
	} rows[] = {
		{ { 0, 8192, 65536 },
		  "SOUT rail sout:1: the device has 0 shared receive queues (max_srq), MPIB needs "
		  "1" },
		{ { 16, 327, 65536 },
		  "the device has 327 requests in a queue (max_qp_wr), MPIB needs 328" },
		{ { 16, 328, 775 }, "775 entries of a completion queue (max_cqe), MPIB needs 776" },
		{ { 1, 328, 776 }, NULL },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		fake_set_limits(&rows[k].limits);
		assert_int_equal(open_devices("sout", "sup"), rows[k].line ? -MPIB_EUSAGE : 0);
		assert_int_equal(test_log_warnings(), rows[k].line ? 1 : 0);
		if (rows[k].line)
			assert_logged(rows[k].line);
	}
	mpib_devices_close();
}

/* A port's events are that port's alone: another port of the same card says nothing about ours. */
static void test_events_are_matched_by_port(void **state)
{
	(void)state;
	assert_int_equal(open_devices("sout", "sup"), 0);
	fake_port_event(SUP, IBV_EVENT_PORT_ERR, 2);
	fake_port_event(SUP, IBV_EVENT_PORT_ACTIVE, 2);
	fake_port_event(SOUT, IBV_EVENT_PORT_ERR, 1);
	for (unsigned int k = 0; k < 30000 && !test_log_has("SOUT rail sout:1: link down"); k++)
		(void)poll(NULL, 0, 1);
	assert_logged("SOUT rail sout:1: link down");
	fake_port_event(SUP, IBV_EVENT_PORT_ACTIVE, 1);
	for (unsigned int k = 0; k < 30000 && !test_log_has("SUP rail sup:1: link up"); k++)
		(void)poll(NULL, 0, 1);
	assert_logged("SUP rail sup:1: link up");
	assert_false(test_log_has("SUP rail sup:1: link down"));
	assert_int_equal(test_log_warnings(), 1);
}

/* A container without the provider's library: libibverbs lists nothing, the kernel has devices. */
static void test_provider_is_missing(void **state)
{
	(void)state;
	fake_hide_devices(1);
	assert_true(open_devices("sout", "sup") < 0);
	assert_logged("MPIB_HCA_SOUT=sout: no such RDMA device; there are: none");
	assert_false(test_log_has("ibverbs-providers"));
	run("mkdir -p %s/class/mlx5_0", root);
	assert_true(open_devices("sout", "sup") < 0);
	assert_logged("there are: none, though the kernel has some: install their provider "
		      "libraries (ibverbs-providers) and give this process /dev/infiniband");
	assert_int_equal(test_log_warnings(), 1);
	fake_hide_devices(0);
}

/* What can't be opened is told with its true cause, and nothing else is taken in its place. */
static void test_open_is_refused(void **state)
{
	(void)state;
	fake_fail(FAKE_OPEN, 1, EACCES);
	assert_int_equal(open_devices("sout", "sup"), -EACCES);
	assert_logged("MPIB_HCA_SUP=sup can't be opened: Permission denied; this user needs read "
		      "and write access to /dev/infiniband");
	assert_int_equal(test_log_warnings(), 1);
	assert_int_equal(mpib_device_count(), 0);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(test_lists_pair_by_position),
		CASE(test_wrong_lists),
		CASE(test_one_port_twice_in_advanced_mode),
		CASE(test_pairs_that_look_wrong),
		CASE(test_pci_path),
		CASE(test_properties),
		CASE(test_newer_speeds),
		CASE(test_devices_that_lack_what_is_needed),
		CASE(test_events_are_matched_by_port),
		CASE(test_provider_is_missing),
		CASE(test_open_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
