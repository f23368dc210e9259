/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/admin/monitors.h"

#include <stdio.h>

/* Each may have 16 KiB of events on their way, and is served at each event. */
#define MONITORS_MAX 32u

/* Monitors served in one slice, each with a send of 14 KiB at most. */
#define SERVED_A_SLICE 4u

enum mpib_admission mpib_monitors_admit(struct mpib_monitors *monitors,
					struct mpib_session *session)
{
	if (mpib_user_may(session->user, MPIB_GOOD_MONITORS, 1, monitors->n, MONITORS_MAX) !=
	    MPIB_QUOTA_FREE) {
		mpib_flows_refused(session->flows, session->user, session->pid, MPIB_GOOD_MONITORS,
				   "as many watch events as one user may have, or as may in all");
		return MPIB_ADMISSION_TOO_MANY;
	}
	if (mpib_event_ring_open(&monitors->ring) < 0)
		return MPIB_ADMISSION_NO_MEMORY;

	mpib_user_charge(session->user, MPIB_GOOD_MONITORS, 1);
	monitors->n++;
	LIST_INSERT_HEAD(&monitors->sessions, session, monitors);
	session->ring = &monitors->ring;
	session->next_event = monitors->ring.end;
	return MPIB_ADMITTED;
}

void mpib_monitors_tell(struct mpib_monitors *monitors, enum mpib_event event, int priority,
			const char *flow, const char *message)
{
	struct mpib_admin_event *record;

	if (!monitors->n)
		return;

	record = mpib_event_ring_add(&monitors->ring);
	mpib_event_fill(record, priority, mpib_event_name(event), message);
	(void)snprintf(record->flow, sizeof(record->flow), "%s", flow);
	monitors->again = true;
}

bool mpib_monitors_step(struct mpib_monitors *monitors)
{
	if (!monitors->next && monitors->again) {
		monitors->again = false;
		monitors->next = LIST_FIRST(&monitors->sessions);
	}

	for (unsigned int n = 0; n < SERVED_A_SLICE && monitors->next; n++) {
		struct mpib_session *session = monitors->next;

		monitors->next = LIST_NEXT(session, monitors);
		session->wake(session->owner);
	}

	return monitors->next || monitors->again;
}

void mpib_monitors_left(struct mpib_monitors *monitors, struct mpib_session *session)
{
	mpib_user_release(session->user, MPIB_GOOD_MONITORS, 1);
	if (monitors->next == session)
		monitors->next = LIST_NEXT(session, monitors);
	LIST_REMOVE(session, monitors);
	session->ring = NULL;
	if (--monitors->n == 0) {
		mpib_event_ring_close(&monitors->ring);
		monitors->again = false;
	}
}
