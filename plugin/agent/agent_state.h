/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the agent link share, and nobody else: agent_link.c (registrations, the tick)
 * above agent_socket.c (requests and answers) above agent_shares.c (the mapped table). All under
 * the watch lock. */
#ifndef MPIB_PLUGIN_AGENT_STATE_H
#define MPIB_PLUGIN_AGENT_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/agent/hint_table.h"
#include "plugin/agent/registration.h"
#include "plugin/base/env.h"
#include "plugin/base/watch.h"

#define MPIB_AGENT_QUEUE_MAX 4096 /* requests sent and not answered */

/* A request on its way; the agent answers in order. */
struct mpib_agent_pending {
	uint8_t type;
	uint32_t conn_id;
	struct mpib_agent_reg *reg; /* NULL for DEREGISTER, and once the connection closed */
};

struct mpib_agent_old_table {
	struct mpib_hint_table table;
	struct mpib_agent_old_table *next;
};

/* All of the process, under the watch lock. */
struct mpib_agent {
	bool open;
	struct mpib_env env;
	struct mpib_watch_tick tick;

	struct mpib_hint_table table;
	struct mpib_agent_old_table *old_tables; /* connections may read them yet */
	uint32_t generation, heartbeat;
	uint64_t beat_ms; /* when the heartbeat was last seen to move */
	bool stale;

	/* The socket. `served` and `counted`: on this connection a registration was answered, and
	 * the counter table was handed over. */
	bool served, counted;
	struct mpib_watch_item sock; /* fd -1: not connected */
	uint64_t retry_ms, retry_full_ms;
	/* There is no socket for a reason that goes by (mpib_net_is_transient): it is tried again
	 * soon, and set-ups wait for that. */
	bool passing;
	bool logged_gone;
	bool logged_slow;
	bool proven; /* it has answered a registration of this process */
	uint8_t rx[64];
	size_t rx_len;
	uint8_t tx[8192];
	size_t tx_len;
	struct mpib_agent_pending queue[MPIB_AGENT_QUEUE_MAX]; /* ring */
	unsigned int queue_head, queue_len;

	struct mpib_agent_reg *regs; /* the newest first */
	unsigned int wanted;	     /* of them, those in MPIB_REG_WANTED */
	uint8_t ids[65536 / 8];	     /* counters in use, until their deregistration is answered */
	uint32_t next_id;
	uint32_t *leaving; /* connection ids that the agent must still be told of */
	size_t leaving_len, leaving_capacity;
};

extern struct mpib_agent mpib_agent;

static inline enum mpib_reg_state mpib_agent_get_state(struct mpib_agent_reg *reg)
{
	return (enum mpib_reg_state)atomic_load_explicit(&reg->state, memory_order_acquire);
}

static inline void mpib_agent_set_state(struct mpib_agent_reg *reg, enum mpib_reg_state state)
{
	mpib_watch_assert_locked();
	mpib_agent.wanted -= mpib_agent_get_state(reg) == MPIB_REG_WANTED;
	mpib_agent.wanted += state == MPIB_REG_WANTED;
	atomic_store_explicit(&reg->state, (int)state, memory_order_release);
}

#endif
