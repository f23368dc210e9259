/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's tables for device-initiated communication as plain C11: ncclGinPlugin_v11 to _v13 (NCCL
 * 2.28.7 to 2.30.4) and ncclRmaPlugin_v14, _v15 (2.30.7 and later). NCCL looks for them in the
 * library whose net table it has chosen. A device announces NCCL_NET_DEVICE_GIN_PROXY: kernels
 * write descriptors, and a thread of NCCL's calls iput and its like. Names of fields are NCCL's.
 */
#ifndef MPIB_PLUGIN_NCCL_GIN_ABI_H
#define MPIB_PLUGIN_NCCL_GIN_ABI_H

#include <stdbool.h>

#include "plugin/base/nccl_abi.h"

/* signalOp */
#define NCCL_NET_SIGNAL_OP_INC 1u /* adds 1, whatever the value is */
#define NCCL_NET_SIGNAL_OP_ADD 2u

/* mrFlags */
#define NCCL_NET_MR_FLAG_FORCE_SO	    1u /* strictly ordered: signals are in it */
#define NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET 2u

/* Service thread. connect and the registrations are called by all ranks of a communicator in the
 * same order, and may block. handles[r] is what rank r's listen filled. */
typedef ncclResult_t mpib_nccl_gin_init(void **ctx, uint64_t commId, ncclDebugLogger_t logger);
typedef ncclResult_t mpib_nccl_gin_connect_v11(void *ctx, void *handles[], int nranks, int rank,
					       void *listenComm, void **collComm);
typedef ncclResult_t mpib_nccl_gin_connect_v12(void *ctx, void *handles[], int nranks, int rank,
					       int nConnections, int queueDepth, void *listenComm,
					       void **collComm);

struct mpib_nccl_gin_config_v13 {
	int nSignals, nCounters, nContexts, queueDepth, trafficClass;
};
struct mpib_nccl_rma_config_v14 {
	int nContexts, trafficClass, rankStride;
};

typedef ncclResult_t mpib_nccl_gin_create_context_v11(void *collComm, int nSignals, int nCounters,
						      void **ginCtx,
						      struct mpib_nccl_device_handle **devHandle);
typedef ncclResult_t mpib_nccl_gin_create_context_v12(void *collComm, int nSignals, int nCounters,
						      int nContexts, void **ginCtx,
						      struct mpib_nccl_device_handle **devHandle);
typedef ncclResult_t mpib_nccl_gin_create_context_v13(void *collComm,
						      struct mpib_nccl_gin_config_v13 *config,
						      void **ginCtx,
						      struct mpib_nccl_device_handle **devHandle);
typedef ncclResult_t mpib_nccl_rma_create_context_v14(void *collComm,
						      struct mpib_nccl_rma_config_v14 *config,
						      void **rmaCtx);

/* ginHandle: by which code on the device names the memory, and so the puts that NCCL's proxy hands
 * on for it: what iput and its like get is this one, not mhandle. */
typedef ncclResult_t mpib_nccl_gin_reg_mr(void *collComm, void *data, size_t size, int type,
					  uint64_t mrFlags, void **mhandle, void **ginHandle);
typedef ncclResult_t mpib_nccl_gin_reg_mr_dmabuf(void *collComm, void *data, size_t size, int type,
						 uint64_t offset, int fd, uint64_t mrFlags,
						 void **mhandle, void **ginHandle);
typedef ncclResult_t mpib_nccl_rma_reg_mr(void *collComm, void *data, size_t size, int type,
					  uint64_t mrFlags, void **mhandle);
typedef ncclResult_t mpib_nccl_rma_reg_mr_dmabuf(void *collComm, void *data, size_t size, int type,
						 uint64_t offset, int fd, uint64_t mrFlags,
						 void **mhandle);
typedef ncclResult_t mpib_nccl_gin_dereg_mr(void *collComm, void *mhandle);
typedef ncclResult_t mpib_nccl_gin_close(void *object);

/* Progress thread. Offsets count from the start of what each rank registered. size 0: a signal
 * alone, whose srcMh and dstMh may be NULL. The result is the one way to tell NCCL of an error. */
