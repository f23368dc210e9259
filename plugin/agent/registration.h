/* SPDX-License-Identifier: Apache-2.0 */
/* A connection as the agent knows it: embedded in the connection, looked after by agent_link.c. */
#ifndef MPIB_PLUGIN_REGISTRATION_H
#define MPIB_PLUGIN_REGISTRATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/mpib_agent_iface.h"

enum mpib_reg_state {
	MPIB_REG_NONE = 0, /* not known to the link */
	MPIB_REG_WANTED,   /* waits for the socket */
	MPIB_REG_SENT,	   /* asked, not answered */
	MPIB_REG_DONE,	   /* has a slot */
	MPIB_REG_NO_SLOT,  /* the agent's table is full; asked again now and then */
	MPIB_REG_FAILED,   /* error */
};

/* The addresses and conn_id are set by mpib_agent_register; the rest is
 * the helper thread's, under the watch lock, but for `hint` and `state`, which anybody reads. */
struct mpib_agent_reg {
	/* Where the data path reads its share; NULL: use the vanilla policy. */
	_Atomic(const struct mpib_hint_entry *) hint;
	uint32_t conn_id;
	uint32_t sout_src_be, sout_dst_be, sup_src_be, sup_dst_be;
	atomic_int state;     /* enum mpib_reg_state */
	int error;	      /* with MPIB_REG_FAILED */
	bool asked;	      /* the agent may know it: it must be told of the end */
	bool logged_unserved; /* the warning of a full table, or of a refusal, was written */
	bool handed_out;      /* the connection is in use: no error of the agent may end it */
	uint32_t slot;
	uint64_t deadline_ms; /* while not handed out: when set-up stops waiting */
	uint32_t share_seen;  /* last share read from the slot */
	bool unread;	      /* set before registering: there is one rail, and no share to read */
	const struct mpib_hint_entry *entry; /* the slot, kept while stale */
	struct mpib_hint_entry held;	     /* last share of a slot that was lost */
	struct mpib_agent_reg *next, **link; /* all of the process */
};

#endif
