/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of the control plane: addresses of interfaces, listeners, non-blocking connects. */
#ifndef MPIB_PLUGIN_NET_H
#define MPIB_PLUGIN_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define MPIB_ADDR_TEXT_MAX 64 /* "[IPv6]:port" and NUL */

/* Which address control connections shall have. */
struct mpib_net_wanted {
	const char *interfaces; /* a list as of common/if_list.h, "" for any */
	const char *variable;	/* that gave it, for messages */
	int family;		/* AF_INET, AF_INET6, or AF_UNSPEC: IPv4 where there is one */
	uint32_t sout_ip_be;	/* whose interface is taken where the list names none, or 0 */
};

/* Address to listen on. Of the interfaces that the list names: one named whole before one that
 * begins so; the first, loopback last. Where it names none the one that carries SOUT's address, or
 * the first. -MPIB_EUSAGE with one warning that lists the interfaces where none has a usable
 * address. Port 0. */
int mpib_net_address(const struct mpib_net_wanted *wanted, struct sockaddr_storage *ret);

/* Whether an error (positive errno) of a socket goes by: the same call is worth another try. */
bool mpib_net_is_transient(int error);

/* A non-blocking, close-on-exec listener on @addr; *addr gets the port. Transient errors
 * are tried again for 100 ms. Negative errno. */
int mpib_net_listen(struct sockaddr_storage *addr, int *ret_fd);

/* Starts a non-blocking, close-on-exec connect. Negative errno. */
int mpib_net_connect(const struct sockaddr_storage *addr, int *ret_fd);

/* 1 connected, 0 in progress, negative errno. */
int mpib_net_connected(int fd);

/* Options of an established control connection: no Nagle delay; a peer host that vanished is
 * noticed in about ten seconds. */
void mpib_net_tune(int fd);

/* "a.b.c.d:port"; @buf holds MPIB_ADDR_TEXT_MAX bytes. Returns @buf. */
char *mpib_net_format(const struct sockaddr_storage *addr, char *buf);

#endif
