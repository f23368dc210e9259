/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "common/hint.h"

#define LIMIT_MS 20000

uint64_t harness_now_ms(void)
{
	struct timespec now;

	assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static const char *program(const char *variable)
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

static void redirect_to_log(const struct agent *agent)
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
	const char *path = program("MPIB_AGENTD");

	if (agent->nofile) {
		struct rlimit limit = { agent->nofile, agent->nofile };

		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			_exit(99);
	}
	if (agent->pid_namespace)
		enter_pid_namespace();
	redirect_to_log(agent);
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
	(void)program("MPIB_AGENTD"); /* a child that fails would go on with the tests */
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

/* ---- clients -------------------------------------------------------------------------------- */

int agent_connect(const struct agent *agent)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval bound = { .tv_sec = 10 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/agent.sock", agent->dir);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof(bound)) < 0 ||
	    connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int r = -errno;

		if (fd >= 0)
			(void)close(fd);
		return r;
	}
	return fd;
}

struct answer answer_read(int fd, uint8_t request_type)
{
	struct answer answer = { 0 };
	struct mpib_wire_msg msg;
	uint8_t buf[16];
	size_t len = request_type == MPIB_MSG_REGISTER ? 16 : 12;

	if (recv(fd, buf, len, MSG_WAITALL) != (ssize_t)len ||
	    mpib_wire_decode_response(buf, len, request_type, &msg) < 0)
		return answer;

	answer.ok = true;
	answer.status = msg.status;
	answer.slot = msg.hint_slot;
	return answer;
}

static struct answer ask(int fd, const struct mpib_wire_msg *msg)
{
	uint8_t buf[32];
	int len = mpib_wire_encode_request(buf, sizeof(buf), msg);

	if (len < 0 || send(fd, buf, (size_t)len, MSG_NOSIGNAL) != len)
		return (struct answer){ 0 };
	return answer_read(fd, msg->type);
}

struct answer agent_register(int fd, uint32_t conn_id, uint32_t src, uint32_t dst)
{
	struct mpib_wire_msg msg = {
		.type = MPIB_MSG_REGISTER,
		.conn_id = conn_id,
		.sout_src_be = src,
		.sout_dst_be = dst,
		.sup_src_be = src,
		.sup_dst_be = dst,
	};

	return ask(fd, &msg);
}

struct answer agent_deregister(int fd, uint32_t conn_id)
{
	struct mpib_wire_msg msg = { .type = MPIB_MSG_DEREGISTER, .conn_id = conn_id };

	return ask(fd, &msg);
}

struct answer agent_register_once(const struct agent *agent, uint32_t conn_id, uint32_t src,
				  uint32_t dst)
{
	int fd = agent_connect(agent);
	struct answer answer = { 0 };

	if (fd >= 0) {
		answer = agent_register(fd, conn_id, src, dst);
		(void)close(fd);
	}
	return answer;
}

struct answer agent_deregister_once(const struct agent *agent, uint32_t conn_id)
{
	int fd = agent_connect(agent);
	struct answer answer = { 0 };

	if (fd >= 0) {
		answer = agent_deregister(fd, conn_id);
		(void)close(fd);
	}
	return answer;
}

/* ---- the table ------------------------------------------------------------------------------ */

const struct mpib_hint_header *agent_map_hints(const struct agent *agent)
{
	char path[TEMPDIR_MAX + 32];
	struct stat st;
	void *map;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/hints", agent->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	assert_int_equal(close(fd), 0);
	return map;
}

const struct mpib_hint_entry *agent_entry(const struct mpib_hint_header *header, uint32_t slot)
{
	assert_true(slot < header->max_entries);
	return (const struct mpib_hint_entry *)(const void *)(header + 1) + slot;
}

uint32_t agent_count_flows(const struct mpib_hint_header *header)
{
	uint32_t count = 0;

	for (uint32_t slot = 0; slot < header->max_entries; slot++)
		count += mpib_hint_load(&agent_entry(header, slot)->src_ip) != 0;
	return count;
}

bool agent_await_flows(const struct mpib_hint_header *header, uint32_t want, unsigned int limit_ms)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t end = harness_now_ms() + limit_ms;

	/* Shared memory has no event to wait for: look each millisecond. */
	while (agent_count_flows(header) != want) {
		if (harness_now_ms() >= end)
			return false;
		(void)nanosleep(&pause, NULL);
	}
	return true;
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

static void run_ctl(const struct agent *agent, uid_t uid, const char *const args[], int out_fd)
{
	const char *argv[12] = { program("MPIBCTL"), "--dir", agent->dir };
	unsigned int n = 3;
	/* Opened before the user changes: the build may lie where others can't look. */
	int fd = open(argv[0] ? argv[0] : "", O_RDONLY);

	while (*args && n < 11)
		argv[n++] = *args++;
	redirect_to_log(agent);
	if (dup2(out_fd, STDOUT_FILENO) < 0)
		_exit(99);
	if (uid != geteuid() && setresuid(uid, uid, uid) < 0)
		_exit(99);
	(void)fexecve(fd, (char **)(uintptr_t)argv, environ);
	_exit(96);
}

int agent_ctl(const struct agent *agent, uid_t uid, const char *const args[], char **ret_out)
{
	FILE *out = tmpfile();
	char *text = NULL;
	size_t size = 0;
	int status;
	pid_t pid;

	assert_non_null(out);
	(void)program("MPIBCTL"); /* likewise */
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		run_ctl(agent, uid, args, fileno(out));
	status = wait_status(pid);

	if (ret_out) {
		(void)fseek(out, 0, SEEK_SET);
		if (getdelim(&text, &size, '\0', out) < 0) {
			free(text);
			text = strdup("");
		}
		assert_non_null(text);
		*ret_out = text;
	}
	(void)fclose(out);
	return status;
}

char *agent_ctl_words(const struct agent *agent, int wanted, ...)
{
	const char *args[9] = { NULL };
	char line[512] = "";
	char *out = NULL;
	va_list words;
	int code;

	va_start(words, wanted);
	for (unsigned int n = 0; n < 8; n++) {
		args[n] = va_arg(words, const char *);
		if (!args[n])
			break;
		(void)strncat(line, " ", sizeof(line) - strlen(line) - 1);
		(void)strncat(line, args[n], sizeof(line) - strlen(line) - 1);
	}
	va_end(words);

	code = agent_ctl(agent, geteuid(), args, &out);
	if (code != wanted)
		fail_msg("mpibctl%s: exit %d, not %d", line, code, wanted);
	return out;
}

void harness_expect(char *out, const char *part)
{
	if (!strstr(out, part))
		fail_msg("no \"%s\" in: %s", part, out);
	free(out);
}
