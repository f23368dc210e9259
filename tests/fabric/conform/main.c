/* SPDX-License-Identifier: Apache-2.0 */
/* mpib-conform: arguments, the two ends' meeting over TCP, and the list of checks.
 * Exit: 0 all as expected, 1 a difference, 2 usage, 3 something broke that isn't under test. */
#include "tests/fabric/conform/conform.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int serve(uint16_t port)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(port) };
	int one = 1, sock, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(listener, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(listener, 1) < 0)
		die("listening");
	sock = accept(listener, NULL, NULL);
	if (sock < 0)
		die("accept");
	(void)close(listener);
	return sock;
}

/* The server may be starting still: ten seconds. */
static int reach(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *info;
	int one = 1;

	if (getaddrinfo(host, port, &hints, &info))
		die("getaddrinfo");
	for (int k = 0; k < 100; k++) {
		int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (sock >= 0 && connect(sock, info->ai_addr, info->ai_addrlen) == 0) {
			(void)setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
			freeaddrinfo(info);
			return sock;
		}
		(void)close(sock);
		(void)usleep(100000);
	}
	die("connecting");
}

static void open_device(struct side *s, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;

	for (int k = 0; list && list[k]; k++)
		if (strcmp(ibv_get_device_name(list[k]), name) == 0)
			s->ctx = ibv_open_device(list[k]);
	if (list)
		ibv_free_device_list(list);
	if (!s->ctx)
		die("opening the device");
	s->pd = ibv_alloc_pd(s->ctx);
	if (!s->pd || ibv_query_port(s->ctx, 1, &port) ||
	    ibv_query_gid(s->ctx, 1, s->gid_index, &s->gid))
		die("asking the device");
	s->mtu = port.active_mtu;
}

static const struct {
	const char *name;
	void (*run)(struct side *s);
} groups[] = {
	{ "states", check_states }, { "data", check_data },	{ "order", check_order },
	{ "errors", check_errors }, { "queues", check_queues }, { "final", check_final },
};

int main(int argc, char **argv)
{
	struct side side = { .sock = -1, .gid_index = 3 };
	const char *device = NULL, *port = "18600", *only = NULL;
	int option;

	while ((option = getopt(argc, argv, "a:d:g:p:k:")) != -1) {
		switch (option) {
		case 'a':
			side.absent = optarg;
			break;
		case 'd':
			device = optarg;
			break;
		case 'g':
			side.gid_index = atoi(optarg);
			break;
		case 'p':
			port = optarg;
			break;
		case 'k':
			only = optarg;
			break;
		default:
			device = NULL;
			optind = argc;
			break;
		}
	}
	if (!device || argc - optind > 1) {
		(void)fprintf(stderr, "usage: mpib-conform -d DEVICE [-g GID_INDEX] [-p TCP_PORT] "
				      "[-k GROUP] [-a CHECK,...] [SERVER]\n");
		return 2;
	}
	side.client = optind < argc;
	open_device(&side, device);
	side.sock = side.client ? reach(argv[optind], port) : serve((uint16_t)atoi(port));
	for (size_t k = 0; k < sizeof(groups) / sizeof(groups[0]); k++)
		if (!only || strcmp(only, groups[k].name) == 0)
			groups[k].run(&side);
	sync_ends(&side);
	if (ibv_dealloc_pd(side.pd) || ibv_close_device(side.ctx))
		die("closing");
	(void)close(side.sock);
	(void)printf("%s: %u checks, %u differ\n", side.client ? "client" : "server", side.checks,
		     side.failed);
	return side.failed ? 1 : 0;
}
