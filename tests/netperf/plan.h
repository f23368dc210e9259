/* SPDX-License-Identifier: Apache-2.0 */
/* What is sent: stages, and in each a row of groups of messages that both ends work out alike from
 * the options. Pure. */
#ifndef MPIB_NETPERF_PLAN_H
#define MPIB_NETPERF_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/netperf/net.h"
#include "tests/netperf/options.h"

#define NP_STAGE_NAME 40
#define NP_STAGES_MAX (NP_SIZES_MAX + 8)
#define NP_NO_TARGET  UINT64_MAX

struct np_stage {
	char name[NP_STAGE_NAME];
	uint64_t id;	 /* gives each stage and round its own pattern */
	size_t min_size; /* of the posted receives */
	size_t max_size;
	uint64_t messages;	/* a connection; NP_NO_TARGET: until told */
	unsigned int group_max; /* receives that one irecv may group, 1.. */
	unsigned int requests;	/* in flight a connection */
	bool shorter;		/* sends fill a part of the receive */
	bool optional;		/* receives say that no completion is needed (v9..) */
	bool light;		/* check head, tail and stamp only, and the rest at the end */
	bool in_order;		/* test the oldest request only, as NCCL does */
	bool null_sizes;	/* some calls of test get no sizes */
	bool churn;		/* register and deregister beside the traffic */
};

struct np_message {
	uint64_t number; /* counts the sends of a connection from 0 */
	int tag;
	size_t size, room;
};

struct np_group {
	unsigned int n;
	struct np_message recv[NP_RECVS_MAX];  /* in the order of irecv's arrays */
	unsigned int send_order[NP_RECVS_MAX]; /* k-th send: index in recv */
};

/* Fills @stages (NP_STAGES_MAX) for one round; the count. */
unsigned int np_plan_stages(const struct np_options *opts, int api, unsigned int max_recvs,
			    unsigned int channels, uint64_t round, struct np_stage *stages);

/* Group number @number of a connection: its first message has number @first, and at most @left
 * messages are wanted. Equal tags within a group meet in order. */
void np_plan_group(const struct np_stage *stage, uint64_t seed, unsigned int channel,
		   uint64_t number, uint64_t first, uint64_t left, struct np_group *ret);

#endif
