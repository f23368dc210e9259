/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/ctl/flow_rails.h"

#include <stdio.h>

static const char *const names[2] = { "SOUT", "SUP" };

enum mpib_in_force mpib_rails_in_force(const struct mpib_admin_rails *rails)
{
	if (!rails->known)
		return MPIB_IN_FORCE_UNKNOWN;
	return (rails->up[0] ? MPIB_IN_FORCE_SOUT : 0) | (rails->up[1] ? MPIB_IN_FORCE_SUP : 0);
}

uint32_t mpib_rails_share(const struct mpib_admin_rails *rails, uint32_t share)
{
	switch (mpib_rails_in_force(rails)) {
	case MPIB_IN_FORCE_NONE:
	case MPIB_IN_FORCE_SOUT:
		return 0;
	case MPIB_IN_FORCE_SUP:
		return MPIB_SHARE_MAX;
	default:
		return share;
	}
}

const char *mpib_rails_format(const struct mpib_admin_rails *rails, char buf[MPIB_RAILS_TEXT_MAX])
{
	static const char *const in_force[] = { "none", "SOUT", "SUP", "both", "-" };
	const uint32_t *lost = rails->lost;

	if (!lost[0] && !lost[1])
		(void)snprintf(buf, MPIB_RAILS_TEXT_MAX, "%s",
			       in_force[mpib_rails_in_force(rails)]);
	else if (lost[0] == rails->known && lost[1] == rails->known)
		(void)snprintf(buf, MPIB_RAILS_TEXT_MAX, "both lost");
	else if (lost[0] && lost[1])
		(void)snprintf(buf, MPIB_RAILS_TEXT_MAX, "SOUT lost %u/%u, SUP %u/%u", lost[0],
			       rails->known, lost[1], rails->known);
	else if (lost[0] + lost[1] == rails->known)
		(void)snprintf(buf, MPIB_RAILS_TEXT_MAX, "%s lost", names[lost[1] != 0]);
	else
		(void)snprintf(buf, MPIB_RAILS_TEXT_MAX, "%s lost %u/%u", names[lost[1] != 0],
			       lost[0] + lost[1], rails->known);
	return buf;
}

const char *mpib_rails_format_share(const struct mpib_admin_rails *rails, uint32_t share,
				    char buf[MPIB_RAILS_TEXT_MAX])
{
	uint32_t now = mpib_rails_share(rails, share);
	bool none = mpib_rails_in_force(rails) == MPIB_IN_FORCE_NONE;
	char table[MPIB_SHARE_TEXT_MAX];
	char text[MPIB_SHARE_TEXT_MAX];

	(void)mpib_share_format(share, table);
	(void)mpib_share_format(now, text);
	if (none || now != share)
		(void)snprintf(buf, MPIB_RAILS_TEXT_MAX, "%s now %s", table, none ? "none" : text);
	else
		(void)snprintf(buf, MPIB_RAILS_TEXT_MAX, "%s", table);
	return buf;
}

void mpib_rails_output(struct mpib_output *output, const struct mpib_admin_rails *rails)
{
	static const char *const in_force[] = { "none", "sout", "sup", "both", "unknown" };

	mpib_output_text(output, "rails_in_force", NULL, in_force[mpib_rails_in_force(rails)]);
	mpib_output_number(output, "rails_known", NULL, rails->known);
	mpib_output_number(output, "sout_up", NULL, rails->up[0]);
	mpib_output_number(output, "sup_up", NULL, rails->up[1]);
	mpib_output_number(output, "sout_lost", NULL, rails->lost[0]);
	mpib_output_number(output, "sup_lost", NULL, rails->lost[1]);
	mpib_output_number(output, "sout_losses", NULL, rails->losses[0]);
	mpib_output_number(output, "sup_losses", NULL, rails->losses[1]);
	mpib_output_number(output, "sout_returns", NULL, rails->returns[0]);
	mpib_output_number(output, "sup_returns", NULL, rails->returns[1]);
	mpib_output_number(output, "sout_parts_again", NULL, rails->parts_again[0]);
	mpib_output_number(output, "sup_parts_again", NULL, rails->parts_again[1]);
}

void mpib_rails_sum(struct mpib_admin_rails *sum, const struct mpib_admin_rails *from)
{
	sum->known += from->known;
	for (unsigned int rail = 0; rail < 2; rail++) {
		sum->up[rail] += from->up[rail];
		sum->lost[rail] += from->lost[rail];
		sum->losses[rail] += from->losses[rail];
		sum->returns[rail] += from->returns[rail];
		sum->parts_again[rail] += from->parts_again[rail];
	}
}

/* ---- device-initiated communication ---------------------------------------------------------- */

const char *mpib_gin_kind(const struct mpib_admin_gin *gin, uint32_t connections)
{
	if (!connections)
		return "-";
	if (!gin->connections)
		return "net";
	return gin->connections < connections ? "net+gin" : "gin";
}

void mpib_gin_output(struct mpib_output *output, const struct mpib_admin_gin *gin)
{
	mpib_output_number(output, "gin_connections", NULL, gin->connections);
	mpib_output_number(output, "sout_puts", NULL, gin->puts[0]);
	mpib_output_number(output, "sup_puts", NULL, gin->puts[1]);
	mpib_output_number(output, "sout_put_bytes", NULL, gin->bytes[0]);
	mpib_output_number(output, "sup_put_bytes", NULL, gin->bytes[1]);
}

void mpib_gin_sum(struct mpib_admin_gin *sum, const struct mpib_admin_gin *from)
{
	sum->connections += from->connections;
	for (unsigned int rail = 0; rail < 2; rail++) {
		sum->puts[rail] += from->puts[rail];
		sum->bytes[rail] += from->bytes[rail];
	}
}
