/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that the library counts in null mode: exported as `mpib_fabric_counts`, for programs that
 * find it with dlsym. Plain numbers: such a program uses verbs from one thread. */
#ifndef MPIB_FABRIC_COUNTS_H
#define MPIB_FABRIC_COUNTS_H

#include <stdint.h>

/* Null mode moves messages up to this many bytes, which takes in what plugins tell each other. */
#define FAB_NULL_MOVES 512

struct mpib_fabric_counts {
	uint64_t posts;	      /* calls that post sends */
	uint64_t requests;    /* sends posted */
	uint64_t recv_posts;  /* calls that post receives */
	uint64_t receives;    /* receives posted */
	uint64_t polls;	      /* calls of poll_cq */
	uint64_t empty_polls; /* of these, with nothing to give */
	uint64_t completions; /* completions given */
};

extern struct mpib_fabric_counts mpib_fabric_counts;

#endif
