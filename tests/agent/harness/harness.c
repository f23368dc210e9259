/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/agent/harness/harness_impl.h"

#define LIMIT_MS 20000

uint64_t harness_now_ms(void)
{
	struct timespec now;

	assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

const char *harness_program(const char *variable)
{
	const char *path = getenv(variable);

	if (!path)
		fail_msg("%s must name the program under test", variable);
	return path;
}

/* ---- directory ------------------------------------------------------------------------------ */

void agent_init(struct agent *agent)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	memset(agent, 0, sizeof(*agent));
	(void)unsetenv("COLUMNS");
	(void)unsetenv("LINES");
	agent->umask = 0022;
	tempdir_make(agent->base);
	(void)snprintf(agent->dir, sizeof(agent->dir), "%s/mpib", agent->base);
	(void)snprintf(agent->ini, sizeof(agent->ini), "%s/agent.ini", agent->base);
	(void)snprintf(agent->log, sizeof(agent->log), "%s/log", agent->base);
	(void)snprintf(agent->notify, sizeof(agent->notify), "%s/notify", agent->base);

	agent->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(agent->notify_fd >= 0);
	memcpy(address.sun_path, agent->notify, strlen(agent->notify));
	assert_int_equal(bind(agent->notify_fd, (struct sockaddr *)&address, sizeof(address)), 0);
	agent_write_ini(agent, "");
}

void agent_fini(struct agent *agent)
{
	if (agent->pid) {
		(void)kill(agent->pid, SIGKILL);
		(void)kill(agent->pid, SIGCONT);
		(void)waitpid(agent->pid, NULL, 0);
	}
	(void)close(agent->notify_fd);
	tempdir_remove(agent->base);
}

void agent_write_file(struct agent *agent, const char *name, const char *text)
{
	char path[TEMPDIR_MAX + 64];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", agent->base, name);
	file = fopen(path, "we");
	assert_non_null(file);
	(void)fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

void agent_write_ini(struct agent *agent, const char *text)
{
	agent_write_file(agent, "agent.ini", text);
}

unsigned int agent_log_count(const struct agent *agent, const char *part)
{
	FILE *file = fopen(agent->log, "re");
	char line[2048];
	unsigned int count = 0;

	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file))
		count += strstr(line, part) != NULL;
	(void)fclose(file);
	return count;
}

/* ---- start and stop ------------------------------------------------------------------------- */

void harness_redirect(const struct agent *agent)
{
	int fd = open(agent->log, O_WRONLY | O_CREAT | O_APPEND, 0644);

	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		_exit(99);
	(void)close(fd);
}

/* The socket as the service manager passes it: descriptor 3, and two variables. */
static void pass_socket(const struct agent *agent)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char pid[24];
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)mkdir(agent->dir, 0755);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/agent.sock", agent->dir);
	(void)unlink(address.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chmod(address.sun_path, 0666) < 0 || listen(fd, 64) < 0)
		_exit(98);
	if (fd != 3 && (dup2(fd, 3) < 0 || close(fd) < 0))
		_exit(98);
	(void)snprintf(pid, sizeof(pid), "%ld", (long)getpid());
	(void)setenv("LISTEN_PID", pid, 1);
	(void)setenv("LISTEN_FDS", "1", 1);
}

/* A process in the outer namespace that passes the inner one's end on. */
static void enter_pid_namespace(void)
{
	int status = 0;
	pid_t inner;

	if (unshare(CLONE_NEWPID) < 0)
		_exit(97);
	inner = fork();
	if (inner < 0)
		_exit(97);
	if (inner == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		return;
	}
	(void)waitpid(inner, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128);
}

static void run_agent(const struct agent *agent)
{
	const char *path = harness_program("MPIB_AGENTD");

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* however the test ends */
	if (agent->nofile) {
		struct rlimit limit = { agent->nofile, agent->nofile };

		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			_exit(99);
	}
	if (agent->pid_namespace)
		enter_pid_namespace();
	harness_redirect(agent);
	if (agent->pass_socket)
		pass_socket(agent);
	(void)umask(agent->umask);
	(void)setenv("NOTIFY_SOCKET", agent->notify, 1);
	(void)unsetenv("JOURNAL_STREAM");
	if (agent->no_standard_fds) {
		(void)close(STDIN_FILENO);
		(void)close(STDOUT_FILENO);
		(void)close(STDERR_FILENO);
	}
	if (agent->default_config)
		(void)execl(path, path, "--dir", agent->dir, (char *)NULL);
	(void)execl(path, path, "--dir", agent->dir, "--config", agent->ini, (char *)NULL);
	_exit(96);
}

