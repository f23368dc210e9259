/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent: which rule gave a share, what the others would have given, what is in force. */
#include "tests/agent/harness/fresh.h"

#define SRC "10.0.1.1"
#define DST "10.0.2.5"

static char *explain(const char *json, const char *flow)
{
	return json ? agent_ctl_words(&agent, 0, "--json", "explain", flow, NULL)
		    : agent_ctl_words(&agent, 0, "explain", flow, NULL);
}

/* Each file removes the rule that was in force before: the next one takes its place. */
static void each_rule_in_turn_is_the_one_in_force(void **state)
{
	static const struct {
		const char *ini;
		const char *rule;
		unsigned int share;
		unsigned int line;
	} rows[] = {
		{ "[islands]\nA = 10.0.1.0/24\nB = 10.0.2.0/24\n[policy]\ninter = 3\n[pair A B]\n"
		  "share = 2\n[pair B A]\nshare = 4\n[flow " SRC " " DST "]\nshare = 1\n",
		  "flow", 1, 10 },
		{ "[islands]\nA = 10.0.1.0/24\nB = 10.0.2.0/24\n[policy]\ninter = 3\n[pair A B]\n"
		  "share = 2\n[pair B A]\nshare = 4\n",
		  "pair", 2, 6 },
		{ "[islands]\nA = 10.0.1.0/24\nB = 10.0.2.0/24\n[policy]\ninter = 3\n[pair B A]\n"
		  "share = 4\n",
		  "pair (reverse)", 4, 6 },
		{ "[policy]\ninter = 3\n", "inter", 3, 2 },
		{ "[islands]\nprefix_len = 16\n", "intra", 1024, 0 },
	};

	(void)state;
	agent_start(&agent);
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		char wanted[160];
		char *out;
		unsigned int in_force = 0;

		agent_write_ini(&agent, rows[n].ini);
		free(agent_ctl_words(&agent, 0, "reload", NULL));
		out = explain("json", SRC "-" DST);
		for (const char *p = out; (p = strstr(p, "\"in_force\": true")); p++)
			in_force++;
		assert_int_equal(in_force, 1);
		(void)snprintf(wanted, sizeof(wanted),
			       "{\"rule\": \"%s\", \"rule_line\": %u, \"has_share\": true, "
			       "\"share\": %u, \"applies\": true, \"in_force\": true",
			       rows[n].rule, rows[n].line, rows[n].share);
		harness_expect(out, wanted);
	}
}

static void people_read_what_the_others_would_have_given(void **state)
{
	(void)state;
	agent_write_ini(&agent, "[islands]\nA = 10.0.1.0/24\nB = 10.0.2.0/24\n[pair A B]\n"
				"share = 25%\n[flow " SRC " " DST "]\nshare = 1:3\n");
	agent_start(&agent);
	assert_int_equal(agent_register_once(&agent, 1, test_ip(SRC), test_ip(DST)).slot, 0);
	harness_expect(explain(NULL, SRC "-" DST), "share in table: 768\n");
	harness_expect(explain(NULL, SRC "-" DST),
		       "flow            6        768    75.0%   in force         [flow " SRC " " DST
		       "]\n");
	harness_expect(explain(NULL, SRC "-" DST),
		       "pair            4        256    25.0%   yes, but weaker  [pair A B]\n");
	harness_expect(explain(NULL, SRC "-" DST),
		       "intra           default  1024   100.0%  no               [policy] intra\n");
	/* the other direction, which nobody registered */
	harness_expect(explain(NULL, DST "-" SRC), "slot: none: no process has registered");
	harness_expect(explain("json", DST "-" SRC),
		       "{\"rule\": \"pair (reverse)\", \"rule_line\": 4, \"has_share\": true, "
		       "\"share\": 256, \"applies\": true, \"in_force\": true");
}

static void what_is_no_flow_is_bad_use(void **state)
{
	static const char *const bad[] = {
		"", "-", SRC, SRC "-", "x", SRC "-" DST "-1", "0.0.0.0-" DST, SRC "-10.0.2.256"
	};

	(void)state;
	agent_start(&agent);
	for (size_t n = 0; n < sizeof(bad) / sizeof(bad[0]); n++)
		free(agent_ctl_words(&agent, 2, "explain", bad[n], NULL));
	assert_int_equal(agent_log_count(&agent, "is no flow; write both SOUT addresses"),
			 sizeof(bad) / sizeof(bad[0]));
	free(agent_ctl_words(&agent, 2, "explain", NULL));
}

static void policy_is_what_is_in_force_not_what_the_file_says(void **state)
{
	char *policy;
	char *again;

	(void)state;
	agent_write_ini(&agent, "[policy]\ninter = 25%\n");
	agent_start(&agent);
	agent_write_ini(&agent, "[policy]\ninter = 75%\n");
	policy = agent_ctl_words(&agent, 0, "policy", NULL);
	assert_non_null(strstr(policy, "[agent]\nslots = 256\n"));
	assert_non_null(strstr(policy, "\nintra = 1024\ninter = 256\n"));

	/* the text is a policy file that says the same */
	agent_write_ini(&agent, policy);
	free(agent_ctl_words(&agent, 0, "reload", NULL));
	again = agent_ctl_words(&agent, 0, "policy", NULL);
	assert_string_equal(again, policy);
	free(again);
	free(policy);
	harness_expect(agent_ctl_words(&agent, 0, "--json", "policy", NULL),
		       "{\"effective\": \"[agent]\\u000aslots = 256");
}

static void a_long_policy_comes_whole(void **state)
{
	char path[TEMPDIR_MAX + 32];
	char *policy;
	size_t rules = 0;
	FILE *file;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s", agent.ini);
	file = fopen(path, "we");
	assert_non_null(file);
	for (unsigned int n = 0; n < 10000; n++)
		(void)fprintf(file, "[flow 10.1.%u.%u 10.2.0.1]\nshare = %u\n", n / 200,
			      n % 200 + 1, n % 1025);
	assert_int_equal(fclose(file), 0);
	agent_start(&agent);
	policy = agent_ctl_words(&agent, 0, "policy", NULL);
	for (const char *p = policy; (p = strstr(p, "[flow 10.1.")); p++)
		rules++;
	assert_int_equal(rules, 10000);
	harness_expect(policy, "[flow 10.1.49.200 10.2.0.1]\nshare = 774\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AGENT_TEST(each_rule_in_turn_is_the_one_in_force),
		AGENT_TEST(people_read_what_the_others_would_have_given),
		AGENT_TEST(what_is_no_flow_is_bad_use),
		AGENT_TEST(policy_is_what_is_in_force_not_what_the_file_says),
		AGENT_TEST(a_long_policy_comes_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
