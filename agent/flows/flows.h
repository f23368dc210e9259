/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's one piece of business: a registration becomes a slot with the right share in it, a
 * new policy becomes new shares. Ties registry, policy, hints, state file and journal together;
 * knows no socket. One thread. */
#ifndef MPIB_AGENT_FLOWS_H
#define MPIB_AGENT_FLOWS_H

#include <stdint.h>

#include "agent/state/adopt.h"
#include "agent/state/hints.h"
#include "agent/journal/journal.h"
#include "agent/state/overrides.h"
#include "agent/policy/policy.h"
#include "agent/slots/registry.h"
#include "agent/slots/traffic.h"

/* Everything is borrowed but the policy, which flows own from set_policy() on. */
struct mpib_flows {
	struct mpib_registry *registry;
	struct mpib_hints *hints;
	struct mpib_adopt *adopt; /* NULL: nothing is kept for a restart (tests) */
	struct mpib_journal *journal;
	struct mpib_policy *policy;
	struct mpib_overrides *overrides; /* NULL: nothing can be set (tests) */
	uint64_t n_registered;		  /* since start */
	uint64_t n_deregistered;
	uint64_t n_refused;
	uint32_t n_unsaved;		 /* registrations that are not in the state file */
	struct mpib_cause unsaved;	 /* why not everything is saved, "" where it is */
	struct mpib_peer_list unclaimed; /* stand for holders of before that can't be told */
	uint32_t n_unclaimed_peers;	 /* of that list */
	struct mpib_peer_queue ending;	 /* processes that ended, with registrations still there */
	struct mpib_traffic traffic;
	void (*wake)(
		void *wake_user); /* mpib_flows_step() has something to do; NULL: nobody asks */
	void *wake_user;
	char *text; /* the policy for people, made when asked for; NULL: not made */
	uint32_t text_version;
};

/* One share that a policy changed. */
struct mpib_flow_change {
	uint32_t slot;
	uint32_t src_be;
	uint32_t dst_be;
	uint32_t before;
	uint32_t after;
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
/* A slice of what is too long for one turn: ends of processes, the round of looks at counters. True
 * where more is to be done. */
bool mpib_flows_step(struct mpib_flows *flows);
/* The same without a word and without touching hints and state file: the agent stops. */
void mpib_flows_forget_peer(struct mpib_flows *flows, struct mpib_peer *peer);

/* Takes @policy over and writes the shares of all flows. Where @ret_changes is not NULL it gets
 * an array of *ret_n for the caller to free (NULL where memory is out or nothing changed). Returns
 * how many changed. */
uint32_t mpib_flows_set_policy(struct mpib_flows *flows, struct mpib_policy *policy,
			       struct mpib_flow_change **ret_changes);

/* What each rule says about a flow and which one is in force. */
void mpib_flows_judge(const struct mpib_flows *flows, uint32_t src_be, uint32_t dst_be,
		      struct mpib_candidate ret_candidates[MPIB_RULE_MAX],
		      struct mpib_verdict *ret);

/* The effective policy as a text, flows' own until the policy changes (*ret_version differs then).
 * NULL where memory is out. */
const char *mpib_flows_text(struct mpib_flows *flows, uint32_t *ret_version);

/* Sets the share of a flow, above the policy, for @seconds (0: no end) in the name of @uid. 1 where
 * the share in force changed (*ret_change says how, slot UINT32_MAX where nobody registered the
 * flow), 0 where it didn't, or a negative errno with @cause. */
int mpib_flows_set(struct mpib_flows *flows, const struct mpib_override *override,
		   struct mpib_flow_change *ret_change, struct mpib_cause *cause);
/* Ends it. -ENOENT where none is set. */
int mpib_flows_unset(struct mpib_flows *flows, uint32_t src_be, uint32_t dst_be, uid_t uid,
		     struct mpib_flow_change *ret_change, struct mpib_cause *cause);
/* Ends those whose time is over; called about once a second. */
void mpib_flows_expire(struct mpib_flows *flows);
/* CLOCK_BOOTTIME. */
uint64_t mpib_flows_boot_usec(void);

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
/* Writes to the state file what isn't in it yet; tells where that fails, and once it works again.
 */
void mpib_flows_save(struct mpib_flows *flows);

#endif
