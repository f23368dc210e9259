/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent with as much as limits permit: work that grows with it is cut into slices, between
 * which others are served. Figures are printed; what is asserted is far above a slice, and far
 * below the whole. */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/agent/harness/fresh.h"

#define MANY	  100000u
#define PIPELINE  64u
#define ISLANDS	  10000u
#define ALL_SLOTS 65536u

/* Sanitizers cost time, and that is not what is measured. */
#ifdef __SANITIZE_ADDRESS__
#define SLOWER 4
#else
#define SLOWER 1
#endif
#define LONGEST_US 20000.0

/* ---- one who waits -------------------------------------------------------------------------- */

static uint64_t now_nsec(void)
{
	struct timespec now = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One registration and its end, in microseconds, less what agent and test waited for a core. */
static double ask(int fd)
{
	uint64_t waited = harness_cores(agent.pid).waited + harness_cores(getpid()).waited;
	uint64_t start = now_nsec();
	uint64_t took;

	assert_int_equal(agent_register(fd, 1, test_ip("10.7.0.1"), test_ip("10.7.0.2")).status,
			 MPIB_STATUS_OK);
	took = now_nsec() - start;
	waited = harness_cores(agent.pid).waited + harness_cores(getpid()).waited - waited;
	assert_int_equal(agent_deregister(fd, 1).status, MPIB_STATUS_OK);
	return (double)(took > waited ? took - waited : 0) / 1000.0;
}

/* The longest of all registrations while @work runs in a process of its own, and for another beat
 * after it. */
static void expect_served(const char *what, int (*work)(void *arg), void *arg)
{
	static const struct timespec pause = { .tv_nsec = 200000 };
	int fd = agent_connect(&agent);
	pid_t pid = harness_fork(work, arg);
	uint64_t end = UINT64_MAX;
	double longest = 0;
	unsigned int n = 0;

	while (now_nsec() < end) {
		siginfo_t ended = { 0 };
		double us = ask(fd);

		longest = us > longest ? us : longest;
		n++;
		if (end == UINT64_MAX &&
		    waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		    ended.si_pid)
			end = now_nsec() + 1500000000u;
		(void)nanosleep(&pause, NULL);
	}
	assert_int_equal(harness_reap(pid), 0);
	(void)close(fd);
	print_message("%s: the longest of %u registrations took %.0f us\n", what, n, longest);
	if (longest > LONGEST_US * SLOWER)
		fail_msg("%s: others waited %.0f us", what, longest);
}

/* ---- much ----------------------------------------------------------------------------------- */

struct crowd {
	pid_t pid;
	int ready;
};

/* @count connections: of one flow, or (@flows) each of another. */
static int register_many(uint32_t count, bool flows)
{
	struct mpib_msg_register many[PIPELINE];
	int fd = agent_connect(&agent);

	for (uint32_t sent = 0; sent < count; sent += PIPELINE) {
		for (uint32_t n = 0; n < PIPELINE; n++)
			many[n] = (struct mpib_msg_register){
				.header = { MPIB_MSG_MAGIC, sizeof(many[0]), MPIB_MSG_REGISTER, 0 },
				.conn_id = sent + n,
				.sout_src_ip = test_ip("10.9.0.1"),
				.sout_dst_ip = htobe32(0x0A090002u + (flows ? sent + n : 0)),
			};
		if (send(fd, many, sizeof(many), MSG_NOSIGNAL) != (ssize_t)sizeof(many))
			return 1;
		for (uint32_t n = 0; n < PIPELINE; n++) {
			if (answer_read(fd, MPIB_MSG_REGISTER).status != MPIB_STATUS_OK)
				return 2;
		}
	}
	return 0;
}

static struct crowd start_crowd(uint32_t count, bool flows)
{
	struct crowd crowd;
	int ends[2];
	int r = -1;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	crowd.pid = fork();
	assert_true(crowd.pid >= 0);
	if (crowd.pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		r = register_many(count, flows);
		(void)!write(ends[1], &r, sizeof(r));
		for (;;)
			(void)pause();
	}
	(void)close(ends[1]);
	assert_int_equal(read(ends[0], &r, sizeof(r)), sizeof(r));
	assert_int_equal(r, 0);
	crowd.ready = ends[0];
	return crowd;
}

static void end_crowd(const struct crowd *crowd)
{
	(void)kill(crowd->pid, SIGKILL);
	(void)harness_reap(crowd->pid);
	(void)close(crowd->ready);
}

/* A policy of 10 000 islands, with another share each time. */
static void write_large_policy(uint32_t inter)
{
	char path[TEMPDIR_MAX + 32];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s", agent.ini);
	file = fopen(path, "we");
	assert_non_null(file);
	(void)fprintf(file, "[agent]\nslots = %u\n[policy]\ninter = %u\nintra = %u\n[islands]\n",
		      ALL_SLOTS, inter, inter);
	for (uint32_t n = 0; n < ISLANDS; n++)
		(void)fprintf(file, "i%u = 172.%u.%u.0/28\n", n, 16 + n / 256, n % 256);
	assert_int_equal(fclose(file), 0);
}

/* ---- cases ---------------------------------------------------------------------------------- */

static int delete_state(void *arg)
{
	char path[TEMPDIR_MAX + 32];

	(void)arg;
	(void)snprintf(path, sizeof(path), "%s/state", agent.dir);
	return unlink(path) < 0;
}

/* Nothing is missing in it. */
static void await_whole_state(void)
{
	uint64_t end = now_nsec() + 20000000000u;

	for (;;) {
		char *out = agent_ctl_words(&agent, 0, "metrics", NULL);
		bool whole = strstr(out, "\nmpib_state_unsaved_connections 0\n") != NULL;

		free(out);
		if (whole)
			return;
		if (now_nsec() > end)
			fail_msg("the state isn't whole again");
	}
}

static void very_many_registrations_are_saved_anew(void **state)
{
	struct crowd crowd;

	(void)state;
	agent_start(&agent);
	crowd = start_crowd(MANY, false);
	expect_served("a state file of 100 000 registrations is made anew", delete_state, NULL);
	await_whole_state();
	end_crowd(&crowd);
}

static int print_policy(void *arg)
{
	const char *const args[] = { "policy", NULL };
	char *out = NULL;
	int code = agent_ctl(&agent, geteuid(), args, &out);
	bool whole = out && strstr(out, "\ni9999 = 172.55.15.0/28\n");

	(void)arg;
	free(out);
	return code ? code : !whole;
}

static void a_very_large_policy_is_printed(void **state)
{
	(void)state;
	write_large_policy(100);
	agent_start(&agent);
	expect_served("a policy of 10 000 islands is printed", print_policy, NULL);
}

static int reload(void *arg)
{
	const char *const args[] = { "reload", NULL };

	(void)arg;
	write_large_policy(200);
	return agent_ctl(&agent, geteuid(), args, NULL);
}

static void a_very_large_table_is_reloaded(void **state)
{
	struct crowd crowd;

	(void)state;
	write_large_policy(100);
	agent_start(&agent);
	crowd = start_crowd(50048, true);
	expect_served("10 000 islands and 50 000 slots are reloaded", reload, NULL);
	end_crowd(&crowd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(very_many_registrations_are_saved_anew),
		AGENT_TEST(a_very_large_policy_is_printed),
		AGENT_TEST(a_very_large_table_is_reloaded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