typedef ncclResult_t mpib_nccl_gin_iput_v11(void *collComm, uint64_t srcOff, void *srcMh,
					    size_t size, uint64_t dstOff, void *dstMh,
					    uint32_t rank, void **req);
typedef ncclResult_t mpib_nccl_gin_iput_signal_v11(void *collComm, uint64_t srcOff, void *srcMh,
						   size_t size, uint64_t dstOff, void *dstMh,
						   uint32_t rank, uint64_t signalOff,
						   void *signalMh, uint64_t signalValue,
						   uint32_t signalOp, void **req);
typedef ncclResult_t mpib_nccl_gin_iput_v12(void *collComm, uint64_t srcOff, void *srcMh,
					    size_t size, uint64_t dstOff, void *dstMh,
					    uint32_t rank, int connectionId, void **req);
typedef ncclResult_t mpib_nccl_gin_iput_signal_v12(void *collComm, uint64_t srcOff, void *srcMh,
						   size_t size, uint64_t dstOff, void *dstMh,
						   uint32_t rank, uint64_t signalOff,
						   void *signalMh, uint64_t signalValue,
						   uint32_t signalOp, int connectionId, void **req);
typedef ncclResult_t mpib_nccl_gin_iput_v13(void *ginCtx, int context, uint64_t srcOff, void *srcMh,
					    size_t size, uint64_t dstOff, void *dstMh,
					    uint32_t rank, void **req);
typedef ncclResult_t mpib_nccl_gin_iput_signal_v13(void *ginCtx, int context, uint64_t srcOff,
						   void *srcMh, size_t size, uint64_t dstOff,
						   void *dstMh, uint32_t rank, uint64_t signalOff,
						   void *signalMh, uint64_t signalValue,
						   uint32_t signalOp, void **req);
typedef ncclResult_t mpib_nccl_gin_iget_v13(void *ginCtx, int context, uint64_t remoteOff,
					    void *remoteMh, size_t size, uint64_t localOff,
					    void *localMh, uint32_t rank, void **req);
typedef ncclResult_t mpib_nccl_gin_iflush_v13(void *ginCtx, int context, void *mh, uint32_t rank,
					      void **req);
typedef ncclResult_t mpib_nccl_rma_iput_signal_v14(void *rmaCtx, int context, uint64_t srcOff,
						   void *srcMh, size_t size, uint64_t dstOff,
						   void *dstMh, uint32_t rank, uint64_t signalOff,
						   void *signalMh, uint64_t signalValue,
						   uint32_t signalOp, bool isStrongSignal,
						   void **req);
/* v15 puts optFlags before req: hints that may be ignored. */
typedef ncclResult_t mpib_nccl_rma_iput_v15(void *rmaCtx, int context, uint64_t srcOff, void *srcMh,
					    size_t size, uint64_t dstOff, void *dstMh,
					    uint32_t rank, uint32_t optFlags, void **req);
typedef ncclResult_t mpib_nccl_rma_iput_signal_v15(void *rmaCtx, int context, uint64_t srcOff,
						   void *srcMh, size_t size, uint64_t dstOff,
						   void *dstMh, uint32_t rank, uint64_t signalOff,
						   void *signalMh, uint64_t signalValue,
						   uint32_t signalOp, bool isStrongSignal,
						   uint32_t optFlags, void **req);
typedef ncclResult_t mpib_nccl_rma_iget_v15(void *rmaCtx, int context, uint64_t remoteOff,
					    void *remoteMh, size_t size, uint64_t localOff,
					    void *localMh, uint32_t rank, uint32_t optFlags,
					    void **req);
/* What these two return is ignored. */
typedef ncclResult_t mpib_nccl_gin_test(void *collComm, void *req, int *done);
typedef ncclResult_t mpib_nccl_gin_progress(void *object);
typedef ncclResult_t mpib_nccl_gin_query_last_error(void *ginCtx, bool *hasError);

#define MPIB_NCCL_GIN_TABLE(properties_vn, connect_vn)                                             \
	const char *name;                                                                          \
	mpib_nccl_gin_init *init;                                                                  \
	mpib_nccl_devices *devices;                                                                \
	mpib_nccl_get_properties_##properties_vn *getProperties;                                   \
	mpib_nccl_listen_v11 *listen;                                                              \
	mpib_nccl_gin_connect_##connect_vn *connect
