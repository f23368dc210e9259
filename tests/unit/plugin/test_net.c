/* SPDX-License-Identifier: Apache-2.0 */
/* Small decisions: addresses of GIDs and of the control plane, speeds, results. */
#include "tests/unit/plugin/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/ipv4.h"
#include "plugin/verbs/port.h"
#include "plugin/verbs/gid.h"
#include "plugin/wire/net.h"
#include "plugin/base/result.h"

static uint32_t ip(const char *text)
{
	struct in_addr addr;

	assert_int_equal(inet_pton(AF_INET, text, &addr), 1);
	return addr.s_addr;
}

static void test_gid_ipv4(void **state)
{
	static const struct {
		const char *gid, *want;
	} rows[] = {
		{ "::ffff:10.0.1.2", "10.0.1.2" },
		{ "::ffff:255.255.255.255", "255.255.255.255" },
		{ "fe80::ffff:10.0.1.2", NULL },
		{ "::10.0.1.2", NULL },
		{ "::fffe:10.0.1.2", NULL },
		{ "2001:db8::1", NULL },
		{ "::", NULL },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		union ibv_gid gid;

		assert_int_equal(inet_pton(AF_INET6, rows[k].gid, gid.raw), 1);
		assert_int_equal(mpib_gid_ipv4(&gid), rows[k].want ? ip(rows[k].want) : 0);
	}
}

static void test_routable(void **state)
{
	static const char *const yes[] = { "10.0.0.1",	      "1.0.0.0",    "169.253.1.1",
					   "169.255.1.1",     "172.16.0.1", "192.168.1.1",
					   "223.255.255.255", "126.0.0.1",  "128.0.0.1" };
	static const char *const no[] = { "0.0.0.0",	 "0.1.2.3",	"127.0.0.1",
					  "127.255.0.1", "169.254.0.1", "169.254.255.255",
					  "224.0.0.1",	 "239.1.1.1",	"255.255.255.255" };

	(void)state;
	for (size_t k = 0; k < sizeof(yes) / sizeof(yes[0]); k++)
		if (!mpib_ipv4_routable(ip(yes[k])))
			fail_msg("%s", yes[k]);
	for (size_t k = 0; k < sizeof(no) / sizeof(no[0]); k++)
		if (mpib_ipv4_routable(ip(no[k])))
			fail_msg("%s", no[k]);
}

/* InfiniBand specification, port attributes: active width and speed are codes. */
static void test_speed(void **state)
{
	static const struct {
		unsigned int width, speed, mbps;
	} rows[] = {
		{ 1, 1, 2500 },	    { 2, 1, 10000 },	{ 2, 4, 40000 },    { 2, 16, 56000 },
		{ 2, 32, 100000 },  { 2, 64, 200000 },	{ 2, 128, 400000 }, { 8, 128, 1200000 },
		{ 4, 32, 200000 },  { 16, 32, 50000 },	{ 1, 32, 25000 },   { 0, 0, 2500 },
		{ 2, 256, 800000 }, { 0, 128, 100000 },
	};
	bool known = false;

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
		assert_true(mpib_speed_mbps(rows[k].width, rows[k].speed, &known) == rows[k].mbps &&
			    known);
	/* A newer speed is at least the fastest that this release knows; ports have four lanes. */
	assert_int_equal(mpib_speed_mbps(2, 512, &known), 800000);
	assert_false(known);
	assert_int_equal(mpib_speed_mbps(64, 32, &known), 100000);
	assert_false(known);
}

