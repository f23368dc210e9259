/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a connection's messages: filling them before a send, judging them afterwards. */
#ifndef MPIB_NETPERF_CHECK_H
#define MPIB_NETPERF_CHECK_H

#include "tests/netperf/chan.h"

/* Light checks look at this many bytes at either end of a message. */
#define NP_EDGE 64u

/* Writes the message's pattern where a light stage needs all of a slot filled beforehand. */
void np_check_open(struct np_chan *chan);

/* Writes message @message into @slot (sender). */
void np_check_fill(struct np_chan *chan, unsigned int slot, const struct np_message *message);

/* Nothing has been written to @slot since its last message was taken out (receiver; a light stage
 * can't tell). False after np_error. */
bool np_check_free(struct np_chan *chan, unsigned int slot, const struct np_message *message);

/* Silent: do the message's bytes stand in the slot? */
bool np_check_arrived(const struct np_chan *chan, unsigned int slot,
		      const struct np_message *message);

/* The message came, or its send is done: its bytes and the bands around them. A receive slot is
 * guard pattern again afterwards. False after np_error. */
bool np_check_message(struct np_chan *chan, unsigned int slot, const struct np_message *message);

#endif
