/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/wire/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/if_list.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"

#define LISTEN_TRIES   4
#define LISTEN_WAIT_MS 25
#define INTERFACES_MAX 64 /* a host with more IPv4 addresses may take the long way */

static socklen_t address_len(const struct sockaddr_storage *addr)
{
	return addr->ss_family == AF_INET ? sizeof(struct sockaddr_in)
					  : sizeof(struct sockaddr_in6);
}

/* How well an address serves, 0 = not at all: an interface that is named whole, then SOUT's where
 * the list names none, then no loopback, then IPv4. Link-local IPv6 needs a scope that has no
 * meaning on the other host. */
static int rank(const struct mpib_net_wanted *wanted, const char *name, unsigned int flags,
		const struct sockaddr *addr)
{
	const struct sockaddr_in *in4 = (const void *)addr;
	const struct sockaddr_in6 *in6 = (const void *)addr;
	enum mpib_if_match match = mpib_if_list_match(wanted->interfaces, name);
	bool ipv4, sout;

	if (!addr || !(flags & IFF_UP) || match == MPIB_IF_NO ||
	    (wanted->family != AF_UNSPEC && wanted->family != addr->sa_family))
		return 0;
	ipv4 = addr->sa_family == AF_INET;
	if (!ipv4 && (addr->sa_family != AF_INET6 || IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr)))
		return 0;
	sout = ipv4 && wanted->sout_ip_be && in4->sin_addr.s_addr == wanted->sout_ip_be;
	return 1 + ipv4 + (flags & IFF_LOOPBACK ? 0 : 2) +
	       (sout && match == MPIB_IF_NOT_EXCLUDED ? 4 : 0) + (match == MPIB_IF_NAMED ? 8 : 0);
}

static void warn_no_interface(const struct mpib_net_wanted *wanted, const struct ifaddrs *list)
{
	const char *family = wanted->family == AF_INET	  ? " of family AF_INET"
			     : wanted->family == AF_INET6 ? " of family AF_INET6"
							  : "";
	char names[256] = "";

	for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
		size_t used = strlen(names);

		/* Packet-family entries name each interface exactly once. */
		if (ifa->ifa_addr && ifa->ifa_addr->sa_family == AF_PACKET)
			(void)snprintf(names + used, sizeof(names) - used, " %s", ifa->ifa_name);
	}
	if (wanted->interfaces[0])
		MPIB_WARN("%s=%s: no such interface that is up and has an address%s; there are:%s",
			  wanted->variable, wanted->interfaces, family, names);
	else
		MPIB_WARN("no network interface is up and has an address%s for the control "
			  "connections; there are:%s",
			  family, names);
}

/* The answer that nothing could beat, from two calls to the kernel and not its whole list of
 * interfaces, addresses and counters: an IPv4 address of an interface that is named whole, or the
 * one that is SOUT's. */
static bool find_best(const struct mpib_net_wanted *wanted, struct sockaddr_storage *ret)
{
	struct ifreq list[INTERFACES_MAX];
	struct ifconf conf = { .ifc_len = sizeof(list), .ifc_req = list };
	bool found = false;
	int fd;

	if (wanted->family == AF_INET6)
		return false;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	if (ioctl(fd, SIOCGIFCONF, &conf) < 0)
		conf.ifc_len = 0;
	for (struct ifreq *at = list, *end = at + (size_t)conf.ifc_len / sizeof(*at);
	     at < end && !found; at++) {
		enum mpib_if_match match = mpib_if_list_match(wanted->interfaces, at->ifr_name);
		struct sockaddr_in in4;

		memcpy(&in4, &at->ifr_addr, sizeof(in4));
		if (match != MPIB_IF_NAMED &&
		    !(match == MPIB_IF_NOT_EXCLUDED && wanted->sout_ip_be &&
		      in4.sin_addr.s_addr == wanted->sout_ip_be))
			continue;
		found = ioctl(fd, SIOCGIFFLAGS, at) == 0 && at->ifr_flags & IFF_UP &&
			!(at->ifr_flags & IFF_LOOPBACK && strchr(wanted->interfaces, ','));
		if (found) {
			memset(ret, 0, sizeof(*ret));
			((struct sockaddr_in *)ret)->sin_family = AF_INET;
			((struct sockaddr_in *)ret)->sin_addr = in4.sin_addr;
		}
	}
	(void)close(fd);
	return found;
}

