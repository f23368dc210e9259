/* SPDX-License-Identifier: Apache-2.0 */
/* What a test tells trace_agent.c, which runs an agent and stops at each of its system calls, and
 * what it is told. In a page that both have mapped. */
#ifndef MPIB_TESTS_AGENT_TRACE_H
#define MPIB_TESTS_AGENT_TRACE_H

#include <stdatomic.h>

/* Descriptor of the page in the tracer. */
#define TRACE_FD_ENV "MPIB_TRACE_FD"
/* The program to run. */
#define TRACE_AGENTD_ENV "MPIB_TRACED_AGENTD"

/* The tracer can't do that on this machine. */
#define TRACE_EXIT_UNABLE 94

enum trace_fault {
	TRACE_NOTHING,
	TRACE_KILLS, /* before the call */
	TRACE_FAILS, /* the call isn't made and gives an error */
	TRACE_HALVES /* a write of half as much */
};

struct trace_page {
	atomic_int fault; /* enum trace_fault; TRACE_NOTHING: calls aren't counted */
	atomic_int error; /* positive errno */
	atomic_int all;	  /* 1: every call; 0: those that change files or sockets' names */
	atomic_uint skip; /* calls before the one that is chosen */
	atomic_uint calls;
	atomic_uint number; /* of the call that was chosen, as the kernel names it */
	atomic_int hit;
	atomic_uint syncs; /* fsync and the like, ever */
};

#endif
