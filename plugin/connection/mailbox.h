/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames about rails take two ways: the control connection, which may go through the very interface
 * that is lost, and as a write over the other rail into a few slots of the peer's ring, its
 * mailbox. They are numbered, so that each is acted on once, and in order. Both ends have
 * MPIB_FEATURE_MAIL. docs/wire.md, section 10, has the bytes.
 *
 * All of it under the watch lock.
 */
#ifndef MPIB_PLUGIN_MAILBOX_H
#define MPIB_PLUGIN_MAILBOX_H

#include "plugin/connection/comm.h"

#define MPIB_MAIL_SLOT	      256u
#define MPIB_MAIL_PAYLOAD_MAX (MPIB_MAIL_SLOT - 12)
#define MPIB_MAIL_SIZE	      (MPIB_MAIL_SLOTS * MPIB_MAIL_SLOT)

/* wr_id of a write into the peer's mailbox, and of a question whether the peer is there. */
#define MPIB_WR_MAIL (1ull << 45)

/* A slot as it lies in memory. What is written last, at its end, says that it is whole; the sum
 * says so of devices that write a request's bytes in another order. */
struct mpib_mail_slot {
	uint16_t type; /* enum mpib_frame_type; all numbers are little-endian */
	uint16_t len;
	uint8_t payload[MPIB_MAIL_PAYLOAD_MAX];
	uint32_t sum;
	uint32_t turn; /* the frame's number + 1 */
};

_Static_assert(sizeof(struct mpib_mail_slot) == MPIB_MAIL_SLOT, "no padding");

struct mpib_mailbox {
	/* The peer's writes, in the ring; and staging. NULL where one end has no mailbox. */
	const struct mpib_mail_slot *in;
	struct mpib_mail_slot *out;
	uint64_t addr;	      /* the peer's */
	uint32_t said, heard; /* frames about rails */
	bool ctl_dead;	      /* the control connection is gone, the peer isn't */
	bool ask;	      /* whether it still is there: progress clears it */
	uint64_t ask_ms;      /* the next question */
};

/* @memory: of the connection's ring, twice MPIB_MAIL_SIZE; @addr: the same place of the peer's. */
void mpib_mailbox_open(struct mpib_mailbox *box, void *memory, uint64_t addr);

/* Sends a frame both ways, as far as they are open; sets its number in @payload. @rail is in use
 * and not the one that the frame is about; MPIB_RAIL_MAX: there is none. */
void mpib_mailbox_say(struct mpib_mailbox *box, struct mpib_comm *comm, unsigned int rail,
		      uint16_t type, uint8_t *payload, size_t len);

/* Whether the frame is the next one: 1; 0, it was there before by the other way; -EPROTO, one
 * before it is missing. */
int mpib_mailbox_is_next(struct mpib_mailbox *box, const struct mpib_frame *frame);

/* The next frame that is in the mailbox, into @slot; false: there is none. */
bool mpib_mailbox_take(const struct mpib_mailbox *box, struct mpib_mail_slot *slot,
		       struct mpib_frame *ret);

#endif
