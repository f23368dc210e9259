/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of flows: registrations and their ends in flows.c, the state file and what a
 * restart brings back in flows_state.c. */
#ifndef MPIB_AGENT_FLOWS_IMPL_H
#define MPIB_AGENT_FLOWS_IMPL_H

#include "agent/flows/flows.h"

/* Puts a registration into the state file, or has the file say that one is missing. Negative errno
 * where neither works: the registration must not be answered with a slot. */
int mpib_flows_remember(struct mpib_flows *flows, struct mpib_reg *reg);
/* Where the state file holds @reg, or MPIB_RECORD_NONE. */
uint32_t mpib_flows_record(const struct mpib_flows *flows, const struct mpib_reg *reg);
/* @reg is about to be removed: whoever walks over all goes on with the next one. */
void mpib_flows_pass(struct mpib_flows *flows, const struct mpib_reg *reg);
/* Takes a registration out of the state file that had @record there. */
void mpib_flows_forget(struct mpib_flows *flows, uint32_t record);

/* @reg is back: what was kept for it is not needed any more. */
void mpib_flows_claim(struct mpib_flows *flows, const struct mpib_reg *reg);
/* Frees the memory of what is kept, and nothing else. */
void mpib_flows_forget_unclaimed(struct mpib_flows *flows);

#endif
