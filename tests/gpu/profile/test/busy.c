/* SPDX-License-Identifier: Apache-2.0 */
/* One second of CPU time in a library on a thread that blocks all signals, half a second in the
 * program itself, and half a second that isn't to be seen. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

void work_by_copying(double seconds);
void spin(double seconds);

__attribute__((noinline)) void spin(double seconds)
{
	struct timespec now;
	double end;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	end = (double)now.tv_sec + (double)now.tv_nsec / 1e9 + seconds;
	do {
		for (volatile int k = 0; k < 100000; k++)
			;
		(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while ((double)now.tv_sec + (double)now.tv_nsec / 1e9 < end);
}

static void *copy(void *arg)
{
	work_by_copying(1.0);
	return arg;
}

int main(void)
{
	void (*sample)(int) = NULL;
	sigset_t all, old;
	pthread_t thread;

	*(void **)&sample = dlsym(RTLD_DEFAULT, "mpib_sample");
	if (!sample)
		return 2;
	spin(0.5);
	sample(1);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&thread, NULL, copy, NULL))
		return 1;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	spin(0.5);
	(void)pthread_join(thread, NULL);
	sample(0);
	return 0;
}
