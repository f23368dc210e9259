/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator reads: one function an event, so that fields and MESSAGE_IDs can't vary. Under
 * systemd entries go to the journal with fields, elsewhere the same text goes to stderr. Bursts
 * beyond a bound a window are counted, and the count is an entry. */
#ifndef MPIB_AGENT_JOURNAL_H
#define MPIB_AGENT_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/base/clock.h"
#include "agent/policy/policy.h"
#include "agent/slots/registry.h"
#include "agent/state/overrides.h"

enum mpib_event {
	MPIB_EVENT_START,
	MPIB_EVENT_STOP,
	MPIB_EVENT_REGISTER,
	MPIB_EVENT_DEREGISTER,
	MPIB_EVENT_HINT,
	MPIB_EVENT_RELOAD,
	MPIB_EVENT_RELOAD_REFUSED,
	MPIB_EVENT_REFUSAL, /* of a registration or a request */
	MPIB_EVENT_CLIENT,  /* dropped for what it sent */
	MPIB_EVENT_LIMIT,   /* out of descriptors or connections */
	MPIB_EVENT_ADOPT,
	MPIB_EVENT_SUPPRESSED,
	MPIB_EVENT_OVERRIDE, /* a share set by a person came or went */
	MPIB_EVENT_RAIL_LOST,
	MPIB_EVENT_RAIL_BACK,
	MPIB_EVENT_MAX,
};

/* Length of a window and how many entries it takes: of jobs' events, of their rails, and of what
 * bad or unlucky clients cause. The unit's own limit is above their sum. */
#define MPIB_JOURNAL_WINDOW_USEC  (10u * MPIB_CLOCK_SECOND)
#define MPIB_JOURNAL_BURST_FLOW	  1000u
#define MPIB_JOURNAL_BURST_RAIL	  500u
#define MPIB_JOURNAL_BURST_CLIENT 50u

struct mpib_journal;

/* "register", "hint"...: MPIB_EVENT's value. */
const char *mpib_event_name(enum mpib_event event);
/* 32 hexadecimal digits: MESSAGE_ID's value. */
const char *mpib_event_message_id(enum mpib_event event);

/* Time comes from @now_usec (monotonic), so that tests own it. -ENOMEM. */
int mpib_journal_new(uint64_t (*now_usec)(void), struct mpib_journal **ret);
/* Told of each entry that is written; @flow is "" where the entry is about none. It must not write
 * entries itself. NULL: nobody. */
typedef void (*mpib_journal_listener)(void *user, enum mpib_event event, int priority,
				      const char *flow, const char *message);
void mpib_journal_listen(struct mpib_journal *journal, mpib_journal_listener listener, void *user);
/* Says what is still only counted. */
struct mpib_journal *mpib_journal_free(struct mpib_journal *journal);

/* Ends a window that is over; called about once a second. */
void mpib_journal_tick(struct mpib_journal *journal);

/* Sends what waits; called at the end of each turn of the loop. */
void mpib_journal_flush(struct mpib_journal *journal);

/* Entries written and counted so far. */
uint64_t mpib_journal_written(const struct mpib_journal *journal);
uint64_t mpib_journal_suppressed(const struct mpib_journal *journal);

void mpib_journal_start(struct mpib_journal *journal, const char *dir, const char *config,
			uint32_t slots, uint32_t flows);
/* What is in force is not what the policy file says, or there is none. */
void mpib_journal_policy(struct mpib_journal *journal, const char *text);
void mpib_journal_stop(struct mpib_journal *journal, const char *dir, uint32_t flows);
/* Failed start or another end that a person must act on. */
void mpib_journal_failure(struct mpib_journal *journal, const char *text);
void mpib_journal_adopt(struct mpib_journal *journal, bool warning, const char *text);
/* @verdict: what is in force for the slot's flow. */
void mpib_journal_register(struct mpib_journal *journal, const struct mpib_reg *reg,
			   const struct mpib_slot *slot, const struct mpib_verdict *verdict);
void mpib_journal_deregister(struct mpib_journal *journal, const struct mpib_reg *reg,
			     const struct mpib_slot *slot, const struct mpib_verdict *verdict,
			     const char *why);
void mpib_journal_hint(struct mpib_journal *journal, uint32_t index, const struct mpib_slot *slot,
		       const struct mpib_verdict *verdict, uint32_t share_before);
/* A flow found its share by itself: @changes of them, from @share_before on. */
void mpib_journal_found(struct mpib_journal *journal, uint32_t index, const struct mpib_slot *slot,
			const struct mpib_verdict *verdict, const struct mpib_balance *balance,
			uint32_t share_before, uint32_t changes);
/* It can't, because of @why, and stays at @share. */
void mpib_journal_not_found(struct mpib_journal *journal, uint32_t index,
			    const struct mpib_slot *slot, uint32_t share, const char *why);
/* Connections of one process lost a rail or have it again: an entry a rail and way. @verdict: the
 * share in the table. */
void mpib_journal_rails(struct mpib_journal *journal, uint32_t index, const struct mpib_slot *slot,
			const struct mpib_verdict *verdict, const struct mpib_rail_news *news);
/* @how is "set", "unset" or "expired"; @usec its time, 0 for no end. */
void mpib_journal_override(struct mpib_journal *journal, const struct mpib_override *override,
			   const char *how, uint64_t usec, uid_t uid);
void mpib_journal_reload(struct mpib_journal *journal, const char *path, uint32_t flows,
			 uint32_t changed);
void mpib_journal_reload_refused(struct mpib_journal *journal, const char *cause);
/* @addresses is NULL where the request had none. */
void mpib_journal_refusal(struct mpib_journal *journal, const struct mpib_peer *peer,
			  uint32_t conn_id, const struct mpib_addresses *addresses,
			  const char *why);
/* A user may have no more of what is numbered @good, refused @count times since it was told of.
 * False where it isn't told of in this window any more. */
bool mpib_journal_quota(struct mpib_journal *journal, pid_t pid, uid_t uid, unsigned int good,
			uint32_t count, const char *why);
void mpib_journal_client(struct mpib_journal *journal, pid_t pid, uid_t uid, const char *why);
/* The same event, of a client that passed a descriptor without a use and stays connected. */
void mpib_journal_descriptor(struct mpib_journal *journal, pid_t pid, uid_t uid);
/* The same event, of a process whose counters say what can't be, and are believed no more, or only
 * after a while without that. */
void mpib_journal_lie(struct mpib_journal *journal, const struct mpib_reg *reg, const char *why,
		      bool for_good);
void mpib_journal_limit(struct mpib_journal *journal, const char *text);

#endif
