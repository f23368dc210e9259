/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl reload: asks, waits, and passes the verdict on, with what changed. When it returns 0 the
 * new shares are in the hint table. */
#include "agent/ctl/ctl.h"
#include "common/ipv4.h"
#include "common/share.h"

static void on_change(struct mpib_ctl *ctl, const void *record)
{
	const struct mpib_admin_change *c = record;
	struct mpib_output *out = ctl->output;
	char flow[MPIB_FLOW_TEXT_MAX];
	char percent[MPIB_SHARE_TEXT_MAX];

	mpib_output_row(out);
	mpib_output_number(out, "slot", "SLOT", c->slot);
	mpib_output_text(out, "flow", "FLOW", mpib_flow_format(c->src_be, c->dst_be, flow));
	mpib_output_number(out, "before", "BEFORE", c->before);
	mpib_output_number(out, "after", "AFTER", c->after);
	mpib_output_note(out, "SUP", mpib_share_format(c->after, percent));
}

enum mpib_ctl_exit mpib_ctl_reload(struct mpib_ctl *ctl)
{
	struct mpib_admin_change record;

	mpib_output_list(ctl->output, "changed", "reloaded; no flow got another share");
	return mpib_ctl_ask(ctl, MPIB_ADMIN_RELOAD, NULL, &record, sizeof(record), on_change,
			    MPIB_CTL_RELOAD_SECONDS);
}
