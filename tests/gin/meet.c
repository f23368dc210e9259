/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gin/meet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOSTS_MAX 8

static int hosts, host;
static int
	sock[HOSTS_MAX]; /* on the first host: of each other one, by its number; elsewhere: [0] */

__attribute__((noreturn)) static void die(const char *what)
{
	(void)fprintf(stderr, "host %d: %s: %s\n", host, what, strerror(errno));
	_exit(1);
}

static void all_out(int fd, const void *data, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = send(fd, (const char *)data + at, len - at, MSG_NOSIGNAL);

		if (n <= 0)
			die("another host has ended");
		at += (size_t)n;
	}
}

static void all_in(int fd, void *data, size_t len)
{
	if (recv(fd, data, len, MSG_WAITALL) != (ssize_t)len)
		die("another host has ended");
}

static void listen_for_others(const struct sockaddr_in *at)
{
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, (const struct sockaddr *)at, sizeof(*at)) < 0 || listen(fd, HOSTS_MAX) < 0)
		die("listen");
	for (int k = 1; k < hosts; k++) {
		int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		int32_t number = 0;

		if (peer < 0)
			die("accept");
		all_in(peer, &number, sizeof(number));
		if (number < 1 || number >= hosts)
			die("a host's number");
		sock[number] = peer;
	}
	(void)close(fd);
}

static void connect_to_first(const struct sockaddr_in *at)
{
	int32_t number = host;

	for (int tries = 0; tries < 600; tries++) {
		sock[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (sock[0] < 0)
			die("socket");
		if (connect(sock[0], (const struct sockaddr *)at, sizeof(*at)) == 0) {
			all_out(sock[0], &number, sizeof(number));
			return;
		}
		(void)close(sock[0]);
		(void)usleep(100000);
	}
	die("connect");
}

void meet_open(int of_hosts, int own, const char *address, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	hosts = of_hosts;
	host = own;
	if (hosts > HOSTS_MAX || inet_pton(AF_INET, address, &at.sin_addr) != 1)
		die("hosts and address");
	if (host == 0)
		listen_for_others(&at);
	else
		connect_to_first(&at);
}

void meet_exchange(void *table, size_t entries, size_t size)
{
	char *merged = table, *theirs;

	if (host != 0) {
		all_out(sock[0], table, entries * size);
		all_in(sock[0], table, entries * size);
		return;
	}
	theirs = malloc(entries * size);
	if (!theirs)
		die("malloc");
	for (int k = 1; k < hosts; k++) {
		all_in(sock[k], theirs, entries * size);
		for (size_t e = (size_t)k; e < entries; e += (size_t)hosts)
			memcpy(merged + e * size, theirs + e * size, size);
	}
	for (int k = 1; k < hosts; k++)
		all_out(sock[k], table, entries * size);
	free(theirs);
}
