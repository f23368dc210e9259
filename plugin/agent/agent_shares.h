/* SPDX-License-Identifier: Apache-2.0 */
/* The mapped hint table and what the connections read of it. Under the watch lock. */
#ifndef MPIB_PLUGIN_AGENT_SHARES_H
#define MPIB_PLUGIN_AGENT_SHARES_H

#include "plugin/agent/agent_state.h"

/* Maps the table, or maps it again where it is another file now or has grown. Negative errno. */
int mpib_agent_map_table(void);
/* Lets go of all tables: no connection may read one. */
void mpib_agent_unmap_tables(void);
/* Where the data path of @reg reads its share: the slot, or nowhere while the agent is stale. */
void mpib_agent_publish(struct mpib_agent_reg *reg);
/* Heartbeat and owners of the slots; once a tick. */
void mpib_agent_look_at_table(uint64_t now_ms);

#endif
