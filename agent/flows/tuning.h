/* SPDX-License-Identifier: Apache-2.0 */
/* Flows whose share finds itself: what their connections' counters tell, look by look, becomes a
 * share (agent/policy/balance.h). Looked at every 10 ms while they move bytes, and not at all while
 * they don't. Knows neither table nor policy. One thread. */
#ifndef MPIB_AGENT_TUNING_H
#define MPIB_AGENT_TUNING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "agent/journal/journal.h"
#include "agent/policy/balance.h"
#include "agent/slots/registry.h"
#include "agent/slots/traffic.h"

#define MPIB_TUNING_TICK_USEC MPIB_BALANCE_WINDOW_USEC

struct mpib_tuned {
	TAILQ_ENTRY(mpib_tuned) all;
	TAILQ_ENTRY(mpib_tuned) moving; /* while it is looked at */
	uint32_t slot;
	struct mpib_balance balance;
	struct mpib_balance_limits limits;
	bool restored; /* the share is of before */
	bool is_moving;
	uint64_t looked_usec;	  /* monotonic: the latest look, 0: none since it began to move */
	uint64_t moved_usec;	  /* monotonic: the latest bytes that were seen */
	uint64_t slot_moved_usec; /* of the slot, as seen at the latest heartbeat */
	enum mpib_balance_state state;
	uint64_t begun_usec; /* monotonic */
	bool told_state;     /* that it can't be measured */
	/* What the journal doesn't say yet. */
	uint64_t told_usec; /* monotonic: the latest entry, 0: none */
	uint32_t told_share;
	uint32_t untold; /* changes since */
};

TAILQ_HEAD(mpib_tuned_queue, mpib_tuned);

/* Of all slots. The owner sets the first two; all else 0, before mpib_tuning_init(). */
struct mpib_tuning {
	struct mpib_registry *registry; /* borrowed */
	struct mpib_journal *journal;	/* likewise */
	struct mpib_tuned **of_slot;	/* MPIB_HINT_ENTRIES_MAX */
	struct mpib_tuned_queue all;
	struct mpib_tuned_queue moving;
	uint32_t count;
	uint64_t changes; /* of shares, since the start */
};

/* -ENOMEM. */
int mpib_tuning_init(struct mpib_tuning *tuning);
void mpib_tuning_done(struct mpib_tuning *tuning);

/* The flow of slot @index finds its share from now on, between @limits, or has done so before and
 * gets other limits. @start: where it starts; @restored: an earlier agent had found that. Returns
 * its share. Where memory is out it is @start, and nothing is measured. */
uint32_t mpib_tuning_begin(struct mpib_tuning *tuning, uint32_t index,
			   const struct mpib_balance_limits *limits, uint32_t start, bool restored);
/* It doesn't any more; nothing where it didn't. */
void mpib_tuning_end(struct mpib_tuning *tuning, uint32_t index);
/* What is known of the flow of slot @index, or NULL where its share doesn't find itself. */
struct mpib_tuned *mpib_tuning_of(const struct mpib_tuning *tuning, uint32_t index);

/* True while some of them have to be looked at every MPIB_TUNING_TICK_USEC. */
bool mpib_tuning_is_due(const struct mpib_tuning *tuning);
/* Once a heartbeat: flows whose bytes moved are looked at from now on. */
void mpib_tuning_beat(struct mpib_tuning *tuning, uint64_t now_usec);
/* Looks at flows that move, some hundred connections of them at most; the others have their turn
 * with the next tick. @change is called for each share that is another one now. @now_usec:
 * monotonic. */
void mpib_tuning_tick(struct mpib_tuning *tuning, struct mpib_traffic *traffic, uint64_t now_usec,
		      void (*change)(void *user, struct mpib_tuned *tuned, uint32_t before,
				     enum mpib_balance_reason reason),
		      void *user);

#endif
