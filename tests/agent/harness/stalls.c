/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/stalls.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include "tests/agent/harness/harness.h"

/* A watcher wakes so often; what it is late by more than that is a stall. */
#define PERIOD_NSEC 200000u
#define LATE_NSEC   100000u

/* Enough for 39 s in which a watcher is late each time. */
#define CORES_MAX  64u
#define STALLS_MAX 131072u

struct core {
	pid_t watcher;
	_Atomic uint32_t n;
	struct {
		uint64_t start;
		uint64_t end;
	} list[STALLS_MAX];
};

struct stalls {
	unsigned int n_cores;
	struct core cores[CORES_MAX];
};

static uint64_t now_nsec(void)
{
	struct timespec now = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void watch(struct core *core)
{
	static const struct timespec period = { .tv_nsec = PERIOD_NSEC };

	for (;;) {
		uint64_t due = now_nsec() + PERIOD_NSEC;
		uint32_t n = atomic_load(&core->n);
		uint64_t now;

		(void)nanosleep(&period, NULL);
		now = now_nsec();
		if (now < due + LATE_NSEC || n == STALLS_MAX)
			continue;
		core->list[n].start = due;
		core->list[n].end = now;
		atomic_store(&core->n, n + 1);
	}
}

static void start_watcher(struct core *core, const cpu_set_t *where)
{
	/* above what the tests prefer */
	struct sched_param param = { .sched_priority = 2 };

	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid != 0) {
		core->watcher = pid;
		return;
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_TIMERSLACK, 1);
	(void)sched_setaffinity(0, sizeof(*where), where);
	if (sched_setscheduler(0, SCHED_FIFO, &param) < 0)
		(void)setpriority(PRIO_PROCESS, 0, -20);
	watch(core);
}

struct stalls *stalls_start(void)
{
	struct stalls *stalls = mmap(NULL, sizeof(*stalls), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cpu_set_t all;

	assert_true(stalls != MAP_FAILED);
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	for (int n = 0; n < CPU_SETSIZE && stalls->n_cores < CORES_MAX; n++) {
		cpu_set_t one;

		if (!CPU_ISSET(n, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(n, &one);
		start_watcher(&stalls->cores[stalls->n_cores++], &one);
	}
	return stalls;
}

/* The first stall that ends after @start; they are in order of time. */
static uint32_t find_first(const struct core *core, uint32_t n, uint64_t start)
{
	uint32_t low = 0;

	while (low < n) {
		uint32_t middle = low + (n - low) / 2;

		if (core->list[middle].end > start)
			n = middle;
		else
			low = middle + 1;
	}
	return low;
}

static uint64_t core_within(const struct core *core, uint64_t start, uint64_t end)
{
	uint32_t n_stalls = atomic_load(&core->n);
	uint64_t sum = 0;

	for (uint32_t n = find_first(core, n_stalls, start);
	     n < n_stalls && core->list[n].start < end; n++) {
		uint64_t from = core->list[n].start > start ? core->list[n].start : start;
		uint64_t to = core->list[n].end < end ? core->list[n].end : end;

		sum += to - from;
	}
	return sum;
}

uint64_t stalls_within(const struct stalls *stalls, uint64_t start, uint64_t end)
{
	uint64_t worst = 0;

	for (unsigned int n = 0; n < stalls->n_cores; n++) {
		uint64_t sum = core_within(&stalls->cores[n], start, end);

		worst = sum > worst ? sum : worst;
	}
	return worst;
}

void stalls_stop(struct stalls *stalls)
{
	for (unsigned int n = 0; n < stalls->n_cores; n++) {
		(void)kill(stalls->cores[n].watcher, SIGKILL);
		(void)harness_reap(stalls->cores[n].watcher);
		if (stalls->cores[n].n == STALLS_MAX)
			print_message("core %u stood still more often than could be kept\n", n);
	}
}

void stalls_free(struct stalls *stalls)
{
	(void)munmap(stalls, sizeof(*stalls));
}
