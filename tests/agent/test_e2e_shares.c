/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent and users who take what they can get: each leaves a part to others, all of them
 * together leave one to root, and who is refused is named (A10). */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "agent/admin/admin.h"
#include "tests/agent/harness/fresh.h"

#define SECOND_USER 65533

static void need_root(void)
{
	if (geteuid() == 0)
		return;
	print_message("needs root to become other users\n");
	skip();
}

/* True where the agent says that this connection watches events. */
static bool watches(int fd)
{
	struct mpib_msg_header request = { MPIB_MSG_MAGIC, sizeof(request), MPIB_ADMIN_MONITOR, 0 };
	struct mpib_msg_header answer = { 0 };

	return fd >= 0 && send(fd, &request, sizeof(request), MSG_NOSIGNAL) == sizeof(request) &&
	       recv(fd, &answer, sizeof(answer), MSG_WAITALL) == sizeof(answer) &&
	       answer.msg_type == MPIB_ADMIN_RECORDS;
}

struct greed {
	uid_t uid;
	uint32_t address; /* source of its flows */
	int ready;
	uint32_t slots; /* got, as it reports */
	uint32_t monitors;
	uint32_t connections;
};

/* Takes slots, monitors and connections, says how many it got, and keeps them. */
static int be_greedy(void *arg)
{
	struct greed *me = arg;
	int fd;

	if (setresuid(me->uid, me->uid, me->uid) < 0)
		return 1;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* the change of user ended it */
	fd = agent_connect(&agent);
	for (uint32_t n = 0; n < 256; n++)
		me->slots += agent_register(fd, n, me->address, n + 1).status == MPIB_STATUS_OK;
	for (uint32_t n = 0; n < 32; n++)
		me->monitors += watches(agent_connect(&agent));
	for (uint32_t n = 0; n < 64; n++) {
		/* One that may not be there is closed before it is answered. */
		if (!agent_register(agent_connect(&agent), 0, me->address, 1).ok)
			break;
		me->connections++;
	}
	if (write(me->ready, me, sizeof(*me)) != sizeof(*me))
		return 1;
	(void)pause();
	return 0;
}

static pid_t start_greedy(uid_t uid, uint32_t address, struct greed *ret)
{
	struct greed greed = { .uid = uid, .address = address };
	int ready[2];
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	greed.ready = ready[1];
	pid = harness_fork(be_greedy, &greed);
	assert_int_equal(close(ready[1]), 0);
	assert_int_equal(read(ready[0], ret, sizeof(*ret)), sizeof(*ret));
	assert_int_equal(close(ready[0]), 0);
	return pid;
}

static void expect_named(pid_t pid, uid_t uid, const char *what)
{
	char line[160];

	(void)snprintf(line, sizeof(line), "refused pid %ld (uid %u): %s", (long)pid, uid, what);
	/* one line, however often; the count is in it or in that of what was held back */
	assert_int_equal(agent_log_count(&agent, line), 1);
}

static void a10_two_users_take_all_and_root_is_served(void **state)
{
	struct greed first;
	struct greed second;
	pid_t pids[2];
	int fd;

	(void)state;
	need_root();
	agent.nofile = 120;
	agent_start(&agent);
	pids[0] = start_greedy(HARNESS_NOBODY, 1, &first);
	pids[1] = start_greedy(SECOND_USER, 2, &second);
	print_message("first user: %u slots, %u monitors, %u more connections; second: %u, %u, "
		      "%u\n",
		      first.slots, first.monitors, first.connections, second.slots, second.monitors,
		      second.connections);

	assert_int_equal(first.slots, 224); /* all but an eighth */
	assert_int_equal(second.slots, 16); /* all but a sixteenth, together */
	assert_int_equal(first.monitors, 28);
	assert_int_equal(second.monitors, 2);
	assert_true(first.connections > 10 && first.connections < 64);
	expect_named(pids[0], HARNESS_NOBODY, "no free slot in this user's part of the table");
	expect_named(pids[1], SECOND_USER, "no free slot but those kept for root");
	expect_named(pids[0], HARNESS_NOBODY, "as many watch events");
	expect_named(pids[1], SECOND_USER, "as many watch events");
	expect_named(pids[0], HARNESS_NOBODY, "as many connections and processes");

	fd = agent_connect(&agent);
	for (uint32_t n = 0; n < 16; n++)
		assert_int_equal(agent_register(fd, n, 3, n + 1).status, MPIB_STATUS_OK);
	assert_int_equal(agent_register(fd, 16, 3, 17).status, MPIB_STATUS_NO_SLOT);
	assert_true(watches(fd));
	free(agent_ctl_words(&agent, 0, "status", NULL));
	assert_int_equal(close(fd), 0);

	for (unsigned int n = 0; n < 2; n++) {
		assert_int_equal(kill(pids[n], SIGKILL), 0);
		assert_int_equal(harness_reap(pids[n]), -SIGKILL);
	}
	assert_true(agent_await_flows(agent_map_hints(&agent), 16, 5000));
}

/* The count is in the line of the next window, at the latest in that of what was held back. */
static void a10_a_refusal_that_lasts_is_one_line_with_its_count(void **state)
{
	struct greed first;
	pid_t pid;

	(void)state;
	need_root();
	agent_start(&agent);
	pid = start_greedy(HARNESS_NOBODY, 1, &first);
	expect_named(pid, HARNESS_NOBODY, "no free slot in this user's part of the table");
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(harness_reap(pid), -SIGKILL);
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	/* 31 of 32 registrations and 3 of 4 monitors */
	assert_int_equal(agent_log_count(&agent, "34 refusal"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(a10_two_users_take_all_and_root_is_served),
		AGENT_TEST(a10_a_refusal_that_lasts_is_one_line_with_its_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
