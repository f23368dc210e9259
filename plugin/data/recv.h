/* SPDX-License-Identifier: Apache-2.0 */
/* irecv. Progress thread. */
#ifndef MPIB_PLUGIN_RECV_H
#define MPIB_PLUGIN_RECV_H

#include "plugin/base/nccl_abi.h"
#include "plugin/connection/comm.h"

/* NCCL's irecv of @n messages: *@request stays NULL where they have to be offered again. */
ncclResult_t mpib_irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
			void **mhandles, void **request);

#endif
