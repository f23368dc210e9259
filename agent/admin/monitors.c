/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/admin/monitors.h"

#include <stdio.h>

#include "agent/base/clock.h"

/* Each holds a queue of half a megabyte. */
#define MONITORS_MAX 32u

bool mpib_monitors_admit(struct mpib_monitors *monitors, struct mpib_session *session)
{
	if (mpib_user_may(session->user, MPIB_GOOD_MONITORS, 1, monitors->n, MONITORS_MAX) !=
	    MPIB_QUOTA_FREE) {
		mpib_flows_refused(session->flows, session->user, session->pid, MPIB_GOOD_MONITORS,
				   "as many watch events as one user may have, or as may in all");
		return false;
	}

	mpib_user_charge(session->user, MPIB_GOOD_MONITORS, 1);
	monitors->n++;
	LIST_INSERT_HEAD(&monitors->sessions, session, monitors);
	return true;
}

void mpib_monitors_tell(struct mpib_monitors *monitors, enum mpib_event event, int priority,
			const char *flow, const char *message)
{
	struct mpib_admin_event record = { .priority = (uint32_t)priority };
	struct mpib_session *session;

	if (!monitors->n)
		return;

	record.usec = mpib_clock_usec(CLOCK_REALTIME);
	(void)snprintf(record.name, sizeof(record.name), "%s", mpib_event_name(event));
	(void)snprintf(record.flow, sizeof(record.flow), "%s", flow);
	(void)snprintf(record.text, sizeof(record.text), "%s", message);
	LIST_FOREACH(session, &monitors->sessions, monitors)
	{
		mpib_session_push(session, &record);
	}
}

void mpib_monitors_left(struct mpib_monitors *monitors, struct mpib_session *session)
{
	struct mpib_cause text;

	mpib_user_release(session->user, MPIB_GOOD_MONITORS, 1);
	monitors->n--;
	LIST_REMOVE(session, monitors);
	if (!session->n_lost)
		return;

	monitors->n_dropped++;
	(void)mpib_cause_set(&text, 0,
			     "it watches events and reads too slowly: %u of them were lost",
			     session->n_lost);
	mpib_journal_client(monitors->journal, session->pid, session->uid, text.text);
}
