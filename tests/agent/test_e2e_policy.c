/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent: reloads, and mpibctl with its exit codes (C28 without systemd). */
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include "common/hint.h"
#include "tests/agent/harness/fresh.h"

#define CTL_OK	      0
#define CTL_FAILURE   1
#define CTL_USAGE     2
#define CTL_NO_AGENT  3
#define CTL_FORBIDDEN 4

/* Runs mpibctl as this user; stdout is compared part by part by the caller. */
static char *ctl(int wanted, const char *first, const char *second, const char *third)
{
	const char *args[4] = { first, second, third, NULL };
	char *out = NULL;
	int code = agent_ctl(&agent, geteuid(), args, &out);

	if (code != wanted)
		fail_msg("mpibctl %s %s: exit %d, not %d", first ? first : "", second ? second : "",
			 code, wanted);
	return out;
}

static void expect_nothing(char *out)
{
	assert_string_equal(out, "");
	free(out);
}

static void expect_part(char *out, const char *part)
{
	if (!strstr(out, part))
		fail_msg("no \"%s\" in: %s", part, out);
	free(out);
}

static uint32_t share_of(const struct mpib_hint_header *header, uint32_t slot)
{
	uint32_t share = UINT32_MAX;

	assert_true(mpib_hint_read(agent_entry(header, slot), &share));
	return share;
}

static void a_reload_has_its_shares_in_the_table_when_it_returns(void **state)
{
	const struct mpib_hint_header *header;

	(void)state;
	agent_write_ini(&agent, "[policy]\ninter = 25%\n");
	agent_start(&agent);
	header = agent_map_hints(&agent);
	assert_int_equal(
		agent_register_once(&agent, 1, test_ip("10.0.1.1"), test_ip("10.0.2.1")).slot, 0);
	assert_int_equal(share_of(header, 0), 256);

	for (unsigned int n = 0; n < 20; n++) {
		char text[64];

		(void)snprintf(text, sizeof(text), "[policy]\ninter = %u\n", 10 + n);
		agent_write_ini(&agent, text);
		expect_part(ctl(CTL_OK, "reload", NULL, NULL), "10.0.1.1-10.0.2.1");
		agent_await_notify(&agent, "READY=1"); /* its queue is short */
		assert_int_equal(share_of(header, 0), 10 + n);
	}
	assert_int_equal(agent_log_count(&agent, "share 256 (25.0%) -> 10 (1.0%)"), 1);
	expect_part(ctl(CTL_OK, "--json", "reload", NULL), "{\"changed\": []}");
	expect_part(ctl(CTL_OK, "reload", NULL, NULL), "no flow got another share");
}

static void a_bad_reload_changes_nothing_and_says_why_everywhere(void **state)
{
	const struct mpib_hint_header *header;
	struct mpib_hint_entry before;
	char wanted[TEMPDIR_MAX + 64];

	(void)state;
	agent_write_ini(&agent, "[policy]\ninter = 25%\n");
	agent_start(&agent);
	header = agent_map_hints(&agent);
	assert_int_equal(agent_register_once(&agent, 1, 1, 2).slot, 0);
	before = *agent_entry(header, 0);

	agent_write_ini(&agent, "[policy]\ninter = 75%\nintra = 5 %\n");
	expect_nothing(ctl(CTL_FAILURE, "--json", "reload", NULL));
	assert_memory_equal(&before, agent_entry(header, 0), sizeof(before));
	(void)snprintf(wanted, sizeof(wanted), "mpibctl: %s:3: intra = 5 %% is not", agent.ini);
	assert_int_equal(agent_log_count(&agent, wanted), 1);
	(void)snprintf(wanted, sizeof(wanted), "stays in force: %s:3: intra = 5 %%", agent.ini);
	assert_int_equal(agent_log_count(&agent, wanted), 1);
	expect_part(ctl(CTL_OK, "--json", "status", NULL), "\"reload_refused\": true");
	agent_await_notify(&agent, "reload refused: ");

	agent_write_ini(&agent, "[policy]\ninter = 75%\nintra = 5%\n");
	free(ctl(CTL_OK, "reload", NULL, NULL));
	assert_int_equal(share_of(header, 0), 768);
	expect_part(ctl(CTL_OK, "--json", "status", NULL), "\"reload_refused\": false");
}

