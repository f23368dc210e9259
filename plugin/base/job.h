/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that may take long and has nothing else to do with the thread that wants it done: each job
 * has a thread of its own while it runs, so that none waits for another one's driver. A job begins
 * and ends under the watch lock, and gives it back for what takes long.
 */
#ifndef MPIB_PLUGIN_JOB_H
#define MPIB_PLUGIN_JOB_H

#include <pthread.h>
#include <stdbool.h>

/* Embedded in its owner; zero it before use. */
struct mpib_job {
	void (*run)(struct mpib_job *job);
	bool runs;    /* under the watch lock */
	bool to_join; /* job.c's, as all below: it has a thread, and nobody has begun to join it */
	pthread_t thread;
	struct mpib_job *next, **link; /* those to join */
};

/* Runs it in a thread of its own. Not for one that runs. Negative errno where there is no thread to
 * be had. Under the watch lock. */
int mpib_job_start(struct mpib_job *job);

/* Waits for the end of a job that nobody starts any more. Without the watch lock. */
void mpib_job_end(struct mpib_job *job);

/* No job starts from here on, and none runs: the library's code may go. */
void mpib_jobs_stop(void);

#endif
