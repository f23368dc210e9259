/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's policy file: a whole policy that prints and matches as it should, or a reason with a
 * line; never half. */
#include <errno.h>
#include <string.h>

#include "agent/policy/config_impl.h"
#include "tests/fuzz/fuzz.h"

#define NAME "fuzz.ini"

static char *printed(const struct mpib_policy *policy, size_t *ret_len)
{
	char *text = NULL;
	FILE *memory = open_memstream(&text, ret_len);

	FUZZ_CHECK(memory);
	mpib_config_print(policy, memory);
	FUZZ_CHECK(fclose(memory) == 0);
	return text;
}

static void check_flow(const struct mpib_policy *policy, uint32_t src_be, uint32_t dst_be)
{
	struct mpib_candidate candidates[MPIB_RULE_MAX];
	struct mpib_verdict verdict;
	unsigned int first = 0;

	mpib_policy_match(policy, src_be, dst_be, &verdict);
	mpib_policy_candidates(policy, src_be, dst_be, candidates);
	while (first < MPIB_RULE_MAX && !candidates[first].applies)
		first++;
	FUZZ_CHECK(verdict.rule == first && verdict.share <= 1024);
	FUZZ_CHECK(verdict.given == candidates[first].share);
	FUZZ_CHECK(mpib_share_is_auto(verdict.given) || verdict.share == verdict.given);
	FUZZ_CHECK(verdict.line == candidates[first].line);
	FUZZ_CHECK(memchr(verdict.src_island, '\0', sizeof(verdict.src_island)));
	FUZZ_CHECK(memchr(verdict.dst_island, '\0', sizeof(verdict.dst_island)));
}

static void check_policy(struct mpib_policy *policy)
{
	struct mpib_policy *again = NULL;
	struct mpib_cause cause = { "" };
	size_t len = 0, more = 0;
	char *text = printed(policy, &len), *second;
	uint32_t addr = 0x0100000a;

	FUZZ_CHECK(policy->slots >= 1 && policy->slots <= 65536 && policy->prefix_len <= 32);
	FUZZ_CHECK(mpib_share_rule_is_valid(policy->intra));
	FUZZ_CHECK(mpib_share_rule_is_valid(policy->inter));
	FUZZ_CHECK(policy->auto_floor <= 512 && policy->auto_settle_ms >= 10);

	/* What is printed means the same. */
	FUZZ_CHECK(mpib_config_parse("printed", text, len, &again, &cause) == 0);
	second = printed(again, &more);
	FUZZ_CHECK(len == more && memcmp(text, second, len) == 0);

	check_flow(policy, addr, addr);
	for (size_t n = 0; n < policy->n_flows && n < 16; n++)
		check_flow(policy, policy->flows[n].src_be, policy->flows[n].dst_be);
	for (size_t n = 0; n < policy->n_subnets && n < 16; n++) {
		check_flow(policy, policy->subnets[n].addr_be, addr);
		check_flow(policy, addr, policy->subnets[n].addr_be);
		addr = policy->subnets[n].addr_be;
	}

	mpib_policy_free(again);
	free(second);
	free(text);
}

/* A line a slice says the same as all at once: @r and @cause, or the text of @policy. */
static void check_slices(const char *data, size_t size, int r, const struct mpib_cause *cause,
			 const struct mpib_policy *policy)
{
	static struct mpib_config_parse parse;
	struct mpib_policy *sliced = NULL;
	struct mpib_cause again = { "" };
	size_t len = 0, more = 0;
	char *text, *second;
	int s;

	FUZZ_CHECK(mpib_config_parse_begin(&parse, NAME, data, size, &again) == 0);
	do
		s = mpib_config_parse_step(&parse, 1, &sliced, &again);
	while (s > 0);
	mpib_config_parse_end(&parse);
	FUZZ_CHECK(s == r && strcmp(again.text, cause->text) == 0);
	if (r < 0)
		return;

	text = printed(policy, &len);
	second = printed(sliced, &more);
	FUZZ_CHECK(len == more && memcmp(text, second, len) == 0);
	free(second);
	free(text);
	mpib_policy_free(sliced);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mpib_policy *policy = NULL;
	struct mpib_cause cause = { "" };
	unsigned int line = 0;
	int at = 0, r;

	r = mpib_config_parse(NAME, (const char *)data, size, &policy, &cause);
	check_slices((const char *)data, size, r, &cause, policy);
	FUZZ_CHECK(r == 0 || r == -EBADMSG);
	if (r < 0) {
		FUZZ_CHECK(!policy && memchr(cause.text, '\0', sizeof(cause.text)));
		FUZZ_CHECK(sscanf(cause.text, NAME ":%u: %n", &line, &at) == 1 && at);
		FUZZ_CHECK(line >= 1 && line <= size + 1 && cause.text[at]);
		return 0;
	}
	check_policy(policy);
	mpib_policy_free(policy);
	return 0;
}
