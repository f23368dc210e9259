/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent: what people read fits their screen, filters and orders, and --json keeps all. */
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "tests/agent/harness/fresh.h"

#define SRC "192.168.100.101"
#define DST "192.168.200.201"

static int set_up(void **state)
{
	(void)agent_set_up(state);
	agent_write_ini(&agent,
			"[islands]\nan-island-of-31-letters-named-A = 192.168.100.0/24\n"
			"an-island-of-31-letters-named-B = 192.168.200.0/24\n"
			"C = 10.0.3.0/24\n"
			"[pair an-island-of-31-letters-named-A an-island-of-31-letters-named-B]\n"
			"share = 100%\n");
	agent_start(&agent);
	return 0;
}

static int tear_down(void **state)
{
	(void)unsetenv("COLUMNS");
	(void)unsetenv("LINES");
	return agent_tear_down(state);
}

/* Five flows of this process, one of them also of a child that stays; the child. */
static int hold(void *arg)
{
	const int *ready = arg;
	int fd = agent_connect(&agent);

	if (agent_register(fd, 1, test_ip(SRC), test_ip(DST)).status != MPIB_STATUS_OK ||
	    write(ready[1], "", 1) != 1)
		return 90;
	for (;;)
		(void)pause();
}

static pid_t register_flows(int fd)
{
	static const char *const flows[][2] = { { SRC, DST },
						{ "10.0.1.1", "10.0.3.10" },
						{ "10.0.1.1", "10.0.3.9" },
						{ DST, SRC },
						{ "10.0.3.9", "10.0.1.1" } };
	int ready[2];
	char byte;
	pid_t pid;

	for (uint32_t n = 0; n < 5; n++)
		assert_int_equal(
			agent_register(fd, n + 1, test_ip(flows[n][0]), test_ip(flows[n][1]))
				.status,
			MPIB_STATUS_OK);
	assert_int_equal(pipe(ready), 0);
	pid = harness_fork(hold, ready);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	(void)close(ready[0]);
	(void)close(ready[1]);
	return pid;
}

static size_t longest_line(const char *text)
{
	size_t longest = 0;

	while (*text) {
		size_t len = strcspn(text, "\n");

		if (len > longest)
			longest = len;
		text += len + (text[len] == '\n');
	}
	return longest;
}

static void each_table_fits_the_width_that_it_is_given(void **state)
{
	static const char *const commands[][4] = {
		{ "status" },
		{ "flows" },
		{ "--count", "1", "top" },
		{ "hints" },
		{ "reload" },
		{ "explain", SRC "-" DST },
		{ "set", SRC "-" DST, "3" },
		{ "flows" },
		{ "unset", SRC "-" DST },
	};
	static const unsigned int widths[] = { 80, 72, 132 };
	int fd = agent_connect(&agent);
	pid_t pid;

	(void)state;
	pid = register_flows(fd);
	for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
		char columns[16];

		(void)snprintf(columns, sizeof(columns), "%u", widths[w]);
		assert_int_equal(setenv("COLUMNS", columns, 1), 0);
		for (size_t n = 0; n < sizeof(commands) / sizeof(commands[0]); n++) {
			char *out = NULL;

			assert_int_equal(agent_ctl(&agent, geteuid(), commands[n], &out), 0);
			if (longest_line(out) > widths[w] || !*out)
				fail_msg("%s in %u columns: %s", commands[n][0], widths[w], out);
			free(out);
		}
	}

	/* What was left out is said; into a file all is there, and nothing is broken. */
	assert_int_equal(setenv("COLUMNS", "80", 1), 0);
	harness_expect(agent_ctl_words(&agent, 0, "flows", NULL), "(80 columns: without ");
	assert_int_equal(unsetenv("COLUMNS"), 0);
	harness_expect(agent_ctl_words(&agent, 0, "flows", NULL),
		       "  an-island-of-31-letters-named-A  an-island-of-31-letters-named-B  ");
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(harness_reap(pid), -SIGKILL);
	(void)close(fd);
}

/* Runs mpibctl with a terminal of 80 by 12 as its stdout; all that it shows. */
static void on_terminal(const char *const args[], char *buf, size_t size)
{
	struct winsize window = { .ws_col = 80, .ws_row = 12 };
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	size_t used = 0;
	ssize_t n;
	pid_t pid;

	assert_true(master >= 0);
	assert_int_equal(grantpt(master), 0);
	assert_int_equal(unlockpt(master), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		const char *argv[8] = { getenv("MPIBCTL"), "--dir", agent.dir };
		int slave = open(ptsname(master), O_RDWR | O_NOCTTY);

		for (unsigned int arg = 0; args[arg] && arg < 4; arg++)
			argv[3 + arg] = args[arg];
		if (!argv[0] || slave < 0 || ioctl(slave, TIOCSWINSZ, &window) < 0 ||
		    dup2(slave, STDOUT_FILENO) < 0)
			_exit(99);
		(void)execv(argv[0], (char **)(uintptr_t)argv);
		_exit(96);
	}
	/* It prints less than a terminal holds unread, so its end comes first. */
	assert_int_equal(harness_reap(pid), 0);
	while (used < size - 1 && (n = read(master, buf + used, size - 1 - used)) > 0)
		used += (size_t)n;
	buf[used] = '\0';
	(void)close(master);
}