/* The queue of a notify socket holds about ten messages; a reload sends two. */
static void a_service_manager_that_reads_nothing_stops_nothing(void **state)
{
	const struct mpib_hint_header *header;
	uint64_t start;
	char text[64];

	(void)state;
	agent_start(&agent);
	header = agent_map_hints(&agent);
	start = harness_now_ms();
	assert_int_equal(agent_register_once(&agent, 1, 1, 2).slot, 0);
	for (unsigned int n = 0; n < 40; n++) {
		(void)snprintf(text, sizeof(text), "[policy]\ninter = %u\n", 10 + n);
		agent_write_ini(&agent, text);
		free(ctl(CTL_OK, "reload", NULL, NULL));
		assert_int_equal(share_of(header, 0), 10 + n);
	}
	assert_int_equal(agent_register_once(&agent, 2, 1, 3).slot, 1);
	/* One that waits does so for ever; mpibctl under a sanitizer takes its time. */
	if (harness_now_ms() - start > 60000)
		fail_msg("the agent waited for its service manager");

	/* What it missed is said once it reads again: not "reloading" for ever. */
	agent_await_notify(&agent, "READY=1\nSTATUS=2 flows");
	agent_write_ini(&agent, "[policy]\ninter = x\n");
	free(ctl(CTL_FAILURE, "reload", NULL, NULL));
	agent_await_notify(&agent, "reload refused: ");
}

static void sighup_reloads_and_tells_the_service_manager(void **state)
{
	const struct mpib_hint_header *header;

	(void)state;
	agent_start(&agent);
	header = agent_map_hints(&agent);
	assert_int_equal(agent_register_once(&agent, 1, 1, 2).slot, 0);
	agent_write_ini(&agent, "[policy]\ninter = 77\n");
	assert_int_equal(kill(agent.pid, SIGHUP), 0);
	agent_await_notify(&agent, "RELOADING=1\nMONOTONIC_USEC=");
	agent_await_notify(&agent, "READY=1");
	assert_int_equal(share_of(header, 0), 77);

	agent_write_ini(&agent, "[policy]\ninter = x\n");
	assert_int_equal(kill(agent.pid, SIGHUP), 0);
	agent_await_notify(&agent, "RELOADING=1");
	agent_await_notify(&agent, "READY=1"); /* never left "reloading" */
	assert_int_equal(share_of(header, 0), 77);
}

static void a_reload_can_enlarge_the_table(void **state)
{
	const struct mpib_hint_header *header;

	(void)state;
	agent_write_ini(&agent, "[agent]\nslots = 1\n");
	agent_start(&agent);
	header = agent_map_hints(&agent);
	assert_int_equal(agent_register_once(&agent, 1, 1, 2).status, MPIB_STATUS_OK);
	assert_int_equal(agent_register_once(&agent, 2, 1, 3).status, MPIB_STATUS_NO_SLOT);
	agent_write_ini(&agent, "[agent]\nslots = 300\n");
	free(ctl(CTL_OK, "reload", NULL, NULL));
	assert_int_equal(header->max_entries, 300);
	assert_int_equal(agent_register_once(&agent, 2, 1, 3).slot, 1);
}

static void a_reload_is_for_root_and_the_agents_user(void **state)
{
	static const char *const reload[] = { "--json", "reload", NULL };
	static const char *const flows[] = { "--json", "flows", NULL };
	char *out = NULL;

	(void)state;
	if (geteuid() != 0) {
		print_message("needs root to become another user\n");
		skip();
	}
	agent_start(&agent);
	assert_int_equal(agent_ctl(&agent, HARNESS_NOBODY, reload, &out), CTL_FORBIDDEN);
	expect_nothing(out);
	assert_int_equal(agent_ctl(&agent, HARNESS_NOBODY, flows, &out), CTL_OK);
	expect_part(out, "{\"flows\": [], \"total\": {\"flows\": 0, ");
}

static int run_reload(void *arg)
{
	static const char *const reload[] = { "reload", NULL };

	(void)arg;
	return agent_ctl(&agent, geteuid(), reload, NULL);
}

