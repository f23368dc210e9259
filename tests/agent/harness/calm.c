/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/calm.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "common/hint.h"
#include "tests/agent/harness/stalls.h"

/* Each waits that long between two registrations. */
#define PAUSE_NSEC 200000000u

/* Requests of a client whose time is kept. */
#define KEPT 1024u

/* Promises: of a registration, and of the heartbeat, which comes each second. */
#define BEAT_GAP_MS 1500.0

/* Messages that are timed, and what one takes at most on machines that the promise is for. */
#define MESSAGES       1000u
#define MESSAGE_US_MAX 3.0
#define SLOWER_MAX     5.0

struct calm_sample {
	uint64_t start; /* on the clock */
	uint64_t end;
	uint32_t waited; /* in between, for a core */
};

struct calm_member {
	_Atomic uint32_t n;
	_Atomic uint32_t failed;
	struct calm_sample samples[KEPT];
};

struct calm_board {
	_Atomic int stop;
	_Atomic uint32_t ready;
	_Atomic uint64_t gap_nsec;
	struct calm_member members[CALM_CLIENTS];
};

struct calm {
	const struct agent *agent;
	struct calm_board *board;
	const struct mpib_hint_header *header;
	struct stalls *stalls;
	struct harness_cores before;
	cpu_set_t cores; /* what there were */
	double message_us;
	uint64_t start_ms;
	pid_t watcher;
	pid_t pids[CALM_CLIENTS];
};

static uint64_t now_nsec(void)
{
	struct timespec now = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One registration, timed. Returns false where it isn't answered with a slot. */
static bool register_timed(const struct calm *calm, int fd, uint32_t flow, struct calm_sample *ret)
{
	struct harness_cores agents = harness_cores(calm->agent->pid);
	struct harness_cores own = harness_cores(getpid());
	uint64_t start = now_nsec();
	struct answer a = agent_register(fd, 1, test_ip("10.7.0.1"), test_ip("10.7.1.0") + flow);
	uint64_t end = now_nsec();
	uint64_t waited = harness_cores(calm->agent->pid).waited - agents.waited +
			  harness_cores(getpid()).waited - own.waited;

	*ret = (struct calm_sample){ start, end,
				     waited < UINT32_MAX ? (uint32_t)waited : UINT32_MAX };
	return a.ok && a.status == MPIB_STATUS_OK;
}

static void run_member(const struct calm *calm, uint32_t number)
{
	struct calm_member *me = &calm->board->members[number];
	struct timespec pause = { .tv_nsec = PAUSE_NSEC / CALM_CLIENTS * (number + 1) };
	int fd = agent_connect(calm->agent);

	(void)atomic_fetch_add(&calm->board->ready, 1);
	if (fd < 0) {
		(void)atomic_fetch_add(&me->failed, 1);
		return;
	}

	while (!atomic_load(&calm->board->stop)) {
		struct calm_sample sample;

		(void)nanosleep(&pause, NULL);
		pause.tv_nsec = PAUSE_NSEC;
		/* Several share a flow: the table is for the attack, too. */
		if (!register_timed(calm, fd, (number % 8) << 24, &sample) ||
		    agent_deregister(fd, 1).status != MPIB_STATUS_OK)
			(void)atomic_fetch_add(&me->failed, 1);
		if (me->n < KEPT)
			me->samples[me->n++] = sample;
	}
}

/* Where it may, a process (0: this one) has a core as soon as it wants one. Not as SCHED_FIFO: from
 * such tasks a kernel takes up to 50 ms of each second for others. */
static void prefer(pid_t pid)
{
	(void)setpriority(PRIO_PROCESS, (id_t)pid, -20);
}

/* Where there are several cores, the agent has the last one to itself, and all that is started from
 * here on takes the others. While the agent waits for a core requests pile up, and then what one
 * waits for is the others' requests, and not the attack. */
static void part_cores(struct calm *calm)
{
	cpu_set_t agents, others;
	int last = CPU_SETSIZE - 1;

	assert_int_equal(sched_getaffinity(0, sizeof(calm->cores), &calm->cores), 0);
	prefer(calm->agent->pid);
	if (CPU_COUNT(&calm->cores) < 2)
		return;
	while (!CPU_ISSET(last, &calm->cores))
		last--;
	others = calm->cores;
	CPU_CLR(last, &others);
	CPU_ZERO(&agents);
	CPU_SET(last, &agents);
	assert_int_equal(sched_setaffinity(calm->agent->pid, sizeof(agents), &agents), 0);
	assert_int_equal(sched_setaffinity(0, sizeof(others), &others), 0);
}

/* Shared memory has no event to wait for: looks each 2 ms. A gap that lasts counts as well. */
static void run_watcher(const struct calm *calm)
{
	static const struct timespec pause = { .tv_nsec = 2000000 };
	const struct mpib_hint_header *header = calm->header;
	uint32_t beat = mpib_hint_load(&header->heartbeat);
	uint64_t since = now_nsec();

	prefer(0);
	(void)atomic_fetch_add(&calm->board->ready, 1);
	while (!atomic_load(&calm->board->stop)) {
		uint32_t now = mpib_hint_load(&header->heartbeat);
		uint64_t gap = now_nsec() - since;

		if (gap > atomic_load(&calm->board->gap_nsec))
			atomic_store(&calm->board->gap_nsec, gap);
		if (now != beat)
			since = now_nsec();
		beat = now;
		(void)nanosleep(&pause, NULL);
	}
}

static pid_t start_process(const struct calm *calm, uint32_t number)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid != 0)
		return pid;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (number < CALM_CLIENTS)
		run_member(calm, number);
	else
		run_watcher(calm);
	_exit(0);
}

