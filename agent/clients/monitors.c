/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/clients/monitors.h"

#include <stdio.h>
#include <time.h>

/* Each holds a queue of half a megabyte. */
#define MONITORS_MAX 32u

bool mpib_monitors_admit(struct mpib_monitors *monitors, struct mpib_client *client)
{
	if (mpib_user_may(client->user, MPIB_GOOD_MONITORS, 1, monitors->n, MONITORS_MAX) !=
	    MPIB_QUOTA_FREE) {
		mpib_flows_refused(client->flows, client->user, client->pid, MPIB_GOOD_MONITORS,
				   "as many watch events as one user may have, or as may in all");
		return false;
	}

	mpib_user_take(client->user, MPIB_GOOD_MONITORS, 1);
	monitors->n++;
	LIST_INSERT_HEAD(&monitors->clients, client, monitors);
	return true;
}

void mpib_monitors_tell(struct mpib_monitors *monitors, enum mpib_event event, int priority,
			const char *flow, const char *message)
{
	struct mpib_admin_event record = { .priority = (uint32_t)priority };
	struct mpib_client *client;
	struct timespec now = { 0 };

	if (!monitors->n)
		return;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	record.usec = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
	(void)snprintf(record.name, sizeof(record.name), "%s", mpib_event_name(event));
	(void)snprintf(record.flow, sizeof(record.flow), "%s", flow);
	(void)snprintf(record.text, sizeof(record.text), "%s", message);
	LIST_FOREACH(client, &monitors->clients, monitors)
	{
		mpib_client_push(client, &record);
	}
}

void mpib_monitors_left(struct mpib_monitors *monitors, struct mpib_client *client)
{
	struct mpib_cause text;

	mpib_user_give(client->user, MPIB_GOOD_MONITORS, 1);
	monitors->n--;
	LIST_REMOVE(client, monitors);
	if (!client->n_lost)
		return;

	monitors->n_dropped++;
	(void)mpib_cause_set(&text, 0,
			     "it watches events and reads too slowly: %u of them were lost",
			     client->n_lost);
	mpib_journal_client(monitors->journal, client->pid, client->uid, text.text);
}
