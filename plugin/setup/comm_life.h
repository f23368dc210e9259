/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a connection, from set-up to close. NCCL's service threads. */
#ifndef MPIB_PLUGIN_COMM_LIFE_H
#define MPIB_PLUGIN_COMM_LIFE_H

#include "plugin/connection/comm.h"

/* A connection object without QPs; registered in the process's list. @traffic_class is NCCL's, or
 * -1; MPIB_IB_TC goes before it. */
int mpib_comm_new(enum mpib_counter_kind kind, struct mpib_device *dev, const struct mpib_env *env,
		  int traffic_class, struct mpib_comm **ret);

/* Reads ports and GIDs, fills comm->local. */
int mpib_comm_describe(struct mpib_comm *comm, const struct mpib_env *env, uint64_t nonce);

/* With comm->remote known: fixes path and rails, makes CQs, QPs (INIT) and rings. */
int mpib_comm_build(struct mpib_comm *comm, const struct mpib_env *env);

/* What this end tells of its QPs. */
void mpib_comm_qps(const struct mpib_comm *comm, struct mpib_peer_qps *ret);

/* Hands the control connection to the helper thread, starts the counters and prepares what messages
 * only fill in: the object is about to be given to NCCL. An error that mpib_net_is_transient is
 * silent, and worth another call. */
int mpib_comm_establish(struct mpib_comm *comm, const struct mpib_env *env);

/* Closes in good order or half-built; bounded; NULL is fine. */
void mpib_comm_free(struct mpib_comm *comm);

/* Frees what NCCL dropped without closing. */
void mpib_comm_free_all(void);

#endif
