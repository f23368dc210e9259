/* SPDX-License-Identifier: Apache-2.0 */
/* News of connections: what the peer says over the control connection, and events of devices. */
#ifndef MPIB_PLUGIN_NEWS_H
#define MPIB_PLUGIN_NEWS_H

#include "plugin/connection/comm.h"

/* Before the first connection is made: their devices' events are theirs. */
void mpib_comms_listen(void);

/* Hands the control connection to the helper thread: what the peer says is in `flags` from now on.
 * Negative errno, silent. */
int mpib_comm_watch_ctl(struct mpib_comm *comm);

/* The share of the agent, or the fixed one instead. Progress thread; under the watch lock. */
void mpib_comm_follow_agent(struct mpib_comm *comm, bool follow);

/* Reads what the peer has sent over the control connection by now, and what the helper thread has
 * not come to: the peer may have closed before a rail told of its end. True where it said BYE.
 * Progress thread, never on the fast path. */
bool mpib_comm_peer_closed(struct mpib_comm *comm);

#endif
