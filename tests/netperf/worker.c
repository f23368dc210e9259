/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/worker.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "tests/netperf/clock.h"

static void *worker_main(void *arg)
{
	struct np_worker *worker = arg;

	(void)pthread_mutex_lock(&worker->lock);
	while (!worker->quit) {
		if (!worker->busy) {
			(void)pthread_cond_wait(&worker->wake, &worker->lock);
			continue;
		}
		(void)pthread_mutex_unlock(&worker->lock);
		worker->job(worker->arg);
		(void)pthread_mutex_lock(&worker->lock);
		worker->cpu = np_cpu(RUSAGE_THREAD);
		worker->busy = false;
		(void)pthread_cond_signal(&worker->idle);
	}
	(void)pthread_mutex_unlock(&worker->lock);
	return NULL;
}

int np_worker_init(struct np_worker *worker, const char *name)
{
	pthread_condattr_t attr;
	sigset_t all, old;
	int r;

	*worker = (struct np_worker){ 0 };
	(void)pthread_mutex_init(&worker->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&worker->wake, &attr);
	(void)pthread_cond_init(&worker->idle, &attr);
	(void)pthread_condattr_destroy(&attr);

	/* signals are the main thread's */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&worker->thread, NULL, worker_main, worker);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0)
		return -r;
	(void)pthread_setname_np(worker->thread, name);
	worker->started = true;
	return 0;
}

void np_worker_post(struct np_worker *worker, void (*job)(void *arg), void *arg)
{
	(void)pthread_mutex_lock(&worker->lock);
	worker->job = job;
	worker->arg = arg;
	worker->busy = true;
	(void)pthread_cond_signal(&worker->wake);
	(void)pthread_mutex_unlock(&worker->lock);
}

bool np_worker_wait(struct np_worker *worker, int ms)
{
	struct timespec end;
	bool idle;

	(void)clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += ms / 1000;
	end.tv_nsec += (long)(ms % 1000) * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_nsec -= 1000000000;
		end.tv_sec++;
	}

	(void)pthread_mutex_lock(&worker->lock);
	while (worker->busy)
		if (pthread_cond_timedwait(&worker->idle, &worker->lock, &end) == ETIMEDOUT)
			break;
	idle = !worker->busy;
	(void)pthread_mutex_unlock(&worker->lock);
	return idle;
}

double np_worker_cpu(struct np_worker *worker)
{
	double cpu;

	(void)pthread_mutex_lock(&worker->lock);
	cpu = worker->cpu;
	(void)pthread_mutex_unlock(&worker->lock);
	return cpu;
}

void np_worker_fini(struct np_worker *worker)
{
	if (!worker->started)
		return;
	(void)pthread_mutex_lock(&worker->lock);
	worker->quit = true;
	(void)pthread_cond_signal(&worker->wake);
	(void)pthread_mutex_unlock(&worker->lock);
	(void)pthread_join(worker->thread, NULL);
	worker->started = false;
}
