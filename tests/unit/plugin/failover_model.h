/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of one connection between two rails that get lost and come back, small enough that every
 * order of events can be tried. It has what decides whether a byte is lost or written twice: rows
 * and their parts, queue pairs with their packets, the ring of clear-to-sends, and the frames of
 * the control connection. Nothing of the plugin is linked: the model says what the plugin has to
 * do.
 *
 * A rail's queue pairs exist in incarnations, told apart by an epoch. A packet that was posted may
 * arrive at any later time, as long as the queue pairs of its epoch live at the end that it goes
 * to; its acknowledgement may, as long as they live at the end that posted it. Either end may take
 * a rail for lost at any time: that is a port event, retries that ran out, or a false alarm.
 */
#ifndef MPIB_TESTS_UNIT_PLUGIN_FAILOVER_MODEL_H
#define MPIB_TESTS_UNIT_PLUGIN_FAILOVER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/wire/failover.h"

/* The most that a run has. Small where all orders are tried, larger where chance takes one. */
#ifndef MODEL_LARGE
#define MODEL_ROWS   3
#define MODEL_SLOTS  2
#define MODEL_EPOCHS 3
#define MODEL_CTS    6 /* clear-to-sends under way on one queue pair */
#define MODEL_FRAMES 8
#else
#define MODEL_ROWS   12
#define MODEL_SLOTS  4
#define MODEL_EPOCHS 8
#define MODEL_CTS    32
#define MODEL_FRAMES 32
#endif
#define MODEL_RAILS 2
#define MODEL_PARTS 2 /* part p of a row is the one that the split gave to rail p */

enum model_end {
	MODEL_SENDER,
	MODEL_RECEIVER,
	MODEL_ENDS,
};

/* Orders that are known to be wrong; each must be found. */
enum model_fault {
	MODEL_RIGHT,
	MODEL_RECEIVER_SAYS_FIRST, /* RAIL_DOWN goes out before its queue pairs are in ERR */
	MODEL_SENDER_SAYS_FIRST,
	MODEL_SENDER_DOESNT_WAIT,   /* parts go the other way before the receiver's RAIL_DOWN */
	MODEL_RECEIVER_DOESNT_WAIT, /* clear-to-sends again before the sender's */
	MODEL_CTS_OF_DONE_ROWS,	    /* they are written again for rows that are done, too */
	MODEL_CTS_CHANGES_RAIL,	    /* they change the rail while some are under way */
	MODEL_NO_CTS_AGAIN,	    /* they aren't written again */
	MODEL_DIVIDED_ANEW,	    /* a part is cut anew, by the share of now */
	MODEL_CREDITED_TWICE,  /* a part that was acknowledged is credited by RAIL_DOWN once more */
	MODEL_OLD_COMPLETIONS, /* completions of queue pairs in ERR still count */
	MODEL_EPOCH_AGAIN,     /* a rail comes back under the epoch that it had */
	MODEL_REPLAY_ALONE,    /* the immediate doesn't say whether the row has another part */
	MODEL_BEFORE_POLLING,  /* RAIL_DOWN leaves out what arrived and wasn't polled */
	MODEL_OLDER_ROWS,      /* a slot's bits are taken for those of a row before */
	MODEL_NEWER_ROWS,      /* and of one that was posted after the frame */
	MODEL_ONE_BITMAP,      /* one for the rail, in the place of one for each part */
	MODEL_NO_MORE_RECEIVES, /* a row's parts on one rail find one receive there, as before */
	MODEL_TOO_FEW_RECEIVES, /* so do those of a row posted before the sender has spoken */
	MODEL_ONE_SIDED,	/* the end that is told goes on with the rail */
	MODEL_FEW_ON_RETURN,	/* a rail that comes back has one receive a row where both do */
	MODEL_FAULTS,
};

/* What may happen in one run. */
struct model_config {
	const char *name;
	uint8_t rows, slots;
	uint8_t losses, returns;
	uint8_t repeats; /* of RAIL_DOWN frames, at any later time */
	enum model_fault fault;
};

/* One rail at one end. */
struct model_rail {
	uint8_t state; /* enum mpib_rail_state */
	uint8_t epoch;
	uint8_t late;	 /* faults only: the queue pairs live on for a while */
	uint8_t probing; /* sender: connected, and waits for a first request to come through */
};

