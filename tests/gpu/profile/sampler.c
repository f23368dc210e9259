/* SPDX-License-Identifier: Apache-2.0 */
/* Where the CPU time of a process goes, on machines without perf: preloaded, it notes the program
 * counter of every thread each millisecond of that thread's own CPU time, and the top words of its
 * stack, which tell who called memcpy. At its end the process writes one line a sample and its
 * mappings to MPIB_SAMPLER_OUT.PID; profile.py reads that.
 *
 * Sampling is on between mpib_sample(1) and mpib_sample(0), or all the time with
 * MPIB_SAMPLER_ALL=1. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define SAMPLES_MAX 200000
#define STACK_WORDS 32
#define PERIOD_NS   997000 /* no multiple of anything that a program does */

struct sample {
	uintptr_t pc, stack[STACK_WORDS];
	int periods; /* more than one where the kernel looks at timers less often than that */
	char thread[16];
};

struct start {
	void *(*run)(void *arg);
	void *arg;
};

static struct sample *samples;
static _Atomic uint32_t sample_count;
static _Atomic int on;
static pid_t owner; /* a forked child writes nothing */

__attribute__((visibility("default"))) void mpib_sample(int wanted);

void mpib_sample(int wanted)
{
	atomic_store(&on, wanted);
}

static void note(int sig, siginfo_t *info, void *context)
{
	const greg_t *regs = ((const ucontext_t *)context)->uc_mcontext.gregs;
	int saved = errno;
	uint32_t at;

	(void)sig;
	if (!atomic_load(&on))
		return;
	at = atomic_fetch_add(&sample_count, 1);
	if (at < SAMPLES_MAX) {
		samples[at].pc = (uintptr_t)regs[REG_RIP];
		samples[at].periods = 1 + info->si_overrun;
		/* A thread's stack goes on above, for at least what its first frame took. */
		memcpy(samples[at].stack, (const void *)regs[REG_RSP], sizeof(samples[at].stack));
		(void)prctl(PR_GET_NAME, samples[at].thread);
	}
	errno = saved;
}

/* A timer of this thread's CPU time; -1 if there is none to be had. */
static int arm(timer_t *ret_timer)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF };
	const struct itimerspec period = { .it_interval = { .tv_nsec = PERIOD_NS },
					   .it_value = { .tv_nsec = PERIOD_NS } };
	sigset_t set;

	event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, ret_timer) < 0)
		return -1;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGPROF);
	(void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	return timer_settime(*ret_timer, 0, &period, NULL);
}

static void *run_sampled(void *arg)
{
	struct start start = *(struct start *)arg;
	timer_t timer;
	void *result;
	int armed;

	free(arg);
	armed = samples ? arm(&timer) : -1;
	result = start.run(start.arg);
	if (armed == 0)
		(void)timer_delete(timer);
	return result;
}

/* glibc's own names of these parameters are reserved ones.
 * NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
__attribute__((visibility("default"))) int pthread_create(pthread_t *ret_thread,
							  const pthread_attr_t *attr,
							  void *(*run)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	struct start *start = malloc(sizeof(*start));
	int r;

	*(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
	if (!start || !real) {
		free(start);
		return EAGAIN;
	}
	*start = (struct start){ run, arg };
	r = real(ret_thread, attr, run_sampled, start);
	if (r)
		free(start);
	return r;
}

__attribute__((constructor)) static void begin(void)
{
	struct sigaction action = { .sa_sigaction = note,
				    .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK };
	const char *all = getenv("MPIB_SAMPLER_ALL");
	timer_t timer;
	void *map;

	if (!getenv("MPIB_SAMPLER_OUT"))
		return;
	map = mmap(NULL, SAMPLES_MAX * sizeof(*samples), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED || sigaction(SIGPROF, &action, NULL) < 0)
		return;
	samples = map;
	owner = getpid();
	if (arm(&timer) < 0)
		perror("sampler: no timer for the first thread");
	atomic_store(&on, all && strcmp(all, "1") == 0);
}

static void write_maps(FILE *out)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[4352];

	while (maps && fgets(line, sizeof(line), maps))
		(void)fprintf(out, "map %s", line);
	if (maps)
		(void)fclose(maps);
}

__attribute__((destructor)) static void end(void)
{
	const char *base = getenv("MPIB_SAMPLER_OUT");
	uint32_t count = atomic_load(&sample_count);
	char path[4096];
	FILE *out;

	atomic_store(&on, 0);
	if (!samples || !base || owner != getpid())
		return;
	(void)snprintf(path, sizeof(path), "%s.%d", base, (int)owner);
	out = fopen(path, "we");
	if (!out) {
		perror(path);
		return;
	}
	write_maps(out);
	if (count > SAMPLES_MAX) {
		(void)fprintf(out, "lost %u\n", count - SAMPLES_MAX);
		count = SAMPLES_MAX;
	}
	for (uint32_t k = 0; k < count; k++) {
		(void)fprintf(out, "at %d %s\t%lx", samples[k].periods, samples[k].thread,
			      (unsigned long)samples[k].pc);
		for (unsigned int w = 0; w < STACK_WORDS; w++)
			(void)fprintf(out, " %lx", (unsigned long)samples[k].stack[w]);
		(void)fprintf(out, "\n");
	}
	(void)fclose(out);
}
