/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two halves of the registry: flows, slots and registrations in registry.c, users and
 * peers in registry_peers.c. */
#ifndef MPIB_AGENT_REGISTRY_TABLE_H
#define MPIB_AGENT_REGISTRY_TABLE_H

#include "agent/registry.h"

#define PEER_BUCKETS 1024u
#define REG_BUCKETS  16384u
#define FLOW_BUCKETS 16384u

/* One part in this many is kept for others once one non-root user holds the rest. */
#define RESERVED_PART 8u

struct mpib_registry {
	uint32_t entries;
	uint32_t lowest_free; /* no free slot below it */
	uint32_t n_flows;     /* slots with a flow that somebody holds */
	uint32_t n_orphans;
	uint32_t n_regs;
	uint32_t n_peers;
	uint32_t next_orphan; /* where the search for a victim goes on */
	struct mpib_user_list users;
	struct mpib_peer_list peers[PEER_BUCKETS];
	struct mpib_reg_list regs[REG_BUCKETS];
	struct mpib_slot_list flows[FLOW_BUCKETS];
	struct mpib_slot slots[MPIB_HINT_ENTRIES_MAX]; /* pages that nobody touches cost nothing */
};

/* What one non-root user may hold of @total. */
static inline uint32_t mpib_registry_user_part(const struct mpib_user *user, uint32_t total)
{
	return user->uid == 0 ? total : total - total / RESERVED_PART;
}

#endif
