/* SPDX-License-Identifier: Apache-2.0 */
/* What set-up leaves for the data path: limits, work requests that messages only fill in. */
#ifndef MPIB_PLUGIN_PREPARE_H
#define MPIB_PLUGIN_PREPARE_H

#include "plugin/connection/comm.h"

/* Once, with QPs, rings, rails and counters in place. */
void mpib_comm_prepare(struct mpib_comm *comm, const struct mpib_env *env);

#endif
