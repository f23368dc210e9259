/* SPDX-License-Identifier: Apache-2.0 */
/* isend. Progress thread. */
#ifndef MPIB_PLUGIN_SEND_H
#define MPIB_PLUGIN_SEND_H

#include "plugin/base/nccl_abi.h"
#include "plugin/connection/comm.h"
#include "plugin/data/wr_id.h"

/* NCCL's isend: *@request stays NULL where the message has to be offered again. */
ncclResult_t mpib_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle,
			void **request);

/* Goes on with a row whose work requests didn't all fit into the send queues. 0, or an error, which
 * has failed the connection. */
int mpib_send_continue(struct mpib_comm *comm);

#endif