static int open_pidfd(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	assert_true(fd >= 0);
	return fd;
}

/* One notify message into @buf; false when the agent ended first. */
static bool read_notify(struct agent *agent, char *buf, size_t size)
{
	struct pollfd fds[2] = {
		{ .fd = agent->notify_fd, .events = POLLIN },
		{ .fd = open_pidfd(agent->pid), .events = POLLIN },
	};
	int r = poll(fds, 2, LIMIT_MS);
	ssize_t n = 0;

	assert_int_equal(close(fds[1].fd), 0);
	if (r <= 0)
		fail_msg("no message from the agent within %d ms", LIMIT_MS);
	if (!(fds[0].revents & POLLIN))
		return false;

	n = recv(agent->notify_fd, buf, size - 1, 0);
	assert_true(n >= 0);
	buf[n] = '\0';
	return true;
}

void agent_await_notify(struct agent *agent, const char *text)
{
	uint64_t end = harness_now_ms() + LIMIT_MS;
	char message[2048];

	while (harness_now_ms() < end) {
		if (!read_notify(agent, message, sizeof(message)))
			fail_msg("the agent ended instead of saying %s", text);
		if (strstr(message, text))
			return;
	}
	fail_msg("the agent never said %s", text);
}

static int wait_status(pid_t pid)
{
	int fd = open_pidfd(pid);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int status = 0;

	if (poll(&p, 1, LIMIT_MS) != 1)
		fail_msg("process %ld doesn't end", (long)pid);
	assert_int_equal(close(fd), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int agent_try_start(struct agent *agent)
{
	char message[2048];

	/* What an earlier agent said late must not be taken for this one's. */
	while (recv(agent->notify_fd, message, sizeof(message), MSG_DONTWAIT) > 0)
		;

	assert_int_equal(agent->pid, 0);
	(void)harness_program("MPIB_AGENTD"); /* a child that fails would go on with the tests */
	agent->pid = fork();
	assert_true(agent->pid >= 0);
	if (agent->pid == 0)
		run_agent(agent);

	for (;;) {
		int status;

		if (read_notify(agent, message, sizeof(message))) {
			if (strstr(message, "READY=1"))
				return 0;
			continue;
		}
		status = wait_status(agent->pid);
		agent->pid = 0;
		return status;
	}
}

void agent_start(struct agent *agent)
{
	int r = agent_try_start(agent);

	if (r != 0)
		fail_msg("the agent didn't start: exit %d", r);
}

void agent_start_when_free(struct agent *agent)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t end = harness_now_ms() + LIMIT_MS;
	int r;

	while ((r = agent_try_start(agent)) == 75 && harness_now_ms() < end)
		(void)nanosleep(&pause, NULL);
	if (r != 0)
		fail_msg("the agent didn't start: exit %d", r);
}

void agent_await_log(const struct agent *agent, const char *part)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t end = harness_now_ms() + LIMIT_MS;

	/* A file has no event to wait for: look each millisecond. */
	while (agent_log_count(agent, part) == 0) {
		if (harness_now_ms() >= end)
			fail_msg("the agent never said %s", part);
		(void)nanosleep(&pause, NULL);
	}
}

int agent_stop(struct agent *agent, int number)
{
	int status;

	assert_true(agent->pid > 0);
	assert_int_equal(kill(agent->pid, number), 0);
	status = wait_status(agent->pid);
	agent->pid = 0;
	return status;
}

unsigned long harness_rss_kib(pid_t pid)
{
	unsigned long kib = 0;
	char path[64];
	char line[256];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)pid);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "VmRSS: %lu", &kib) == 1)
			break;
	}
	(void)fclose(file);
	assert_true(kib > 0);
	return kib;
}

struct harness_cores harness_cores(pid_t pid)
{
	struct harness_cores cores = { 0 };
	char path[64];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%ld/schedstat", (long)pid);
	file = fopen(path, "re");
	if (!file)
		return cores;
	if (fscanf(file, "%" SCNu64 " %" SCNu64, &cores.used, &cores.waited) != 2)
		cores = (struct harness_cores){ 0 };
	(void)fclose(file);
	return cores;
}

/* ---- processes ------------------------------------------------------------------------------ */

pid_t harness_fork(int (*body)(void *arg), void *arg)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(body(arg));
	}
	return pid;
}

int harness_reap(pid_t pid)
{
	return wait_status(pid);
}