#define MPIB_NCCL_GIN_TABLE_MEMORY                                                                 \
	mpib_nccl_gin_reg_mr *regMrSym;                                                            \
	mpib_nccl_gin_reg_mr_dmabuf *regMrSymDmaBuf;                                               \
	mpib_nccl_gin_dereg_mr *deregMrSym;                                                        \
	mpib_nccl_gin_close *destroyContext;                                                       \
	mpib_nccl_gin_close *closeColl;                                                            \
	mpib_nccl_gin_close *closeListen
#define MPIB_NCCL_GIN_TABLE_END                                                                    \
	mpib_nccl_gin_test *test;                                                                  \
	mpib_nccl_gin_progress *ginProgress;                                                       \
	mpib_nccl_gin_query_last_error *queryLastError;                                            \
	mpib_nccl_finalize *finalize

/* ginProgress gets the collComm up to v12, the ginCtx from v13 on. */
struct mpib_nccl_gin_v11 {
	MPIB_NCCL_GIN_TABLE(v11, v11);
	mpib_nccl_gin_create_context_v11 *createContext;
	MPIB_NCCL_GIN_TABLE_MEMORY;
	mpib_nccl_gin_iput_v11 *iput;
	mpib_nccl_gin_iput_signal_v11 *iputSignal;
	MPIB_NCCL_GIN_TABLE_END;
};

struct mpib_nccl_gin_v12 {
	MPIB_NCCL_GIN_TABLE(v11, v12);
	mpib_nccl_gin_create_context_v12 *createContext;
	MPIB_NCCL_GIN_TABLE_MEMORY;
	mpib_nccl_gin_iput_v12 *iput;
	mpib_nccl_gin_iput_signal_v12 *iputSignal;
	MPIB_NCCL_GIN_TABLE_END;
};

struct mpib_nccl_gin_v13 {
	MPIB_NCCL_GIN_TABLE(v12, v11);
	mpib_nccl_gin_create_context_v13 *createContext;
	MPIB_NCCL_GIN_TABLE_MEMORY;
	mpib_nccl_gin_iput_v13 *iput;
	mpib_nccl_gin_iput_signal_v13 *iputSignal;
	mpib_nccl_gin_iget_v13 *iget;
	mpib_nccl_gin_iflush_v13 *iflush;
	MPIB_NCCL_GIN_TABLE_END;
};

#define MPIB_NCCL_RMA_TABLE                                                                        \
	MPIB_NCCL_GIN_TABLE(v12, v11);                                                             \
	mpib_nccl_rma_create_context_v14 *createContext;                                           \
	mpib_nccl_rma_reg_mr *regMrSym;                                                            \
	mpib_nccl_rma_reg_mr_dmabuf *regMrSymDmaBuf;                                               \
	mpib_nccl_gin_dereg_mr *deregMrSym;                                                        \
	mpib_nccl_gin_close *destroyContext;                                                       \
	mpib_nccl_gin_close *closeColl;                                                            \
	mpib_nccl_gin_close *closeListen
#define MPIB_NCCL_RMA_TABLE_END                                                                    \
	mpib_nccl_gin_iflush_v13 *iflush;                                                          \
	mpib_nccl_gin_test *test;                                                                  \
	mpib_nccl_gin_progress *rmaProgress;                                                       \
	mpib_nccl_gin_query_last_error *queryLastError;                                            \
	mpib_nccl_finalize *finalize

struct mpib_nccl_rma_v14 {
	MPIB_NCCL_RMA_TABLE;
	mpib_nccl_gin_iput_v13 *iput;
	mpib_nccl_rma_iput_signal_v14 *iputSignal;
	mpib_nccl_gin_iget_v13 *iget;
	MPIB_NCCL_RMA_TABLE_END;
};

struct mpib_nccl_rma_v15 {
	MPIB_NCCL_RMA_TABLE;
	mpib_nccl_rma_iput_v15 *iput;
	mpib_nccl_rma_iput_signal_v15 *iputSignal;
	mpib_nccl_rma_iget_v15 *iget;
	MPIB_NCCL_RMA_TABLE_END;
};

#endif
