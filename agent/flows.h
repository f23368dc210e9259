/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's one piece of business: a registration becomes a slot with the right share in it, a
 * new policy becomes new shares. Ties registry, policy, hints, state file and journal together;
 * knows no socket. One thread. */
#ifndef MPIB_AGENT_FLOWS_H
#define MPIB_AGENT_FLOWS_H

#include <stdint.h>

#include "agent/adopt.h"
#include "agent/hints.h"
#include "agent/journal.h"
#include "agent/overrides.h"
#include "agent/policy.h"
#include "agent/registry.h"

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
	bool adopt_failing; /* said once, until a write succeeds again */
	char *text;	    /* the policy for people, made when asked for; NULL: not made */
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

/* What a restart brought back. */
struct mpib_flows_adopted {
	uint32_t flows;
	uint32_t regs;
	uint32_t kept; /* slots kept for flows that nobody holds at present */
	uint32_t gone; /* registrations of processes that ended meanwhile */
};

/* Answer to REGISTER: enum mpib_status, with the slot for MPIB_STATUS_OK. */
uint8_t mpib_flows_register(struct mpib_flows *flows, struct mpib_peer *peer, uint32_t conn_id,
			    const struct mpib_addresses *addresses, uint32_t *ret_slot);
/* Answer to DEREGISTER. */
uint8_t mpib_flows_deregister(struct mpib_flows *flows, struct mpib_peer *peer, uint32_t conn_id);
/* Frees all that @peer registered, and nothing is taken from it any more. */
void mpib_flows_peer_gone(struct mpib_flows *flows, struct mpib_peer *peer, const char *why);
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
void mpib_flows_tick(struct mpib_flows *flows);
/* CLOCK_BOOTTIME. */
uint64_t mpib_flows_boot_usec(void);

/* Frees what flows own. */
void mpib_flows_done(struct mpib_flows *flows);

/* Brings back one record of an earlier incarnation for @peer. 0 or a negative errno. */
int mpib_flows_adopt(struct mpib_flows *flows, struct mpib_peer *peer,
		     const struct mpib_adopt_record *record);
/* After all records: slots that the table shows as taken but nobody claimed are freed, or (with
 * @keep: the state file was of no use) kept for their flows. Returns how many were kept. */
uint32_t mpib_flows_settle_slots(struct mpib_flows *flows, bool keep);

#endif
