/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent: rails that connections lost and have again, as their counters tell it, true or
 * not. */
#include <signal.h>
#include <sys/mman.h>

#include "tests/agent/harness/counters.h"
#include "tests/agent/harness/fresh.h"

#define SOUT 0
#define SUP  1

/* A job: its socket, its table, and two connections of flow 10.0.1.1-10.0.2.5 with both rails. */
static struct {
	struct mpib_counters_header *header;
	struct mpib_counter_entry *first;
	struct mpib_counter_entry *second;
	int fd;
	int socket;
} job;

static void open_connection(uint32_t conn_id, uint32_t place)
{
	*counters_entry(job.header, place) =
		(struct mpib_counter_entry){ .kind = MPIB_COUNTER_SEND,
					     .conn_id = conn_id,
					     .rails_up = 3,
					     .state = MPIB_COUNTER_LIVE };
	assert_int_equal(
		agent_register(job.socket, conn_id, test_ip("10.0.1.1"), test_ip("10.0.2.5"))
			.status,
		MPIB_STATUS_OK);
}

static void start_job(uint32_t features)
{
	agent_write_ini(&agent, "[policy]\ninter = 25%\n");
	agent_start(&agent);
	job.header = counters_make(MPIB_COUNTERS_SIZE, F_SEAL_SHRINK | F_SEAL_GROW, &job.fd);
	job.header->features = features;
	job.socket = agent_connect(&agent);
	open_connection(77, 3);
	open_connection(78, 4000);
	job.first = counters_entry(job.header, 3);
	job.second = counters_entry(job.header, 4000);
	assert_int_equal(counters_hand_over(job.socket, job.fd, 1, MPIB_COUNTERS_SIZE),
			 MPIB_STATUS_OK);
}

static void end_job(void)
{
	(void)close(job.socket);
	(void)close(job.fd);
	(void)munmap(job.header, MPIB_COUNTERS_SIZE);
}

static void lose(struct mpib_counter_entry *entry, unsigned int rail)
{
	entry->losses[rail]++;
	entry->parts_again[rail] += 4;
	entry->rails_up &= ~(1u << rail);
}

static void regain(struct mpib_counter_entry *entry, unsigned int rail)
{
	entry->returns[rail]++;
	entry->rails_up |= 1u << rail;
}

/* Until the agent has looked at all that the counters say by now. */
static void let_it_look(void)
{
	char part[64];

	job.first->rail[SUP].bytes += 12345;
	(void)snprintf(part, sizeof(part), "\"sup_sent\": %llu,",
		       (unsigned long long)job.first->rail[SUP].bytes);
	counters_await_flows(&agent, part);
}

static void a_loss_and_a_return_are_told(void **state)
{
	(void)state;
	start_job(MPIB_COUNTERS_HAVE_FAILOVER);
	let_it_look();
	assert_int_equal(agent_log_count(&agent, "SUP"), 0);

	lose(job.first, SUP);
	agent_await_log(&agent, "flow 10.0.1.1-10.0.2.5 lost SUP: 1 time on 1 connection of pid ");
	assert_int_equal(agent_log_count(&agent, "; SOUT takes all; share in the table 256 (25.0%);"
						 " 1 of the flow's 2 connections lack SUP"),
			 1);
	regain(job.first, SUP);
	agent_await_log(&agent, "flow 10.0.1.1-10.0.2.5 has SUP back: 1 time on 1 connection of ");
	assert_int_equal(agent_log_count(&agent, "; both rails are in use; "), 1);

	/* between two looks */
	for (unsigned int n = 0; n < 5; n++) {
		lose(job.second, SOUT);
		regain(job.second, SOUT);
	}
	agent_await_log(&agent, "lost SOUT: 5 times on 1 connection");
	agent_await_log(&agent, "has SOUT back: 5 times on 1 connection");
	let_it_look();
	assert_int_equal(agent_log_count(&agent, " lost S"), 2);
	assert_int_equal(agent_log_count(&agent, " back: "), 2);
	end_job();
}

/* In a process of its own, on the memory that it shares with the test. */
static int lose_a_rail_when_watched(void *arg)
{
	(void)arg;
	for (unsigned int n = 0; n < 1000; n++) {
		char *text = agent_ctl_words(&agent, 0, "metrics", NULL);
		bool watched = strstr(text, "\nmpib_monitors 1\n") != NULL;

		free(text);
		if (watched)
			break;
	}
	lose(job.first, SUP);
	return 0;
}

