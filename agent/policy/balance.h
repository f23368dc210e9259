/* SPDX-License-Identifier: Apache-2.0 */
/* The share of a flow that finds its own: from what its rails carried, and how long they were busy
 * with it, to the share at which both need the same time. Pure: no I/O, no clock, no memory of its
 * own. Index 0 is SOUT, 1 is SUP. */
#ifndef MPIB_AGENT_BALANCE_H
#define MPIB_AGENT_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/policy/balance_counts.h"

/* A window takes that long at least, and that many bytes of both rails together. One that hasn't
 * got them after the longest time says too little. */
#define MPIB_BALANCE_WINDOW_USEC  10000u
#define MPIB_BALANCE_WINDOW_BYTES (64u << 10)
#define MPIB_BALANCE_LONGEST_USEC 1000000u

/* Changes that are remembered for people. */
#define MPIB_BALANCE_MOVES 4u

enum mpib_balance_reason {
	MPIB_BALANCE_NOTHING = 0, /* no new share */
	MPIB_BALANCE_START,	  /* not measured yet: the ports' speeds, equal parts, or a guess */
	MPIB_BALANCE_FIRST,	  /* the first window */
	MPIB_BALANCE_AVERAGE,	  /* the moving average went there */
	MPIB_BALANCE_STEP,	  /* two windows in a row were far off it */
	MPIB_BALANCE_RETURN,	  /* the first window after a lost rail came back */
	MPIB_BALANCE_BOUNDS,	  /* bounds changed */
	MPIB_BALANCE_REASON_MAX,
};

/* Why a flow is, or is not, measured. Numbers as in the admin protocol. */
enum mpib_balance_state {
	MPIB_BALANCE_NO_TRAFFIC = 0,  /* nothing was seen yet that says something */
	MPIB_BALANCE_MEASURED = 1,    /* also: it was, and is silent now */
	MPIB_BALANCE_NO_COUNTERS = 2, /* none of its processes handed counters over */
	MPIB_BALANCE_OLD_PLUGIN = 3,  /* their plugins don't tell busy times */
	MPIB_BALANCE_LIES = 4,	      /* what they tell can't be */
	MPIB_BALANCE_ONE_RAIL = 5,    /* its connections have one rail */
	MPIB_BALANCE_STATE_MAX,
};

struct mpib_balance_limits {
	uint32_t least;	      /* of the share, 0..1024; see mpib_balance_step() */
	uint32_t most;	      /* not below @least */
	uint32_t settle_usec; /* time constant of the moving average, in time of traffic; not 0 */
};

struct mpib_balance_move {
	uint64_t usec; /* the look's time, as given */
	uint16_t before;
	uint16_t after;
	uint8_t reason; /* enum mpib_balance_reason */
};

struct mpib_balance_sum {
	double bytes[2];
	double usec[2]; /* while the rail was busy */
};

/* What is being looked at. */
struct mpib_balance_window {
	double usec;
	double bytes[2];
	double busy_usec[2]; /* as in a look */
	double busy_most_usec[2];
	unsigned int connections; /* at most in one look */
	double queued[2];	  /* summed over looks */
	double done[2];
	unsigned int looks;
};

/* All 0 but the share: nothing is measured. */
struct mpib_balance {
	uint32_t share;	   /* in force */
	uint8_t lost;	   /* bits of rails */
	bool measured;	   /* `average` has something */
	bool returned;	   /* the next window is the first one after a loss */
	uint8_t off;	   /* rails that were far off in the latest window, by rail and side */
	uint32_t restless; /* goes up with each step, down with each window */
	double queued[2];  /* parts under way at a look, of the latest windows */
	int lasting;	   /* windows in a row that raised SUP's rate; below 0: SOUT's */
	double ahead;	   /* logarithm of what SUP's rate is raised by, for the share alone */
	struct mpib_balance_sum average;		    /* older ones weigh less */
	struct mpib_balance_sum latest;			    /* the latest window */
	struct mpib_balance_window open;		    /* the one that is being filled */
	uint64_t windows;				    /* used */
	uint64_t unused;				    /* windows that said too little */
	uint64_t changes;				    /* of the share */
	struct mpib_balance_move moves[MPIB_BALANCE_MOVES]; /* the latest first */
};

/* Takes what a look found: MPIB_BALANCE_NOTHING, or why balance->share is another one now. @lost:
 * bits of rails that carry nothing at present. @now_usec: kept with the change, not judged. What is
 * found leaves each rail 8 of 1024 where @limits would allow less, as nothing tells otherwise when
 * it ought to have more again. */
enum mpib_balance_reason mpib_balance_step(struct mpib_balance *balance,
					   const struct mpib_balance_limits *limits,
					   const struct mpib_balance_look *look, unsigned int lost,
					   uint64_t now_usec);
/* Puts @share into force for @reason, within the limits; the same result. What was measured stays.
 */
enum mpib_balance_reason mpib_balance_put(struct mpib_balance *balance,
					  const struct mpib_balance_limits *limits, uint32_t share,
					  enum mpib_balance_reason reason, uint64_t now_usec);
/* Bytes a second that @rail gave while it was busy, 1e18 at most; 0: not measured. */
uint64_t mpib_balance_rate(const struct mpib_balance *balance, unsigned int rail);
/* "no traffic yet", "measured", "its plugin is older and tells no busy times": for people. */
const char *mpib_balance_state_text(enum mpib_balance_state state);

/* "first window", "step": for people. */
const char *mpib_balance_reason_text(enum mpib_balance_reason reason);

#endif
