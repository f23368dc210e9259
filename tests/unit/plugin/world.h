/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection and a model of it: rows of receives that are made up at random, what was sent into
 * them, and what must have arrived. Each try_ function makes one call, or none where it would be
 * out of place, and holds the answer against the model.
 */
#ifndef MPIB_TESTS_UNIT_PLUGIN_WORLD_H
#define MPIB_TESTS_UNIT_PLUGIN_WORLD_H

#include "tests/unit/plugin/test.h"

#include "common/mpib_agent_iface.h"
#include "plugin/wire/cts.h"
#include "tests/unit/plugin/pair.h"

#define WORLD_SLOTS 1280u /* buffers each way */
#define WORLD_ROWS  512u

struct world_message {
	int tag;
	size_t room, size;
	unsigned int in, out; /* slots */
	uint8_t pattern;
	void *request; /* of the sender */
	enum { WORLD_TO_SEND, WORLD_SENT, WORLD_SENT_DONE } state;
};

struct world_row {
	int n;
	struct world_message message[MPIB_GROUP_MAX];
	void *request, *flush; /* of the receiver */
};

/* Buffers go round, so that the one handed back longest ago is used next: what was written into it
 * since is seen then. */
struct world_slots {
	uint8_t *memory;
	void *mr;
	unsigned int free[WORLD_SLOTS], head, tail;
};

struct world {
	struct pair p;
	struct world_slots in, out;
	struct mpib_hint_entry hint;
	struct world_row rows[WORLD_ROWS];
	/* Rows: made up, posted, all messages sent, through. */
	unsigned int planned, posted, sent, received;
	unsigned int window, max_group; /* rows posted at once, messages of a row */
	unsigned int open;		/* receives and flushes under way */
	bool long_ones;			/* many messages are as long as a buffer */
	bool steady;			/* shares hardly change */
	bool faulty;			/* an error is what is expected, sooner or later */
	bool failed;			/* there was one */
	uint64_t bytes, messages;	/* sent, through */
};

/* The connection, its buffers, and what chance says of the rest. */
void world_open(struct world *w, bool faulty);
void world_close(struct world *w);

void world_try_irecv(struct world *w);
void world_try_isend(struct world *w);
void world_try_test_send(struct world *w);
/* Tests a receive, or the flush that follows it. */
void world_try_test_recv(struct world *w);

/* With every row through: nothing is left over in either end. */
void world_check_ended(const struct world *w);

#endif