/* Both get the verdict on the file as it stands, and none is left waiting. */
static void two_reloads_at_once_both_get_their_verdict(void **state)
{
	pid_t pids[2];
	struct answer a;
	uint32_t share = 0;

	(void)state;
	agent_start(&agent);
	a = agent_register_once(&agent, 1, test_ip("10.0.1.1"), test_ip("10.0.2.1"));
	assert_int_equal(a.status, MPIB_STATUS_OK);
	agent_write_ini(&agent, "[policy]\ninter = 77\n");
	for (unsigned int n = 0; n < 2; n++)
		pids[n] = harness_fork(run_reload, NULL);
	for (unsigned int n = 0; n < 2; n++)
		assert_int_equal(harness_reap(pids[n]), CTL_OK);
	assert_true(mpib_hint_read(agent_entry(agent_map_hints(&agent), a.slot), &share));
	assert_int_equal(share, 77);
	expect_part(ctl(CTL_OK, "--json", "status", NULL), "\"reload_refused\": false");

	agent_write_ini(&agent, "[policy]\ninter = many\n");
	for (unsigned int n = 0; n < 2; n++)
		pids[n] = harness_fork(run_reload, NULL);
	for (unsigned int n = 0; n < 2; n++)
		assert_int_equal(harness_reap(pids[n]), CTL_FAILURE);
	expect_part(ctl(CTL_OK, "--json", "status", NULL), "\"reload_refused\": true");
}

/* The keeper of a killed agent holds the socket until it learns of the end. */
static void await_refusal(void)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t end = harness_now_ms() + 5000;
	int fd;

	while ((fd = agent_connect(&agent)) >= 0) {
		(void)close(fd);
		if (harness_now_ms() >= end)
			fail_msg("the socket of a killed agent is still there");
		(void)nanosleep(&pause, NULL);
	}
}

static void exit_codes_tell_down_from_forbidden_from_bad_use(void **state)
{
	static const char *const status[] = { "--json", "status", NULL };
	char path[TEMPDIR_MAX + 32];
	char *out = NULL;

	(void)state;
	expect_nothing(ctl(CTL_NO_AGENT, "--json", "status", NULL)); /* no directory */
	agent_start(&agent);
	expect_part(ctl(CTL_OK, "--json", "status", NULL), "{\"version\": ");
	expect_nothing(ctl(CTL_USAGE, "--json", "nonsense", NULL));
	expect_nothing(ctl(CTL_USAGE, "--json", "status", "more"));
	expect_nothing(ctl(CTL_USAGE, "--jason", "status", NULL));
	expect_nothing(ctl(CTL_USAGE, "check", NULL, NULL));
	expect_nothing(ctl(CTL_USAGE, NULL, NULL, NULL));

	(void)snprintf(path, sizeof(path), "%s/agent.sock", agent.dir);
	if (geteuid() == 0) {
		assert_int_equal(chmod(path, 0), 0);
		assert_int_equal(agent_ctl(&agent, HARNESS_NOBODY, status, &out), CTL_FORBIDDEN);
		expect_nothing(out);
	}
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL); /* leaves its socket */
	await_refusal();
	expect_nothing(ctl(CTL_NO_AGENT, "--json", "flows", NULL));
	expect_nothing(ctl(CTL_NO_AGENT, "reload", NULL, NULL));
	/* the table can be read all the same */
	expect_part(ctl(CTL_OK, "--json", "hints", NULL), "\"max_entries\": 256");
}

static void check_and_dash_dash_check_are_one_verdict(void **state)
{
	(void)state;
	agent_write_ini(&agent, "[policy]\ninter = 25%\n");
	expect_part(ctl(CTL_OK, "--json", "check", agent.ini), "\"inter\": 256");
	agent_write_ini(&agent, "[policy]\ninter = 250%\n");
	expect_nothing(ctl(CTL_FAILURE, "--json", "check", agent.ini));
	assert_int_equal(agent_log_count(&agent, "agent.ini:2: inter = 250% is out of range"), 1);
	expect_nothing(ctl(CTL_FAILURE, "check", "/nonexistent", NULL));
}

static void flows_show_share_rule_and_islands_of_a_large_table(void **state)
{
	char *out;
	size_t lines = 0;
	int fd;

	(void)state;
	agent_write_ini(&agent, "[agent]\nslots = 5000\n[islands]\nA = 10.0.1.0/24\n"
				"B = 10.0.2.0/24\n[pair A B]\nshare = 1:3\n");
	agent_start(&agent);
	fd = agent_connect(&agent);
	assert_true(fd >= 0);
	assert_int_equal(agent_register(fd, 1, test_ip("10.0.1.1"), test_ip("10.0.2.1")).status,
			 MPIB_STATUS_OK);
	for (uint32_t n = 2; n <= 4000; n++)
		assert_int_equal(agent_register(fd, n, 1, n).status, MPIB_STATUS_OK);

	out = ctl(CTL_OK, "flows", NULL, NULL);
	for (const char *p = out; (p = strchr(p, '\n')); p++)
		lines++;
	assert_int_equal(lines, 4002); /* titles, flows, total */
	expect_part(out, "\n10.0.1.1-10.0.2.1   75.0%  -      pair:6 ");
	expect_part(ctl(CTL_OK, "--json", "flows", NULL),
		    "\"share\": 768, \"rule\": \"pair\", \"rule_line\": 6, ");
	expect_part(ctl(CTL_OK, "--json", "flows", NULL),
		    "\"src_island\": \"A\", \"dst_island\": \"B\", ");
	expect_part(ctl(CTL_OK, "--json", "hints", NULL),
		    "{\"slot\": 0, \"flow\": \"10.0.1.1-10.0.2.1\", \"share\": 768");
	assert_int_equal(close(fd), 0);
}

