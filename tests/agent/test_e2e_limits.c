/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent at its limits: slots, descriptors, one user's part, the journal (C25, C30). */
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "common/hint.h"
#include "tests/agent/harness/fresh.h"

/* C25, second part. */
static void the_257th_flow_gets_status_1_in_journal_and_counts(void **state)
{
	static const char *const args[] = { "--json", "status", NULL };
	char *out = NULL;
	int fd;

	(void)state;
	agent_start(&agent);
	fd = agent_connect(&agent);
	assert_true(fd >= 0);
	for (uint32_t n = 0; n < 256; n++)
		assert_int_equal(agent_register(fd, n, 1, n + 1).status, MPIB_STATUS_OK);
	assert_int_equal(agent_register(fd, 256, 1, 257).status, MPIB_STATUS_NO_SLOT);
	assert_int_equal(agent_log_count(&agent, "no free slot; raise slots"), 1);
	assert_int_equal(agent_ctl(&agent, geteuid(), args, &out), 0);
	assert_non_null(strstr(out, "\"flows\": 256"));
	assert_non_null(strstr(out, "\"refused\": 1,"));
	free(out);

	assert_int_equal(agent_deregister(fd, 17).status, MPIB_STATUS_OK);
	assert_int_equal(agent_register(fd, 256, 1, 257).slot, 17);
	assert_int_equal(close(fd), 0);
}

static int greedy_user(void *arg)
{
	int ready = *(int *)arg;
	uint8_t taken = 0;
	int fd;

	if (setresuid(HARNESS_NOBODY, HARNESS_NOBODY, HARNESS_NOBODY) < 0)
		return 1;
	fd = agent_connect(&agent);
	for (uint32_t n = 0; n < 256; n++)
		taken += agent_register(fd, n, 1, n + 1).status == MPIB_STATUS_OK;
	if (write(ready, &taken, 1) != 1)
		return 1;
	(void)pause();
	return 0;
}

/* C25, third part. */
static void a_user_who_claims_all_leaves_an_eighth_to_others(void **state)
{
	uint8_t taken = 0;
	int ready[2];
	pid_t child;

	(void)state;
	if (geteuid() != 0) {
		print_message("needs root to become another user\n");
		skip();
	}
	agent_start(&agent);
	assert_int_equal(pipe(ready), 0);
	child = harness_fork(greedy_user, &ready[1]);
	assert_int_equal(read(ready[0], &taken, 1), 1);
	assert_int_equal(taken, 224);
	for (uint32_t n = 0; n < 32; n++)
		assert_int_equal(agent_register_once(&agent, n, 2, n + 1).status, MPIB_STATUS_OK);
	assert_int_equal(agent_register_once(&agent, 32, 2, 33).status, MPIB_STATUS_NO_SLOT);
	assert_true(agent_log_count(&agent, "in this user's part of the table") > 0);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(harness_reap(child), -SIGKILL);
	(void)close(ready[0]);
	(void)close(ready[1]);
}

/* User and system time of the agent, in milliseconds. */
static unsigned long agent_cpu_ms(void)
{
	char path[64];
	char text[1024];
	unsigned long user;
	unsigned long system;
	FILE *file;
	size_t len;

	(void)snprintf(path, sizeof(path), "/proc/%ld/stat", (long)agent.pid);
	file = fopen(path, "re");
	assert_non_null(file);
	len = fread(text, 1, sizeof(text) - 1, file);
	(void)fclose(file);
	text[len] = '\0';
	assert_int_equal(sscanf(strrchr(text, ')'),
				") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
				&system),
			 2);
	return (user + system) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK);
}

/* C30: fewer descriptors than clients, for MPIB_TEST_SECONDS (2; the case itself has 60). It only
 * sleeps. */
