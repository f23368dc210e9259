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

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/mpib_agent_iface.h"
#include "plugin/base/env.h"

enum mpib_reg_state {
	MPIB_REG_NONE = 0, /* not known to the link */
	MPIB_REG_WANTED,   /* waits for the socket */
	MPIB_REG_SENT,	   /* asked, not answered */
	MPIB_REG_DONE,	   /* has a slot */
	MPIB_REG_NO_SLOT,  /* the agent's table is full; asked again now and then */
	MPIB_REG_FAILED,   /* error */
};

/* Embedded in a connection. The addresses and conn_id are set by mpib_agent_register; the rest is
 * the helper thread's, under the watch lock, but for `hint` and `state`, which anybody reads. */
struct mpib_agent_reg {
	/* Where the data path reads its share; NULL: use the vanilla policy. */
	_Atomic(const struct mpib_hint_entry *) hint;
	uint32_t conn_id;
	uint32_t sout_src_be, sout_dst_be, sup_src_be, sup_dst_be;
	atomic_int state;   /* enum mpib_reg_state */
	int error;	    /* with MPIB_REG_FAILED */
	bool asked;	    /* the agent may know it: it must be told of the end */
	bool told_unserved; /* the warning of a full table, or of a refusal, was written */
	bool handed_out;    /* the connection is in use: no error of the agent may end it */
	uint32_t slot;
	uint64_t deadline_ms; /* while not handed out: when set-up stops waiting */
	uint32_t share_seen;  /* last share read from the slot */
	bool unread;	      /* set before registering: there is one rail, and no share to read */
	const struct mpib_hint_entry *entry; /* the slot, kept while stale */
	struct mpib_hint_entry held;	     /* last share of a slot that was lost */
	struct mpib_agent_reg *next, **link; /* all of the process */
};

/* Advanced mode, at the first init: maps the table and connects. -ENOENT (with one warning) where
 * no agent answers, unless env->agent_optional. */
int mpib_agent_link_open(const struct mpib_env *env);

/* Sends what deregistrations wait, for a bounded time, and lets go of everything. */
void mpib_agent_link_close(void);

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
