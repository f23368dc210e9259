/* SPDX-License-Identifier: Apache-2.0 */
/* Figures, not verdicts: round trip of a registration with 1, 32 and 300 client processes, with a
 * connection for each request; 300 processes that come at once; a calm client beside 300 busy ones.
 * With more processes than cores a round trip is mostly the wait for a core, so the agent's own
 * time on a core is told beside it. The reload of a long policy, and how soon after it a reader
 * sees the new share; resident memory and wake-ups when idle. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#include "common/hint.h"
#include "tests/agent/harness/harness.h"

#define RELOADS	 200u
#define IDLE_SEC 10u

#define ROUNDS_MAX  20000u
#define CLIENTS_MAX 300u
#define CALM_ROUNDS 200u

static struct agent agent;

struct board {
	uint32_t nsec[ROUNDS_MAX + CLIENTS_MAX];
};

struct client {
	struct board *board;
	unsigned int first; /* where its figures go */
	unsigned int rounds;
	uint32_t flow;
	bool socket_each; /* a connection for each request */
	int go;		  /* starts when this pipe closes */
};

static uint64_t now_nsec(void)
{
	struct timespec now = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int run_client(const struct client *me)
{
	int fd = agent_connect(&agent);
	char byte;

	if (fd < 0 || read(me->go, &byte, 1) != 0)
		return 1;
	for (unsigned int n = 0; n < me->rounds; n++) {
		uint64_t start = now_nsec();
		struct answer a = me->socket_each ? agent_register_once(&agent, n, 1, me->flow)
						  : agent_register(fd, n, 1, me->flow);
		uint64_t took = now_nsec() - start;

		if (!a.ok || a.status != MPIB_STATUS_OK ||
		    agent_deregister(fd, n).status != MPIB_STATUS_OK)
			return 1;
		me->board->nsec[me->first + n] = (uint32_t)took;
	}
	return 0;
}

static int compare(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a;
	uint32_t right = *(const uint32_t *)b;

	return left < right ? -1 : left > right;
}

static struct board *new_board(void)
{
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(board != MAP_FAILED);
	return board;
}

/* A child that waits until the test closes @go[1], then runs @body. */
static pid_t start_client(const int go[2], int (*body)(const struct client *me),
			  const struct client *me)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(go[1]);
		_exit(body(me));
	}
	return pid;
}

static void print_times(const char *what, struct board *board, unsigned int total,
			const struct harness_cores *before, unsigned int requests)
{
	struct harness_cores after = harness_cores(agent.pid);
	unsigned int p50 = total / 2;
	unsigned int p99 = total * 99 / 100;

	qsort(board->nsec, total, sizeof(board->nsec[0]), compare);
	print_message("%s: p50 %.1f us, p99 %.1f us, worst %.1f us (%u); agent: %.1f us on a core "
		      "a request, waited %.0f ms for one\n",
		      what, board->nsec[p50] / 1000.0, board->nsec[p99] / 1000.0,
		      board->nsec[total - 1] / 1000.0, total,
		      (double)(after.used - before->used) / 1000.0 / requests,
		      (double)(after.waited - before->waited) / 1e6);
	(void)munmap(board, sizeof(*board));
}

static void measure(unsigned int n_clients, unsigned int total, bool socket_each)
{
	struct harness_cores before = harness_cores(agent.pid);
	struct client clients[CLIENTS_MAX];
	pid_t pids[CLIENTS_MAX];
	unsigned int rounds = total / n_clients;
	struct board *board = new_board();
	char what[80];
	int go[2];

	assert_int_equal(pipe(go), 0);
	for (unsigned int n = 0; n < n_clients; n++) {
		clients[n] = (struct client){
			.board = board,
			.first = n * rounds,
			.rounds = rounds,
			.flow = 1 + n % 200,
			.socket_each = socket_each,
			.go = go[0],
		};
		pids[n] = start_client(go, run_client, &clients[n]);
	}
	(void)close(go[1]);
	for (unsigned int n = 0; n < n_clients; n++)
		assert_int_equal(harness_reap(pids[n]), 0);
	(void)close(go[0]);

	(void)snprintf(what, sizeof(what), "register, %3u client%s, a connection %s", n_clients,
		       n_clients == 1 ? " " : "s", socket_each ? "each" : "for all");
	print_times(what, board, rounds * n_clients, &before, rounds * n_clients * 2);
}

