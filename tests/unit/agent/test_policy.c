/* SPDX-License-Identifier: Apache-2.0 */
/* Which rule a flow gets: most specific wins, longest match, both directions of a pair. */
#include <stdio.h>

#include "agent/policy/config.h"
#include "tests/unit/agent/test.h"

static struct mpib_policy *parse(const char *text)
{
	struct mpib_policy *policy = NULL;
	struct mpib_cause cause;

	if (mpib_config_parse("test", text, strlen(text), &policy, &cause) < 0)
		fail_msg("%s", cause.text);
	return policy;
}

struct claim {
	const char *src;
	const char *dst;
	uint32_t share;
	enum mpib_rule rule;
	unsigned int line;
	const char *src_island;
	const char *dst_island;
};

static void check(const char *text, const struct claim *claims, size_t n_claims)
{
	struct mpib_policy *policy = parse(text);

	for (size_t n = 0; n < n_claims; n++) {
		const struct claim *c = &claims[n];
		struct mpib_verdict v;

		mpib_policy_match(policy, test_ip(c->src), test_ip(c->dst), &v);
		if (v.share != c->share || v.rule != c->rule || v.line != c->line ||
		    strcmp(v.src_island, c->src_island) != 0 ||
		    strcmp(v.dst_island, c->dst_island) != 0)
			fail_msg("%s to %s: share %u by %s, line %u, %s to %s", c->src, c->dst,
				 v.share, mpib_rule_name(v.rule), v.line, v.src_island,
				 v.dst_island);
	}

	(void)mpib_policy_free(policy);
}

#define CHECK(text, claims) check(text, claims, sizeof(claims) / sizeof((claims)[0]))

static void defaults_follow_the_prefix(void **state)
{
	static const struct claim claims[] = {
		{ "10.0.1.1", "10.0.1.255", 1024, MPIB_RULE_INTRA, 0, "10.0.1.0/24",
		  "10.0.1.0/24" },
		{ "10.0.1.1", "10.0.2.1", 0, MPIB_RULE_INTER, 0, "10.0.1.0/24", "10.0.2.0/24" },
	};

	(void)state;
	CHECK("", claims);
}

static void prefix_lengths_0_and_32_are_all_and_one(void **state)
{
	static const struct claim all[] = {
		{ "10.0.1.1", "192.168.0.1", 1024, MPIB_RULE_INTRA, 0, "0.0.0.0/0", "0.0.0.0/0" },
	};
	static const struct claim one[] = {
		{ "10.0.1.1", "10.0.1.2", 0, MPIB_RULE_INTER, 0, "10.0.1.1/32", "10.0.1.2/32" },
		{ "10.0.1.1", "10.0.1.1", 1024, MPIB_RULE_INTRA, 0, "10.0.1.1/32", "10.0.1.1/32" },
	};

	(void)state;
	CHECK("[islands]\nprefix_len = 0\n", all);
	CHECK("[islands]\nprefix_len = 32\n", one);
}

static void the_longest_subnet_names_the_island(void **state)
{
	static const struct claim claims[] = {
		{ "10.1.1.1", "10.2.2.2", 7, MPIB_RULE_INTRA, 7, "wide", "wide" },
		{ "10.1.1.1", "10.0.1.1", 9, MPIB_RULE_INTER, 8, "wide", "rack" },
		{ "10.0.1.9", "10.0.1.1", 9, MPIB_RULE_INTER, 8, "host", "rack" },
		{ "10.0.1.1", "10.0.1.200", 7, MPIB_RULE_INTRA, 7, "rack", "rack" },
		/* an address that no subnet names is in no named island, whatever its prefix */
		{ "11.0.0.1", "10.0.0.1", 9, MPIB_RULE_INTER, 8, "11.0.0.0/24", "wide" },
	};

	(void)state;
	CHECK("[islands]\nwide = 10.0.0.0/8\nrack = 10.0.1.0/24\nhost = 10.0.1.9/32\n\n"
	      "[policy]\nintra = 7\ninter = 9\n",
	      claims);
}

static void a_default_route_subnet_takes_the_rest(void **state)
{
	static const struct claim claims[] = {
		{ "1.2.3.4", "250.0.0.1", 1024, MPIB_RULE_INTRA, 0, "rest", "rest" },
		{ "1.2.3.4", "10.0.1.1", 0, MPIB_RULE_INTER, 0, "rest", "A" },
	};

	(void)state;
	CHECK("[islands]\nrest = 0.0.0.0/0\nA = 10.0.1.0/24\n", claims);
}

