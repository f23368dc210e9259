/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent, and descriptors that nobody asked for: whatever a client passes and however its
 * connection ends, others are served meanwhile, the heartbeat goes on, and the agent can be
 * stopped, killed and started. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/agent/harness/attack.h"
#include "tests/agent/harness/fresh.h"

static int set_up(void **state)
{
	(void)agent_set_up(state);
	agent_start(&agent);
	return 0;
}

/* A leak checker can't look at a process that is traced. */
static int set_up_traced(void **state)
{
	(void)setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
	(void)set_up(state);
	(void)unsetenv("LSAN_OPTIONS");
	return 0;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void pass_in_each_frame(int fd)
{
	static const uint8_t types[] = { MPIB_MSG_REGISTER,
					 MPIB_MSG_DEREGISTER,
					 MPIB_MSG_COUNTERS,
					 MPIB_MSG_RESPONSE,
					 64,
					 65,
					 200 };

	for (unsigned int n = 0; n < sizeof(types); n++) {
		attack_pass(agent_connect(&agent), types[n], fd, 1, 0);
		attack_pass(agent_connect(&agent), types[n], fd, ATTACK_FDS, 0);
	}
	for (unsigned int n = 0; n < 32; n++) {
		int socket = agent_connect(&agent);

		attack_pass(socket, MPIB_MSG_COUNTERS, fd, 8, n % 2 ? MSG_OOB : 0);
		(void)close(socket);
	}
}

static void a_close_that_never_returns_stops_nobody(void **state)
{
	struct attacker attacker;

	(void)state;
	attack_start(&attacker, BADFS_FLUSH, pass_in_each_frame);
	attack_others_are_served(&agent, "close without an end", 2500);

	/* stopped, killed and started while the process that closes sleeps */
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	agent_start(&agent);
	attack_others_are_served(&agent, "after a stop", 300);
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	agent_start(&agent);
	attack_others_are_served(&agent, "after a kill", 300);
	attack_end(&attacker);
}

static void pass_as_nobody(int fd)
{
	if (seteuid(HARNESS_NOBODY) < 0)
		_exit(1);
	pass_in_each_frame(fd);
	(void)seteuid(0);
}

/* A test that fails leaves its attacker behind, whose end waits for its file system: all of it ends
 * with the program, or whoever reads what that prints would wait on. */
static void an_attacker_ends_with_its_program(void **state)
{
	struct attacker attacker;
	struct pollfd left;
	int held[2];
	pid_t pid;

	(void)state;
	attack_start(&attacker, BADFS_FLUSH, pass_in_each_frame); /* skips where none can be */
	attack_end(&attacker);
	assert_int_equal(pipe(held), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)close(held[0]);
		attack_start(&attacker, BADFS_FLUSH, pass_in_each_frame);
		_exit(0);
	}
	(void)close(held[1]);
	assert_int_equal(harness_reap(pid), 0);
	left = (struct pollfd){ .fd = held[0], .events = POLLIN };
	assert_int_equal(poll(&left, 1, 10000), 1);
	(void)close(held[0]);
}