static void a_terminal_says_how_wide_and_high_it_is(void **state)
{
	static const char *const flows[] = { "flows", NULL };
	static const char *const top[] = { "--count", "1", "top", NULL };
	int fd = agent_connect(&agent);
	unsigned int lines = 0;
	char text[4096];

	(void)state;
	for (uint32_t n = 1; n <= 20; n++)
		assert_int_equal(
			agent_register(fd, n, test_ip(SRC), test_ip(DST) + (n << 24)).status,
			MPIB_STATUS_OK);
	on_terminal(flows, text, sizeof(text));
	if (longest_line(text) > 81) /* with the carriage return */
		fail_msg("too wide: %s", text);
	assert_non_null(strstr(text, "\ntotal 20 "));

	/* The busiest, as many as there is room for, and the total. */
	on_terminal(top, text, sizeof(text));
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		lines++;
	if (longest_line(text) > 81 || lines > 11 || !strstr(text, "(15 more)") ||
	    !strstr(text, "\ntotal 20 "))
		fail_msg("%u lines: %s", lines, text);
	(void)close(fd);
}

/* The flows in the order of @out, by the last part of each. */
static void expect_flows(char *out, const char *wanted)
{
	char got[256] = "";

	for (const char *p = out; (p = strstr(p, "\"flow\": \"")); p++) {
		p += 9;
		(void)strncat(got, p, strcspn(p, "\""));
		(void)strncat(got, " ", sizeof(got) - strlen(got) - 1);
	}
	if (strcmp(got, wanted) != 0)
		fail_msg("flows: %s, not %s", got, wanted);
	free(out);
}

#define AB  SRC "-" DST " "
#define BA  DST "-" SRC " "
#define C10 "10.0.1.1-10.0.3.10 "
#define C9  "10.0.1.1-10.0.3.9 "
#define R9  "10.0.3.9-10.0.1.1 "

static void filters_and_orders(void **state)
{
	int fd = agent_connect(&agent);
	char child[32];
	char other[32];
	pid_t pid;

	(void)state;
	pid = register_flows(fd);
	(void)snprintf(child, sizeof(child), "%ld", (long)pid);
	(void)snprintf(other, sizeof(other), "%ld", (long)getpid());
#define FLOWS(...) agent_ctl_words(&agent, 0, "--json", __VA_ARGS__, "flows", NULL)
	expect_flows(FLOWS("--sort", "slot"), AB C10 C9 BA R9);
	expect_flows(FLOWS("--sort", "flow"), C9 C10 R9 AB BA);
	expect_flows(FLOWS("--sort", "-slot"), R9 BA C9 C10 AB);
	expect_flows(FLOWS("--sort", "-connections"), AB C10 C9 BA R9);
	expect_flows(FLOWS("--peer", "10.0.3.9"), C9 R9);
	expect_flows(FLOWS("--peer", "10.0.3.0/24"), C10 C9 R9);
	expect_flows(FLOWS("--peer", "10.9.9.9"), "");
	expect_flows(FLOWS("--island", "C", "--sort", "dst"), R9 C9 C10);
	expect_flows(FLOWS("--island", "an-island-of-31-letters-named-B"), AB BA);
	expect_flows(FLOWS("--island", "c"), "");
	/* Also where another process of the flow came first. */
	expect_flows(FLOWS("--pid", child), AB);
	expect_flows(FLOWS("--pid", other), AB C10 C9 BA R9);
	expect_flows(FLOWS("--pid", other, "--peer", "10.0.1.1"), C10 C9 R9);
	(void)snprintf(child, sizeof(child), "\"pid\": %ld,", (long)pid);
	(void)snprintf(other, sizeof(other), "%ld", (long)pid);
	harness_expect(FLOWS("--pid", other), child);

	/* The total is of what is shown. */
	harness_expect(FLOWS("--peer", "10.0.3.9"), "\"total\": {\"flows\": 2, ");
	harness_expect(FLOWS("--island", "an-island-of-31-letters-named-B"),
		       "\"connections\": 3, \"gin_connections\": 0");
	harness_expect(agent_ctl_words(&agent, 0, "--peer", "10.9.9.9", "flows", NULL),
		       "no such flows\n");
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(harness_reap(pid), -SIGKILL);
	(void)close(fd);
}

static void wrong_filters_and_options_of_others_are_refused(void **state)
{
	static const struct {
		const char *words[4];
		const char *line;
	} cases[] = {
		{ { "--sort", "nonsense", "flows" },
		  "--sort nonsense: no such column; see above for " },
		{ { "--sort", "", "top" }, "no such column" },
		{ { "--peer", "10.0.3.1/24", "flows" },
		  "--peer 10.0.3.1/24: write a SOUT address" },
		{ { "--peer", "node7", "top" }, "--peer node7: write a SOUT address" },
		{ { "--pid", "x", "flows" }, "--pid x: must be a number" },
		{ { "--peer", "10.0.3.9", "hints" },
		  "--peer is not for hints, but for: flows top" },
		{ { "--all", "flows" }, "--all is not for flows, but for: hints" },
		{ { "--for", "1m", "reload" }, "--for is not for reload, but for: set" },
		{ { "--count", "1", "flows" }, "--count is not for flows, but for: monitor top" },
	};

	(void)state;
	for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
		int code = agent_ctl(&agent, geteuid(), cases[n].words, NULL);

		if (code != 2 || agent_log_count(&agent, cases[n].line) == 0)
			fail_msg("exit %d, or no line with: %s", code, cases[n].line);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(each_table_fits_the_width_that_it_is_given),
		T(a_terminal_says_how_wide_and_high_it_is),
		T(filters_and_orders),
		T(wrong_filters_and_options_of_others_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
