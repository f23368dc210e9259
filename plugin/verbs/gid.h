/* SPDX-License-Identifier: Apache-2.0 */
/* Which GID a port uses, and the IPv4 address in it. */
#ifndef MPIB_PLUGIN_GID_H
#define MPIB_PLUGIN_GID_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct mpib_gid {
	union ibv_gid gid;
	unsigned int index;
	uint32_t ipv4_be; /* 0 where the GID carries no IPv4 address */
};

/* The IPv4 address of an IPv4-mapped GID (::ffff:a.b.c.d), network order, else 0. */
uint32_t mpib_gid_ipv4(const union ibv_gid *gid);

/* Reads the port's GID table: entry @wanted, or with -1 the first RoCE v2 entry with a routable
 * IPv4 address. -EADDRNOTAVAIL where there is none, or why an entry can't be read. Silent. */
int mpib_gid_choose(struct ibv_context *ctx, unsigned int port, unsigned int table_len, int wanted,
		    struct mpib_gid *ret);

/* Reads entry @index: 0 where it is one that serves as the search's find does. Silent. */
int mpib_gid_check(struct ibv_context *ctx, unsigned int port, unsigned int index,
		   struct mpib_gid *ret);

#endif
