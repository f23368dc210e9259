/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent, stopped, held or in the way of a second one: mpibctl says soon what it saw and
 * what to do, nothing that was told to have failed happens later, and nobody is told to remove
 * what a living agent holds. */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/agent/harness/fresh.h"

#define FLOW "10.0.1.1-10.0.2.5"

/* Runs one command; fails unless it exits with @wanted after @least_ms to @most_ms and its line
 * has @part. */
static void expect_line(const char *const args[], int wanted, uint64_t least_ms, uint64_t most_ms,
			const char *part)
{
	uint64_t began = harness_now_ms();
	uint64_t took;
	int code;

	if (unlink(agent.log) < 0 && errno != ENOENT)
		fail_msg("unlink: %s", strerror(errno));
	code = agent_ctl(&agent, geteuid(), args, NULL);
	took = harness_now_ms() - began;
	if (code != wanted || took < least_ms || took > most_ms ||
	    agent_log_count(&agent, part) != 1)
		fail_msg("mpibctl %s %s: exit %d, not %d, after %llu ms (%llu to %llu); one line "
			 "with \"%s\" was to come",
			 args[0], args[1] ? args[1] : "", code, wanted, (unsigned long long)took,
			 (unsigned long long)least_ms, (unsigned long long)most_ms, part);
}

static void each_command_tells_of_a_stopped_agent_at_once(void **state)
{
	static const char *const commands[][4] = {
		{ "status" },  { "flows" },	     { "--count", "1", "top" },
		{ "policy" },  { "explain", FLOW },  { "--count", "1", "monitor" },
		{ "metrics" }, { "set", FLOW, "5" }, { "unset", FLOW },
		{ "reload" },
	};
	char part[64];

	(void)state;
	agent_start(&agent);
	assert_int_equal(kill(agent.pid, SIGSTOP), 0);
	(void)snprintf(part, sizeof(part), "is stopped, so it answers nobody; kill -CONT %ld, ",
		       (long)agent.pid);
	for (size_t n = 0; n < sizeof(commands) / sizeof(commands[0]); n++)
		expect_line(commands[n], 1, 0, 2000, part);

	/* What failed has failed: it isn't done later. */
	assert_int_equal(kill(agent.pid, SIGCONT), 0);
	harness_expect(agent_ctl_words(&agent, 0, "--json", "status", NULL), "\"reloads\": 0,");
	harness_expect(agent_ctl_words(&agent, 0, "explain", FLOW, NULL), "override ");
	harness_expect(agent_ctl_words(&agent, 0, "policy", NULL), "[policy]");
	assert_int_equal(agent_log_count(&agent, "by hand"), 0);
}

/* A request that was sent, and whoever sent it left before it was read. */
static void a_change_whose_asker_left_is_not_done(void **state)
{
	static const char *const args[] = { "reload", NULL };
	struct mpib_msg_header header = { MPIB_MSG_MAGIC, sizeof(header), 66, 0 };
	int fd;

	(void)state;
	agent_start(&agent);
	fd = agent_connect(&agent);
	assert_true(fd >= 0);
	assert_int_equal(kill(agent.pid, SIGSTOP), 0);
	assert_int_equal(send(fd, &header, sizeof(header), MSG_NOSIGNAL), sizeof(header));
	assert_int_equal(close(fd), 0);
	assert_int_equal(kill(agent.pid, SIGCONT), 0);
	assert_int_equal(agent_ctl(&agent, geteuid(), args, NULL), 0);
	harness_expect(agent_ctl_words(&agent, 0, "--json", "status", NULL), "\"reloads\": 1,");
}

static void a_debugger_is_told_of(void **state)
{
	static const char *const args[] = { "reload", NULL };
	int status;

	(void)state;
	agent_start(&agent);
	if (ptrace(PTRACE_SEIZE, agent.pid, NULL, NULL) < 0) {
		print_message("no ptrace here: %s\n", strerror(errno));
		skip();
	}
	assert_int_equal(ptrace(PTRACE_INTERRUPT, agent.pid, NULL, NULL), 0);
	assert_int_equal(waitpid(agent.pid, &status, __WALL), agent.pid);
	expect_line(args, 1, 0, 2000, "is held by a debugger");
	assert_int_equal(ptrace(PTRACE_DETACH, agent.pid, NULL, NULL), 0);
	free(agent_ctl_words(&agent, 0, "reload", NULL));
}

/* In place of the agent, a process of its name that takes connections and does nothing with them.
 */
struct listener {
	bool busy;
	int backlog;
	int ready[2];
};

static int listen_only(void *arg)
{
	struct listener *listener = arg;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	volatile unsigned long turns = 0;

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/agent.sock", agent.dir);
	(void)unlink(address.sun_path);
	(void)prctl(PR_SET_NAME, "mpib-agentd");
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, listener->backlog) < 0 || write(listener->ready[1], "", 1) != 1)
		return 90;
	while (listener->busy)
		turns++;
	for (;;)
		(void)pause();
}

static pid_t start_listener(bool busy, int backlog)
{
	struct listener listener = { .busy = busy, .backlog = backlog };
	char byte;
	pid_t pid;

	agent_start(&agent);
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	assert_int_equal(pipe(listener.ready), 0);
	pid = harness_fork(listen_only, &listener);
	assert_int_equal(read(listener.ready[0], &byte, 1), 1);
	(void)close(listener.ready[0]);
	(void)close(listener.ready[1]);
	return pid;
}

