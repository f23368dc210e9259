/* SPDX-License-Identifier: Apache-2.0 */
/* Figures for tests/bench: 300 processes are connected, and one of them at a time registers. Where
 * the kernel puts it and the agent makes a difference of several times, so that is given: on one
 * core ("together") or on two ("apart"). On two, waits of both for a core are taken off, as they
 * are the machine's matter; on one, to wait for the core is to wait for the agent. One line of JSON
 * on standard output. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "tests/agent/harness/harness.h"

#define CLIENTS 300u
#define ROUNDS	6000u

struct board {
	uint32_t nsec[ROUNDS];	/* waits taken off */
	uint32_t whole[ROUNDS]; /* as a clock has it */
};

struct single {
	pid_t pid;
	int turn[2]; /* a byte: its turn; closed: over */
};

static struct agent agent;
static struct board *board;
static struct single singles[CLIENTS];
static bool apart;

static uint64_t now_nsec(void)
{
	struct timespec now = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t waited(void)
{
	return harness_cores(agent.pid).waited + harness_cores(getpid()).waited;
}

static bool register_timed(int fd, uint32_t flow, uint32_t round)
{
	uint64_t before = waited();
	uint64_t start = now_nsec();
	struct answer a = agent_register(fd, 1, test_ip("10.7.0.1"), flow);
	uint64_t took = now_nsec() - start;
	uint64_t wait = waited() - before;

	board->whole[round] = (uint32_t)took;
	if (apart)
		took -= wait < took ? wait : took;
	board->nsec[round] = (uint32_t)took;
	return a.ok && a.status == MPIB_STATUS_OK &&
	       agent_deregister(fd, 1).status == MPIB_STATUS_OK;
}

/* Keeps a process (0: this one) on the core of this number among those that it may have. */
static void pin(pid_t pid, int number)
{
	cpu_set_t all;
	cpu_set_t one;
	int core = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	while (core < CPU_SETSIZE - 1 && (!CPU_ISSET(core, &all) || number-- > 0))
		core++;
	CPU_ZERO(&one);
	CPU_SET(core, &one);
	if (sched_setaffinity(pid, sizeof(one), &one) < 0)
		fail_msg("no core for it");
}

static int run_single(const struct single *me, uint32_t flow, int done)
{
	int fd = agent_connect(&agent);
	uint32_t round;

	if (fd < 0 || write(done, "c", 1) != 1)
		return 1;
	while (read(me->turn[0], &round, sizeof(round)) == sizeof(round)) {
		if (!register_timed(fd, flow, round) || write(done, "r", 1) != 1)
			return 1;
	}
	return 0;
}

static void start_single(uint32_t number, int done)
{
	struct single *me = &singles[number];

	assert_int_equal(pipe(me->turn), 0);
	me->pid = fork();
	assert_true(me->pid >= 0);
	if (me->pid != 0) {
		(void)close(me->turn[0]);
		return;
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t n = 0; n <= number; n++)
		(void)close(singles[n].turn[1]);
	pin(0, apart);
	_exit(run_single(me, 1 + number % 200, done));
}

static int compare(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a;
	uint32_t right = *(const uint32_t *)b;

	return left < right ? -1 : left > right;
}

static void measure(void)
{
	int done[2];
	char byte;

	assert_int_equal(pipe(done), 0);
	for (uint32_t n = 0; n < CLIENTS; n++) {
		start_single(n, done[1]);
		assert_int_equal(read(done[0], &byte, 1), 1);
	}
	(void)close(done[1]);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		/* not in the order in which they came */
		const struct single *next = &singles[round * 7919u % CLIENTS];

		assert_int_equal(write(next->turn[1], &round, sizeof(round)), sizeof(round));
		assert_int_equal(read(done[0], &byte, 1), 1);
	}
	for (uint32_t n = 0; n < CLIENTS; n++) {
		(void)close(singles[n].turn[1]);
		assert_int_equal(harness_reap(singles[n].pid), 0);
	}
}

int main(int argc, char *argv[])
{
	size_t p50 = ROUNDS / 2;
	size_t p99 = (size_t)ROUNDS * 99 / 100;
	struct harness_cores before;
	uint64_t used;

	apart = argc == 2 && strcmp(argv[1], "apart") == 0;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	assert_true(board != MAP_FAILED);
	agent_init(&agent);
	agent_start(&agent);
	pin(agent.pid, 0);
	before = harness_cores(agent.pid);
	measure();
	used = harness_cores(agent.pid).used - before.used;
	(void)agent_stop(&agent, SIGTERM);
	agent_fini(&agent);
	qsort(board->nsec, ROUNDS, sizeof(board->nsec[0]), compare);
	qsort(board->whole, ROUNDS, sizeof(board->whole[0]), compare);
	(void)printf("{\"p50_us\": %.1f, \"p99_us\": %.1f, \"whole_p50_us\": %.1f, "
		     "\"whole_p99_us\": %.1f, \"agent_us\": %.2f}\n",
		     board->nsec[p50] / 1e3, board->nsec[p99] / 1e3, board->whole[p50] / 1e3,
		     board->whole[p99] / 1e3, (double)used / 1e3 / (2 * ROUNDS));
	return 0;
}