static void the_most_specific_rule_wins(void **state)
{
	static const struct claim claims[] = {
		{ "10.0.1.1", "10.0.2.5", 768, MPIB_RULE_FLOW, 11, "A", "B" },
		{ "10.0.2.5", "10.0.1.1", 256, MPIB_RULE_PAIR_REVERSE, 9, "B", "A" },
		{ "10.0.1.1", "10.0.2.6", 256, MPIB_RULE_PAIR, 9, "A", "B" },
		{ "10.0.1.1", "10.0.1.2", 900, MPIB_RULE_INTRA, 7, "A", "A" },
		{ "10.0.1.1", "10.0.3.1", 100, MPIB_RULE_INTER, 8, "A", "C" },
		{ "10.0.1.1", "10.0.9.1", 100, MPIB_RULE_INTER, 8, "A", "10.0.9.0/24" },
		{ "10.0.1.3", "10.0.1.4", 3, MPIB_RULE_FLOW, 13, "A", "A" },
	};

	(void)state;
	CHECK("[islands]\nA = 10.0.1.0/24\nB = 10.0.2.0/24\nC = 10.0.3.0/24\n\n"
	      "[policy]\nintra = 900\ninter = 100\n"
	      "[pair A B]\nshare = 25%\n"
	      "[flow 10.0.1.1 10.0.2.5]\nshare = 1:3\n"
	      "[flow 10.0.1.3 10.0.1.4]\nshare = 3\n",
	      claims);
}

static void a_pair_holds_both_ways_unless_the_other_way_is_given(void **state)
{
	static const struct claim claims[] = {
		{ "10.0.1.1", "10.0.2.1", 1, MPIB_RULE_PAIR, 4, "A", "B" },
		{ "10.0.2.1", "10.0.1.1", 2, MPIB_RULE_PAIR, 6, "B", "A" },
	};

	(void)state;
	CHECK("[islands]\nA = 10.0.1.0/24\nB = 10.0.2.0/24\n[pair A B]\nshare = 1\n"
	      "[pair B A]\nshare = 2\n",
	      claims);
}

/* Against a plain search over the same rules. */
static void many_rules_match_as_a_linear_search_would(void **state)
{
	struct mpib_policy *policy = NULL;
	struct mpib_policy_conflict conflict;
	unsigned int seed = 7;
	struct mpib_flow_rule rules[500];

	(void)state;
	assert_int_equal(mpib_policy_new(&policy), 0);
	for (uint32_t n = 0; n < 500; n++) {
		rules[n] = (struct mpib_flow_rule){
			.src_be = (uint32_t)rand_r(&seed) % 64 + 1,
			.dst_be = n + 1,
			.share = n,
			.line = n + 1,
		};
		assert_int_equal(mpib_policy_add_flow(policy, &rules[n]), 0);
	}
	assert_int_equal(mpib_policy_seal(policy, &conflict), 0);

	for (uint32_t src = 1; src <= 64; src++) {
		for (uint32_t n = 0; n < 500; n++) {
			struct mpib_verdict v;

			mpib_policy_match(policy, src, n + 1, &v);
			if (rules[n].src_be == src) {
				assert_int_equal(v.rule, MPIB_RULE_FLOW);
				assert_int_equal(v.share, n);
			} else {
				assert_int_not_equal(v.rule, MPIB_RULE_FLOW);
			}
		}
	}
	(void)mpib_policy_free(policy);
}

static void auto_shares_start_with_equal_parts_within_their_bounds(void **state)
{
	static const struct {
		const char *value;
		const char *floor;
		uint32_t least, most, start;
	} cases[] = {
		{ "auto", "3%", 31, 993, 512 },
		{ "auto", "0", 0, 1024, 512 },
		{ "auto", "512", 512, 512, 512 },
		{ "auto 10%..90%", "3%", 102, 922, 512 },
		{ "auto 0..100", "3%", 31, 100, 100 },
		{ "auto 600..700", "3%", 600, 700, 600 },
		{ "auto 0..10", "3%", 10, 10, 10 }, /* bounds are stronger than the floor */
		{ "auto 1020..1024", "3%", 1020, 1020, 1020 },
	};

	(void)state;
	for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
		struct mpib_balance_limits limits;
		struct mpib_policy *policy;
		struct mpib_verdict v;
		char text[128];

		(void)snprintf(text, sizeof(text),
			       "[policy]\nintra = %s\nauto_floor = %s\nauto_settle_ms = 40\n",
			       cases[n].value, cases[n].floor);
		policy = parse(text);
		mpib_policy_match(policy, test_ip("10.0.1.1"), test_ip("10.0.1.2"), &v);
		limits = mpib_policy_limits(policy, v.given);
		if (!mpib_share_is_auto(v.given) || v.share != cases[n].start ||
		    limits.least != cases[n].least || limits.most != cases[n].most ||
		    limits.settle_usec != 40000)
			fail_msg("%s: share %u, %u to %u in %u us", text, v.share, limits.least,
				 limits.most, limits.settle_usec);
		mpib_policy_match(policy, test_ip("10.0.1.1"), test_ip("10.0.2.2"), &v);
		assert_int_equal(v.given, v.share);
		(void)mpib_policy_free(policy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_follow_the_prefix),
		cmocka_unit_test(auto_shares_start_with_equal_parts_within_their_bounds),
		cmocka_unit_test(prefix_lengths_0_and_32_are_all_and_one),
		cmocka_unit_test(the_longest_subnet_names_the_island),
		cmocka_unit_test(a_default_route_subnet_takes_the_rest),
		cmocka_unit_test(the_most_specific_rule_wins),
		cmocka_unit_test(a_pair_holds_both_ways_unless_the_other_way_is_given),
		cmocka_unit_test(many_rules_match_as_a_linear_search_would),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
