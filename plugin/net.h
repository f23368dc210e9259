/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of the control plane: addresses of interfaces, listeners, non-blocking connects. */
#ifndef MPIB_PLUGIN_NET_H
#define MPIB_PLUGIN_NET_H

#include <stdint.h>
#include <sys/socket.h>

#define MPIB_ADDR_TEXT_MAX 64 /* "[IPv6]:port" and NUL */

/* Address to listen on: of interface @name, or where @name is empty of the interface that carries
 * @sout_ip_be, or else of the first interface that is up (loopback last). -MPIB_EUSAGE with one
 * warning that lists the interfaces where @name has no usable address. Port 0. */
int mpib_net_address(const char *name, uint32_t sout_ip_be, struct sockaddr_storage *ret);

/* A non-blocking, close-on-exec listener on @addr; *addr gets the port. Negative errno. */
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
