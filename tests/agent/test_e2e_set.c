/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent: shares set by a person for a while. */
#include <signal.h>
#include <time.h>

#include "common/hint.h"
#include "tests/agent/harness/fresh.h"

#define FLOW "10.0.1.1-10.0.2.5"

static int set_up(void **state)
{
	(void)agent_set_up(state);
	agent_write_ini(&agent, "[policy]\ninter = 100\n");
	return 0;
}

static uint32_t share_of(const struct mpib_hint_header *header, uint32_t slot)
{
	uint32_t share = UINT32_MAX;

	assert_true(mpib_hint_read(agent_entry(header, slot), &share));
	return share;
}

static void register_flow(void)
{
	assert_int_equal(
		agent_register_once(&agent, 1, test_ip("10.0.1.1"), test_ip("10.0.2.5")).slot, 0);
}

static void it_holds_above_the_policy_until_unset(void **state)
{
	const struct mpib_hint_header *header;

	(void)state;
	agent_start(&agent);
	header = agent_map_hints(&agent);
	register_flow();
	assert_int_equal(share_of(header, 0), 100);
	harness_expect(agent_ctl_words(&agent, 0, "set", FLOW, "1:3", NULL), "after: 768 (75.0%)");
	assert_int_equal(share_of(header, 0), 768);
	harness_expect(agent_ctl_words(&agent, 0, "flows", NULL), "75.0%  -      override ");
	harness_expect(agent_ctl_words(&agent, 0, "explain", FLOW, NULL),
		       "  768    75.0%   in force ");
	harness_expect(agent_ctl_words(&agent, 0, "policy", NULL),
		       "\n; set by uid 0: " FLOW " share = 768\n");
	assert_int_equal(agent_log_count(&agent, "flow " FLOW " override 768 (75.0%) set by uid 0"),
			 1);
	assert_int_equal(agent_log_count(&agent, "share 100 (9.8%) -> 768 (75.0%): slot 0, rule "
						 "override"),
			 1);

	/* a reload changes the policy below it */
	agent_write_ini(&agent, "[policy]\ninter = 200\n");
	harness_expect(agent_ctl_words(&agent, 0, "reload", NULL), "no flow got another share");
	assert_int_equal(share_of(header, 0), 768);
	harness_expect(agent_ctl_words(&agent, 0, "--json", "unset", FLOW, NULL),
		       "\"before\": 768, \"after\": 200");
	assert_int_equal(share_of(header, 0), 200);
	free(agent_ctl_words(&agent, 1, "unset", FLOW, NULL));
	assert_int_equal(agent_log_count(&agent, "mpibctl: no share is set for this flow"), 1);
}

/* A person finds in the journal what was asked, not a second less. */
static void the_journal_names_the_time_that_was_asked(void **state)
{
	static const struct {
		const char *asked;
		const char *said;
	} times[] = {
		{ "1h", " set for 3600 s by" },
		{ "10m", " set for 600 s by" },
		{ "7s", " set for 7 s by" },
		{ "30d", " set for 2592000 s by" },
	};

	(void)state;
	agent_start(&agent);
	for (unsigned int n = 0; n < sizeof(times) / sizeof(times[0]); n++) {
		free(agent_ctl_words(&agent, 0, "set", FLOW, "5", "--for", times[n].asked, NULL));
		assert_int_equal(agent_log_count(&agent, times[n].said), 1);
	}
}

static void it_waits_for_a_flow_that_comes_later(void **state)
{
	const struct mpib_hint_header *header;

	(void)state;
	agent_start(&agent);
	header = agent_map_hints(&agent);
	harness_expect(agent_ctl_words(&agent, 0, "--json", "set", FLOW, "50%", NULL),
		       "\"registered\": false, \"before\": 100, \"after\": 512");
	register_flow();
	assert_int_equal(share_of(header, 0), 512);
}

