/* SPDX-License-Identifier: Apache-2.0 */
/* Which share is in force for a flow, and why: the policy, what a person set above it, and the
 * table that jobs read. The one who decides, and the only one who writes slots of the table; who
 * holds a slot is the registry's matter. One thread. */
#ifndef MPIB_AGENT_SHARES_H
#define MPIB_AGENT_SHARES_H

#include <stdint.h>

#include "agent/base/cause.h"
#include "agent/flows/tuning.h"
#include "agent/journal/journal.h"
#include "agent/policy/config.h"
#include "agent/policy/policy.h"
#include "agent/slots/registry.h"
#include "agent/state/hints.h"
#include "agent/state/overrides.h"

struct mpib_shares;

/* One share that changed. */
struct mpib_share_change {
	uint32_t slot; /* UINT32_MAX: nobody registered the flow */
	uint32_t src_be;
	uint32_t dst_be;
	uint32_t before;
	uint32_t after;
};

/* What one policy changed, or why it was refused; whoever is to read it later holds a reference. */
struct mpib_share_changes {
	unsigned int refs;
	struct mpib_cause refused;
	uint32_t n;
	struct mpib_share_change list[];
};

/* Room for @most, with one reference; NULL where memory is out. */
struct mpib_share_changes *mpib_share_changes_new(uint32_t most);
/* Drops a reference; NULL is none. */
void mpib_share_changes_put(struct mpib_share_changes *changes);

/* Takes @policy over, also on failure. The rest is borrowed, and outlives it. -ENOMEM. */
int mpib_shares_new(struct mpib_registry *registry, struct mpib_hints *hints,
		    struct mpib_journal *journal, struct mpib_policy *policy,
		    struct mpib_shares **ret);
struct mpib_shares *mpib_shares_free(struct mpib_shares *shares);

/* ---- one slot ---- */

/* The share of the flow of slot @index as of now, into the table. Returns the one that was in force
 * before, 0 for a new flow. */
uint32_t mpib_shares_apply(struct mpib_shares *shares, uint32_t index);
/* Frees the slot in the table. */
void mpib_shares_clear(struct mpib_shares *shares, uint32_t index);
/* What mpib_shares_apply() found last, all 0 after mpib_shares_clear(). */
const struct mpib_verdict *mpib_shares_verdict(const struct mpib_shares *shares, uint32_t index);

/* ---- shares that find themselves ---- */

/* True while mpib_shares_tick() has to be called every MPIB_TUNING_TICK_USEC. */
bool mpib_shares_is_due(const struct mpib_shares *shares);
/* Looks at the flows whose bytes move, and writes what was found into the table. @now_usec:
 * monotonic. */
void mpib_shares_tick(struct mpib_shares *shares, struct mpib_traffic *traffic, uint64_t now_usec);
/* Once a heartbeat. */
void mpib_shares_beat(struct mpib_shares *shares, uint64_t now_usec);
/* What is known of the flow of slot @index, or NULL where its share doesn't find itself. */
const struct mpib_tuned *mpib_shares_tuned(const struct mpib_shares *shares, uint32_t index);
/* Flows whose share finds itself, and changes of them since the start. */
uint32_t mpib_shares_n_auto(const struct mpib_shares *shares);
uint64_t mpib_shares_n_found(const struct mpib_shares *shares);

/* ---- the policy ---- */

/* Takes @policy over: it holds for whatever is asked from now on. The shares of all flows that are
 * there follow in slices. Not while those of another policy do. */
void mpib_shares_begin_policy(struct mpib_shares *shares, struct mpib_policy *policy);
/* A slice of them, some 50 us. True where more is to be done. */
bool mpib_shares_step(struct mpib_shares *shares);
/* After the last slice: how many changed. *ret_changes: which, with one reference for the caller,
 * or NULL where memory is out. */
uint32_t mpib_shares_end_policy(struct mpib_shares *shares,
				struct mpib_share_changes **ret_changes);
/* The file of the policy in force. */
struct mpib_policy_source *mpib_shares_source(struct mpib_shares *shares);
/* What each rule says about a flow and which one is in force. */
void mpib_shares_judge(const struct mpib_shares *shares, uint32_t src_be, uint32_t dst_be,
		       struct mpib_candidate ret_candidates[MPIB_RULE_MAX],
		       struct mpib_verdict *ret);
/* A place in the text of what is in force; all 0: its beginning. */
struct mpib_shares_place {
	struct mpib_config_place policy;
	uint32_t override;
};

/* The next piece of that text, as mpib_config_print_some() has it; what a person set follows. While
 * the version is the same it is one text. */
size_t mpib_shares_print(const struct mpib_shares *shares, struct mpib_shares_place *place,
			 char *buf, size_t size);
uint32_t mpib_shares_text_version(const struct mpib_shares *shares);

/* ---- what a person set ---- */

/* Reads what an earlier agent left in @dir_fd; see mpib_overrides_open(). Without it, nothing can
 * be set. */
int mpib_shares_open_overrides(struct mpib_shares *shares, int dir_fd, const char *dir,
			       struct mpib_cause *cause);
/* See mpib_overrides_move() and mpib_overrides_check(). */
void mpib_shares_move_overrides(struct mpib_shares *shares, int dir_fd);
int mpib_shares_check_overrides(struct mpib_shares *shares, struct mpib_cause *cause);

/* Sets the share of a flow, above the policy. 1 where the share in force changed, 0 where it
 * didn't, or a negative errno with @cause. */
int mpib_shares_set(struct mpib_shares *shares, const struct mpib_override *override,
		    struct mpib_share_change *ret_change, struct mpib_cause *cause);
/* Ends it, in the name of @uid. -ENOENT where none is set. */
int mpib_shares_unset(struct mpib_shares *shares, uint32_t src_be, uint32_t dst_be, uid_t uid,
		      struct mpib_share_change *ret_change, struct mpib_cause *cause);
/* Ends those whose time is over; called about once a second. */
void mpib_shares_expire(struct mpib_shares *shares);
/* What is left of the time of a flow's override, at least a second; 0 where it has no end or
 * @verdict is another rule's. */
uint32_t mpib_shares_seconds_left(const struct mpib_shares *shares,
				  const struct mpib_verdict *verdict, uint32_t src_be,
				  uint32_t dst_be);

/* For tests. */
const struct mpib_overrides *mpib_shares_overrides(const struct mpib_shares *shares);

#endif
