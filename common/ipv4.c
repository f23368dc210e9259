/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix arithmetic and text forms of IPv4. The parser is our own because one address may be a
 * part of a longer text (CIDR, flow name) and because only one spelling of each address is taken:
 * a flow's name is also its key. */
#include "common/ipv4.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>

/* Reads a decimal number without sign or leading zero and moves *text past it. A number too large
 * for the type comes out as UINT_MAX: it is well-formed, its range is the caller's matter. */
static bool scan_number(const char **text, unsigned int *ret)
{
	const char *p = *text;
	unsigned int value = 0;

	if (*p < '0' || *p > '9')
		return false;
	if (*p == '0' && p[1] >= '0' && p[1] <= '9')
		return false;

	for (; *p >= '0' && *p <= '9'; p++) {
		unsigned int digit = (unsigned int)(*p - '0');

		value = value > (UINT_MAX - digit) / 10 ? UINT_MAX : value * 10 + digit;
	}

	*text = p;
	*ret = value;
	return true;
}

static bool scan_char(const char **text, char wanted)
{
	if (**text != wanted)
		return false;

	(*text)++;
	return true;
}

static bool scan_address(const char **text, uint32_t *ret_be)
{
	uint32_t host = 0;

	for (unsigned int part = 0; part < 4; part++) {
		unsigned int value;

		if (part > 0 && !scan_char(text, '.'))
			return false;
		if (!scan_number(text, &value) || value > 255)
			return false;
		host = host << 8 | value;
	}

	*ret_be = htonl(host);
	return true;
}

uint32_t mpib_ipv4_mask(unsigned int len)
{
	/* A shift by the whole width is undefined, hence the first case. */
	if (len == 0)
		return 0;
	if (len > 32)
		len = 32;

	return htonl(UINT32_MAX << (32 - len));
}

bool mpib_ipv4_same_prefix(uint32_t a_be, uint32_t b_be, unsigned int len)
{
	return ((a_be ^ b_be) & mpib_ipv4_mask(len)) == 0;
}

bool mpib_ipv4_routable(uint32_t be)
{
	uint32_t ip = ntohl(be);

	return ip >> 24 != 0 && ip >> 24 != 127 && ip >> 16 != 0xa9fe && ip >> 28 < 0xe;
}

int mpib_ipv4_parse(const char *text, uint32_t *ret_be)
{
	uint32_t be;

	if (!scan_address(&text, &be) || *text)
		return -EINVAL;

	*ret_be = be;
	return 0;
}

int mpib_cidr_parse(const char *text, uint32_t *ret_be, unsigned int *ret_len)
{
	unsigned int len;
	uint32_t be;

	if (!scan_address(&text, &be) || !scan_char(&text, '/') || !scan_number(&text, &len) ||
	    *text)
		return -EINVAL;
	if (len > 32)
		return -ERANGE;
	if (be & ~mpib_ipv4_mask(len))
		return -EADDRNOTAVAIL;

	*ret_be = be;
	*ret_len = len;
	return 0;
}

char *mpib_ipv4_format(uint32_t be, char *buf)
{
	uint32_t host = ntohl(be);

	(void)snprintf(buf, MPIB_IPV4_TEXT_MAX, "%u.%u.%u.%u", host >> 24, host >> 16 & 255,
		       host >> 8 & 255, host & 255);
	return buf;
}

char *mpib_flow_format(uint32_t src_be, uint32_t dst_be, char *buf)
{
	char src[MPIB_IPV4_TEXT_MAX];
	char dst[MPIB_IPV4_TEXT_MAX];

	(void)snprintf(buf, MPIB_FLOW_TEXT_MAX, "%s-%s", mpib_ipv4_format(src_be, src),
		       mpib_ipv4_format(dst_be, dst));
	return buf;
}

int mpib_flow_parse(const char *text, uint32_t *ret_src_be, uint32_t *ret_dst_be)
{
	uint32_t src_be;
	uint32_t dst_be;

	if (!scan_address(&text, &src_be) || !scan_char(&text, '-') ||
	    !scan_address(&text, &dst_be) || *text)
		return -EINVAL;

	*ret_src_be = src_be;
	*ret_dst_be = dst_be;
	return 0;
}
