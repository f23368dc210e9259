/* SPDX-License-Identifier: Apache-2.0 */
/* What the counters of connections add to a look at a flow, as far as it can be believed. Pure: no
 * I/O, no clock, no memory of its own. Index 0 is SOUT, 1 is SUP. */
#ifndef MPIB_AGENT_BALANCE_COUNTS_H
#define MPIB_AGENT_BALANCE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

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
	uint64_t done_usec; /* the latest look at which a part was done, or none was waited for */
	uint64_t longest_wait_usec; /* for the next part, of late */
	uint32_t ahead[2];	    /* parts that completed beyond those posted, when it began */
	uint32_t doubt;		    /* looks that have to be as they should until it is 0 */
	uint8_t timeless[2];	    /* looks with bytes of which the time is still to come */
	uint8_t odd;		    /* looks in a row that can't be, and were left out */
	uint8_t lie;		    /* enum mpib_balance_lie: nothing is taken from it at present */
	bool told;		    /* that it lies */
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

#endif