static void a_stopped_agent_does_not_hang_mpibctl(void **state)
{
	uint64_t start;

	(void)state;
	agent_start(&agent);
	assert_int_equal(kill(agent.pid, SIGSTOP), 0);
	start = harness_now_ms();
	expect_nothing(ctl(CTL_FAILURE, "--json", "status", NULL));
	assert_true(harness_now_ms() - start < 10000);
	assert_int_equal(agent_log_count(&agent, "is stopped, so it answers nobody; kill -CONT "),
			 1);
	assert_int_equal(kill(agent.pid, SIGCONT), 0);
	free(ctl(CTL_OK, "status", NULL, NULL));
}

static void expect_file(const char *json, const char *people)
{
	char part[64];
	char *text;

	(void)snprintf(part, sizeof(part), "\"policy_file\": \"%s\"", json);
	expect_part(ctl(CTL_OK, "--json", "status", NULL), part);
	text = ctl(CTL_OK, "status", NULL, NULL);
	if (people) {
		expect_part(text, people);
		return;
	}
	if (strstr(text, "policy file:"))
		fail_msg("it tells of a file that is in force: %s", text);
	free(text);
}

/* What counts is what the file says, not what it looks like. */
static void status_tells_of_a_file_that_is_not_in_force(void **state)
{
	struct timespec times[2] = { { .tv_sec = 946684800 }, { .tv_sec = 946684800 } };

	(void)state;
	agent_write_ini(&agent, "[policy]\ninter = 25%\n");
	agent_start(&agent);
	expect_file("same", NULL);
	/* Written again, the same text: in force. */
	agent_write_ini(&agent, "[policy]\ninter = 25%\n");
	expect_file("same", NULL);

	agent_write_ini(&agent, "[policy]\ninter = 75%\n");
	/* As a copy that keeps its old time: it differs all the same. */
	assert_int_equal(utimensat(AT_FDCWD, agent.ini, times, 0), 0);
	for (unsigned int n = 0; n < 2; n++)
		expect_file("changed", "policy file: of 2000-01-01 ");
	expect_part(ctl(CTL_OK, "metrics", NULL, NULL), "\nmpib_policy_file_differs 1\n");
	expect_part(ctl(CTL_OK, "policy", NULL, NULL), "inter = 256");
	free(ctl(CTL_OK, "reload", NULL, NULL));
	expect_file("same", NULL);

	/* Also where a reload was refused, until the file is what it was. */
	agent_write_ini(&agent, "[policy]\ninter = lots\n");
	expect_nothing(ctl(CTL_FAILURE, "reload", NULL, NULL));
	expect_file("changed", "not in force: mpibctl check FILE, then mpibctl reload");
	agent_write_ini(&agent, "[policy]\ninter = 75%\n");
	expect_file("same", NULL);

	assert_int_equal(unlink(agent.ini), 0);
	expect_file("gone", "policy file: gone: what was loaded from it stays in force");
	expect_part(ctl(CTL_OK, "metrics", NULL, NULL), "\nmpib_policy_file_differs 2\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(a_reload_has_its_shares_in_the_table_when_it_returns),
		AGENT_TEST(a_bad_reload_changes_nothing_and_says_why_everywhere),
		AGENT_TEST(a_service_manager_that_reads_nothing_stops_nothing),
		AGENT_TEST(sighup_reloads_and_tells_the_service_manager),
		AGENT_TEST(a_reload_can_enlarge_the_table),
		AGENT_TEST(a_reload_is_for_root_and_the_agents_user),
		AGENT_TEST(two_reloads_at_once_both_get_their_verdict),
		AGENT_TEST(exit_codes_tell_down_from_forbidden_from_bad_use),
		AGENT_TEST(check_and_dash_dash_check_are_one_verdict),
		AGENT_TEST(flows_show_share_rule_and_islands_of_a_large_table),
		AGENT_TEST(status_tells_of_a_file_that_is_not_in_force),
		AGENT_TEST(a_stopped_agent_does_not_hang_mpibctl),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
