/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl policy: what is in force in the agent, which may differ from what the file says by now;
 * --freeze: what shares found themselves, as the file would have it. */
#include <errno.h>
#include <stdlib.h>

#include "agent/ctl/ctl.h"
#include "agent/policy/balance.h"
#include "common/cleanup.h"
#include "common/ipv4.h"
#include "common/share.h"

static void on_text(struct mpib_ctl *ctl, const void *record)
{
	const struct mpib_admin_text *piece = record;

	if (piece->len <= sizeof(piece->text))
		(void)fwrite(piece->text, 1, piece->len, ctl->memory);
}

/* ---- what shares found themselves ----------------------------------------------------------- */

static void freeze_flow(struct mpib_ctl *ctl, const void *record)
{
	const struct mpib_admin_flow *f = record;
	const struct mpib_admin_tuning *tuning = &f->tuning;
	char src[MPIB_IPV4_TEXT_MAX];
	char dst[MPIB_IPV4_TEXT_MAX];
	char given[MPIB_SHARE_RULE_TEXT_MAX];

	if (!mpib_share_is_auto(tuning->given))
		return;
	(void)mpib_ipv4_format(f->src_be, src);
	(void)mpib_ipv4_format(f->dst_be, dst);
	(void)mpib_share_rule_format(tuning->given, given);
	if (tuning->state == MPIB_BALANCE_MEASURED)
		(void)fprintf(
			ctl->memory,
			"\n[flow %s %s]\nshare = %u ; was %s: SOUT gives %.1f MB/s, SUP %.1f\n",
			src, dst, f->share, given, (double)tuning->rate[0] / 1e6,
			(double)tuning->rate[1] / 1e6);
	else
		(void)fprintf(ctl->memory, "\n; %s to %s is %s and not measured: %s\n", src, dst,
			      given,
			      mpib_balance_state_text((enum mpib_balance_state)tuning->state));
}

static enum mpib_ctl_exit freeze(struct mpib_ctl *ctl)
{
	static const char head[] = "; What the flows of this host found, for the policy file in "
				   "place of their auto; a [flow]\n"
				   "; that is there already has to give way.\n";
	struct mpib_admin_flow record;

	(void)fputs(head, ctl->memory);
	return mpib_ctl_ask(ctl, MPIB_ADMIN_FLOWS, NULL, &record, sizeof(record), freeze_flow,
			    MPIB_CTL_SECONDS);
}

enum mpib_ctl_exit mpib_ctl_policy(struct mpib_ctl *ctl)
{
	mpib_cleanup(mpib_freep) char *text = NULL;
	struct mpib_admin_text record;
	enum mpib_ctl_exit code;
	size_t len = 0;

	ctl->memory = open_memstream(&text, &len);
	if (!ctl->memory)
		return mpib_ctl_fail(ctl, -ENOMEM, "memory");
	code = ctl->freeze ? freeze(ctl)
			   : mpib_ctl_ask(ctl, MPIB_ADMIN_POLICY, NULL, &record, sizeof(record),
					  on_text, MPIB_CTL_SECONDS);
	if (fclose(ctl->memory) && code == MPIB_CTL_OK)
		code = mpib_ctl_fail(ctl, -ENOMEM, "memory");
	if (code != MPIB_CTL_OK)
		return code;

	mpib_output_whole(ctl->output, ctl->freeze ? "frozen" : "effective", text);
	return MPIB_CTL_OK;
}
