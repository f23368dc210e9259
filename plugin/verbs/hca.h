/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HCAs and fused devices: what they are, and nothing else. An HCA here is one port of one RDMA
 * device, opened for one rail; a fused device is what NCCL sees: the k-th SOUT with the k-th SUP.
 */
#ifndef MPIB_PLUGIN_HCA_H
#define MPIB_PLUGIN_HCA_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/hca_list.h"
#include "plugin/base/env.h"
#include "plugin/base/rail.h"
#include "plugin/base/watch.h"
#include "plugin/verbs/gid.h"
#include "plugin/verbs/verbs.h"
#include "plugin/wire/handshake.h"

#define MPIB_SRQ_CHAIN 64 /* receives in one post */
#define MPIB_LOST_MAX  96

struct mpib_mr_cache;

struct mpib_hca {
	char name[MPIB_HCA_NAME_MAX]; /* name:port */
	unsigned int rail;
	unsigned int port;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr
		port_attr; /* as of init; MTU and GID are read again at each connection */
	uint64_t guid;
	unsigned int speed_mbps;
	char pci_path[256]; /* empty where sysfs has none */

	struct mpib_watch_item async;  /* verbs async events; read by the helper thread */
	char lost_text[MPIB_LOST_MAX]; /* the event; written before `fatal` is set */
	atomic_uint downs;	       /* events of the port's end */
	atomic_int fatal;	       /* set under the watch lock: see mpib_hca_failed */
	/* What a create of a QP with inline data has shown: the most that the device takes, + 1, up
	 * to MPIB_INLINE_MAX; 0: not known. Service threads write it. */
	atomic_uint inline_max;
	atomic_bool inline_told; /* that it takes less */
	/* Where the search for a GID ended last, + 1; 0: search. Service threads write it; the
	 * helper thread clears it where the table changed. */
	atomic_uint gid_at;

	/* Shared receive queue: see srq.h. */
	pthread_mutex_t srq_lock;
	struct ibv_srq *srq;
	atomic_int srq_credits;
	uint32_t srq_depth;
	bool srq_full_logged;			      /* srq_lock */
	struct ibv_recv_wr srq_chain[MPIB_SRQ_CHAIN]; /* srq_lock; what a refill posts */

	struct mpib_mr_cache *mrs; /* see mr.h */
	enum mpib_relaxed relaxed; /* of registrations; from MAY to OFF under the cache's lock */
};

struct mpib_device {
	int index;
	char name[2 * MPIB_HCA_NAME_MAX];
	uint64_t guid;			    /* unique among the devices of the process */
	unsigned int ptr_support;	    /* NCCL_PTR_*, beside host memory */
	struct mpib_hca hca[MPIB_RAIL_MAX]; /* what the older documents call the vDev */
};

/* Where a connection's QPs begin: entries of the port's tables. */
struct mpib_source {
	struct mpib_gid gid;
	uint16_t pkey_index;
};

#endif
