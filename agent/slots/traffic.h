/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes and rails of each flow from the counters that processes handed over. Looked at once a
 * heartbeat, so that nothing wakes for it, and in slices, so that others are served between them: a
 * table is its process's own memory, and may hold anything. One thread. */
#ifndef MPIB_AGENT_TRAFFIC_H
#define MPIB_AGENT_TRAFFIC_H

#include <stdbool.h>

#include "agent/slots/registry.h"

/* What a round found out about rails, for its owner to tell. */
struct mpib_traffic_ops {
	/* Connections of one process in the slot lost a rail, or have it again. */
	void (*rails)(void *user, uint32_t slot, const struct mpib_rail_news *news);
	/* What @reg's process says of its rails can't be, because of @why; once a process. */
	void (*lie)(void *user, const struct mpib_reg *reg, const char *why);
};

/* A round looks at every process's registrations, tells news of rails, then makes rates. The
 * owner may set ops. */
struct mpib_traffic {
	struct mpib_registry *registry;	    /* borrowed */
	const struct mpib_traffic_ops *ops; /* likewise; NULL: nobody wants to know */
	void *ops_user;
	struct mpib_rail_counts rails;	   /* of all flows, those that ended too */
	struct mpib_rail_state rail_state; /* of all connections */
	struct mpib_slot_queue telling;	   /* slots with news */
	uint64_t round;
	bool going;
	uint32_t peers_left;
	uint32_t next_slot;
	uint64_t rate_usec; /* monotonic: when the latest rates were begun, 0: never */
	uint64_t span_usec; /* from those before to these */
};

void mpib_traffic_init(struct mpib_traffic *traffic, struct mpib_registry *registry);

/* Takes the table behind @fd (the caller's) in the place of the peer's earlier one: 0 or the
 * errno of mpib_counter_map_new(); -ESRCH for a peer without a name; -EDQUOT where too many
 * processes handed one over. */
int mpib_traffic_set_table(struct mpib_traffic *traffic, struct mpib_peer *peer, int fd,
			   size_t size);

/* Begins a round, unless one is going on. */
void mpib_traffic_begin(struct mpib_traffic *traffic);
/* A slice of it. True where more is to be done. */
bool mpib_traffic_step(struct mpib_traffic *traffic);

/* Looks for a registration's counters where its place isn't known, as far as its user may have that
 * in this round. False where they weren't found. */
bool mpib_traffic_find(struct mpib_traffic *traffic, struct mpib_reg *reg);

/* The last look at a registration's counters, before it goes; it counts no more in the state of
 * its flow's rails. What there is to tell of the flow is told before its last registration goes. */
void mpib_traffic_last(struct mpib_traffic *traffic, struct mpib_reg *reg);

#endif
