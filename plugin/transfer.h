/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data path: isend (send.c), irecv (recv.c), test and polling (progress.c). Progress thread
 * only; on a healthy connection no system call, no allocation, no log line, and no lock but for the
 * shared receive queue's, once in MPIB_SRQ_CHAIN receives.
 *
 * All return 0 or a negative errno; "not now" is 0 with *ret = NULL.
 */
#ifndef MPIB_PLUGIN_TRANSFER_H
#define MPIB_PLUGIN_TRANSFER_H

#include "plugin/comm.h"

/* wr_id of a sender's work request: the request's index, and for requests posted in a batch what
 * the batch took of the send queue. */
#define MPIB_WR_INDEX(id)   ((unsigned int)((id)&0xffff))
#define MPIB_WR_ENTRIES(id) ((unsigned int)((id) >> 16 & 0xffff))
#define MPIB_WR_QP(id)	    ((unsigned int)((id) >> 32 & 0xff))
#define MPIB_WR_FINAL	    (1ull << 40) /* the batch ends its row on this rail */
#define MPIB_WR_SLOW	    (1ull << 41)

int mpib_isend(struct mpib_comm *comm, void *data, size_t size, int tag, struct mpib_mr *mr,
	       struct mpib_request **ret);

int mpib_irecv(struct mpib_comm *comm, int n, void **data, const size_t *sizes, const int *tags,
	       struct mpib_mr **mrs, struct mpib_request **ret);

/* *done = 1 hands the request back; @sizes may be NULL. */
int mpib_test(struct mpib_request *req, int *done, int *sizes);

/* Goes on with a group or a cut message whose requests didn't all fit into the send queues. */
int mpib_send_slow(struct mpib_send_comm *send);

/* One completion of a receiver: an immediate, or a CTS write that is out of the queue. */
int mpib_recv_completion(struct mpib_recv_comm *recv, unsigned int rail, const struct ibv_wc *wc);

/* Takes a receive that a completion used off the reservations; for those that nothing else looks
 * at (after an error, at close). */
void mpib_recv_used(struct mpib_recv_comm *recv, unsigned int rail, const struct ibv_wc *wc);

/* Polls a rail's completions and credits every request that they belong to. */
int mpib_poll_rail(struct mpib_comm *comm, unsigned int rail);

#endif