static void out_of_descriptors_costs_no_cpu_and_one_line_and_recovers(void **state)
{
	const char *seconds = getenv("MPIB_TEST_SECONDS");
	struct timespec time = { .tv_sec = seconds ? strtol(seconds, NULL, 10) : 2 };
	unsigned long cpu;
	unsigned int lines;
	int fds[100];

	(void)state;
	agent.nofile = 16;
	agent_start(&agent);
	for (unsigned int n = 0; n < 100; n++) {
		fds[n] = agent_connect(&agent); /* into the backlog */
		assert_true(fds[n] >= 0);
	}
	cpu = agent_cpu_ms();
	(void)nanosleep(&time, NULL); /* what it uses over a time is the claim */
	cpu = agent_cpu_ms() - cpu;
	lines = agent_log_count(&agent, "raise LimitNOFILE");
	print_message("%lu ms of CPU and %u lines in %ld s with 100 clients on 16 descriptors\n",
		      cpu, lines, (long)time.tv_sec);
	assert_true(cpu <= (unsigned long)time.tv_sec * 1000 * 5 / 100);
	/* one at once, then one an interval of 30 s */
	assert_true(lines >= 1 && lines <= 1 + (unsigned int)time.tv_sec / 30);

	for (unsigned int n = 0; n < 100; n++)
		assert_int_equal(close(fds[n]), 0);
	assert_int_equal(agent_register_once(&agent, 1, 1, 2).status, MPIB_STATUS_OK);
	assert_true(agent_log_count(&agent, "connections") <= 2);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
}

/* C30, second part: the journal keeps its bound under a storm. */
static void twenty_thousand_registrations_in_ten_seconds(void **state)
{
	unsigned long cpu;
	uint64_t start;
	uint64_t took;
	int fd;

	(void)state;
	agent_start(&agent);
	fd = agent_connect(&agent);
	assert_true(fd >= 0);
	cpu = agent_cpu_ms();
	start = harness_now_ms();
	for (uint32_t n = 0; n < 20000; n++) {
		assert_int_equal(agent_register(fd, n, 1, 1 + n % 200).status, MPIB_STATUS_OK);
		if (n >= 1000)
			assert_int_equal(agent_deregister(fd, n - 1000).status, MPIB_STATUS_OK);
	}
	took = harness_now_ms() - start;
	cpu = agent_cpu_ms() - cpu;
	print_message("20000 registrations and 19000 deregistrations in %llu ms, %lu ms of CPU, "
		      "%lu KiB resident\n",
		      (unsigned long long)took, cpu, harness_rss_kib(agent.pid));
	/* of its own time: what other tests take of the machine is not the agent's matter */
	assert_true(cpu < 10000);
	assert_int_equal(close(fd), 0);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	assert_true(agent_log_count(&agent, "registered") <= 2 * 1000 * (1 + took / 10000));
	assert_true(agent_log_count(&agent, "were not written") >= 1);
}

static void an_idle_agent_wakes_once_a_second(void **state)
{
	static const struct timespec three_seconds = { .tv_sec = 3 };
	char path[64];
	char line[256];
	unsigned long switches[2] = { 0, 0 };

	(void)state;
	agent_start(&agent);
	assert_int_equal(agent_register_once(&agent, 1, 1, 2).status, MPIB_STATUS_OK);
	(void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)agent.pid);
	for (unsigned int n = 0; n < 2; n++) {
		FILE *file = fopen(path, "re");

		assert_non_null(file);
		while (fgets(line, sizeof(line), file)) {
			if (sscanf(line, "voluntary_ctxt_switches: %lu", &switches[n]) == 1)
				break;
		}
		(void)fclose(file);
		if (n == 0)
			(void)nanosleep(&three_seconds, NULL);
	}
	print_message("%lu wake-ups in 3 s\n", switches[1] - switches[0]);
	assert_true(switches[1] > switches[0]); /* the heartbeat */
	assert_true(switches[1] - switches[0] <= 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(the_257th_flow_gets_status_1_in_journal_and_counts),
		AGENT_TEST(a_user_who_claims_all_leaves_an_eighth_to_others),
		AGENT_TEST(out_of_descriptors_costs_no_cpu_and_one_line_and_recovers),
		AGENT_TEST(twenty_thousand_registrations_in_ten_seconds),
		AGENT_TEST(an_idle_agent_wakes_once_a_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
