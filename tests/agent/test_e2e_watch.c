/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent: events as they happen, and metrics. */
#include <signal.h>
#include <sys/socket.h>

#include "agent/admin/admin.h"
#include "tests/agent/harness/fresh.h"

/* A connection that watches, past the event that says so. */
static int watch(void)
{
	struct mpib_msg_header request = { MPIB_MSG_MAGIC, sizeof(request), MPIB_ADMIN_MONITOR, 0 };
	char frame[sizeof(struct mpib_admin_records) + sizeof(struct mpib_admin_event)];
	int fd = agent_connect(&agent);

	assert_true(fd >= 0);
	assert_int_equal(send(fd, &request, sizeof(request), MSG_NOSIGNAL), sizeof(request));
	assert_int_equal(recv(fd, frame, sizeof(frame), MSG_WAITALL), sizeof(frame));
	assert_string_equal(frame + sizeof(struct mpib_admin_records) +
				    offsetof(struct mpib_admin_event, name),
			    "monitor");
	return fd;
}

static int run_monitor(void *arg)
{
	const char *args[] = { "--json", "--count", "4", "monitor", NULL };
	char *out = NULL;
	int code = agent_ctl(&agent, geteuid(), args, &out);
	FILE *file = fopen(arg, "we");

	if (!file || fputs(out, file) < 0 || fclose(file))
		return 90;
	return code;
}

static void events_come_as_they_happen(void **state)
{
	char path[TEMPDIR_MAX + 32];
	char *out = NULL;
	size_t size = 0;
	FILE *file;
	pid_t pid;

	(void)state;
	agent_start(&agent);
	(void)snprintf(path, sizeof(path), "%s/events", agent.base);
	pid = harness_fork(run_monitor, path);
	/* "monitors" in the metrics says that it watches */
	for (unsigned int n = 0; n < 1000; n++) {
		char *text = agent_ctl_words(&agent, 0, "metrics", NULL);
		bool watches = strstr(text, "\nmpib_monitors 1\n") != NULL;

		free(text);
		if (watches)
			break;
	}
	assert_int_equal(
		agent_register_once(&agent, 7, test_ip("10.0.1.1"), test_ip("10.0.2.1")).slot, 0);
	assert_int_equal(agent_deregister_once(&agent, 7).status, MPIB_STATUS_OK);
	free(agent_ctl_words(&agent, 0, "reload", NULL));
	assert_int_equal(harness_reap(pid), 0);

	file = fopen(path, "re");
	assert_non_null(file);
	assert_true(getdelim(&out, &size, '\0', file) > 0);
	(void)fclose(file);
	assert_non_null(
		strstr(out, "\"event\": \"monitor\", \"flow\": \"\", \"text\": \"watching: 0 "));
	assert_non_null(strstr(out, "\"event\": \"register\", \"flow\": \"10.0.1.1-10.0.2.1\""));
	assert_non_null(strstr(out, "\"event\": \"deregister\", \"flow\": \"10.0.1.1-10.0.2.1\""));
	harness_expect(out, "\"priority\": 5, \"event\": \"reload\"");
}

/* An entry that no bound holds back. */
static void make_event(int fd, unsigned int n)
{
	struct mpib_admin_flow_request request = {
		{ MPIB_MSG_MAGIC, sizeof(request), MPIB_ADMIN_SET, 0 }, 1, 2, { n % 1024 }, 0
	};
	char answer[sizeof(struct mpib_admin_records) + sizeof(struct mpib_admin_change) +
		    sizeof(struct mpib_admin_end)];

	assert_int_equal(send(fd, &request, sizeof(request), MSG_NOSIGNAL), sizeof(request));
	assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
}

/* Reads on until an event has @text in it; how many others came, and how many were missed. */
static void read_until(int fd, const char *text, unsigned int *ret_got, unsigned int *ret_missed)
{
	struct mpib_admin_records head;
	struct mpib_admin_event event;

	*ret_got = 0;
	*ret_missed = 0;
	for (;;) {
		assert_int_equal(recv(fd, &head, sizeof(head), MSG_WAITALL), sizeof(head));
		while (head.count--) {
			assert_int_equal(recv(fd, &event, sizeof(event), MSG_WAITALL),
					 sizeof(event));
			if (strstr(event.text, text))
				return;
			if (strcmp(event.name, "missed") == 0)
				*ret_missed += (unsigned int)strtoul(event.text, NULL, 10);
			else
				++*ret_got;
		}
	}
}