static int compare(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a;
	uint32_t right = *(const uint32_t *)b;

	return left < right ? -1 : left > right;
}

/* How fast the machine is: a message as long as a registration, sent and received. */
static double time_messages(void)
{
	static uint32_t nsec[MESSAGES];
	char message[64] = { 0 };
	size_t middle = MESSAGES / 2;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	for (size_t n = 0; n < MESSAGES; n++) {
		uint64_t start = now_nsec();

		assert_int_equal(send(fds[0], message, sizeof(message), 0), sizeof(message));
		assert_int_equal(recv(fds[1], message, sizeof(message), 0), sizeof(message));
		nsec[n] = (uint32_t)(now_nsec() - start);
	}
	(void)close(fds[0]);
	(void)close(fds[1]);
	qsort(nsec, MESSAGES, sizeof(nsec[0]), compare);
	return nsec[middle] / 1e3;
}

struct calm *calm_start(const struct agent *agent)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	struct calm *calm = calloc(1, sizeof(*calm));
	uint64_t end = harness_now_ms() + 20000;

	if (!calm) {
		fail_msg("out of memory");
		return NULL;
	}
	calm->agent = agent;
	calm->header = agent_map_hints(agent);
	calm->message_us = time_messages();
	calm->stalls = stalls_start();
	part_cores(calm);
	calm->board = mmap(NULL, sizeof(*calm->board), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(calm->board != MAP_FAILED);
	for (uint32_t n = 0; n < CALM_CLIENTS; n++)
		calm->pids[n] = start_process(calm, n);
	calm->watcher = start_process(calm, CALM_CLIENTS);
	while (atomic_load(&calm->board->ready) < CALM_CLIENTS + 1) {
		if (harness_now_ms() >= end)
			fail_msg("not all of the well-behaved clients came in");
		(void)nanosleep(&pause, NULL);
	}
	calm->before = harness_cores(agent->pid);
	calm->start_ms = harness_now_ms();
	return calm;
}

/* What is left of it without what the machine is answerable for. */
static uint32_t judge_sample(const struct calm *calm, const struct calm_sample *sample)
{
	uint64_t took = sample->end - sample->start;
	uint64_t off = sample->waited + stalls_within(calm->stalls, sample->start, sample->end);

	took -= off < took ? off : took;
	return took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
}

static void collect(const struct calm *calm, struct calm_figures *ret)
{
	uint32_t *all = calloc((size_t)CALM_CLIENTS * KEPT, sizeof(*all));

	if (!all) {
		fail_msg("out of memory");
		return;
	}
	for (uint32_t n = 0; n < CALM_CLIENTS; n++) {
		const struct calm_member *member = &calm->board->members[n];

		for (uint32_t k = 0; k < member->n; k++)
			all[ret->requests++] = judge_sample(calm, &member->samples[k]);
		ret->failed += member->failed;
	}
	qsort(all, ret->requests, sizeof(*all), compare);
	if (ret->requests) {
		size_t p50 = ret->requests / 2;
		size_t p99 = (size_t)ret->requests * 99 / 100;

		ret->p50_us = all[p50] / 1000.0;
		ret->p99_us = all[p99] / 1000.0;
		ret->worst_us = all[ret->requests - 1] / 1000.0;
	}
	free(all);
}

struct calm_figures calm_stop(struct calm *calm)
{
	uint64_t took_ms = harness_now_ms() - calm->start_ms;
	uint64_t used = harness_cores(calm->agent->pid).used - calm->before.used;
	struct calm_figures figures = { .message_us = calm->message_us };

	atomic_store(&calm->board->stop, 1);
	for (uint32_t n = 0; n < CALM_CLIENTS; n++)
		(void)harness_reap(calm->pids[n]);
	(void)harness_reap(calm->watcher);
	stalls_stop(calm->stalls);
	collect(calm, &figures);
	stalls_free(calm->stalls);
	(void)sched_setaffinity(0, sizeof(calm->cores), &calm->cores);
	figures.beat_gap_ms = (double)atomic_load(&calm->board->gap_nsec) / 1e6;
	figures.agent_percent = took_ms ? (double)used / 1e4 / (double)took_ms : 0;
	(void)munmap(calm->board, sizeof(*calm->board));
	free(calm);
	return figures;
}

void calm_print(const char *what, const struct calm_figures *f)
{
	print_message(
		"%s: register p50 %.0f us, p99 %.0f us, worst %.0f us (%u, %u failed); "
		"longest without heartbeat %.0f ms; agent %.0f %% of a core; a message %.1f us\n",
		what, f->p50_us, f->p99_us, f->worst_us, f->requests, f->failed, f->beat_gap_ms,
		f->agent_percent, f->message_us);
}

double calm_scaled_bound(const struct calm_figures *f, double p99_us)
{
	double slower = f->message_us / MESSAGE_US_MAX;

	if (slower < 1)
		return p99_us;
	return p99_us * (slower < SLOWER_MAX ? slower : SLOWER_MAX);
}

void calm_judge(const struct calm_figures *f)
{
	if (f->failed)
		fail_msg("%u registrations of well-behaved clients failed", f->failed);
	if (f->requests < CALM_CLIENTS)
		fail_msg("only %u registrations of well-behaved clients were served", f->requests);
	if (f->beat_gap_ms > BEAT_GAP_MS)
		fail_msg("no heartbeat for %.0f ms, not %.0f at most", f->beat_gap_ms, BEAT_GAP_MS);
}
