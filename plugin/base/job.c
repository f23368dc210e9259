/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/base/job.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>

#include "plugin/base/watch.h"

static struct mpib_job *jobs; /* those to join; under the watch lock, as all of this */
static bool stopped;

static void *job_main(void *arg)
{
	struct mpib_job *job = arg;

	mpib_watch_lock();
	job->run(job);
	job->runs = false;
	mpib_watch_unlock();
	return NULL;
}

/* Whoever takes it joins it. */
static bool take(struct mpib_job *job)
{
	mpib_watch_assert_locked();
	if (!job->to_join)
		return false;
	*job->link = job->next;
	if (job->next)
		job->next->link = job->link;
	job->to_join = false;
	return true;
}

int mpib_job_start(struct mpib_job *job)
{
	sigset_t all, old;
	int r;

	mpib_watch_assert_locked();
	if (stopped)
		return -ESHUTDOWN;
	/* The thread before has given the lock back, and asks for nothing more. */
	if (take(job))
		(void)pthread_join(job->thread, NULL);
	/* The host program's signal handlers must never run there. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&job->thread, NULL, job_main, job);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0)
		return r;
	(void)pthread_setname_np(job->thread, "mpib-rail");
	job->runs = job->to_join = true;
	job->next = jobs;
	job->link = &jobs;
	if (jobs)
		jobs->link = &job->next;
	jobs = job;
	return 0;
}

void mpib_job_end(struct mpib_job *job)
{
	bool mine;

	mpib_watch_lock();
	mine = take(job);
	/* At an exit of the process mpib_jobs_stop may have begun to join it. */
	while (!mine && job->runs) {
		mpib_watch_unlock();
		(void)poll(NULL, 0, 1);
		mpib_watch_lock();
	}
	mpib_watch_unlock();
	if (mine)
		(void)pthread_join(job->thread, NULL);
}

void mpib_jobs_stop(void)
{
	mpib_watch_lock();
	stopped = true;
	while (jobs) {
		pthread_t thread = jobs->thread;

		(void)take(jobs);
		mpib_watch_unlock();
		(void)pthread_join(thread, NULL);
		mpib_watch_lock();
	}
	mpib_watch_unlock();
}
