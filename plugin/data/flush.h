/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iflush: after a receive into GPU memory is done, make sure that the GPU sees the bytes. An RDMA
 * read of the buffer through the same HCA pushes the writes that went before it (NCCL ABI
 * reference, 9); it goes through a QP that is connected to itself, on each rail that brought data.
 */
#ifndef MPIB_PLUGIN_FLUSH_H
#define MPIB_PLUGIN_FLUSH_H

#include "plugin/base/nccl_abi.h"
#include "plugin/connection/comm.h"

/* NCCL's iflush: *@request stays NULL where there is nothing to wait for: no bytes, no GPU memory,
 * MPIB_FLUSH=0. Progress thread. */
ncclResult_t mpib_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhandles,
			 void **request);

#endif
