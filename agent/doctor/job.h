/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a job, as its plugin sees it: the variables of a process, and below them those
 * of NCCL's files, which NCCL adds before it loads a plugin. */
#ifndef MPIB_AGENT_JOB_H
#define MPIB_AGENT_JOB_H

#include <stddef.h>
#include <sys/types.h>

#include "agent/base/cause.h"

struct mpib_job {
	pid_t pid;   /* 0: this process */
	char *block; /* "NAME=value" with NULs between them, the first of a name counts */
	size_t size; /* with the NUL of the last entry */
};

/* Reads that of process @pid, or with 0 this one's; files of NCCL below @root. -ESRCH where the
 * process is gone or has none, -EACCES where it isn't this user's, -E2BIG; with a cause. */
int mpib_job_open(pid_t pid, const char *root, struct mpib_job *ret, struct mpib_cause *cause);
void mpib_job_close(struct mpib_job *job);

/* The value of @name, or NULL; @job is a struct mpib_job, as mpib_env_get wants it. */
const char *mpib_job_get(const void *job, const char *name);

/* The entry behind @entry, the first one for NULL; NULL at the end. */
const char *mpib_job_next(const struct mpib_job *job, const char *entry);

/* Bytes of a NUL-separated block of @size bytes, as /proc has it, appended to @job, with the NUL
 * that the last entry may lack. -ENOMEM. */
int mpib_job_add(struct mpib_job *job, const char *block, size_t size);

#endif
