/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/hostile.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "agent/admin/admin.h"
#include "common/counters.h"
#include "common/macros.h"

/* ---- A02: many registrations, a full counter table, and the end ----------------------------- */

/* How long one that ends by itself may take. */
#define LATEST_MS 10000u

#define MANY	      110000u
#define TABLE_SIZE    (2u << 20)
#define TABLE_ENTRIES 8191u
#define PIPELINE      64u

/* Asks for the connections @ids of one flow at once. False where the socket is gone. */
static bool ask_for(int fd, const uint32_t *ids, uint32_t n)
{
	struct mpib_msg_register many[PIPELINE];

	for (uint32_t k = 0; k < n; k++)
		many[k] = (struct mpib_msg_register){
			.header = { MPIB_MSG_MAGIC, sizeof(many[0]), MPIB_MSG_REGISTER, 0 },
			.conn_id = ids[k],
			.sout_src_ip = test_ip("10.9.0.1"),
			.sout_dst_ip = test_ip("10.9.0.2"),
		};
	return send(fd, many, n * sizeof(many[0]), MSG_NOSIGNAL) == (ssize_t)(n * sizeof(many[0]));
}

/* Registers @count connections of one flow in pipelines, and asks again where others have taken
 * what there is. False where one isn't answered. */
static bool register_many(int fd, uint32_t count)
{
	static const struct timespec pause = { .tv_nsec = 10000000 };
	uint32_t ids[PIPELINE], next = 0, n = 0;

	for (;;) {
		uint32_t refused = 0;

		while (n < PIPELINE && next < count)
			ids[n++] = next++;
		if (n == 0)
			return true;
		if (!ask_for(fd, ids, n))
			return false;
		for (uint32_t k = 0; k < n; k++) {
			struct answer answer = answer_read(fd, MPIB_MSG_REGISTER);

			if (!answer.ok)
				return false;
			if (answer.status != MPIB_STATUS_OK)
				ids[refused++] = ids[k];
		}
		n = refused;
		if (refused)
			(void)nanosleep(&pause, NULL);
	}
}

static int make_table(void)
{
	struct mpib_counters_header *header;
	struct mpib_counter_entry *entries;
	int fd = memfd_create(MPIB_COUNTERS_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, TABLE_SIZE) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return -1;
	header = mmap(NULL, TABLE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (header == MAP_FAILED)
		return -1;
	header->version = MPIB_COUNTERS_VERSION;
	header->entries = TABLE_ENTRIES;
	header->entry_size = sizeof(struct mpib_counter_entry);
	header->magic = MPIB_COUNTERS_MAGIC;
	entries = (void *)(header + 1);
	for (uint32_t n = 0; n < TABLE_ENTRIES; n++)
		entries[n] = (struct mpib_counter_entry){
			.state = MPIB_COUNTER_LIVE,
			.kind = MPIB_COUNTER_SEND,
			.conn_id = n,
			.rail = { { .bytes = n }, { .bytes = 2 * n } },
		};
	return fd;
}

static uint8_t hand_over(int socket, int fd)
{
	struct mpib_msg_counters message = {
		{ MPIB_MSG_MAGIC, sizeof(message), MPIB_MSG_COUNTERS, 0 }, TABLE_SIZE
	};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { { 0 } };
	struct iovec part = { &message, sizeof(message) };
	struct msghdr msg = { .msg_iov = &part,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = CMSG_LEN(sizeof(int)) };
	struct answer answer;

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = msg.msg_controllen;
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	if (sendmsg(socket, &msg, MSG_NOSIGNAL) != sizeof(message))
		return 255;
	answer = answer_read(socket, MPIB_MSG_COUNTERS);
	return answer.ok ? answer.status : 255;
}

static int run_a02(const struct agent *agent)
{
	static const struct timespec pause = { .tv_sec = 1, .tv_nsec = 500000000 };
	int table = make_table();
	int fd = agent_connect(agent);

	if (fd < 0 || table < 0)
		return 1;
	if (!register_many(fd, MANY))
		return 2;
	if (hand_over(fd, table) != MPIB_STATUS_OK)
		return 3;
	(void)nanosleep(&pause, NULL); /* a look at it with the heartbeat */
	return 0;
}

/* ---- A03: long answers in a pipeline, read slowly -------------------------------------------- */

#define PIPELINES 64

/* Asks for status and flows, over and over, on many connections at once, and reads a little now and
 * then: just enough that there is always something to do. */
static int run_a03(const struct agent *agent)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	struct mpib_msg_header many[512];
	char answers[2048];
	int fds[PIPELINES];

	for (unsigned int n = 0; n < MPIB_ARRAY_SIZE(many); n++)
		many[n] = (struct mpib_msg_header){
			.magic = MPIB_MSG_MAGIC,
			.msg_len = sizeof(many[n]),
			.msg_type = n % 4 ? MPIB_ADMIN_FLOWS : MPIB_ADMIN_STATUS,
		};
	for (unsigned int n = 0; n < PIPELINES; n++) {
		fds[n] = agent_connect(agent);
		if (fds[n] < 0)
			return 1;
	}
	for (;;) {
		for (unsigned int n = 0; n < PIPELINES; n++) {
			/* Whole requests, or none: the framing is kept. */
			if (send(fds[n], many, sizeof(many), MSG_DONTWAIT | MSG_NOSIGNAL) % 8 > 0)
				return 2;
			(void)recv(fds[n], answers, sizeof(answers), MSG_DONTWAIT);
		}
		(void)nanosleep(&pause, NULL);
	}
}

