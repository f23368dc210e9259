/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of each flow from the counters that processes handed over. Sampled with the heartbeat, so
 * that nothing wakes for it. */
#ifndef MPIB_AGENT_TRAFFIC_H
#define MPIB_AGENT_TRAFFIC_H

#include "agent/registry.h"

/* Takes the table behind @fd (the caller's) in the place of the peer's earlier one: 0 or the
 * errno of mpib_counter_map_new(); -ESRCH for a peer without a name; -EDQUOT where too many
 * processes handed one over. */
int mpib_traffic_take(struct mpib_registry *registry, struct mpib_peer *peer, int fd, size_t size);

/* Adds what one process, or all, moved since the look before. */
void mpib_traffic_look(struct mpib_registry *registry, struct mpib_peer *peer);
void mpib_traffic_look_all(struct mpib_registry *registry);

/* After a look at all: what moved in the @usec since the one before becomes a rate. */
void mpib_traffic_rate(struct mpib_registry *registry, uint64_t usec);

#endif
