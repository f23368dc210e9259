/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two halves of the registry: flows, slots and registrations in registry.c, users and
 * peers in registry_peers.c. */
#ifndef MPIB_AGENT_REGISTRY_IMPL_H
#define MPIB_AGENT_REGISTRY_IMPL_H

#include "agent/slots/registry.h"

#define PEER_BUCKETS 1024u
#define REG_BUCKETS  16384u
#define FLOW_BUCKETS 16384u
#define HOLD_BUCKETS 16384u
#define USER_BUCKETS 256u

struct mpib_registry {
	uint64_t seed; /* of the hashes */
	uint64_t n_peers_ever;
	uint32_t entries;
	uint32_t lowest_free; /* no free slot below it */
	uint32_t n_flows;     /* slots with a flow that somebody holds */
	uint32_t n_regs;
	uint32_t n_unclaimed; /* of n_regs */
	uint32_t n_peers;
	uint32_t n_users;
	uint32_t n_tables;
	uint32_t n_table_entries;
	struct mpib_holdings others; /* of all users but root */
	uint32_t n_touched;	     /* no slot from here on ever had a flow */
	struct mpib_peer_queue counted;
	struct mpib_user_list users[USER_BUCKETS];
	struct mpib_hold_list holds[HOLD_BUCKETS];
	struct mpib_peer_list peers[PEER_BUCKETS];
	struct mpib_reg_list regs[REG_BUCKETS];
	struct mpib_slot_list flows[FLOW_BUCKETS];
	struct mpib_slot slots[MPIB_HINT_ENTRIES_MAX]; /* pages that nobody touches cost nothing */
};

/* Clients choose keys. Every bit of one reaches every bit of the result, and nobody can work out
 * which keys meet in one bucket. */
uint32_t mpib_registry_mix(const struct mpib_registry *registry, uint64_t key);

#endif
