/* SPDX-License-Identifier: Apache-2.0 */
/* Those among the clients that watch events as they happen (mpibctl monitor). */
#ifndef MPIB_AGENT_MONITORS_H
#define MPIB_AGENT_MONITORS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/client.h"
#include "agent/journal.h"

struct mpib_monitors {
	const struct mpib_client_list *clients; /* borrowed */
	struct mpib_journal *journal;		/* borrowed */
	uint32_t n;
	uint64_t n_dropped; /* cut off for reading too slowly */
};

/* True where one more may watch; it counts from now on. */
bool mpib_monitors_admit(struct mpib_monitors *monitors);
/* One event to all of them. */
void mpib_monitors_tell(struct mpib_monitors *monitors, enum mpib_event event, int priority,
			const char *flow, const char *message);
/* @client, which watched, has left the list. */
void mpib_monitors_left(struct mpib_monitors *monitors, const struct mpib_client *client);
uint32_t mpib_monitors_count(const struct mpib_monitors *monitors);

#endif