static void another_users_messages_dont_wait(void **state)
{
	int table = memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct attacker attacker;
	int socket;

	(void)state;
	if (geteuid() != 0) {
		print_message("skipped: needs root to be two users\n");
		skip();
	}
	assert_int_equal(ftruncate(table, 4096), 0);
	assert_int_equal(fcntl(table, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	attack_start(&attacker, BADFS_FLUSH, pass_as_nobody);
	socket = agent_connect(&agent);
	for (unsigned int n = 0; n < 100; n++) {
		struct answer answer;

		attack_pass(socket, MPIB_MSG_COUNTERS, table, 1, 0);
		answer = answer_read(socket, MPIB_MSG_COUNTERS);
		assert_true(answer.ok);
		assert_int_equal(answer.status, MPIB_STATUS_INVALID); /* it is empty */
	}
	/* one child of nobody's has answered, and sleeps */
	agent_await_log(&agent, "not a sealed memfd");
	assert_int_equal(agent_log_count(&agent, "not a sealed memfd"), 1);
	/* and the sentence is true: the connection has answered since */
	assert_int_equal(agent_log_count(&agent, "dropped; the connection goes on"), 1);
	assert_int_equal(agent_log_count(&agent, "closed: it passed"), 0);
	assert_int_equal(close(socket), 0);
	assert_int_equal(close(table), 0);
	attack_end(&attacker);
}

static void pass_some(int fd)
{
	for (unsigned int n = 0; n < 16; n++) {
		int socket = agent_connect(&agent);

		attack_pass(socket, n % 2 ? MPIB_MSG_COUNTERS : MPIB_MSG_REGISTER, fd, 1, 0);
		if (n % 4 < 2)
			(void)close(socket);
	}
}

static void a_file_that_cant_be_put_away_stops_nobody(void **state)
{
	struct attacker attacker;

	(void)state;
	/* what was sent while it didn't look: nobody has read it, or accepted its connection */
	assert_int_equal(kill(agent.pid, SIGSTOP), 0);
	attack_start(&attacker, BADFS_DIRTY, pass_some);
	assert_int_equal(kill(agent.pid, SIGCONT), 0);
	attack_others_are_served(&agent, "dirty file", 1500);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	agent_start(&agent);
	attack_end(&attacker);
}

static void what_is_queued_doesnt_hold_a_killed_agent(void **state)
{
	static int early[8];
	struct attacker attacker;

	(void)state;
	for (unsigned int n = 0; n < 8; n++) {
		early[n] = agent_connect(&agent);
		assert_int_equal(agent_register(early[n], 100 + n, htonl(1), htonl(2)).status,
				 MPIB_STATUS_OK);
	}
	assert_int_equal(kill(agent.pid, SIGSTOP), 0);
	attack_start(&attacker, BADFS_DIRTY, pass_some);
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	/* clients see at once that it is gone */
	for (unsigned int n = 0; n < 8; n++) {
		char byte;

		assert_true(recv(early[n], &byte, 1, 0) <= 0);
		(void)close(early[n]);
	}
	agent_start(&agent);
	attack_others_are_served(&agent, "after a kill with a dirty file queued", 300);
	attack_end(&attacker);
}

static void a_socket_that_lingers_stops_nobody(void **state)
{
	(void)state;
	for (unsigned int n = 0; n < 6; n++) {
		int fd = attack_lingering_socket();
		int socket = agent_connect(&agent);

		attack_pass(socket, n % 3 ? MPIB_MSG_REGISTER : MPIB_MSG_COUNTERS, fd, 1,
			    n % 3 == 2 ? MSG_OOB : 0);
		(void)fcntl(fd, F_SETFL, O_NONBLOCK);
		/* the agent's is the last reference, at the latest when the connection ends */
		if (n % 2)
			(void)close(socket);
		(void)close(fd);
	}
	attack_others_are_served(&agent, "lingering socket", 2500);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
}

static void other_files_are_dropped(void **state)
{
	struct answer answer;
	unsigned int n = 0;
	int fds[8];
	int ends[2];
	int socket = agent_connect(&agent);

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	fds[n++] = ends[1];
	fds[n++] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	fds[n++] = open("/dev/zero", O_RDWR | O_CLOEXEC);
	fds[n++] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fds[n++] = open("/", O_PATH | O_CLOEXEC);
	fds[n++] = agent.notify_fd;
	fds[n++] = socket; /* itself */
	while (n--) {
		unsigned int copies = n % 2 ? ATTACK_FDS : 1;

		if (fds[n] < 0)
			continue;
		/* served as without it */
		attack_pass(socket, MPIB_MSG_REGISTER, fds[n], copies, 0);
		answer = answer_read(socket, MPIB_MSG_REGISTER);
		assert_true(answer.ok);
		assert_int_equal(answer.status, MPIB_STATUS_OK);
		attack_pass(socket, MPIB_MSG_COUNTERS, fds[n], copies, 0);
		answer = answer_read(socket, MPIB_MSG_COUNTERS);
		assert_true(answer.ok);
		assert_int_equal(answer.status, MPIB_STATUS_INVALID);
	}
	/* nothing of it is left open */
	(void)close(ends[1]);
	assert_int_equal(read(ends[0], &n, 1), 0);
	agent_await_log(&agent, "not a sealed memfd");
	attack_others_are_served(&agent, "other files", 100);
	(void)close(socket);
}

/* ---- which calls the loop makes ------------------------------------------------------------- */

struct seen {
	unsigned int looks;   /* at messages that have descriptors */
	unsigned int passed;  /* descriptors that the loop got */
	unsigned int memfds;  /* of these */
	unsigned int handed;  /* sockets for the keeper */
	unsigned int strange; /* calls on what isn't the agent's own */
};

static unsigned int count_parts(const char *line, const char *part)
{
	unsigned int count = 0;

	for (const char *at = strstr(line, part); at; at = strstr(at + 1, part))
		count++;
	return count;
}

/* A client's connection is a stream, and the channel to the keeper is made of packets, of which
 * each brings it some. */
static void judge(const char *line, struct seen *seen)
{
	const char *what = strchr(line, '<');
	bool packets =
		what && strncmp(what, "<UNIX", 5) == 0 && strncmp(what, "<UNIX-STREAM", 12) != 0;
	bool rights = strstr(line, "SCM_RIGHTS") != NULL;

	seen->looks += strncmp(line, "recvmsg(", 8) == 0 && strstr(line, "MSG_PEEK") &&
		       strstr(line, "MSG_CTRUNC");
	if (rights && packets && strncmp(line, "sendmsg(", 8) == 0)
		seen->handed += count_parts(strstr(line, "SCM_RIGHTS"), "<UNIX-STREAM");
	if (rights && strncmp(line, "recvmsg(", 8) == 0) {
		seen->passed++;
		seen->memfds += packets && strstr(line, "memfd:") != NULL;
	}
	if (strstr(line, "<pipe:") || strstr(line, "<TCP:") || strstr(line, "/dev/zero") ||
	    (rights && !packets)) {
		print_message("strange: %s", line);
		seen->strange++;
	}
}

static void pass_all_kinds(int socket, int table)
{
	int ends[2];
	int fds[4];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	fds[0] = ends[1];
	fds[1] = open("/dev/zero", O_RDWR | O_CLOEXEC);
	fds[2] = attack_lingering_socket();
	fds[3] = table;
	for (unsigned int n = 0; n < 8; n++) {
		uint8_t type = n < 4 ? MPIB_MSG_REGISTER : MPIB_MSG_COUNTERS;

		attack_pass(socket, type, fds[n % 4], n % 2 ? 1 : ATTACK_FDS, 0);
		assert_true(answer_read(socket, type).ok);
	}
	for (unsigned int n = 0; n < 4; n++) {
		int other = agent_connect(&agent);

		attack_pass(other, MPIB_MSG_REGISTER, fds[n], 1, n % 2 ? MSG_OOB : 0);
		(void)close(other);
		(void)close(fds[n]);
	}
	(void)close(ends[0]);
}

static void the_loop_has_no_descriptor_of_a_clients_but_memfds(void **state)
{
	int table = memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int socket = agent_connect(&agent);
	struct seen seen = { 0 };
	char log[TEMPDIR_MAX + 16];
	char line[8192];
	pid_t strace;
	FILE *file;

	(void)state;
	assert_int_equal(ftruncate(table, 4096), 0);
	assert_int_equal(fcntl(table, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	(void)snprintf(log, sizeof(log), "%s/strace", agent.base);
	strace = attack_trace(&agent, log);
	if (!strace) {
		print_message("skipped: no strace here\n");
		skip();
	}

	pass_all_kinds(socket, table);
	assert_int_equal(agent_register(socket, 9, htonl(1), htonl(2)).status, MPIB_STATUS_OK);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	assert_int_equal(waitpid(strace, NULL, 0), strace);

	file = fopen(log, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		judge(line, &seen);
	(void)fclose(file);
	print_message("the loop looked at %u messages with descriptors, handed %u sockets over, "
		      "got %u descriptors, %u of them memfds; %u strange calls\n",
		      seen.looks, seen.handed, seen.passed, seen.memfds, seen.strange);
	assert_true(seen.looks >= 8);
	assert_true(seen.handed >= 4);
	assert_int_equal(seen.passed, 2);
	assert_int_equal(seen.memfds, 2);
	assert_int_equal(seen.strange, 0);
	(void)close(socket);
}

/* ---- the keeper's own end ------------------------------------------------------------------- */

static pid_t find_keeper(void)
{
	char command[64];
	long pid = 0;
	FILE *children;

	(void)snprintf(command, sizeof(command), "/proc/%ld/task/%ld/children", (long)agent.pid,
		       (long)agent.pid);
	children = fopen(command, "re");
	assert_non_null(children);
	(void)!fscanf(children, "%ld", &pid);
	(void)fclose(children);
	return (pid_t)pid;
}

static void without_its_keeper_the_agent_ends(void **state)
{
	int status = 0;

	(void)state;
	assert_true(find_keeper() > 0);
	/* what is for the agent doesn't end it */
	assert_int_equal(kill(find_keeper(), SIGTERM), 0);
	assert_int_equal(kill(find_keeper(), SIGINT), 0);
	assert_int_equal(kill(find_keeper(), SIGHUP), 0);
	attack_others_are_served(&agent, "keeper with signals", 100);
	print_message("resident: agent %lu KiB, keeper %lu KiB\n", harness_rss_kib(agent.pid),
		      harness_rss_kib(find_keeper()));

	assert_int_equal(kill(find_keeper(), SIGKILL), 0);
	assert_int_equal(waitpid(agent.pid, &status, 0), agent.pid);
	agent.pid = 0;
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_int_equal(agent_log_count(&agent, "mpib-keeper"), 1);
	agent_start(&agent);
	attack_others_are_served(&agent, "after its end", 100);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, agent_tear_down)
	const struct CMUnitTest tests[] = {
		T(a_close_that_never_returns_stops_nobody),
		T(an_attacker_ends_with_its_program),
		T(another_users_messages_dont_wait),
		T(a_file_that_cant_be_put_away_stops_nobody),
		T(what_is_queued_doesnt_hold_a_killed_agent),
		T(a_socket_that_lingers_stops_nobody),
		T(other_files_are_dropped),
		cmocka_unit_test_setup_teardown(the_loop_has_no_descriptor_of_a_clients_but_memfds,
						set_up_traced, agent_tear_down),
		T(without_its_keeper_the_agent_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
