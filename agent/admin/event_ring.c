/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/admin/event_ring.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <syslog.h>

#include "agent/base/clock.h"

int mpib_event_ring_open(struct mpib_event_ring *ring)
{
	if (!ring->events)
		ring->events = calloc(MPIB_EVENT_RING_SIZE, sizeof(*ring->events));
	return ring->events ? 0 : -ENOMEM;
}

void mpib_event_ring_close(struct mpib_event_ring *ring)
{
	free(ring->events);
	ring->events = NULL;
}

struct mpib_admin_event *mpib_event_ring_add(struct mpib_event_ring *ring)
{
	return &ring->events[ring->end++ % MPIB_EVENT_RING_SIZE];
}

size_t mpib_event_ring_take(struct mpib_event_ring *ring, uint64_t *cursor,
			    struct mpib_admin_event *records, size_t max)
{
	size_t count = 0;

	if (max && ring->end - *cursor > MPIB_EVENT_RING_SIZE) {
		uint64_t missed = ring->end - *cursor - MPIB_EVENT_RING_SIZE;
		char text[64];

		(void)snprintf(text, sizeof(text), "%" PRIu64 " events missed: read too slowly",
			       missed);
		mpib_event_fill(&records[count++], LOG_WARNING, "missed", text);
		ring->n_missed += missed;
		*cursor += missed;
	}

	while (count < max && *cursor < ring->end)
		records[count++] = ring->events[(*cursor)++ % MPIB_EVENT_RING_SIZE];
	return count;
}

void mpib_event_fill(struct mpib_admin_event *event, int priority, const char *name,
		     const char *text)
{
	*event = (struct mpib_admin_event){
		.usec = mpib_clock_usec(CLOCK_REALTIME),
		.priority = (uint32_t)priority,
	};
	(void)snprintf(event->name, sizeof(event->name), "%s", name);
	(void)snprintf(event->text, sizeof(event->text), "%s", text);
}