static void end_listener(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(harness_reap(pid), -SIGKILL);
}

static void one_that_hangs_is_told_of_in_seconds(void **state)
{
	static const char *const args[] = { "reload", NULL };
	pid_t pid;

	(void)state;
	pid = start_listener(false, 64);
	expect_line(args, 1, 2500, 6000, "doesn't answer: its heartbeat has stood still for 3 s");
	end_listener(pid);
}

static void one_that_works_has_its_time(void **state)
{
	static const char *const args[] = { "status", NULL };
	pid_t pid;

	(void)state;
	pid = start_listener(true, 64);
	expect_line(args, 1, 4500, 9000, "is at work, but hasn't answered within 5 s");
	end_listener(pid);
}

static void a_full_queue_of_one_that_hangs_is_no_endless_wait(void **state)
{
	static const char *const args[] = { "reload", NULL };
	int fds[2];
	pid_t pid;

	(void)state;
	pid = start_listener(false, 1);
	for (unsigned int n = 0; n < 2; n++) {
		fds[n] = agent_connect(&agent);
		assert_true(fds[n] >= 0);
	}
	expect_line(args, 1, 2500, 15000, "doesn't answer");
	for (unsigned int n = 0; n < 2; n++)
		(void)close(fds[n]);
	end_listener(pid);
}

/* Its socket is gone and it can't make another: not "no agent runs". */
static void one_without_its_socket_is_no_missing_agent(void **state)
{
	static const char *const args[] = { "status", NULL };
	char path[TEMPDIR_MAX + 32];

	(void)state;
	agent_start(&agent);
	assert_int_equal(kill(agent.pid, SIGSTOP), 0);
	(void)snprintf(path, sizeof(path), "%s/agent.sock", agent.dir);
	assert_int_equal(unlink(path), 0);
	(void)snprintf(path, sizeof(path), "mpib-agentd (pid %ld) holds ", (long)agent.pid);
	expect_line(args, 1, 0, 2000, path);
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	expect_line(args, 3, 0, 2000, "systemctl start mpib-agentd");
}

/* A second daemon for the same directory, as @uid; its exit code. */
static int second_agent(uid_t uid)
{
	const char *path = getenv("MPIB_AGENTD");
	int fd = path ? open(path, O_RDONLY) : -1;
	const char *argv[] = { "mpib-agentd", "--dir", agent.dir, NULL };
	int status = 0;
	pid_t pid;

	assert_true(fd >= 0);
	if (unlink(agent.log) < 0 && errno != ENOENT)
		fail_msg("unlink: %s", strerror(errno));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int log = open(agent.log, O_WRONLY | O_CREAT | O_APPEND, 0666);

		(void)unsetenv("JOURNAL_STREAM");
		if (log >= 0 && dup2(log, STDERR_FILENO) >= 0 && setresuid(uid, uid, uid) == 0)
			(void)fexecve(fd, (char **)(uintptr_t)argv, environ);
		_exit(96);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	(void)close(fd);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect_no_removal(int code)
{
	char part[64];

	assert_int_equal(code, 75);
	(void)snprintf(part, sizeof(part), "(pid %ld) serves ", (long)agent.pid);
	assert_int_equal(agent_log_count(&agent, part), 1);
	assert_int_equal(agent_log_count(&agent, "remove"), 0);
}

static void nobody_is_told_to_remove_what_a_living_agent_holds(void **state)
{
	char path[TEMPDIR_MAX + 32];

	(void)state;
	agent_start(&agent);
	/* A hand that "mended" the modes under it, also while it can't answer. */
	assert_int_equal(chmod(agent.dir, 0777), 0);
	expect_no_removal(second_agent(geteuid()));
	assert_int_equal(kill(agent.pid, SIGSTOP), 0);
	expect_no_removal(second_agent(geteuid()));
	assert_int_equal(chmod(agent.dir, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/lock", agent.dir);
	assert_int_equal(chmod(path, 0666), 0);
	expect_no_removal(second_agent(geteuid()));
	assert_int_equal(chmod(path, 0600), 0);

	/* Another user can't look at the lock: the socket tells. */
	if (geteuid() == 0)
		expect_no_removal(second_agent(HARNESS_NOBODY));
	assert_int_equal(kill(agent.pid, SIGCONT), 0);

	/* With no agent behind it the advice stands. */
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	assert_int_equal(chmod(agent.dir, 0777), 0);
	assert_int_equal(second_agent(geteuid()), 78);
	assert_int_equal(agent_log_count(&agent, "remove it and start again"), 1);
	assert_int_equal(chmod(agent.dir, 0755), 0);
	if (geteuid() == 0) {
		assert_int_equal(second_agent(HARNESS_NOBODY), 78);
		assert_int_equal(agent_log_count(&agent, "remove it (or use --dir)"), 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(each_command_tells_of_a_stopped_agent_at_once),
		AGENT_TEST(a_change_whose_asker_left_is_not_done),
		AGENT_TEST(a_debugger_is_told_of),
		AGENT_TEST(one_that_hangs_is_told_of_in_seconds),
		AGENT_TEST(one_that_works_has_its_time),
		AGENT_TEST(a_full_queue_of_one_that_hangs_is_no_endless_wait),
		AGENT_TEST(one_without_its_socket_is_no_missing_agent),
		AGENT_TEST(nobody_is_told_to_remove_what_a_living_agent_holds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