enum model_frame_type {
	MODEL_RAIL_DOWN = 1,
	MODEL_RAIL_UP,
	MODEL_RAIL_READY,
};

struct model_frame {
	uint8_t type, rail, epoch;
	uint8_t rows;		      /* sender: its head; receiver: rows posted */
	uint8_t arrived[MODEL_SLOTS]; /* receiver: bits of the parts that have */
};

struct model_queue {
	uint8_t len;
	struct model_frame frame[MODEL_FRAMES];
};

enum model_part_state {
	MODEL_NO_PART,
	MODEL_POSTED,
	MODEL_PENDING, /* it was lost, and goes out on whatever rail there is */
	MODEL_DONE,
};

enum model_packet_state {
	MODEL_NO_PACKET,
	MODEL_UNDER_WAY,
	MODEL_ARRIVED, /* its acknowledgement is under way */
};

/* No padding, and unused places are 0: states are compared byte by byte. */
struct model {
	struct model_rail rail[MODEL_ENDS][MODEL_RAILS];
	struct model_queue to[MODEL_ENDS];   /* frames on their way to an end */
	struct model_frame said[MODEL_ENDS]; /* the last RAIL_DOWN of an end */
	uint8_t losses, returns, repeats;    /* that may still come */

	/* The sender. */
	uint8_t head;				/* rows sent */
	uint8_t ring[MODEL_SLOTS];		/* its memory: row + 1, or 0 */
	uint8_t cells[MODEL_ROWS][MODEL_PARTS]; /* bytes of each part, as they were divided */
	uint8_t remaining[MODEL_ROWS];
	struct {
		uint8_t state, rail, epoch;
	} part[MODEL_ROWS][MODEL_PARTS];

	/* The network: packets with data, and clear-to-sends in the order of their queue pair. */
	struct {
		uint8_t state, cells;
	} packet[MODEL_ROWS][MODEL_PARTS][MODEL_RAILS][MODEL_EPOCHS];
	uint8_t cts_len[MODEL_RAILS][MODEL_EPOCHS];
	uint8_t cts[MODEL_RAILS][MODEL_EPOCHS][MODEL_CTS];

	/* The receiver. */
	uint8_t tail;				   /* rows posted */
	uint8_t memory[MODEL_ROWS];		   /* cells that were written */
	uint8_t unpolled[MODEL_ROWS][MODEL_PARTS]; /* immediates: bits of the rails they came on */
	uint8_t mask[MODEL_ROWS];		   /* parts to come, 0: not known yet */
	uint8_t arrived[MODEL_ROWS];		   /* parts that were polled */
	uint8_t done[MODEL_ROWS];
	uint8_t reserved[MODEL_ROWS][MODEL_RAILS]; /* receives for its immediates on a rail */
	uint8_t cts_on;				   /* the rail that clear-to-sends take */
	uint8_t cts_rail[MODEL_ROWS];		   /* where its clear-to-send was written, + 1 */
	uint8_t cts_wanted[MODEL_ROWS];
};

/* What a state may do next. */
enum model_can {
	MODEL_CANT,
	MODEL_MAY,  /* the network or a device decides */
	MODEL_MUST, /* comes in the end, unless something else comes before it */
};

/* One kind of event, with two numbers that say which. */
struct model_action {
	const char *name;
	enum model_can (*apply)(const struct model_config *config, struct model *m, unsigned int a,
				unsigned int b);
	unsigned int as, bs; /* numbers below these */
};

extern const struct model_action model_actions[];

void model_init(const struct model_config *config, struct model *ret);

/* Why the last apply is wrong, or NULL; reading it clears it. */
const char *model_wrong(void);

bool model_finished(const struct model_config *config, const struct model *m);

/* No rail is left and none may come back: requests wait, and fail in the end. */
bool model_cut_off(const struct model *m);

/* Tries all orders. NULL, or what is wrong in the first order that was found to be, with its steps
 * in @ret_steps; *ret_states is how many states there are. */
const char *model_search(const struct model_config *config, char *ret_steps, size_t size,
			 uint64_t *ret_states);

#endif
