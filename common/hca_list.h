/* SPDX-License-Identifier: Apache-2.0 */
/* The lists MPIB_HCA_SOUT and MPIB_HCA_SUP: "name[:port],name[:port]". Pure; any thread. Errors are
 * -EINVAL and a sentence that quotes variable and value. */
#ifndef MPIB_COMMON_HCA_LIST_H
#define MPIB_COMMON_HCA_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define MPIB_DEVICES_MAX    32 /* elements of a list */
#define MPIB_HCA_DEVICE_MAX 52 /* bytes of a device's name with NUL; ":port" makes it 64 */

struct mpib_hca_name {
	char device[MPIB_HCA_DEVICE_MAX];
	unsigned int port; /* 1..255 */
};

/* Splits @text, the value of @variable, into @names (MPIB_DEVICES_MAX of them). How many: 0 for an
 * empty text. */
int mpib_hca_list_parse(const char *variable, const char *text, struct mpib_hca_name *names,
			char *ret_why, size_t why_size);

/* Both lists of a process, which pair up by position. @advanced: a pair needs two ports. How many
 * pairs. */
int mpib_hca_pairs_parse(const char *sout_text, const char *sup_text, bool advanced,
			 struct mpib_hca_name *sout, struct mpib_hca_name *sup, char *ret_why,
			 size_t why_size);

#endif
