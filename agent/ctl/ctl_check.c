/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl check FILE: the verdict that a start or a reload would give, without an agent. */
#include <errno.h>
#include <stdlib.h>

#include "agent/policy/config.h"
#include "agent/ctl/ctl.h"
#include "common/cleanup.h"
#include "common/share.h"

MPIB_DEFINE_CLEANUP(struct mpib_policy *, mpib_policy_free);

static void add_share(struct mpib_output *out, const char *key, uint32_t rule)
{
	char text[MPIB_SHARE_RULE_TEXT_MAX];

	if (mpib_share_is_auto(rule))
		mpib_output_text(out, key, key, mpib_share_rule_format(rule, text));
	else
		mpib_output_number(out, key, key, rule);
}

enum mpib_ctl_exit mpib_ctl_check(struct mpib_ctl *ctl)
{
	mpib_cleanup(mpib_policy_freep) struct mpib_policy *policy = NULL;
	mpib_cleanup(mpib_freep) char *text = NULL;
	size_t len = 0;
	FILE *memory;

	if (mpib_config_load(ctl->arguments[0], &policy, &ctl->cause) < 0)
		return MPIB_CTL_FAILURE;

	memory = open_memstream(&text, &len);
	if (!memory)
		return mpib_ctl_fail(ctl, -ENOMEM, "memory");
	mpib_config_print(policy, memory);
	if (fclose(memory))
		return mpib_ctl_fail(ctl, -ENOMEM, "memory");

	mpib_output_text(ctl->output, "file", "good", ctl->arguments[0]);
	mpib_output_number(ctl->output, "slots", "slots", policy->slots);
	mpib_output_number(ctl->output, "prefix_len", "prefix_len", policy->prefix_len);
	mpib_output_number(ctl->output, "islands", "islands", policy->n_islands);
	mpib_output_number(ctl->output, "pairs", "pairs", policy->n_pairs);
	mpib_output_number(ctl->output, "flows", "flows", policy->n_flows);
	add_share(ctl->output, "intra", policy->intra);
	add_share(ctl->output, "inter", policy->inter);
	mpib_output_text(ctl->output, "effective", NULL, text);
	return MPIB_CTL_OK;
}
