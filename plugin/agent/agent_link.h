/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin's side of the agent contract (common/mpib_agent_iface.h): the mapped hint table and
 * the registration socket, both looked after by the helper thread. Nothing here blocks.
 *
 * absent -> live -> stale -> live: the table is live while its heartbeat moves by *our* clock. An
 * agent that is gone leaves the last shares in force; one that is silent for longer than
 * MPIB_AGENT_STALE_SEC loses them to the vanilla policy until it speaks again.
 */
#ifndef MPIB_PLUGIN_AGENT_LINK_H
#define MPIB_PLUGIN_AGENT_LINK_H

#include <stdint.h>

#include "plugin/agent/registration.h"
#include "plugin/base/env.h"

/* Advanced mode, at the first init: maps the table and connects. -ENOENT (with one warning) where
 * no agent answers, unless env->agent_optional. */
int mpib_agent_link_open(const struct mpib_env *env);

/* Sends what deregistrations wait, for a bounded time, and lets go of everything. */
void mpib_agent_link_close(void);

/* Hands the process's counters to the agent now, where that is possible, and not with the next
 * tick: a share that finds itself begins with them. Doesn't block. */
void mpib_agent_hand_counters(void);

/* Takes the connection id (unique in this process) and asks for a slot. Poll
 * mpib_agent_register_poll until it is not 0. */
int mpib_agent_register(struct mpib_agent_reg *reg, uint32_t sout_src_be, uint32_t sout_dst_be,
			uint32_t sup_src_be, uint32_t sup_dst_be);

/* 1: the connection may go on (slot, or none yet: no agent, table full, an agent that served
 * this process before and is silent now); 0: wait; negative errno: the agent answered wrong, or
 * has never answered and didn't in time: one warning was written. */
int mpib_agent_register_poll(struct mpib_agent_reg *reg);

/* In a forked child: closes its copy of the socket. */
void mpib_agent_link_fork_child(void);

/* Forgets @reg and tells the agent; fine for one that was never registered. */
void mpib_agent_deregister(struct mpib_agent_reg *reg);

#endif
