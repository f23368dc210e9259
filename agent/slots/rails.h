/* SPDX-License-Identifier: Apache-2.0 */
/* What connections say of lost rails in their counters: judged, and summed for each flow. The
 * numbers are a process's own and may be anything; those that contradict themselves are not
 * believed any more. Index 0 is SOUT, 1 is SUP. No I/O. One thread. */
#ifndef MPIB_AGENT_RAILS_H
#define MPIB_AGENT_RAILS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/slots/counter_map.h"

/* Rails in a mask. */
#define MPIB_RAILS_BOTH 3u

struct mpib_rail_counts {
	uint64_t losses[2];
	uint64_t returns[2];
	uint64_t parts_again[2]; /* parts of messages that were sent again */
};

/* Connections of a flow, or of all flows. */
struct mpib_rail_state {
	uint32_t known;	  /* whose counters tell their rails */
	uint32_t up[2];	  /* of these, that have the rail */
	uint32_t lost[2]; /* that had it and lost it; up and lost both 0: never had */
};

/* Of a registration. All zeros at first. */
struct mpib_reg_rails {
	struct mpib_rail_counts seen;
	uint32_t table; /* number of its process's table that these are of; 0: none yet */
	uint8_t said;	/* what it said of the rails that are up, rails in masks */
	uint8_t up;	/* as in the flow's state */
	uint8_t lost;
	uint8_t had;	 /* was up in some look */
	uint8_t leaving; /* taken for lost before it was counted as such */
	bool known;
	bool lied; /* nothing more is believed */
};

/* What happened to a flow's connections of one process, and isn't told yet. */
struct mpib_rail_news {
	uint64_t peer_key; /* of the process */
	pid_t pid;
	uid_t uid;
	struct mpib_rail_counts added;
	uint32_t lost_by[2];	 /* connections that lost the rail, once or more */
	uint32_t returned_to[2]; /* connections that have it again */
	unsigned int up;	 /* rails that any of them has now, a mask */
};

/* Judges what a connection says @now against what it said before. NULL: *ret_added is what was
 * added, and @rails have the rest; otherwise why it can't be, and nothing of it counts. @table is
 * the number of the process's table, from 1 on: counts may begin anew in another one. @restored:
 * an earlier agent told what there was, so that at the first look only a rail that is lost now is
 * news. */
const char *mpib_rails_judge(struct mpib_reg_rails *rails, const struct mpib_counter_rails *now,
			     uint32_t table, bool restored, struct mpib_rail_counts *ret_added);

/* True where @now says nothing that the latest look at the same table didn't say. */
bool mpib_rails_same(const struct mpib_reg_rails *rails, const struct mpib_counter_rails *now,
		     uint32_t table);

/* Takes a registration into the state of its flow with these rails, or out of it. */
void mpib_rails_count(struct mpib_rail_state *state, const struct mpib_reg_rails *rails, bool in);

/* True where a rail was lost or came back. */
bool mpib_rails_changed(const struct mpib_rail_counts *added);
void mpib_rails_add(struct mpib_rail_counts *sum, const struct mpib_rail_counts *added);

#endif