static void test_results(void **state)
{
	static const struct {
		int r;
		ncclResult_t want;
	} rows[] = {
		{ 0, ncclSuccess },
		{ 1, ncclSuccess },
		{ -MPIB_EARGUMENT, ncclInvalidArgument },
		{ -EINVAL, ncclSystemError }, /* a verb, a system call */
		{ -MPIB_EUSAGE, ncclInvalidUsage },
		{ -MPIB_EINTERNAL, ncclInternalError },
		{ -EREMOTEIO, ncclRemoteError },
		{ -ECONNRESET, ncclRemoteError },
		{ -ECONNREFUSED, ncclRemoteError },
		{ -EHOSTUNREACH, ncclRemoteError },
		{ -ENETUNREACH, ncclRemoteError },
		{ -EPIPE, ncclRemoteError },
		{ -EPROTO, ncclRemoteError },
		{ -EBADMSG, ncclRemoteError },
		{ -ETIMEDOUT, ncclRemoteError },
		{ -EIO, ncclSystemError },
		{ -ENOMEM, ncclSystemError },
		{ -EACCES, ncclSystemError },
		{ -ENOENT, ncclSystemError },
		{ -ELIBACC, ncclSystemError },
		{ -12345, ncclSystemError },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
		assert_int_equal(mpib_result(rows[k].r), rows[k].want);
}

static int address(const char *interfaces, int family, uint32_t sout_ip_be,
		   struct sockaddr_storage *ret)
{
	const struct mpib_net_wanted wanted = { .interfaces = interfaces,
						.variable = "MPIB_OOB_IF",
						.family = family,
						.sout_ip_be = sout_ip_be };

	return mpib_net_address(&wanted, ret);
}

static void test_address_by_name(void **state)
{
	struct sockaddr_storage addr;
	const struct sockaddr_in *in4 = (const void *)&addr;
	char text[MPIB_ADDR_TEXT_MAX];

	(void)state;
	test_log_clear();
	assert_int_equal(address("lo", AF_UNSPEC, ip("10.0.1.1"), &addr), 0);
	assert_int_equal(addr.ss_family, AF_INET);
	assert_int_equal(in4->sin_addr.s_addr, ip("127.0.0.1"));
	assert_int_equal(in4->sin_port, 0);
	assert_string_equal(mpib_net_format(&addr, text), "127.0.0.1:0");
	/* SOUT's own interface is the choice where none is named. */
	assert_int_equal(address("", AF_UNSPEC, ip("127.0.0.1"), &addr), 0);
	assert_int_equal(in4->sin_addr.s_addr, ip("127.0.0.1"));
	assert_int_equal(address("", AF_UNSPEC, 0, &addr), 0);
	assert_int_equal(test_log_warnings(), 0);

	assert_int_equal(address("no-such0", AF_UNSPEC, 0, &addr), -MPIB_EUSAGE);
	assert_int_equal(test_log_warnings(), 1);
	assert_logged("MPIB_OOB_IF=no-such0");
	assert_logged(" lo"); /* what there is */
}

/* On loopback alone, as every host has it: lists and families. */
static void test_address_by_list(void **state)
{
	struct sockaddr_storage addr;
	const struct sockaddr_in *in4 = (const void *)&addr;

	(void)state;
	test_log_clear();
	assert_int_equal(address("l", AF_UNSPEC, 0, &addr), 0);
	assert_int_equal(in4->sin_addr.s_addr, ip("127.0.0.1"));
	assert_int_equal(address("=nosuch0,lo", AF_INET, 0, &addr), 0);
	assert_int_equal(in4->sin_addr.s_addr, ip("127.0.0.1"));
	assert_int_equal(address("^nosuch", AF_UNSPEC, ip("127.0.0.1"), &addr), 0);
	assert_int_equal(in4->sin_addr.s_addr, ip("127.0.0.1"));
	assert_int_equal(test_log_warnings(), 0);

	assert_int_equal(address("=l", AF_UNSPEC, 0, &addr), -MPIB_EUSAGE);
	assert_logged(
		"MPIB_OOB_IF==l: no such interface that is up and has an address; there are:");
	test_log_clear();
	/* the empty list would take SOUT's interface: this one may not */
	if (address("^lo", AF_UNSPEC, ip("127.0.0.1"), &addr) == 0)
		assert_int_not_equal(in4->sin_addr.s_addr, ip("127.0.0.1"));
	test_log_clear();
	if (address("lo", AF_INET6, 0, &addr) == 0)
		assert_int_equal(addr.ss_family, AF_INET6);
	else
		assert_logged("and has an address of family AF_INET6; there are:");
}

static struct ifreq request_for(const char *name, const char *address)
{
	struct ifreq req;
	struct sockaddr_in in4 = { .sin_family = AF_INET };

	memset(&req, 0, sizeof(req));
	(void)snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	if (address)
		in4.sin_addr.s_addr = ip(address);
	memcpy(&req.ifr_addr, &in4, sizeof(in4));
	return req;
}

/* Nothing is remembered: an interface that comes up, an address that comes and goes. */
static void test_address_that_comes_later(void **state)
{
	struct sockaddr_storage addr;
	const struct sockaddr_in *in4 = (const void *)&addr;
	struct ifreq req = request_for("lo", NULL);
	int fd;

	(void)state;
	if (unshare(CLONE_NEWNET) < 0) {
		print_message("needs a network namespace of its own: %s\n", strerror(errno));
		skip();
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	test_log_clear();
	assert_int_equal(address("lo", AF_UNSPEC, 0, &addr), -MPIB_EUSAGE);
	assert_int_equal(address("", AF_UNSPEC, ip("10.7.0.1"), &addr), -MPIB_EUSAGE);
	req.ifr_flags = IFF_UP;
	assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &req), 0);
	assert_int_equal(address("lo", AF_UNSPEC, 0, &addr), 0);
	assert_int_equal(in4->sin_addr.s_addr, ip("127.0.0.1"));

	req = request_for("lo:1", "10.7.0.1");
	assert_int_equal(ioctl(fd, SIOCSIFADDR, &req), 0);
	assert_int_equal(address("", AF_UNSPEC, ip("10.7.0.1"), &addr), 0);
	assert_int_equal(in4->sin_addr.s_addr, ip("10.7.0.1"));
	assert_int_equal(in4->sin_port, 0);
	req = request_for("lo:1", "10.7.0.2");
	assert_int_equal(ioctl(fd, SIOCSIFADDR, &req), 0);
	assert_int_equal(address("lo:1", AF_UNSPEC, 0, &addr), 0);
	assert_int_equal(in4->sin_addr.s_addr, ip("10.7.0.2"));
	/* SOUT's address is on no interface: the first one that is up. */
	assert_int_equal(address("", AF_UNSPEC, ip("10.7.0.1"), &addr), 0);
	assert_int_equal(in4->sin_addr.s_addr, ip("127.0.0.1"));
	(void)close(fd);
}

