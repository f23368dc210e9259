/* SPDX-License-Identifier: Apache-2.0 */
/* A named thread that does one job at a time: NCCL's init, service and progress threads. Jobs are
 * given and awaited by the main thread. */
#ifndef MPIB_NETPERF_WORKER_H
#define MPIB_NETPERF_WORKER_H

#include <pthread.h>
#include <stdbool.h>

struct np_worker {
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t wake, idle;
	void (*job)(void *arg);
	void *arg;
	bool busy, quit, started;
	double cpu; /* seconds of CPU time, as of the end of the latest job */
};

/* 0 or negative errno. */
int np_worker_init(struct np_worker *worker, const char *name);

/* Starts a job; the worker must be idle. */
void np_worker_post(struct np_worker *worker, void (*job)(void *arg), void *arg);

/* Waits up to @ms for the job's end; true where the worker is idle. */
bool np_worker_wait(struct np_worker *worker, int ms);

double np_worker_cpu(struct np_worker *worker);

/* Joins the thread, which must be idle. Harmless for a worker that never started. */
void np_worker_fini(struct np_worker *worker);

#endif
