/* SPDX-License-Identifier: Apache-2.0 */
/* A small, honest NCCL network plugin over TCP on this host, to test the driver with. Told to by
 * NETPERF_LOOPBACK_FAULT it does one thing wrong, which the driver must notice. Not installed. */
#ifndef MPIB_NETPERF_LOOPBACK_H
#define MPIB_NETPERF_LOOPBACK_H

#include <stdbool.h>

#include "plugin/base/nccl_abi.h"

#define LB_NAME	     "Loopback"
#define LB_MAX_RECVS 8

/* What goes wrong, mostly with each fifth message of a connection. */
enum lb_fault {
	LB_HONEST,
	LB_FLIP,     /* a byte in the middle arrives changed */
	LB_EDGE,     /* the last byte does */
	LB_OVERRUN,  /* one byte past the message is written */
	LB_UNDERRUN, /* one byte before it */
	LB_SIZE,     /* the size is one too large */
	LB_EARLY,    /* done before the data */
	LB_STALL,    /* never done */
	LB_ERROR,    /* test fails */
	LB_SWAP,     /* tags are not looked at */
	LB_SIZES,    /* test writes a size too many */
	LB_STALE,    /* *request is left alone when there is nothing to give */
	LB_LEAK,     /* a request tested without sizes is lost */
	LB_TWICE,    /* a request is given out that is still in use */
	LB_LATE,     /* a byte is written after done was said */
	LB_SENDBUF,  /* the sender's buffer is changed */
	LB_HANDLE,   /* listen writes more than 128 bytes */
	LB_PROPS,    /* a field of the properties is left as it was */
	LB_INIT,     /* init fails, after a line that says why */
	LB_SLEEP,    /* test never returns */
	LB_NAP,	     /* one test takes 50 ms, and all is right */
	LB_FAULT_MAX,
};

/* The one implementation behind all tables; see plugin/base/nccl_abi.h for the meaning. */
ncclResult_t lb_init(ncclDebugLogger_t logger);
ncclResult_t lb_finalize(void);
enum lb_fault lb_fault(void);
ncclResult_t lb_devices(int *ndev);
ncclResult_t lb_listen(int dev, void *handle, void **listen_comm);
ncclResult_t lb_connect(int dev, void *opaque, void **send_comm);
ncclResult_t lb_accept(void *listen_comm, void **recv_comm);
ncclResult_t lb_reg(void *comm, void *data, size_t size, int type, void **mhandle);
ncclResult_t lb_dereg(void *comm, void *mhandle);
ncclResult_t lb_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void **request);
ncclResult_t lb_irecv(void *comm, int n, void **data, const size_t *sizes, const int *tags,
		      void **mhandles, void **request);
ncclResult_t lb_test(void *request, int *done, int *sizes);
ncclResult_t lb_close(void *comm);
ncclResult_t lb_close_listen(void *listen_comm);

#endif
