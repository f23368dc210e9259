/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc tells of another process, for a message to a person. */
#ifndef MPIB_AGENT_PROC_H
#define MPIB_AGENT_PROC_H

#include <sys/types.h>

struct mpib_proc {
	char name[16]; /* cut at 15 bytes by the kernel */
	char state;    /* R, S, D, T, t, Z as in ps(1) */
	long tracer;   /* pid of a debugger, 0: none that can be seen */
};

/* 0; -ESRCH where there is no such process, or the errno of the file. Any thread. */
int mpib_proc_look(pid_t pid, struct mpib_proc *ret);

#endif