/* No line of @out is wider than a terminal of 80 columns. */
static void expect_narrow(char *out)
{
	size_t len;

	for (const char *line = out; *line; line += len + (line[len] != '\0')) {
		len = strcspn(line, "\n");
		if (len > 80)
			fail_msg("wider than 80 columns: %s", out);
	}
	free(out);
}

static void a_lost_rail_is_shown(void **state)
{
	char *out;

	(void)state;
	start_job(MPIB_COUNTERS_HAVE_FAILOVER);
	let_it_look();
	harness_expect(agent_ctl_words(&agent, 0, "flows", NULL),
		       "\n10.0.1.1-10.0.2.5  25.0%  both   inter:2 ");

	lose(job.first, SUP);
	let_it_look();
	harness_expect(agent_ctl_words(&agent, 0, "flows", NULL),
		       "\n10.0.1.1-10.0.2.5  25.0%  SUP lost 1/2  inter:2 ");
	lose(job.second, SUP);
	let_it_look();
	harness_expect(agent_ctl_words(&agent, 0, "flows", NULL),
		       "\n10.0.1.1-10.0.2.5  25.0% now 0.0%  SUP lost  inter:2 ");
	harness_expect(agent_ctl_words(&agent, 0, "--count", "1", "top", NULL),
		       "\n10.0.1.1-10.0.2.5  25.0% now 0.0%  SUP lost ");
	harness_expect(agent_ctl_words(&agent, 0, "--json", "flows", NULL),
		       "\"rails\": \"SUP lost\", \"share_in_force\": 0, "
		       "\"rails_in_force\": \"sout\", \"rails_known\": 2, \"sout_up\": 2, "
		       "\"sup_up\": 0, \"sout_lost\": 0, \"sup_lost\": 2, \"sout_losses\": 0, "
		       "\"sup_losses\": 2, \"sout_returns\": 0, \"sup_returns\": 0, "
		       "\"sout_parts_again\": 0, \"sup_parts_again\": 8}");
	harness_expect(agent_ctl_words(&agent, 0, "explain", "10.0.1.1-10.0.2.5", NULL),
		       "share in table: 256\nshare in force: 0\n         rails: SUP lost\n");
	harness_expect(agent_ctl_words(&agent, 0, "--json", "status", NULL), "\"sup_lost\": 2, ");
	out = agent_ctl_words(&agent, 0, "metrics", NULL);
	assert_non_null(strstr(out, "\nmpib_rail_losses_total{rail=\"sup\"} 2\n"));
	assert_non_null(strstr(out, "\nmpib_rail_parts_again_total{rail=\"sup\"} 8\n"));
	assert_non_null(strstr(out, "\nmpib_rail_lost_connections{rail=\"sup\"} 2\n"));
	assert_non_null(strstr(out, "\nmpib_rail_lost_connections{rail=\"sout\"} 0\n"));
	harness_expect(out, "\nmpib_flow_rails_up{flow=\"10.0.1.1-10.0.2.5\",rail=\"sout\"} 1\n"
			    "mpib_flow_rails_up{flow=\"10.0.1.1-10.0.2.5\",rail=\"sup\"} 0\n");

	(void)setenv("COLUMNS", "80", 1);
	expect_narrow(agent_ctl_words(&agent, 0, "flows", NULL));
	expect_narrow(agent_ctl_words(&agent, 0, "--count", "1", "top", NULL));
	expect_narrow(agent_ctl_words(&agent, 0, "explain", "10.0.1.1-10.0.2.5", NULL));
	(void)unsetenv("COLUMNS");

	/* what ended counts on for the host, and is in no state */
	assert_int_equal(agent_deregister(job.socket, 77).status, MPIB_STATUS_OK);
	assert_int_equal(agent_deregister(job.socket, 78).status, MPIB_STATUS_OK);
	out = agent_ctl_words(&agent, 0, "metrics", NULL);
	assert_non_null(strstr(out, "\nmpib_rail_lost_connections{rail=\"sup\"} 0\n"));
	harness_expect(out, "\nmpib_rail_losses_total{rail=\"sup\"} 2\n");
	end_job();
}

static void watchers_see_it_happen(void **state)
{
	const char *args[] = { "--json", "--count", "2", "monitor", NULL };
	char *out = NULL;
	pid_t pid;

	(void)state;
	start_job(MPIB_COUNTERS_HAVE_FAILOVER);
	let_it_look();
	pid = harness_fork(lose_a_rail_when_watched, NULL);
	assert_int_equal(agent_ctl(&agent, geteuid(), args, &out), 0);
	assert_int_equal(harness_reap(pid), 0);
	harness_expect(out, "\"priority\": 4, \"event\": \"rail-lost\", \"flow\": "
			    "\"10.0.1.1-10.0.2.5\", \"text\": \"flow 10.0.1.1-10.0.2.5 lost SUP: ");
	end_job();
}