/* Nobody waits for one who doesn't read: events go on without it, and it is told how many. */
static void a_slow_reader_is_told_what_it_missed(void **state)
{
	enum { EVENTS = 3000 };
	char line[64];
	unsigned int got;
	unsigned int missed;
	int slow;
	int fast;
	int fd;

	(void)state;
	agent_start(&agent);
	slow = watch();
	fast = watch();
	fd = agent_connect(&agent);
	/* The socket's own queue takes some hundred. */
	for (unsigned int n = 0; n < EVENTS; n++) {
		make_event(fd, n);
		if (n % 100 != 99)
			continue;
		assert_int_equal(agent_register(fd, n, 3, 4).status, MPIB_STATUS_OK);
		(void)snprintf(line, sizeof(line), "connection 0x%08x", n);
		read_until(fast, line, &got, &missed);
		assert_int_equal(got, 100);
		assert_int_equal(missed, 0);
	}
	assert_int_equal(agent_register(fd, EVENTS, 3, 4).status, MPIB_STATUS_OK);
	(void)snprintf(line, sizeof(line), "connection 0x%08x", EVENTS);
	read_until(slow, line, &got, &missed);
	assert_true(missed > 0);
	assert_int_equal(got + missed, EVENTS + EVENTS / 100);

	(void)snprintf(line, sizeof(line), "\nmpib_events_missed_total %u\n", missed);
	harness_expect(agent_ctl_words(&agent, 0, "metrics", NULL), line);
	harness_expect(agent_ctl_words(&agent, 0, "metrics", NULL), "\nmpib_monitors 2\n");
	(void)close(slow);
	(void)close(fast);
	(void)close(fd);
}

static void there_is_a_most_of_watchers(void **state)
{
	int fds[32];

	(void)state;
	agent_start(&agent);
	for (unsigned int n = 0; n < 32; n++)
		fds[n] = watch();
	free(agent_ctl_words(&agent, 1, "--count", "1", "monitor", NULL));
	assert_int_equal(agent_log_count(&agent, "too many watch already"), 1);
	(void)close(fds[5]);
	/* the close is seen before the next connection is served */
	harness_expect(agent_ctl_words(&agent, 0, "--count", "1", "monitor", NULL), "monitor");
	for (unsigned int n = 0; n < 32; n++) {
		if (n != 5)
			(void)close(fds[n]);
	}
}

static bool have_promtool(void)
{
	return system("command -v promtool >/dev/null 2>&1") == 0;
}

static void metrics_count_and_have_bounded_labels(void **state)
{
	char *out;
	size_t labels = 0;
	int fd;

	(void)state;
	agent_write_ini(&agent, "[agent]\nslots = 1000\n[policy]\ninter = 25%\n");
	agent_start(&agent);
	fd = agent_connect(&agent);
	for (uint32_t n = 1; n <= 600; n++)
		assert_int_equal(agent_register(fd, n, 1, n << 24 | 2).status, MPIB_STATUS_OK);
	assert_int_equal(agent_register(fd, 1, 5, 6).status, MPIB_STATUS_INVALID);

	out = agent_ctl_words(&agent, 0, "metrics", NULL);
	for (const char *p = out; (p = strstr(p, "\nmpib_flow_share{")); p++)
		labels++;
	assert_true(strlen(out) > 6 && strcmp(out + strlen(out) - 6, "# EOF\n") == 0);
	assert_non_null(strstr(out, "\nmpib_agent_up 1\n"));
	assert_non_null(strstr(out, "\nmpib_registered_total "));
	assert_non_null(strstr(out, "\nmpib_refused_total 1\n"));
	assert_non_null(strstr(out, "\",rule=\"inter\"} 0.2500\n"));
	assert_non_null(strstr(out, "\nmpib_slots 1000\n"));
	if (agent_count_flows(agent_map_hints(&agent)) > 512)
		assert_int_equal(labels, 512);
	free(out);
	(void)close(fd);
	harness_expect(agent_ctl_words(&agent, 2, "--json", "metrics", NULL), "");
}

static void a_collector_finds_a_whole_file_also_of_a_dead_agent(void **state)
{
	char path[TEMPDIR_MAX + 32];
	char command[TEMPDIR_MAX + 512];
	const char *checker = getenv("MPIB_OPENMETRICS");
	char line[256] = "";
	struct stat st;
	FILE *file;

	(void)state;
	agent_start(&agent);
	(void)snprintf(path, sizeof(path), "%s/mpib.prom", agent.base);
	harness_expect(agent_ctl_words(&agent, 0, "--output", path, "metrics", NULL), "");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0644);
	assert_non_null(checker);
	(void)snprintf(command, sizeof(command), "%s %s", checker, path);
	assert_int_equal(system(command), 0);
	if (have_promtool()) {
		/* It knows the older text form alone, where a counter's name ends in _total. */
		(void)snprintf(command, sizeof(command),
			       "! promtool check metrics <%s 2>&1 | grep -v '_total no help text$' "
			       ">&2",
			       path);
		assert_int_equal(system(command), 0);
	} else {
		print_message("promtool is missing: only openmetrics.py checked the text\n");
	}

	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	harness_expect(agent_ctl_words(&agent, 3, "--output", path, "metrics", NULL), "");
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file) && !strstr(line, "mpib_agent_up 0"))
		;
	assert_string_equal(line, "mpib_agent_up 0\n");
	(void)fclose(file);
	harness_expect(agent_ctl_words(&agent, 3, "metrics", NULL), "mpib_agent_up 0\n# EOF\n");
	free(agent_ctl_words(&agent, 1, "--output", "/nonexistent/x", "metrics", NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(events_come_as_they_happen),
		AGENT_TEST(a_slow_reader_is_told_what_it_missed),
		AGENT_TEST(there_is_a_most_of_watchers),
		AGENT_TEST(metrics_count_and_have_bounded_labels),
		AGENT_TEST(a_collector_finds_a_whole_file_also_of_a_dead_agent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
