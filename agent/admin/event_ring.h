/* SPDX-License-Identifier: Apache-2.0 */
/* The latest events, once for all that watch them: each has a cursor, and no event is copied or
 * waits for anybody before its reader's turn. Who is overtaken is told how many were missed. One
 * thread. */
#ifndef MPIB_AGENT_EVENT_RING_H
#define MPIB_AGENT_EVENT_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/admin/admin.h"

/* Events kept: more than the journal writes in one burst. Half a megabyte. */
#define MPIB_EVENT_RING_SIZE 1024u

struct mpib_event_ring {
	struct mpib_admin_event *events; /* NULL: none are kept */
	uint64_t end;			 /* events put so far; the number of the next one */
	uint64_t n_missed;		 /* by all readers */
};

/* From now on events are kept. -ENOMEM. */
int mpib_event_ring_open(struct mpib_event_ring *ring);
/* No longer; the numbers go on. */
void mpib_event_ring_close(struct mpib_event_ring *ring);
/* The record of the next event, for the caller to fill at once. The ring is open. */
struct mpib_admin_event *mpib_event_ring_add(struct mpib_event_ring *ring);
/* Up to @max records from event *@cursor on, which moves behind them. Where that one is no longer
 * there the first record says how many were missed. Returns how many records there were. */
size_t mpib_event_ring_take(struct mpib_event_ring *ring, uint64_t *cursor,
			    struct mpib_admin_event *records, size_t max);

/* An event of now, but for its flow. */
void mpib_event_fill(struct mpib_admin_event *event, int priority, const char *name,
		     const char *text);

#endif
