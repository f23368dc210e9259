/* SPDX-License-Identifier: Apache-2.0 */
/* Those among the clients that watch events as they happen (mpibctl monitor). */
#ifndef MPIB_AGENT_MONITORS_H
#define MPIB_AGENT_MONITORS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/clients/client.h"
#include "agent/journal/journal.h"

struct mpib_monitors {
	struct mpib_client_list clients;
	struct mpib_journal *journal; /* borrowed */
	uint32_t n;
	uint64_t n_dropped; /* cut off for reading too slowly */
};

/* True where @client may watch; it counts from now on. */
bool mpib_monitors_admit(struct mpib_monitors *monitors, struct mpib_client *client);
/* One event to all of them. */
void mpib_monitors_tell(struct mpib_monitors *monitors, enum mpib_event event, int priority,
			const char *flow, const char *message);
/* @client, which watched, is about to go. */
void mpib_monitors_left(struct mpib_monitors *monitors, struct mpib_client *client);

#endif