/* The first registration of a process that the agent never saw. */
static int run_newcomer(const struct client *me)
{
	uint64_t start;
	struct answer a;
	char byte;

	if (read(me->go, &byte, 1) != 0)
		return 1;
	start = now_nsec();
	a = agent_register_once(&agent, 1, 1, me->flow);
	me->board->nsec[me->first] = (uint32_t)(now_nsec() - start);
	return !a.ok || a.status != MPIB_STATUS_OK;
}

static void measure_newcomers(void)
{
	struct client clients[CLIENTS_MAX];
	pid_t pids[CLIENTS_MAX];
	struct harness_cores before;
	struct board *board = new_board();
	int go[2];

	assert_int_equal(pipe(go), 0);
	for (unsigned int n = 0; n < CLIENTS_MAX; n++) {
		clients[n] = (struct client){
			.board = board, .first = n, .flow = 1 + n % 200, .go = go[0]
		};
		pids[n] = start_client(go, run_newcomer, &clients[n]);
	}
	before = harness_cores(agent.pid);
	(void)close(go[1]);
	for (unsigned int n = 0; n < CLIENTS_MAX; n++)
		assert_int_equal(harness_reap(pids[n]), 0);
	(void)close(go[0]);
	print_times("300 new processes at once, one registration each", board, CLIENTS_MAX, &before,
		    CLIENTS_MAX);
}

/* Registers without a pause until the test kills it. */
static int run_busy(const struct client *me)
{
	int fd = agent_connect(&agent);
	char byte;

	if (fd < 0 || read(me->go, &byte, 1) != 0)
		return 1;
	for (uint32_t n = 0;; n++) {
		if (agent_register(fd, n, 1, me->flow).status != MPIB_STATUS_OK ||
		    agent_deregister(fd, n).status != MPIB_STATUS_OK)
			return 1;
	}
}

static void measure_calm_client(void)
{
	static const struct timespec pause = { .tv_nsec = 10000000 };
	struct client clients[CLIENTS_MAX];
	pid_t pids[CLIENTS_MAX];
	struct harness_cores before;
	struct board *board = new_board();
	int go[2];
	int fd = agent_connect(&agent);

	assert_int_equal(pipe(go), 0);
	for (unsigned int n = 0; n < CLIENTS_MAX; n++) {
		clients[n] = (struct client){ .flow = 1 + n % 200, .go = go[0] };
		pids[n] = start_client(go, run_busy, &clients[n]);
	}
	(void)close(go[1]);
	before = harness_cores(agent.pid);
	for (uint32_t n = 0; n < CALM_ROUNDS; n++) {
		uint64_t start;

		(void)nanosleep(&pause, NULL);
		start = now_nsec();
		assert_int_equal(agent_register(fd, n, 1, 210).status, MPIB_STATUS_OK);
		board->nsec[n] = (uint32_t)(now_nsec() - start);
	}
	for (unsigned int n = 0; n < CLIENTS_MAX; n++) {
		(void)kill(pids[n], SIGKILL);
		(void)harness_reap(pids[n]);
	}
	(void)close(go[0]);
	(void)close(fd);
	print_times("register each 10 ms beside 300 clients without a pause", board, CALM_ROUNDS,
		    &before, CALM_ROUNDS);
}

/* A number of the agent's /proc/PID/status. */
static unsigned long agent_status(const char *key)
{
	unsigned long value = 0;
	char path[64];
	char line[256];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)agent.pid);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, key, strlen(key)) == 0)
			value = strtoul(line + strlen(key), NULL, 10);
	}
	(void)fclose(file);
	return value;
}

static void register_round_trips(void **state)
{
	(void)state;
	agent_init(&agent);
	agent_start(&agent);
	measure(1, ROUNDS_MAX, false);
	measure(1, 5000, true);
	measure(32, ROUNDS_MAX, false);
	measure(CLIENTS_MAX, ROUNDS_MAX, false);
	measure_newcomers();
	measure_calm_client();
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	agent_fini(&agent);
}

