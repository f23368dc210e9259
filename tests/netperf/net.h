/* SPDX-License-Identifier: Apache-2.0 */
/* One face for all table versions of a plugin, 6 to 12. Functions return the plugin's own result;
 * threads as in NCCL (see plugin/base/nccl_abi.h at each signature). */
#ifndef MPIB_NETPERF_NET_H
#define MPIB_NETPERF_NET_H

#include <stdbool.h>

#include "plugin/base/nccl_abi.h"

#define NP_API_MIN 6
#define NP_API_MAX 12

struct np_net {
	void *dl;
	int api; /* NP_API_MIN..NP_API_MAX once selected */
	union {
		const void *table;
		const struct mpib_nccl_net_v6 *v6;
		const struct mpib_nccl_net_v7 *v7;
		const struct mpib_nccl_net_v8 *v8;
		const struct mpib_nccl_net_v9 *v9;
		const struct mpib_nccl_net_v10 *v10;
		const struct mpib_nccl_net_v11 *v11;
		const struct mpib_nccl_net_v12 *v12;
	};
	void *ctx; /* of v11.. */
	struct mpib_nccl_config config;
	unsigned int inits; /* bit a version: tables without finalize are initialised once */
};

/* What the driver needs of the properties. name is the plugin's. */
struct np_props {
	const char *name;
	int ptr_support, speed, max_recvs;
	int vdevs;	   /* vProps.ndevs, 0 before v9 */
	const char *unset; /* a field that the plugin left as it was; NULL: none */
};

/* Opens the library as NCCL does; false after a line on stderr. */
bool np_net_open(struct np_net *net, const char *plugin);

/* Takes table @api, or the newest for 0; false where there is none. */
bool np_net_select(struct np_net *net, int api);
const char *np_net_name(const struct np_net *net);

ncclResult_t np_net_init(struct np_net *net, uint64_t comm_id);
ncclResult_t np_net_finalize(struct np_net *net);
ncclResult_t np_net_devices(struct np_net *net, int *ret_count);
ncclResult_t np_net_props(struct np_net *net, int dev, struct np_props *ret);
ncclResult_t np_net_listen(struct np_net *net, int dev, void *handle, void **listen_comm);
ncclResult_t np_net_connect(struct np_net *net, int dev, void *handle, void **send_comm);
ncclResult_t np_net_accept(struct np_net *net, void *listen_comm, void **recv_comm);
ncclResult_t np_net_reg(struct np_net *net, void *comm, void *data, size_t size, void **mhandle);
ncclResult_t np_net_dereg(struct np_net *net, void *comm, void *mhandle);
ncclResult_t np_net_isend(struct np_net *net, void *comm, void *data, size_t size, int tag,
			  void *mhandle, void **request);
/* @n up to NP_RECVS_MAX. */
ncclResult_t np_net_irecv(struct np_net *net, void *comm, int n, void **data, size_t *sizes,
			  int *tags, void **mhandles, void **request);
ncclResult_t np_net_test(struct np_net *net, void *request, int *done, int *sizes);
ncclResult_t np_net_close_send(struct np_net *net, void *comm);
ncclResult_t np_net_close_recv(struct np_net *net, void *comm);
ncclResult_t np_net_close_listen(struct np_net *net, void *comm);

#define NP_RECVS_MAX 8

/* "ncclRemoteError" and so on. */
const char *np_result_name(ncclResult_t result);

#endif
