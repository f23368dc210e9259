/* SPDX-License-Identifier: Apache-2.0 */
/* How long the plugin's calls take, and in what: a progress thread that waits in one of them drives
 * no other connection. Progress thread. */
#ifndef MPIB_NETPERF_CALL_TIME_H
#define MPIB_NETPERF_CALL_TIME_H

#include <stdbool.h>
#include <stdint.h>

enum np_call { NP_CALL_ISEND, NP_CALL_IRECV, NP_CALL_TEST, NP_CALL_MAX };

/* The longest call of its kind. What wall has beyond user and system, the thread did not run:
 * preempted where it lost the processor, else waiting. */
struct np_call_time {
	uint64_t calls;
	double wall, user, system; /* seconds */
	uint64_t preempted;	   /* times */
};

/* As of the start of a call. */
struct np_call_start {
	double wall, user, system;
	uint64_t preempted;
};

void np_call_begin(struct np_call_start *start);

/* Counts the call that began at @start, and keeps it in @longest where none was longer. */
void np_call_end(struct np_call_time *longest, const struct np_call_start *start);

/* Adds @from's calls to @into, whose longest it may be. */
void np_call_merge(struct np_call_time *into, const struct np_call_time *from);

const char *np_call_name(enum np_call call);

#endif
