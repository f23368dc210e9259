/* SPDX-License-Identifier: Apache-2.0 */
/* test: polls what can bring news for the connection and credits every request it concerns.
 * Progress thread. */
#ifndef MPIB_PLUGIN_PROGRESS_H
#define MPIB_PLUGIN_PROGRESS_H

#include "plugin/base/nccl_abi.h"
#include "plugin/connection/comm.h"

/* NCCL's test: *done = 1 hands the request back; @sizes may be NULL. */
ncclResult_t mpib_test(void *request, int *done, int *sizes);

/* Polls a rail's completions and credits every request that they belong to. 0, or an error, which
 * has failed the connection. */
int mpib_poll_rail(struct mpib_comm *comm, unsigned int rail);

#endif
