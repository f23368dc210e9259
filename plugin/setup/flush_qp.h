/* SPDX-License-Identifier: Apache-2.0 */
/* The queue pairs of flushes, each connected to itself; only where GPU memory is offered. */
#ifndef MPIB_PLUGIN_FLUSH_QP_H
#define MPIB_PLUGIN_FLUSH_QP_H

#include "plugin/connection/comm.h"

/* Makes the loopback QPs of the connection's data rails. One warning on failure. */
int mpib_flush_init(struct mpib_comm *comm, const struct mpib_env *env);
void mpib_flush_fini(struct mpib_comm *comm, unsigned int rail);

/* One rail's, silent. Negative errno. */
int mpib_flush_make(struct mpib_comm *comm, unsigned int rail, const struct mpib_env *env);

#endif
