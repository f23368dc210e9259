/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin's entry points in the newest signature, version-neutral: arguments checked, the inside
 * called, the result translated. exports.c hands them to NCCL's tables. Those of the data path are
 * in data/.
 */
#ifndef MPIB_PLUGIN_API_H
#define MPIB_PLUGIN_API_H

#include <stdbool.h>
#include <stdint.h>

#include "plugin/base/nccl_abi.h"

/* What every version's properties are filled from. */
struct mpib_properties {
	char *name;
	char *pci_path; /* NULL where sysfs has none */
	uint64_t guid;
	int ptr_support;
	int speed_mbps;
	int port;
	int max_comms;
	int max_recvs;
	size_t max_bytes;
};

/* One reference on the process's state, with a context of its own (v11 and later). */
ncclResult_t mpib_entry_init(void **ctx, struct mpib_nccl_config *config, ncclDebugLogger_t logger);
/* Before v11 there is no finalize: all inits of the process share one reference. */
ncclResult_t mpib_entry_init_legacy(ncclDebugLogger_t logger);
/* NULL and an init that failed are fine. The last one closes everything. */
ncclResult_t mpib_entry_finalize(void *ctx);

/* Nothing is left to close here: the last finalize was called, or this is a forked child. */
bool mpib_entry_is_gone(void);

ncclResult_t mpib_entry_devices(int *ndev);
ncclResult_t mpib_entry_properties(int index, struct mpib_properties *ret);
/* @traffic_class: NCCL's, or -1. */
ncclResult_t mpib_entry_listen(void *ctx, int index, void *handle, void **listen_comm);
ncclResult_t mpib_entry_connect(int index, int traffic_class, void *handle, void **send_comm);
ncclResult_t mpib_entry_accept(void *listen_comm, void **recv_comm);
int mpib_entry_traffic_class(void *ctx);

ncclResult_t mpib_entry_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle);
ncclResult_t mpib_entry_reg_mr_dmabuf(void *comm, void *data, size_t size, int type,
				      uint64_t offset, int fd, void **mhandle);
ncclResult_t mpib_entry_dereg_mr(void *comm, void *mhandle);

ncclResult_t mpib_entry_close(void *comm);
ncclResult_t mpib_entry_close_listen(void *listen_comm);

#endif
