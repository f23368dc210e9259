/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/ports.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

/* Asks each of our own descriptors, which needs no look at the sockets of others. */
static int listening_port(int fd)
{
	struct sockaddr_storage addr = { 0 };
	struct sockaddr *sa = (struct sockaddr *)&addr;
	socklen_t len = sizeof(int);
	int on = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) < 0 || !on)
		return -1;
	len = sizeof(addr);
	if (getsockname(fd, sa, &len) < 0)
		return -1;
	if (sa->sa_family == AF_INET)
		return ntohs(((struct sockaddr_in *)sa)->sin_port);
	if (sa->sa_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)sa)->sin6_port);
	return -1;
}

size_t np_ports_listening(uint16_t *ports, size_t max)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	size_t count = 0;

	if (!dir)
		return 0;
	while (count < max && (entry = readdir(dir))) {
		int port = listening_port(atoi(entry->d_name));
		size_t n = 0;

		while (n < count && ports[n] != port)
			n++;
		if (port > 0 && n == count)
			ports[count++] = (uint16_t)port;
	}
	(void)closedir(dir);
	return count;
}