/* ---- A08: clients that come and go ---------------------------------------------------------- */

/* Connects, asks, registers and leaves, as fast as it can, in four processes. */
static int run_churn(const struct agent *agent)
{
	for (unsigned int n = 0; n < 3 && fork() != 0; n++)
		;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t n = 0;; n++) {
		int fd = agent_connect(agent);

		if (fd < 0)
			return 1;
		(void)agent_register(fd, n % 64, test_ip("10.8.0.1"), test_ip("10.8.0.2"));
		(void)close(fd);
	}
}

/* ---- A10: everything that there is ---------------------------------------------------------- */

/* Two users take slots, monitors and connections, and go on asking when there are none. */
static int run_a10(const struct agent *agent)
{
	static const uid_t users[] = { HARNESS_NOBODY - 1, HARNESS_NOBODY - 2 };
	struct mpib_msg_header monitor = { MPIB_MSG_MAGIC, sizeof(monitor), MPIB_ADMIN_MONITOR, 0 };
	unsigned int me = fork() == 0;
	int fds[64];

	if (geteuid() == 0 && setresuid(users[me], users[me], users[me]) < 0)
		return 1;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned int n = 0; n < 64; n++) {
		fds[n] = agent_connect(agent);
		(void)send(fds[n], &monitor, n < 40 ? sizeof(monitor) : 0, MSG_NOSIGNAL);
	}
	for (uint32_t n = 0;; n++) {
		if (!agent_register(fds[63], n, test_ip("10.6.0.1") + (me << 24), 1 + n).ok)
			return 2;
	}
}

/* ---- all of them ---------------------------------------------------------------------------- */

const struct hostile hostiles[] = {
	{ "a02", "110 000 registrations, a table of 8191 counters, and the end", run_a02, 0,
	  false },
	{ "a03", "STATUS and FLOWS in 64 pipelines, read slowly", run_a03, 2, false },
	{ "a08", "four processes that connect, register and leave", run_churn, 2, false },
	{ "a10", "two users who take slots, monitors and connections", run_a10, 2, true },
};
const unsigned int n_hostiles = MPIB_ARRAY_SIZE(hostiles);

const struct hostile *hostile_find(const char *name)
{
	for (unsigned int n = 0; n < n_hostiles; n++) {
		if (strcmp(hostiles[n].name, name) == 0)
			return &hostiles[n];
	}
	fail_msg("no attack %s", name);
	return NULL;
}

pid_t hostile_start(const struct hostile *hostile, const struct agent *agent)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid != 0)
		return pid;

	/* A group of its own: all that it starts ends with it. */
	(void)setpgid(0, 0);
	if (!hostile->root && geteuid() == 0 &&
	    setresuid(HARNESS_NOBODY, HARNESS_NOBODY, HARNESS_NOBODY) < 0)
		_exit(99);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	_exit(hostile->run(agent));
}

void hostile_end(const struct hostile *hostile, pid_t pid, uint64_t started_ms)
{
	static const struct timespec pause = { .tv_nsec = 10000000 };
	uint64_t end = harness_now_ms() + LATEST_MS;
	uint64_t over = started_ms + hostile->seconds * 1000u;
	siginfo_t ended = { 0 };
	int code;

	while (hostile->seconds && harness_now_ms() < over)
		(void)nanosleep(&pause, NULL);
	/* One that ends by itself may wait long for a core: it ends all the same. */
	while (!hostile->seconds && harness_now_ms() < end && !ended.si_pid) {
		(void)waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT);
		(void)nanosleep(&pause, NULL);
	}
	/* While its first process is there, its group is nobody else's. */
	(void)kill(-pid, SIGKILL);
	code = harness_reap(pid);
	if (code != -SIGKILL && (hostile->seconds || code != 0))
		fail_msg("the attack %s went wrong: exit %d", hostile->name, code);
}
