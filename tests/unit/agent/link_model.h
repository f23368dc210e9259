/* SPDX-License-Identifier: Apache-2.0 */
/* Two rails as a model: each divides its rate among queue pairs, as a NIC does, and a queue pair
 * carries one part after another. Connections keep a window of messages on them, divided by a
 * share. What they count is what a plugin counts: a rail is busy from a message on that takes both
 * rails until nothing is under way on it. Time is in microseconds. */
#ifndef MPIB_TESTS_UNIT_AGENT_LINK_MODEL_H
#define MPIB_TESTS_UNIT_AGENT_LINK_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/policy/balance.h"

#define LINK_CONNECTIONS_MAX 4u
#define LINK_WINDOW_MAX	     32u

/* A message's bytes on one rail. */
struct link_part {
	double left;	 /* bytes that aren't on the wire yet */
	double done;	 /* when it completes, once all are */
	unsigned int on; /* the rail that carries it */
};

struct link_connection {
	double size;	     /* of a message */
	unsigned int qps[2]; /* 0: one; messages take them in turn */
	unsigned int window; /* messages under way; 0: the connection is silent */
	bool fixed;	     /* its share is `share`, whatever the flow's is */
	uint32_t share;
	struct mpib_balance_counts counts;

	struct link_part part[LINK_WINDOW_MAX][2];
	uint64_t number[LINK_WINDOW_MAX]; /* of the message, counted from 1 */
	uint64_t messages;
	double carried; /* bytes posted so far, whole messages */
	unsigned int under_way[2];
	bool timing[2]; /* its busy time goes on */
	double busy_since[2];
	double busy[2];
};

struct link {
	double now;
	double rate[2];	   /* bytes a microsecond */
	double latency;	   /* of each part, beside its time on the rail */
	double noise;	   /* each part takes up to so much more or less, as a part of 1 */
	double credit;	   /* idle time that a rail makes up for, as a token bucket has it */
	bool in_step;	   /* no message is posted until all that were are through, and then */
	double pause;	   /* so much later: as the steps of a collective are */
	unsigned int lost; /* bits of rails: their parts take the other one */
	uint64_t random;
	double saved[2]; /* bytes that idle time is good for */
	double next_step;
	struct link_connection connection[LINK_CONNECTIONS_MAX];
};

/* Lets @usec go by; connections that aren't fixed divide by @share. */
void link_run(struct link *link, uint32_t share, double usec);
/* Bytes that were given to the rails so far, by all connections or by connection @n. */
double link_bytes(const struct link *link);
double link_bytes_of(const struct link *link, unsigned int n);
/* 0 to 1, from link->random. */
double link_random(struct link *link);

#endif
