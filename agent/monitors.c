/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/monitors.h"

#include <stdio.h>
#include <time.h>

/* Each holds a queue of half a megabyte. */
#define MONITORS_MAX 32u

uint32_t mpib_monitors_count(const struct mpib_monitors *monitors)
{
	const struct mpib_client *client;
	uint32_t count = 0;

	LIST_FOREACH(client, monitors->clients, all)
	{
		count += client->events != NULL;
	}

	return count;
}

bool mpib_monitors_admit(struct mpib_monitors *monitors)
{
	/* The one who asks isn't counted yet. */
	monitors->n = mpib_monitors_count(monitors) + 1;
	return monitors->n <= MONITORS_MAX;
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
	LIST_FOREACH(client, monitors->clients, all)
	{
		if (client->events)
			mpib_client_push(client, &record);
	}
}

void mpib_monitors_left(struct mpib_monitors *monitors, const struct mpib_client *client)
{
	struct mpib_cause text;

	monitors->n = mpib_monitors_count(monitors);
	if (!client->n_lost)
		return;

	monitors->n_dropped++;
	(void)mpib_cause_set(&text, 0,
			     "it watches events and reads too slowly: %u of them were lost",
			     client->n_lost);
	mpib_journal_client(monitors->journal, client->pid, client->uid, text.text);
}
