/* SPDX-License-Identifier: Apache-2.0 */
/* What a sender's work requests say of themselves. */
#ifndef MPIB_PLUGIN_WR_ID_H
#define MPIB_PLUGIN_WR_ID_H

/* wr_id of a sender's work request: the request's index, and for those of a row that is posted in
 * chains what the chain took of the send queue. */
#define MPIB_WR_INDEX(id)     ((unsigned int)((id)&0xffff))
#define MPIB_WR_ENTRIES(id)   ((unsigned int)((id) >> 16 & 0xffff))
#define MPIB_WR_QP(id)	      ((unsigned int)((id) >> 32 & 0xff))
#define MPIB_WR_ENTRIES_SHIFT 16
#define MPIB_WR_QP_SHIFT      32
#define MPIB_WR_FINAL	      (1ull << 40) /* the chain ends its row on this rail */
#define MPIB_WR_CHAIN	      (1ull << 41)
/* A part that is posted again: a chain without MPIB_WR_FINAL, so that a look at that bit tells the
 * chains of every day from all others. With the second one it is the other rail's, with the third
 * one all of it. */
#define MPIB_WR_AGAIN	    (1ull << 42)
#define MPIB_WR_OTHER_PART  (1ull << 43)
#define MPIB_WR_AGAIN_FINAL (1ull << 44)
/* Bit 45 is MPIB_WR_MAIL (connection/mailbox.h). */

#endif
