/* SPDX-License-Identifier: Apache-2.0 */
/* Which network interfaces a list means, in the syntax that NCCL_SOCKET_IFNAME has: "eth,ib" names
 * beginnings, "=eth0" whole names, "^docker,lo" all but those. Pure; any thread. */
#ifndef MPIB_COMMON_IF_LIST_H
#define MPIB_COMMON_IF_LIST_H

#include <stdbool.h>

enum mpib_if_match {
	MPIB_IF_NO,
	MPIB_IF_NOT_EXCLUDED, /* of a list that begins with '^', or of the empty one */
	MPIB_IF_BEGINS,	      /* begins as an element does */
	MPIB_IF_NAMED,	      /* is an element */
};

/* True for a list: "", or elements between commas, each of 1 to 15 bytes without blank and slash;
 * in front of them '^', '=' or both in that order. */
bool mpib_if_list_valid(const char *list);

/* What a valid @list says of interface @name. */
enum mpib_if_match mpib_if_list_match(const char *list, const char *name);

#endif