static void it_outlives_a_kill_and_ends_in_time(void **state)
{
	const struct mpib_hint_header *header;
	const struct timespec pause = { .tv_nsec = 10000000 };
	uint64_t start = harness_now_ms();

	(void)state;
	agent_start(&agent);
	header = agent_map_hints(&agent);
	register_flow();
	free(agent_ctl_words(&agent, 0, "set", FLOW, "7", "--for", "3s", NULL));
	free(agent_ctl_words(&agent, 0, "set", "10.0.1.1-10.0.2.6", "8", "--for", "1d", NULL));
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	agent_write_ini(&agent, "[policy]\ninter = 300\n");
	agent_start(&agent);
	assert_int_equal(share_of(header, 0), 7);
	harness_expect(agent_ctl_words(&agent, 0, "--json", "flows", NULL), "\"seconds_left\": ");

	while (share_of(header, 0) == 7) {
		assert_true(harness_now_ms() - start < 10000);
		(void)nanosleep(&pause, NULL); /* shared memory has no event */
	}
	assert_int_equal(share_of(header, 0), 300);
	assert_true(harness_now_ms() - start >= 2900);
	assert_int_equal(agent_log_count(&agent, "override 7 (0.7%) expired"), 1);
	harness_expect(agent_ctl_words(&agent, 0, "policy", NULL),
		       "10.0.2.6 share = 8, for another "
		       "8639");

	/* one that is over while no agent runs is over with the next one */
	free(agent_ctl_words(&agent, 0, "set", FLOW, "9", "--for", "1", NULL));
	assert_int_equal(agent_stop(&agent, SIGKILL), -SIGKILL);
	(void)nanosleep(&(struct timespec){ .tv_sec = 1, .tv_nsec = 100000000 }, NULL);
	agent_start(&agent);
	assert_int_equal(share_of(header, 0), 300);
}

static void a_damaged_file_is_told_and_the_policy_holds(void **state)
{
	const struct mpib_hint_header *header;

	(void)state;
	agent_start(&agent);
	header = agent_map_hints(&agent);
	register_flow();
	free(agent_ctl_words(&agent, 0, "set", FLOW, "7", NULL));
	assert_int_equal(agent_stop(&agent, SIGTERM), 0);
	agent_write_file(&agent, "mpib/overrides", "nothing that an agent wrote");
	agent_start(&agent);
	assert_int_equal(agent_log_count(&agent, "/overrides is damaged: shares that were set"), 1);
	assert_int_equal(share_of(header, 0), 100);
	free(agent_ctl_words(&agent, 0, "set", FLOW, "7", NULL));
	assert_int_equal(share_of(header, 0), 7);
}

static void it_is_for_root_and_the_agents_user(void **state)
{
	static const char *const words[] = { "set", FLOW, "7", NULL };
	static const char *const unset[] = { "unset", FLOW, NULL };
	const struct mpib_hint_header *header;

	(void)state;
	if (geteuid() != 0) {
		print_message("needs root to become another user\n");
		skip();
	}
	agent_start(&agent);
	header = agent_map_hints(&agent);
	register_flow();
	assert_int_equal(agent_ctl(&agent, HARNESS_NOBODY, words, NULL), 4);
	assert_int_equal(share_of(header, 0), 100);
	free(agent_ctl_words(&agent, 0, "set", FLOW, "7", NULL));
	assert_int_equal(agent_ctl(&agent, HARNESS_NOBODY, unset, NULL), 4);
	assert_int_equal(share_of(header, 0), 7);
}

static void bad_words_are_bad_use(void **state)
{
	static const char *const times[] = { "",   "0",	  "0s",	  "-1",	 "x",
					     "1w", "1 m", "367d", "1mm", "99999999999999999999",
					     "m" };
	static const char *const shares[] = { "", "1025", "-1", "101%", "0:0", "x" };

	(void)state;
	agent_start(&agent);
	for (size_t n = 0; n < sizeof(times) / sizeof(times[0]); n++)
		free(agent_ctl_words(&agent, 2, "set", FLOW, "1", "--for", times[n], NULL));
	for (size_t n = 0; n < sizeof(shares) / sizeof(shares[0]); n++)
		free(agent_ctl_words(&agent, 2, "set", "--", FLOW, shares[n], NULL));
	free(agent_ctl_words(&agent, 2, "set", FLOW, NULL));
	free(agent_ctl_words(&agent, 0, "set", FLOW, "1", "--for", "366d", NULL));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, agent_tear_down)
	const struct CMUnitTest tests[] = {
		T(it_holds_above_the_policy_until_unset),
		T(the_journal_names_the_time_that_was_asked),
		T(it_waits_for_a_flow_that_comes_later),
		T(it_outlives_a_kill_and_ends_in_time),
		T(a_damaged_file_is_told_and_the_policy_holds),
		T(it_is_for_root_and_the_agents_user),
		T(bad_words_are_bad_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
