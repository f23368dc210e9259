/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two ends tell each other of a rail that is lost, and how it comes back: the payloads of
 * RAIL_DOWN, RAIL_UP and RAIL_READY, what each of them means in each state of a rail, and what a
 * RAIL_DOWN says of a row. Pure. docs/wire.md draws the bytes and tells the order; the model in
 * tests/unit/plugin tries all orders of events over these very functions.
 */
#ifndef MPIB_PLUGIN_FAILOVER_H
#define MPIB_PLUGIN_FAILOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/base/rail.h"
#include "plugin/wire/cts.h"
#include "plugin/wire/handshake.h"

/* ---- payloads ------------------------------------------------------------------------------ */

/* Why an end takes the rail for lost. Others than these decode to MPIB_CAUSE_OTHER. */
enum mpib_rail_cause {
	MPIB_CAUSE_OTHER = 0,
	MPIB_CAUSE_PORT = 1,	   /* an event of its port or device */
	MPIB_CAUSE_COMPLETION = 2, /* a request that failed, its retries used up */
	MPIB_CAUSE_STALL = 3,	   /* nothing of the rail completes while the other one does */
	MPIB_CAUSE_PEER = 4,	   /* the peer's RAIL_DOWN: this is the answer */
	MPIB_CAUSE_RETURN = 5,	   /* it could not be brought back */
};

#define MPIB_ROW_WORDS (MPIB_ROWS / 64)

/* All of it is true once the frame is sent, and stays true: the end that sends it has its queue
 * pairs of the rail in ERR and has taken what they left in the completion queue. */
struct mpib_rail_down {
	uint8_t rail;
	uint8_t cause;	/* enum mpib_rail_cause */
	uint32_t epoch; /* of the queue pairs that are lost; the first ones have 0 */
	/* A sender's: rows that it has matched. A receiver's: rows that it has posted. */
	uint32_t rows;
	/* A receiver's alone, a bit a slot: the part that the split gave to SOUT, or to SUP, has
	 * arrived, on whichever rail; or its row is done. */
	uint64_t arrived[MPIB_RAIL_MAX][MPIB_ROW_WORDS];
};

/* New queue pairs, ready to receive. */
struct mpib_rail_up {
	uint8_t rail;
	uint32_t epoch;
	struct mpib_peer_qps qps; /* those of the rail, and nothing of the other one */
};

#define MPIB_RAIL_DOWN_SENDER	12
#define MPIB_RAIL_DOWN_RECEIVER (12 + MPIB_RAIL_MAX * MPIB_ROWS / 8)
#define MPIB_RAIL_READY_SIZE	8

/* Bytes written; @buf holds MPIB_FRAME_PAYLOAD_MAX bytes. */
size_t mpib_rail_down_encode(uint8_t *buf, const struct mpib_rail_down *down, bool receiver);
size_t mpib_rail_up_encode(uint8_t *buf, const struct mpib_rail_up *up);
size_t mpib_rail_ready_encode(uint8_t *buf, unsigned int rail, uint32_t epoch);

/* 0, or -EBADMSG. @receiver: the frame comes from the receiving end. */
int mpib_rail_down_decode(const uint8_t *buf, size_t len, bool receiver,
			  struct mpib_rail_down *ret);
int mpib_rail_up_decode(const uint8_t *buf, size_t len, struct mpib_rail_up *ret);
int mpib_rail_ready_decode(const uint8_t *buf, size_t len, unsigned int *ret_rail,
			   uint32_t *ret_epoch);

/* ---- a rail's states ------------------------------------------------------------------------- */

enum mpib_rail_state {
	MPIB_RAIL_UP,	/* in use */
	MPIB_RAIL_MADE, /* new queue pairs. Receiver: they receive. Sender: not connected yet */
	MPIB_RAIL_SAID, /* its queue pairs are in ERR, and the peer has been told */
	MPIB_RAIL_LOST, /* so are the peer's, and what that means is done */
};

struct mpib_rail_end {
	uint8_t state;	/* enum mpib_rail_state */
	uint32_t epoch; /* of the queue pairs that it has, or had last */
};

/* What a frame asks of the end that reads it. */
enum mpib_rail_todo {
	MPIB_TODO_NOTHING,
	/* RAIL_DOWN: what it says is acted on, and the state is LOST then. With _STOP, before
	 * that: the queue pairs to ERR, what they left is polled, and RAIL_DOWN is said. */
	MPIB_TODO_SETTLE,
	MPIB_TODO_STOP_AND_SETTLE,
	/* RAIL_UP at the receiver: new queue pairs, able to receive, and the answer. The state is
	 * MADE then, with the frame's epoch. */
	MPIB_TODO_MAKE,
	/* RAIL_UP at the sender: the new queue pairs are connected, RAIL_READY is said. UP. */
	MPIB_TODO_CONNECT,
	MPIB_TODO_USE, /* RAIL_READY: UP */
};

/* enum mpib_rail_todo, or -EPROTO for a frame that no peer in its right mind sends: of an epoch to
 * come, or for the other kind of end, or out of order. Nothing of @end changes. */
int mpib_rail_on_down(const struct mpib_rail_end *end, uint32_t epoch);
int mpib_rail_on_up(const struct mpib_rail_end *end, bool receiver, uint32_t epoch);
int mpib_rail_on_ready(const struct mpib_rail_end *end, bool receiver, uint32_t epoch);

/* ---- rows ---------------------------------------------------------------------------------- */

/* Whether the rows of a frame can be. At the receiver, which has posted @tail rows; at the sender,
 * which has matched @head. */
bool mpib_rail_rows_of_sender(const struct mpib_rail_down *down, uint32_t tail);
bool mpib_rail_rows_of_receiver(const struct mpib_rail_down *down, uint32_t head);

/* Marks part @part of the row in @slot. */
void mpib_rail_down_mark(struct mpib_rail_down *down, unsigned int slot, unsigned int part);

/* At the sender: whether part @part of @row has arrived, as the receiver's @down says. */
bool mpib_rail_has_arrived(const struct mpib_rail_down *down, uint32_t row, unsigned int part);

/* ---- the immediate of a part that comes on the other rail --------------------------------------
 */

/* Its mask lacks the rail that it comes on, which no other one does: it names its part alone where
 * the row has no other part, else nothing. A receiver that meets it before the other part would
 * take the row for done if it could not tell these apart. */
static inline unsigned int mpib_replay_mask(unsigned int part, bool alone)
{
	return alone ? mpib_rail_bit(part) : 0;
}

static inline bool mpib_mask_is_replay(unsigned int mask, unsigned int rail)
{
	return !(mask & mpib_rail_bit(rail));
}

/* The parts of the row, of which an immediate with @mask came on @rail. */
static inline unsigned int mpib_mask_parts(unsigned int mask, unsigned int rail)
{
	if (!mpib_mask_is_replay(mask, rail))
		return mask;
	return mask ? mask : mpib_rail_bit(MPIB_SOUT) | mpib_rail_bit(MPIB_SUP);
}

#endif
