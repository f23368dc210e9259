/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/attack.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define LINGER_SEC 60

/* Far beyond what a busy machine costs, far below what a sleep in the loop does. */
#define P99_LIMIT_US 50000
#define BEAT_MS	     1500

/* ---- passing -------------------------------------------------------------------------------- */

void attack_pass(int socket, uint8_t type, int fd, unsigned int n, int flags)
{
	struct mpib_msg_register message = {
		{ MPIB_MSG_MAGIC, sizeof(message), type, 0 }, 1000, htonl(1), htonl(2), 0, 0
	};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(ATTACK_FDS * sizeof(int))];
	} control = { { 0 } };
	struct iovec part = { &message, sizeof(message) };
	struct msghdr msg = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_LEN(n * sizeof(int)),
	};

	if (type != MPIB_MSG_REGISTER)
		message.header.msg_len = part.iov_len = sizeof(struct mpib_msg_deregister);
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = msg.msg_controllen;
	for (unsigned int k = 0; k < n; k++)
		memcpy(CMSG_DATA(&control.header) + k * sizeof(int), &fd, sizeof(int));
	if (sendmsg(socket, &msg, MSG_NOSIGNAL | flags) != (ssize_t)part.iov_len)
		fail_msg("can't send: %s", strerror(errno));
}

int attack_lingering_socket(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct linger linger = { 1, LINGER_SEC };
	const int small = 4096;
	static char data[65536];
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
	(void)connect(fd, (struct sockaddr *)&address, len);
	assert_true(accept4(listener, NULL, NULL, SOCK_CLOEXEC) >= 0); /* open to the end */
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	while (send(fd, data, sizeof(data), MSG_NOSIGNAL) > 0)
		;
	/* as the file's owner sets it, who is not in the process that closes */
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	return fd;
}

/* ---- others meanwhile ----------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a;
	uint64_t right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

static uint64_t now_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void attack_others_are_served(const struct agent *agent, const char *attack, unsigned int ms)
{
	const struct timespec pause = { .tv_nsec = 5000000 };
	const struct mpib_hint_header *header = agent_map_hints(agent);
	uint64_t waited = harness_cores(agent->pid).waited;
	static uint64_t took[4096];
	uint64_t end = harness_now_ms() + ms;
	uint64_t beat_ms = harness_now_ms();
	uint32_t beat = header->heartbeat;
	uint64_t gap = 0;
	unsigned int n = 0;
	int socket = agent_connect(agent);

	while (harness_now_ms() < end && n < 4096) {
		uint64_t start = now_us();
		uint64_t now;

		assert_int_equal(agent_register(socket, 5, htonl(3), htonl(4)).status,
				 MPIB_STATUS_OK);
		took[n++] = now_us() - start;
		now = harness_now_ms();
		if (__atomic_load_n(&header->heartbeat, __ATOMIC_RELAXED) != beat) {
			beat = __atomic_load_n(&header->heartbeat, __ATOMIC_RELAXED);
			beat_ms = now;
		}
		gap = now - beat_ms > gap ? now - beat_ms : gap;
		(void)nanosleep(&pause, NULL);
	}

	qsort(took, n, sizeof(took[0]), compare);
	waited = (harness_cores(agent->pid).waited - waited) / 1000000;
	print_message("%s: %u registrations, p99 %llu us, longest %llu us; heartbeat at most %llu "
		      "ms old; the agent waited %llu ms for a core\n",
		      attack, n, (unsigned long long)took[n * 99 / 100],
		      (unsigned long long)took[n - 1], (unsigned long long)gap,
		      (unsigned long long)waited);
	assert_true(took[n * 99 / 100] < P99_LIMIT_US + waited * 1000);
	assert_true(gap < BEAT_MS + waited);
	(void)close(socket);
}

/* ---- an attacker with a file system --------------------------------------------------------- */

struct hello {
	int error;
	pid_t server;
};

static void be_attacker(const struct attacker *attacker, int lifeline, int say)
{
	struct hello hello = { 0 };
	int fds[2];

	hello.error = badfs_open(attacker->kind, lifeline, fds, &hello.server);
	if (write(say, &hello, sizeof(hello)) < 0 || hello.error < 0)
		_exit(1);
	attacker->send(fds[0]);
	if (attacker->kind == BADFS_DIRTY && (close(fds[0]) < 0 || write(fds[1], "x", 1) != 1))
		_exit(1);
	(void)!write(say, "d", 1);
	for (;;)
		(void)pause();
}

void attack_start(struct attacker *attacker, enum badfs_kind kind, void (*send)(int fd))
{
	struct hello hello;
	char done;
	int life[2];
	int ends[2];

	*attacker = (struct attacker){ .kind = kind, .send = send };
	if (badfs_missing()) {
		print_message("skipped: %s\n", badfs_missing());
		skip();
	}
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(pipe2(life, O_CLOEXEC), 0);
	attacker->pid = fork();
	assert_true(attacker->pid >= 0);
	if (attacker->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(life[1]);
		be_attacker(attacker, life[0], ends[1]);
	}
	(void)close(ends[1]);
	(void)close(life[0]);
	attacker->life = life[1];
	attacker->said = ends[0];
	assert_int_equal(read(ends[0], &hello, sizeof(hello)), sizeof(hello));
	if (hello.error < 0) {
		print_message("skipped: no FUSE mount: %s\n", strerror(-hello.error));
		assert_int_equal(waitpid(attacker->pid, NULL, 0), attacker->pid);
		skip();
	}
	attacker->server = hello.server;
	assert_int_equal(read(ends[0], &done, 1), 1);
}

void attack_end(const struct attacker *attacker)
{
	(void)kill(attacker->server, SIGKILL);
	(void)kill(attacker->pid, SIGKILL);
	assert_int_equal(waitpid(attacker->pid, NULL, 0), attacker->pid);
	(void)close(attacker->said);
	(void)close(attacker->life);
}

/* ---- which calls the loop makes ------------------------------------------------------------- */

static pid_t start_strace(const struct agent *agent, const char *log)
{
	char pid[24];
	pid_t strace;

	(void)snprintf(pid, sizeof(pid), "%ld", (long)agent->pid);
	strace = fork();
	assert_true(strace >= 0);
	if (strace == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
		(void)execlp("strace", "strace", "-q", "-yy", "-o", log, "-p", pid, (char *)NULL);
		_exit(127);
	}
	return strace;
}

static bool is_traced(const struct agent *agent)
{
	char path[64];
	char line[256];
	long tracer = 0;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)agent->pid);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file) && sscanf(line, "TracerPid: %ld", &tracer) != 1)
		;
	(void)fclose(file);
	return tracer > 0;
}

pid_t attack_trace(const struct agent *agent, const char *log)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t end = harness_now_ms() + 10000;
	pid_t strace = start_strace(agent, log);

	while (!is_traced(agent)) {
		if (waitpid(strace, NULL, WNOHANG) == strace || harness_now_ms() > end)
			return 0;
		(void)nanosleep(&pause, NULL);
	}
	return strace;
}
