/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HCAs and fused devices. An HCA here is one port of one RDMA device, opened for one rail; a fused
 * device is what NCCL sees: the k-th SOUT with the k-th SUP. Made by the process's first init and
 * closed by its last finalize.
 */
#ifndef MPIB_PLUGIN_DEVICE_H
#define MPIB_PLUGIN_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "plugin/env.h"
#include "plugin/gid.h"
#include "plugin/handshake.h"
#include "plugin/rail.h"
#include "plugin/verbs.h"
#include "plugin/watch.h"

#define MPIB_DEVICES_MAX 32
#define MPIB_SRQ_CHAIN	 64 /* receives in one post */

struct mpib_comm;
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

	struct mpib_watch_item async; /* verbs async events; read by the helper thread */
	atomic_int fatal;	      /* set by the helper thread: see mpib_hca_failed */
	/* Where the search for a GID ended last, + 1; 0: search. Service threads write it; the
	 * helper thread clears it where the table changed. */
	atomic_uint gid_at;

	/* Shared receive queue: see srq.h. */
	pthread_mutex_t srq_lock;
	struct ibv_srq *srq;
	atomic_int srq_credits;
	uint32_t srq_depth;
	bool srq_full_told;			      /* srq_lock */
	struct ibv_recv_wr srq_chain[MPIB_SRQ_CHAIN]; /* srq_lock; what a refill posts */

	struct mpib_mr_cache *mrs; /* see mr.h */
};

struct mpib_device {
	int index;
	char name[2 * MPIB_HCA_NAME_MAX];
	uint64_t guid;			    /* unique among the devices of the process */
	unsigned int ptr_support;	    /* NCCL_PTR_*, beside host memory */
	struct mpib_hca hca[MPIB_RAIL_MAX]; /* what the older documents call the vDev */
};

/* Opens what the environment names. -MPIB_EUSAGE (wrong or missing names: the warning lists what
 * exists) or the cause's errno (permission stays EACCES); one warning; nothing stays open. */
int mpib_devices_open(const struct mpib_env *env);
void mpib_devices_close(void);
int mpib_device_count(void);

/* NULL for an index that doesn't exist. */
struct mpib_device *mpib_device_get(int index);

/* Warns where the rails of @dev, whose addresses are @ipv4_be, are hardly meant to be a pair. */
void mpib_device_check_pair(const struct mpib_device *dev, const uint32_t ipv4_be[MPIB_RAIL_MAX]);

/* True, with one warning, where the HCA was lost to this process by an async event. */
bool mpib_hca_failed(struct mpib_hca *hca);

/* Reads port state, MTU and GID afresh and fills @ret's rail; the warning names what is wrong. */
int mpib_hca_describe(struct mpib_hca *hca, const struct mpib_env *env, struct mpib_peer *ret,
		      struct mpib_gid *ret_gid);

/* Bits per second in Mbit/s of an active port: lanes times rate (InfiniBand specification, port
 * attributes). */
unsigned int mpib_speed_mbps(unsigned int active_width, unsigned int active_speed);

#endif
