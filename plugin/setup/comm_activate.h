/* SPDX-License-Identifier: Apache-2.0 */
/* From the peer's queue pairs to a connection that can carry messages; SUP is given up where it may
 * be and can't be reached. */
#ifndef MPIB_PLUGIN_COMM_ACTIVATE_H
#define MPIB_PLUGIN_COMM_ACTIVATE_H

#include "plugin/connection/comm.h"

/* With comm->remote_qps known: QPs to RTR and RTS, the rest of the set-up. In advanced mode
 * between islands a SUP that can't be reached is given up here, with one line. */
int mpib_comm_activate(struct mpib_comm *comm, const struct mpib_env *env);

/* Whether SUP may be given up: advanced mode between islands, where no relay may be. */
bool mpib_comm_may_drop_sup(const struct mpib_comm *comm);

/* Gives SUP up on this connection (advanced, between islands) and says so once. */
void mpib_comm_drop_sup(struct mpib_comm *comm, const char *who);

/* Advanced mode: asks the agent for the flow's slot. Poll comm->agent. */
int mpib_comm_register(struct mpib_comm *comm);

#endif
