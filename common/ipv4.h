/* SPDX-License-Identifier: Apache-2.0 */
/* IPv4 addresses, prefixes and flow names. Addresses are uint32_t in network byte order (suffix
 * _be). Pure: no I/O, no allocation, any thread. */
#ifndef MPIB_COMMON_IPV4_H
#define MPIB_COMMON_IPV4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MPIB_IPV4_BITS	   32u
#define MPIB_IPV4_TEXT_MAX 16 /* "255.255.255.255" and its NUL */
#define MPIB_FLOW_TEXT_MAX 32 /* "255.255.255.255-255.255.255.255" and its NUL */
#define MPIB_CIDR_TEXT_MAX 19 /* "255.255.255.255/32" and its NUL */

/* Netmask of a prefix of @len bits, 0..32, network order; @len over 32 counts as 32. */
uint32_t mpib_ipv4_mask(unsigned int len);

/* True where both addresses share their first @len bits. Length 0: always. */
bool mpib_ipv4_same_prefix(uint32_t a_be, uint32_t b_be, unsigned int len);

/* An address that a node can have and peers can reach: not 0.x, loopback, link-local (169.254/16)
 * or multicast. */
bool mpib_ipv4_routable(uint32_t be);

/* Dotted quad, four decimal numbers without leading zeros, nothing around it. -EINVAL otherwise. */
int mpib_ipv4_parse(const char *text, uint32_t *ret_be);

/* "a.b.c.d/len", host bits zero; -EINVAL for bad syntax, -ERANGE for a length over 32,
 * -EADDRNOTAVAIL where host bits are set. */
int mpib_cidr_parse(const char *text, uint32_t *ret_be, unsigned int *ret_len);

/* Writes the address into @buf (at least MPIB_IPV4_TEXT_MAX bytes) and returns @buf. */
char *mpib_ipv4_format(uint32_t be, char *buf);

/* "SRC-DST", the name of a flow in the journal and in mpibctl; @buf holds at least
 * MPIB_FLOW_TEXT_MAX bytes. */
char *mpib_flow_format(uint32_t src_be, uint32_t dst_be, char *buf);

/* The reverse; -EINVAL for anything else. */
int mpib_flow_parse(const char *text, uint32_t *ret_src_be, uint32_t *ret_dst_be);

#endif