static void an_older_plugin_shows_nothing_new(void **state)
{
	(void)state;
	start_job(0);
	lose(job.first, SUP);
	job.second->rails_up = 99;
	let_it_look();
	assert_int_equal(agent_log_count(&agent, "SUP"), 0);
	assert_int_equal(agent_log_count(&agent, "what can't be"), 0);
	harness_expect(agent_ctl_words(&agent, 0, "flows", NULL),
		       "\n10.0.1.1-10.0.2.5  25.0%  -      inter:2 ");
	harness_expect(agent_ctl_words(&agent, 0, "metrics", NULL),
		       "\nmpib_rail_lost_connections{rail=\"sup\"} 0\n");
	end_job();
}

/* Whatever the counters say, the agent goes on, tells it once, and counts bytes as before. */
static void counters_that_lie_are_told_once_and_harm_nothing(void **state)
{
	uint64_t seed = 0x9E3779B97F4A7C15u;

	(void)state;
	start_job(MPIB_COUNTERS_HAVE_FAILOVER);
	for (uint64_t end = harness_now_ms() + 1500; harness_now_ms() < end;) {
		uint64_t *const counts[] = { job.first->losses,	     job.first->returns,
					     job.first->parts_again, job.second->losses,
					     job.second->returns,    job.second->parts_again };

		for (unsigned int n = 0; n < 6; n++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			counts[n][seed >> 63] = seed ^ seed >> 17;
		}
		job.first->rails_up = (uint32_t)seed;
		job.second->rails_up = (uint32_t)(seed >> 32);
	}
	agent_await_log(&agent, "say of connection 0x000000");
	let_it_look();
	assert_int_equal(agent_log_count(&agent, "say of connection 0x000000"), 1);
	assert_int_equal(agent_log_count(&agent, "not believed from now on"), 1);
	assert_int_equal(kill(agent.pid, 0), 0);
	end_job();
}

static int hand_over_and_end(void *arg)
{
	(void)arg;
	job.socket = agent_connect(&agent);
	open_connection(99, 5);
	return counters_hand_over(job.socket, job.fd, 1, MPIB_COUNTERS_SIZE);
}

/* The memory lives on in another process, and changes. */
static void counters_of_a_process_that_ended_tell_nothing(void **state)
{
	(void)state;
	start_job(MPIB_COUNTERS_HAVE_FAILOVER);
	assert_int_equal(harness_reap(harness_fork(hand_over_and_end, NULL)), MPIB_STATUS_OK);
	agent_await_log(&agent, "deregistered: connection 0x00000063");
	lose(counters_entry(job.header, 5), SUP);
	let_it_look();
	assert_int_equal(agent_log_count(&agent, "SUP"), 0);
	end_job();
}

/* What an earlier agent told isn't told again, but that a rail is lost now. */
static void after_a_restart_what_is_lost_is_told_again(void **state)
{
	(void)state;
	start_job(MPIB_COUNTERS_HAVE_FAILOVER);
	lose(job.first, SOUT);
	regain(job.first, SOUT);
	lose(job.second, SUP);
	agent_await_log(&agent, "lost SUP");
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	(void)close(job.socket);

	agent_start(&agent);
	job.socket = agent_connect(&agent);
	assert_int_equal(
		agent_register(job.socket, 77, test_ip("10.0.1.1"), test_ip("10.0.2.5")).status,
		MPIB_STATUS_OK);
	assert_int_equal(
		agent_register(job.socket, 78, test_ip("10.0.1.1"), test_ip("10.0.2.5")).status,
		MPIB_STATUS_OK);
	assert_int_equal(counters_hand_over(job.socket, job.fd, 1, MPIB_COUNTERS_SIZE),
			 MPIB_STATUS_OK);
	let_it_look();
	assert_int_equal(agent_log_count(&agent, "lost SUP: 1 time on 1 connection"), 2);
	assert_int_equal(agent_log_count(&agent, "lost SOUT"), 1);
	end_job();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(a_loss_and_a_return_are_told),
		AGENT_TEST(a_lost_rail_is_shown),
		AGENT_TEST(watchers_see_it_happen),
		AGENT_TEST(an_older_plugin_shows_nothing_new),
		AGENT_TEST(counters_that_lie_are_told_once_and_harm_nothing),
		AGENT_TEST(counters_of_a_process_that_ended_tell_nothing),
		AGENT_TEST(after_a_restart_what_is_lost_is_told_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
