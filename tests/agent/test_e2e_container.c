/* SPDX-License-Identifier: Apache-2.0 */
/* A job in a container that has the agent's directory mounted, while the agent is killed, restarted
 * and upgraded on the host (C29): mount and pid namespace of its own, the directory bound read-only
 * at another path, the host's path out of sight. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "common/hint.h"
#include "tests/agent/harness/fresh.h"

/* What the container says after each order. */
struct report {
	uint32_t mounted;     /* 0: it could not be set up, and the rest means nothing */
	uint32_t registered;  /* the connection of before got OK and a slot */
	uint32_t slot;	      /* that slot */
	uint32_t share;	      /* of it, in the mapping made before the agent's first end */
	uint32_t beats;	      /* the heartbeat moves in that mapping */
	uint32_t newcomer;    /* another connection of it got a slot */
	uint32_t lone_socket; /* errno of a connect() to the socket mounted by itself */
};

struct container {
	int orders;
	int reports;
	char inside[TEMPDIR_MAX]; /* where the directory is mounted */
	char lone[TEMPDIR_MAX];	  /* a file where the socket alone is mounted */
};

static bool mount_things(const struct container *me)
{
	char lone_source[TEMPDIR_MAX + 32];

	(void)snprintf(lone_source, sizeof(lone_source), "%s/agent.sock", agent.dir);
	return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount(agent.dir, me->inside, NULL, MS_BIND, NULL) == 0 &&
	       mount(NULL, me->inside, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) == 0 &&
	       mount(lone_source, me->lone, NULL, MS_BIND, NULL) == 0 &&
	       mount("none", agent.base, "tmpfs", 0, NULL) == 0;
}

static bool heartbeat_moves(const struct mpib_hint_header *header)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	uint64_t end = harness_now_ms() + 5000;
	uint32_t before = mpib_hint_load(&header->heartbeat);

	while (mpib_hint_load(&header->heartbeat) == before) {
		if (harness_now_ms() >= end)
			return false;
		(void)nanosleep(&pause, NULL);
	}
	return true;
}

static uint32_t connect_errno(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	int r;

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	r = connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
	(void)close(fd);
	return (uint32_t)r;
}

static void look(const struct mpib_hint_header *header, const struct container *me,
		 struct report *report)
{
	static uint32_t next = 100;
	struct answer answer = agent_register_once(&agent, 1, 1, 2);

	report->registered = answer.ok && answer.status == MPIB_STATUS_OK;
	report->slot = answer.slot;
	report->share = UINT32_MAX;
	(void)mpib_hint_read(agent_entry(header, answer.slot), &report->share);
	report->beats = heartbeat_moves(header);
	answer = agent_register_once(&agent, next, 1, next);
	report->newcomer = answer.ok && answer.status == MPIB_STATUS_OK;
	next++;
	report->lone_socket = connect_errno(me->lone);
}

/* The job: the first process of its pid namespace. */
static int run_job(const struct container *me)
{
	const struct mpib_hint_header *header;
	struct report report = { 0 };
	char order;

	if (!mount_things(me)) {
		return write(me->reports, &report, sizeof(report)) == sizeof(report) ? 0 : 1;
	}

	report.mounted = 1;
	(void)snprintf(agent.dir, sizeof(agent.dir), "%s", me->inside);
	header = agent_map_hints(&agent);
	while (read(me->orders, &order, 1) == 1) {
		look(header, me, &report);
		if (write(me->reports, &report, sizeof(report)) != sizeof(report))
			return 1;
	}
	return 0;
}

