/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor: flows that run without a rail that they had. */
#include "agent/ctl/flow_rails.h"
#include "agent/doctor/doctor.h"
#include "common/ipv4.h"

struct seen {
	struct mpib_admin_rails sum;
	uint32_t flows[2];		 /* that lack the rail */
	struct mpib_admin_flow first[2]; /* of these */
};

static void on_flow(struct mpib_ctl *ctl, const void *record)
{
	const struct mpib_admin_flow *f = record;
	struct seen *seen = ctl->collected;

	mpib_rails_sum(&seen->sum, &f->rails);
	for (unsigned int rail = 0; rail < 2; rail++) {
		if (f->rails.lost[rail] && seen->flows[rail]++ == 0)
			seen->first[rail] = *f;
	}
}

static void say_lost(struct mpib_doctor *doctor, const struct seen *seen, unsigned int rail)
{
	const struct mpib_admin_flow *first = &seen->first[rail];
	bool alone = seen->sum.lost[rail] <= seen->sum.up[!rail];
	char flow[MPIB_FLOW_TEXT_MAX];

	mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "lost rails",
			"look at the port, the cable and the switch, here (above) and at the peer "
			"(mpibctl doctor there); since when: journalctl -u mpib-agentd "
			"MPIB_EVENT=rail-lost; rail-back tells its return",
			"%u of %u connections, of %u flow%s, have lost %s and %s: %u of %s, ...",
			seen->sum.lost[rail], seen->sum.known, seen->flows[rail],
			seen->flows[rail] == 1 ? "" : "s", rail ? "SUP" : "SOUT",
			alone ? "take the other rail whole" : "no rail is left to some",
			first->rails.lost[rail],
			mpib_flow_format(first->src_be, first->dst_be, flow));
}

void mpib_doctor_flows(struct mpib_doctor *doctor)
{
	struct mpib_ctl *ctl = doctor->ctl;
	struct mpib_admin_flow_request about = { .pid = (uint32_t)ctl->pid };
	struct seen seen = { 0 };
	struct mpib_admin_flow record;
	enum mpib_ctl_exit code;

	ctl->collected = &seen;
	code = mpib_ctl_ask(ctl, ctl->pid ? MPIB_ADMIN_FLOWS_OF : MPIB_ADMIN_FLOWS,
			    ctl->pid ? &about : NULL, &record, sizeof(record), on_flow,
			    MPIB_CTL_SECONDS);
	ctl->collected = NULL;
	if (code != MPIB_CTL_OK)
		return; /* told as the agent's */

	for (unsigned int rail = 0; rail < 2; rail++) {
		if (seen.sum.lost[rail])
			say_lost(doctor, &seen, rail);
	}
	if (!seen.sum.lost[0] && !seen.sum.lost[1])
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "lost rails", "",
				"none, of %u connections that tell", seen.sum.known);
}
