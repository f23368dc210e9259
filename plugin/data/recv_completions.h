/* SPDX-License-Identifier: Apache-2.0 */
/* What the completions of a receiver mean. Progress thread. */
#ifndef MPIB_PLUGIN_RECV_COMPLETIONS_H
#define MPIB_PLUGIN_RECV_COMPLETIONS_H

#include "plugin/connection/comm.h"

/* Credits @n completions, good or bad, that a poll of the rail gave. 0, or an error, which has
 * failed the connection. */
int mpib_recv_completed(struct mpib_comm *comm, unsigned int rail, const struct ibv_wc *wc, int n);

#endif