static int run_container(void *arg)
{
	const struct container *me = arg;
	int status = 1;
	pid_t job;

	if (unshare(CLONE_NEWNS | CLONE_NEWPID) < 0)
		return 77;
	job = fork();
	if (job == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(run_job(me));
	}
	(void)close(me->orders);
	(void)close(me->reports);
	if (job < 0 || waitpid(job, &status, 0) != job)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static struct report ask(int orders, int reports)
{
	struct report report = { 0 };

	assert_int_equal(write(orders, "?", 1), 1);
	assert_int_equal(read(reports, &report, sizeof(report)), sizeof(report));
	assert_true(report.mounted);
	return report;
}

static void expect(struct report report, uint32_t share, const char *when)
{
	if (!report.registered || report.slot != 1 || report.share != share || !report.beats ||
	    !report.newcomer)
		fail_msg("after %s: registered %u, slot %u, share %u (not %u), beats %u, "
			 "newcomer %u",
			 when, report.registered, report.slot, report.share, share, report.beats,
			 report.newcomer);
}

/* A program of another inode, as a package's upgrade leaves it. */
static void copy_program(const char *from, const char *to)
{
	char buf[65536];
	int in = open(from, O_RDONLY);
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0755);
	ssize_t n;

	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, buf, sizeof(buf))) > 0)
		assert_int_equal(write(out, buf, (size_t)n), n);
	assert_int_equal(n, 0);
	assert_int_equal(close(in), 0);
	assert_int_equal(close(out), 0);
}

static void restart_agent(int number, unsigned int share)
{
	char ini[64];

	assert_int_equal(agent_stop(&agent, number), number == SIGKILL ? -SIGKILL : 0);
	(void)snprintf(ini, sizeof(ini), "[policy]\ninter = %u\n", share);
	agent_write_ini(&agent, ini);
	agent_start(&agent);
}

static void a_job_in_a_container_outlives_the_agents_restarts(void **state)
{
	struct container container;
	char path[TEMPDIR_MAX + 32];
	const char *named = getenv("MPIB_AGENTD");
	char *program = named ? strdup(named) : NULL;
	struct report report;
	int orders[2];
	int reports[2];
	pid_t pid;

	(void)state;
	if (geteuid() != 0) {
		print_message("needs root to make namespaces\n");
		free(program);
		skip();
	}
	if (!program) {
		fail_msg("MPIB_AGENTD must name the program under test");
		return;
	}
	tempdir_make(container.inside);
	tempdir_make(path);
	(void)snprintf(container.lone, sizeof(container.lone), "%.40s/s", path);
	assert_int_equal(close(open(container.lone, O_CREAT | O_WRONLY, 0600)), 0);
	agent_write_ini(&agent, "[policy]\ninter = 10\n");
	agent_start(&agent);
	/* the host's own, of the same connection id as the job's */
	assert_int_equal(agent_register_once(&agent, 1, 3, 4).slot, 0);

	assert_int_equal(pipe2(orders, O_CLOEXEC), 0);
	assert_int_equal(pipe2(reports, O_CLOEXEC), 0);
	container.orders = orders[0];
	container.reports = reports[1];
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(orders[1]);
		(void)close(reports[0]);
		_exit(run_container(&container));
	}
	(void)close(orders[0]);
	(void)close(reports[1]);

	report = ask(orders[1], reports[0]);
	expect(report, 10, "the start");
	assert_int_equal(report.lone_socket, 0);

	restart_agent(SIGKILL, 20);
	report = ask(orders[1], reports[0]);
	expect(report, 20, "a kill");
	/* why the directory has to be mounted and not its files */
	assert_int_equal(report.lone_socket, ECONNREFUSED);

	restart_agent(SIGTERM, 30);
	expect(ask(orders[1], reports[0]), 30, "a restart");

	(void)snprintf(path, sizeof(path), "%s/upgraded", agent.base);
	copy_program(program, path);
	assert_int_equal(setenv("MPIB_AGENTD", path, 1), 0);
	restart_agent(SIGTERM, 40);
	expect(ask(orders[1], reports[0]), 40, "an upgrade");

	/* Its end frees what it had, by the agent that adopted it. */
	(void)close(orders[1]);
	assert_int_equal(harness_reap(pid), 0);
	assert_true(agent_await_flows(agent_map_hints(&agent), 1, 1000));
	assert_int_equal(setenv("MPIB_AGENTD", program, 1), 0);
	free(program);
	(void)close(reports[0]);
	tempdir_remove(container.inside);
	*strrchr(container.lone, '/') = '\0';
	tempdir_remove(container.lone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_job_in_a_container_outlives_the_agents_restarts,
						agent_set_up, agent_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
