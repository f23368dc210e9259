/* SPDX-License-Identifier: Apache-2.0 */
/* The share of a flow that finds its own: from what its rails carried, and how long they were busy
 * with it, to the share at which both need the same time. Pure: no I/O, no clock, no memory of its
 * own. Index 0 is SOUT, 1 is SUP. */
#ifndef MPIB_AGENT_BALANCE_H
#define MPIB_AGENT_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

/* A window takes that long at least, and that many bytes of both rails together. One that hasn't
 * got them after the longest time says too little. */
#define MPIB_BALANCE_WINDOW_USEC  10000u
#define MPIB_BALANCE_WINDOW_BYTES (64u << 10)
#define MPIB_BALANCE_LONGEST_USEC 1000000u

/* Changes that are remembered for people. */
#define MPIB_BALANCE_MOVES 4u

/* ---- one connection's counters -------------------------------------------------------------- */

/* What a sender counts, by rail. */
struct mpib_balance_counts {
	uint32_t timed;	       /* how often it began to tell busy times; 0: it doesn't at present */
	uint64_t bytes[2];     /* posted */
	uint64_t apart[2];     /* of these, outside of spans of busy time */
	uint32_t posts[2];     /* parts, modulo 2^32 */
	uint32_t done[2];      /* of these, completed, as of a moment that isn't later */
	uint64_t busy_nsec[2]; /* while at least one part was under way, told as parts complete */
	bool under_way[2];     /* parts are, in a span of busy time */
};

/* Bytes posted by the number of posts, at looks: between two of them parts are taken for alike.
 * What the share's change makes of them is no mistake, as it happens right after a look. */
#define MPIB_BALANCE_POINTS 5u

struct mpib_balance_curve {
	struct {
		uint64_t bytes;
		uint32_t posts;
	} at[MPIB_BALANCE_POINTS];
	uint32_t n;
};

enum mpib_balance_lie {
	MPIB_BALANCE_TRUE = 0,
	MPIB_BALANCE_BACK,     /* a count jumped back */
	MPIB_BALANCE_TOO_BUSY, /* more busy time than time went by */
	MPIB_BALANCE_TOO_MANY, /* more parts completed than posted */
	MPIB_BALANCE_NO_TIME,  /* bytes complete, and no busy time goes by */
	MPIB_BALANCE_LIE_MAX,
};

/* What was seen of a connection so far; all 0: nothing. */
struct mpib_balance_seen {
	struct mpib_balance_counts counts;
	struct mpib_balance_curve curve[2];
	uint64_t completed[2]; /* bytes within spans, as the curve has them */
	uint64_t looked_usec;  /* the latest look */
	uint64_t told_usec[2]; /* busy time may be of after that */
	uint32_t ahead[2];     /* parts that completed beyond those posted, when it began */
	uint32_t doubt;	       /* looks that have to be as they should until it is 0 */
	uint8_t timeless[2];   /* looks with bytes of which the time is still to come */
	uint8_t odd;	       /* looks in a row that can't be, and were left out */
	uint8_t lie;	       /* enum mpib_balance_lie: nothing is taken from it at present */
	bool told;	       /* that it lies */
};

/* What one or several connections add to a window. */
struct mpib_balance_look {
	uint64_t usec; /* since the look before */
	uint64_t bytes[2];
	uint64_t busy_nsec[2];	    /* of all together */
	uint64_t busy_most_nsec[2]; /* of the busiest one */
	unsigned int connections;   /* that told of any, or have parts under way */
	uint32_t queued[2];	    /* parts under way at the moment, of all together */
	uint64_t waiting[2];	    /* their bytes */
	uint32_t done[2];	    /* parts that completed */
	bool under_way[2];	    /* parts are */
};

/* Adds what @counts have beyond @seen to @look, and keeps it; the first sight, and the first after
 * it began anew, add nothing. What can't be adds nothing either: an honest process may seem to say
 * it once, as its numbers are read while they change. Who says it again and again lies: that is
 * returned once, and nothing is added until it has been true for a while. @now_usec: monotonic, not
 * 0. */
enum mpib_balance_lie mpib_balance_see(struct mpib_balance_seen *seen,
				       const struct mpib_balance_counts *counts, uint64_t now_usec,
				       struct mpib_balance_look *look);
/* "its counters jumped back"; also for people. */
const char *mpib_balance_lie_text(enum mpib_balance_lie lie);

/* ---- the decision --------------------------------------------------------------------------- */

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
	uint32_t least;	      /* of the share, 0..1024 */
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
	double busy[2];	   /* connections that a rail is busy with, likewise */
	double uneven;	   /* of the latest window: above 0, SUP had room, below, SOUT */
	struct mpib_balance_sum average;		    /* older ones weigh less */
	struct mpib_balance_sum latest;			    /* the latest window */
	struct mpib_balance_window open;		    /* the one that is being filled */
	uint64_t windows;				    /* used */
	uint64_t unused;				    /* windows that said too little */
	uint64_t changes;				    /* of the share */
	struct mpib_balance_move moves[MPIB_BALANCE_MOVES]; /* the latest first */
};

/* Takes what a look found: MPIB_BALANCE_NOTHING, or why balance->share is another one now. @lost:
 * bits of rails that carry nothing at present. @now_usec: kept with the change, not judged. */
enum mpib_balance_reason mpib_balance_step(struct mpib_balance *balance,
					   const struct mpib_balance_limits *limits,
					   const struct mpib_balance_look *look, unsigned int lost,
					   uint64_t now_usec);
/* Puts @share into force for @reason, within the limits; the same result. What was measured stays.
 */
enum mpib_balance_reason mpib_balance_put(struct mpib_balance *balance,
					  const struct mpib_balance_limits *limits, uint32_t share,
					  enum mpib_balance_reason reason, uint64_t now_usec);
/* Bytes a second that @rail gave while it was busy; 0: not measured. */
uint64_t mpib_balance_rate(const struct mpib_balance *balance, unsigned int rail);
/* "no traffic yet", "measured", "its plugin is older and tells no busy times": for people. */
const char *mpib_balance_state_text(enum mpib_balance_state state);

/* "first window", "step": for people. */
const char *mpib_balance_reason_text(enum mpib_balance_reason reason);

#endif
