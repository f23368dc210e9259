/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's one piece of business: a registration becomes a slot (registry) with the right share
 * in it (shares), which a restart doesn't lose (state file), and an operator reads of (journal).
 * Knows no socket. One thread. */
#ifndef MPIB_AGENT_FLOWS_H
#define MPIB_AGENT_FLOWS_H

#include <stdint.h>

#include "agent/flows/shares.h"
#include "agent/journal/journal.h"
#include "agent/slots/registry.h"
#include "agent/slots/traffic.h"
#include "agent/state/adopt.h"
#include "agent/state/hints.h"

/* The owner sets the first fields, before mpib_flows_init(), and reads the counts; the rest is
 * flows' own. Borrowed where it doesn't say otherwise. */
struct mpib_flows {
	struct mpib_registry *registry; /* who holds which slot */
	struct mpib_shares *shares;	/* which share is in force; owned */
	const struct mpib_hints *hints; /* what the table shows; shares write it */
	struct mpib_adopt *adopt;	/* NULL: nothing is kept for a restart (tests) */
	struct mpib_journal *journal;
	uint32_t save_slice; /* what a slice of a save may cost; 0: the usual (tests want less) */
	/* mpib_flows_step() has something to do; NULL: nobody asks. */
	void (*wake)(void *wake_user);
	void *wake_user;

	uint64_t n_registered; /* since start */
	uint64_t n_deregistered;
	uint64_t n_refused;
	uint32_t n_unsaved;	   /* registrations that are not in the state file */
	struct mpib_cause unsaved; /* why not everything is saved, "" where it is */
	uint32_t n_files;	   /* state files made: what an earlier one holds is unsaved */
	uint32_t save_slot;	   /* the walk over what may be unsaved: its slot... */
	struct mpib_reg *save_reg; /* ...and the next registration there, or NULL */
	bool save_more;		   /* the walk goes on with the next slice */
	struct mpib_peer_list unclaimed; /* stand for holders of before that can't be told */
	uint32_t n_unclaimed_peers;	 /* of that list */
	struct mpib_peer_queue ending;	 /* processes that ended, with registrations still there */
	struct mpib_traffic traffic;
};

/* Answer to REGISTER: enum mpib_status, with the slot for MPIB_STATUS_OK. */
uint8_t mpib_flows_register(struct mpib_flows *flows, struct mpib_peer *peer, uint32_t conn_id,
			    const struct mpib_addresses *addresses, uint32_t *ret_slot);
/* A process of @user may not have (more of) @good, because of @why: counted, and told of in one
 * line a window with the count. */
void mpib_flows_refused(struct mpib_flows *flows, struct mpib_user *user, pid_t pid,
			enum mpib_good good, const char *why);
/* Answer to DEREGISTER. */
uint8_t mpib_flows_deregister(struct mpib_flows *flows, struct mpib_peer *peer, uint32_t conn_id);
/* Before anything else. Fields of above that have a value keep it. */
void mpib_flows_init(struct mpib_flows *flows);

/* Frees all that @peer registered, and nothing is taken from it any more. What is much is freed in
 * slices, by mpib_flows_step(); @why lives as long. */
void mpib_flows_peer_gone(struct mpib_flows *flows, struct mpib_peer *peer, const char *why);
/* A slice of what is too long for one turn: ends of processes, the round of looks at counters, what
 * is to be saved. True where more is to be done. */
bool mpib_flows_step(struct mpib_flows *flows);
/* The same without a word and without touching hints and state file: the agent stops. */
void mpib_flows_forget_peer(struct mpib_flows *flows, struct mpib_peer *peer);

/* Frees what flows own. */
void mpib_flows_done(struct mpib_flows *flows);

/* Brings back the record at @index of the state file for @peer. 0 or a negative errno. */
int mpib_flows_adopt(struct mpib_flows *flows, struct mpib_peer *peer,
		     const struct mpib_adopt_record *record, uint32_t index);
/* Keeps the slot of a holder that can't be told: until a registration of the flow with the
 * record's conn_id and uid takes its place, or for good where these are unknown too (uid -1).
 * @index: of the record in the state file, MPIB_RECORD_NONE where it has none like this. */
int mpib_flows_keep(struct mpib_flows *flows, const struct mpib_adopt_record *record,
		    uint32_t index);
/* After the records that agree with the table: slots that the table shows as taken and nobody holds
 * are kept, or freed where @released (a bit a slot) says that their holders are known to be gone.
 * @doubt: records are missing, so that a slot may have more holders than are known; it is kept as
 * well. Returns how many were kept. */
uint32_t mpib_flows_settle_slots(struct mpib_flows *flows, const uint8_t *released, bool doubt);
/* Writes to the state file what isn't in it yet; tells where that fails, and once it works again. A
 * slice of it where it is much: @save_more says so, and mpib_flows_step() goes on. */
void mpib_flows_save(struct mpib_flows *flows);

#endif