static void reload_of_ten_thousand_lines_with_256_flows(void **state)
{
	static const char *const reload[] = { "reload", NULL };
	char path[TEMPDIR_MAX + 32];
	uint64_t took[2];
	FILE *file;
	int fd;

	(void)state;
	agent_init(&agent);
	agent_start(&agent);
	fd = agent_connect(&agent);
	for (uint32_t n = 0; n < 256; n++)
		assert_int_equal(agent_register(fd, n, test_ip("10.0.0.1"), 1 + n).status,
				 MPIB_STATUS_OK);
	(void)snprintf(path, sizeof(path), "%s/agent.ini", agent.base);
	for (unsigned int share = 0; share < 2; share++) {
		uint64_t start;

		file = fopen(path, "we");
		assert_non_null(file);
		(void)fprintf(file, "[policy]\ninter = %u\n", share + 5);
		for (unsigned int n = 0; n < 5000; n++)
			(void)fprintf(file, "[flow 10.%u.%u.9 10.1.1.1]\nshare = %u%%\n", n / 250,
				      n % 250, share);
		assert_int_equal(fclose(file), 0);
		start = now_nsec();
		assert_int_equal(agent_ctl(&agent, geteuid(), reload, NULL), 0);
		took[share] = (now_nsec() - start) / 1000;
	}
	print_message("mpibctl reload of 10002 lines, 256 flows changed: %llu us\n",
		      (unsigned long long)took[1]);
	(void)close(fd);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	agent_fini(&agent);
}

/* What a sender does before each message is one read of its hint; so the first read after a reload
 * returned is the next isend at its earliest. */
static void a_reload_is_seen_by_the_next_read(void **state)
{
	static const char *const reload[] = { "reload", NULL };
	const struct mpib_hint_entry *entry;
	uint64_t slowest = 0;
	unsigned int late = 0;
	char message[4096];
	char ini[64];
	int fd;

	(void)state;
	agent_init(&agent);
	agent_start(&agent);
	fd = agent_connect(&agent);
	assert_int_equal(agent_register(fd, 1, test_ip("10.0.0.1"), test_ip("10.1.0.1")).status,
			 MPIB_STATUS_OK);
	entry = agent_entry(agent_map_hints(&agent), 0);
	for (unsigned int n = 0; n < RELOADS; n++) {
		uint32_t want = 1 + n % 1024;
		uint32_t share = 0;
		uint64_t start;

		(void)snprintf(ini, sizeof(ini), "[policy]\ninter = %u\n", want);
		agent_write_ini(&agent, ini);
		assert_int_equal(agent_ctl(&agent, geteuid(), reload, NULL), 0);
		start = now_nsec();
		assert_true(mpib_hint_read(entry, &share));
		late += share != want;
		if (now_nsec() - start > slowest)
			slowest = now_nsec() - start;
		/* The service manager reads what it is told. */
		while (recv(agent.notify_fd, message, sizeof(message), MSG_DONTWAIT) > 0)
			;
	}
	print_message("%u reloads: %u reads after one returned had the old share; slowest read "
		      "%.1f us\n",
		      RELOADS, late, (double)slowest / 1000.0);
	assert_int_equal(late, 0);
	(void)close(fd);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	agent_fini(&agent);
}

static void memory_and_wake_ups(void **state)
{
	unsigned long before;
	int fd;

	(void)state;
	agent_init(&agent);
	agent_start(&agent);
	print_message("resident after the start: %lu KiB\n", agent_status("VmRSS:"));
	fd = agent_connect(&agent);
	for (uint32_t n = 0; n < 256; n++)
		assert_int_equal(agent_register(fd, n, test_ip("10.0.0.1"), 1 + n).status,
				 MPIB_STATUS_OK);
	print_message("resident with 256 flows: %lu KiB\n", agent_status("VmRSS:"));
	(void)sleep(1);
	before = agent_status("voluntary_ctxt_switches:");
	(void)sleep(IDLE_SEC);
	print_message("idle with 256 flows: %.1f wake-ups a second\n",
		      (double)(agent_status("voluntary_ctxt_switches:") - before) / IDLE_SEC);
	(void)close(fd);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	agent_fini(&agent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(register_round_trips),
		cmocka_unit_test(reload_of_ten_thousand_lines_with_256_flows),
		cmocka_unit_test(a_reload_is_seen_by_the_next_read),
		cmocka_unit_test(memory_and_wake_ups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