int mpib_net_address(const struct mpib_net_wanted *wanted, struct sockaddr_storage *ret)
{
	struct sockaddr_storage addr;
	struct ifaddrs *list;
	int best = 0;

	if (find_best(wanted, ret))
		return 0;
	memset(&addr, 0, sizeof(addr));
	if (getifaddrs(&list) < 0) {
		int r = -errno;

		MPIB_WARN("network interfaces can't be listed: %s", strerror(-r));
		return r;
	}

	for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
		int score = rank(wanted, ifa->ifa_name, ifa->ifa_flags, ifa->ifa_addr);

		if (score <= best)
			continue;
		best = score;
		memset(&addr, 0, sizeof(addr));
		addr.ss_family = ifa->ifa_addr->sa_family;
		memcpy(&addr, ifa->ifa_addr, address_len(&addr));
	}
	if (best == 0)
		warn_no_interface(wanted, list);
	freeifaddrs(list);
	if (best == 0)
		return -MPIB_EUSAGE;

	if (addr.ss_family == AF_INET)
		((struct sockaddr_in *)&addr)->sin_port = 0;
	else
		((struct sockaddr_in6 *)&addr)->sin6_port = 0;
	*ret = addr;
	return 0;
}

bool mpib_net_is_transient(int error)
{
	switch (error) {
	case EINTR:
	case EAGAIN:
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
	case ENOSPC: /* of epoll: the user's limit of watches */
	case ECONNABORTED:
		return true;
	default:
		return false;
	}
}

static int try_listen(struct sockaddr_storage *addr, int *ret_fd)
{
	socklen_t len = address_len(addr);
	int fd, r;

	fd = socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)addr, len) < 0 || listen(fd, 128) < 0 ||
	    getsockname(fd, (struct sockaddr *)addr, &len) < 0) {
		r = -errno;
		(void)close(fd);
		return r;
	}

	*ret_fd = fd;
	return 0;
}

int mpib_net_listen(struct sockaddr_storage *addr, int *ret_fd)
{
	int r = try_listen(addr, ret_fd);

	for (unsigned int k = 0; k < LISTEN_TRIES && r < 0 && mpib_net_is_transient(-r); k++) {
		(void)poll(NULL, 0, LISTEN_WAIT_MS);
		r = try_listen(addr, ret_fd);
	}
	return r;
}

int mpib_net_connect(const struct sockaddr_storage *addr, int *ret_fd)
{
	int fd, r;

	fd = socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)addr, address_len(addr)) < 0 &&
	    errno != EINPROGRESS && errno != EINTR) {
		r = -errno;
		(void)close(fd);
		return r;
	}

	*ret_fd = fd;
	return 0;
}

int mpib_net_connected(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int error = 0;

	if (poll(&p, 1, 0) <= 0)
		return 0;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		return mpib_net_is_transient(errno) ? 0 : -errno;
	return error ? -error : 1;
}

void mpib_net_tune(int fd)
{
	const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },  { SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 4 }, { IPPROTO_TCP, TCP_KEEPINTVL, 2 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 3 },  { IPPROTO_TCP, TCP_USER_TIMEOUT, 10000 },
	};

	for (size_t k = 0; k < sizeof(options) / sizeof(options[0]); k++)
		(void)setsockopt(fd, options[k].level, options[k].name, &options[k].value,
				 sizeof(options[k].value));
}

char *mpib_net_format(const struct sockaddr_storage *addr, char *buf)
{
	const struct sockaddr_in *in4 = (const void *)addr;
	const struct sockaddr_in6 *in6 = (const void *)addr;
	char text[INET6_ADDRSTRLEN] = "?";

	if (addr->ss_family == AF_INET) {
		(void)inet_ntop(AF_INET, &in4->sin_addr, text, sizeof(text));
		(void)snprintf(buf, MPIB_ADDR_TEXT_MAX, "%s:%u", text, ntohs(in4->sin_port));
	} else {
		(void)inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
		(void)snprintf(buf, MPIB_ADDR_TEXT_MAX, "[%s]:%u", text, ntohs(in6->sin6_port));
	}
	return buf;
}
