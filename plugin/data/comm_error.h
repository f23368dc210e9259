/* SPDX-License-Identifier: Apache-2.0 */
/* How a connection fails: the first cause is told, once, here and to the peer. */
#ifndef MPIB_PLUGIN_COMM_ERROR_H
#define MPIB_PLUGIN_COMM_ERROR_H

#include "plugin/connection/comm.h"

/* First error wins: logs @text once, tells the peer, and makes every later call return it. Returns
 * the error. Progress thread. */
int mpib_comm_fail(struct mpib_comm *comm, int error, const char *text);

/* The same with what FAIL says of the kind. */
int mpib_comm_fail_as(struct mpib_comm *comm, int error, enum mpib_fail_kind kind,
		      const char *text);

#endif
