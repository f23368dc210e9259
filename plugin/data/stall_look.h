/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a rail of which nothing has completed lately is lost. Progress thread. */
#ifndef MPIB_PLUGIN_STALL_LOOK_H
#define MPIB_PLUGIN_STALL_LOOK_H

#include "plugin/connection/comm.h"

/* What MPIB_FLAG_LOOK asks for. 0, or an error, which has failed the connection. Never from within
 * a poll. */
int mpib_stall_look(struct mpib_comm *comm);

#endif