static void test_format_ipv6(void **state)
{
	struct sockaddr_storage addr = { .ss_family = AF_INET6 };
	struct sockaddr_in6 *in6 = (void *)&addr;
	char text[MPIB_ADDR_TEXT_MAX];

	(void)state;
	memset(&in6->sin6_addr, 0xfd, sizeof(in6->sin6_addr));
	in6->sin6_port = htons(65535);
	assert_string_equal(mpib_net_format(&addr, text),
			    "[fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd]:65535");
}

static int wait_connected(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	(void)poll(&p, 1, 2000);
	return mpib_net_connected(fd);
}

static void test_connect(void **state)
{
	struct sockaddr_storage addr;
	int listener, fd;

	(void)state;
	assert_int_equal(address("lo", AF_UNSPEC, 0, &addr), 0);
	assert_int_equal(mpib_net_listen(&addr, &listener), 0);
	assert_int_not_equal(((struct sockaddr_in *)&addr)->sin_port, 0);
	assert_int_equal(mpib_net_connect(&addr, &fd), 0);
	assert_int_equal(wait_connected(fd), 1);
	mpib_net_tune(fd);
	(void)close(fd);
	(void)close(listener);
	/* Nobody there: the error comes from connect or from the look afterwards. */
	if (mpib_net_connect(&addr, &fd) == 0) {
		assert_int_equal(wait_connected(fd), -ECONNREFUSED);
		(void)close(fd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gid_ipv4),
		cmocka_unit_test(test_routable),
		cmocka_unit_test(test_speed),
		cmocka_unit_test(test_results),
		cmocka_unit_test(test_address_by_name),
		cmocka_unit_test(test_address_by_list),
		cmocka_unit_test(test_format_ipv6),
		cmocka_unit_test(test_connect),
		cmocka_unit_test(test_address_that_comes_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
