/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl set FLOW SHARE [BOUNDS], unset FLOW: a share above the policy, for a while. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/ctl/ctl.h"
#include "agent/state/overrides.h"
#include "common/ipv4.h"
#include "common/macros.h"
#include "common/share.h"

/* "90", "90s", "10m", "2h", "7d": 1 s to MPIB_OVERRIDE_SECONDS_MAX. */
static int parse_time(const char *text, uint32_t *ret_seconds)
{
	static const struct {
		const char *unit;
		unsigned int seconds;
	} units[] = { { "", 1 }, { "s", 1 }, { "m", 60 }, { "h", 3600 }, { "d", 86400 } };
	unsigned long number;
	char *end;

	errno = 0;
	number = strtoul(text, &end, 10);
	if (!isdigit((unsigned char)*text) || errno)
		return -EINVAL;

	for (size_t n = 0; n < MPIB_ARRAY_SIZE(units); n++) {
		if (strcmp(end, units[n].unit) != 0)
			continue;
		if (number < 1 || number > MPIB_OVERRIDE_SECONDS_MAX / units[n].seconds)
			return -ERANGE;
		*ret_seconds = (uint32_t)number * units[n].seconds;
		return 0;
	}

	return -EINVAL;
}

static void on_change(struct mpib_ctl *ctl, const void *record)
{
	const struct mpib_admin_change *c = record;
	struct mpib_output *out = ctl->output;
	bool registered = c->slot != MPIB_ADMIN_NO_SLOT;
	char flow[MPIB_FLOW_TEXT_MAX];
	char percent[MPIB_SHARE_TEXT_MAX];
	char text[64];

	mpib_output_text(out, "flow", "flow", mpib_flow_format(c->src_be, c->dst_be, flow));
	mpib_output_bool(out, "registered", "registered", registered);
	mpib_output_number(out, "before", NULL, c->before);
	mpib_output_number(out, "after", NULL, c->after);
	(void)snprintf(text, sizeof(text), "%u (%s)", c->before,
		       mpib_share_format(c->before, percent));
	mpib_output_note(out, "before", text);
	(void)snprintf(text, sizeof(text), "%u (%s)", c->after,
		       mpib_share_format(c->after, percent));
	mpib_output_note(out, "after", text);
}

enum mpib_ctl_exit mpib_ctl_set(struct mpib_ctl *ctl)
{
	struct mpib_admin_flow_request about;
	struct mpib_admin_change record;
	enum mpib_ctl_exit code = mpib_ctl_flow_argument(ctl, &about);
	char share[100];

	if (code != MPIB_CTL_OK)
		return code;
	(void)snprintf(share, sizeof(share), "%s%s%s", ctl->arguments[1],
		       ctl->arguments[2] ? " " : "", ctl->arguments[2] ? ctl->arguments[2] : "");
	if (mpib_share_rule_parse(share, &about.share) < 0) {
		(void)mpib_cause_set(&ctl->cause, -EINVAL,
				     "\"%s\" is no share; write 0..1024, N%%, SOUT:SUP, auto, or "
				     "auto LEAST..MOST",
				     share);
		return MPIB_CTL_USAGE;
	}
	if (ctl->time && parse_time(ctl->time, &about.seconds) < 0) {
		(void)mpib_cause_set(&ctl->cause, -EINVAL,
				     "\"%s\" is no time; write a number and s, m, h or d, at most "
				     "366d",
				     ctl->time);
		return MPIB_CTL_USAGE;
	}

	return mpib_ctl_ask(ctl, MPIB_ADMIN_SET, &about, &record, sizeof(record), on_change,
			    MPIB_CTL_SECONDS);
}

enum mpib_ctl_exit mpib_ctl_unset(struct mpib_ctl *ctl)
{
	struct mpib_admin_flow_request about;
	struct mpib_admin_change record;
	enum mpib_ctl_exit code = mpib_ctl_flow_argument(ctl, &about);

	if (code != MPIB_CTL_OK)
		return code;
	return mpib_ctl_ask(ctl, MPIB_ADMIN_UNSET, &about, &record, sizeof(record), on_change,
			    MPIB_CTL_SECONDS);
}
