/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's network plugin ABI, table versions 6 to 12, as plain C11: what a plugin exports and what
 * a program that drives one needs. Field and constant names are NCCL's, so that they can be looked
 * up; sizes and offsets are held to measured numbers by tests/unit/plugin/test_nccl_abi.c. Needs
 * no NCCL header and must not be mixed with one.
 *
 * A plugin exports data symbols ncclNetPlugin_v6 .. ncclNetPlugin_v12, each the table itself. NCCL
 * takes the newest that it knows. A struct of one version is never a prefix of another's: fields
 * were pushed in between.
 */
#ifndef MPIB_PLUGIN_NCCL_ABI_H
#define MPIB_PLUGIN_NCCL_ABI_H

#include <stddef.h>
#include <stdint.h>

/* ---- constants ----------------------------------------------------------------------------- */

#define NCCL_NET_HANDLE_MAXSIZE	     128 /* bytes that listen fills and connect gets */
#define NCCL_NET_MAX_REQUESTS	     32	 /* sends or receives in flight a connection, v7.. */
#define NCCL_NET_MAX_REQUESTS_V6     8	 /* the same for v6 */
#define NCCL_NET_MAX_DEVS_PER_NIC    8	 /* devs[] of the vdevice properties, v12 */
#define NCCL_NET_MAX_DEVS_PER_NIC_V9 4	 /* the same for v9, v10, v11 */
#define NCCL_MAX_NET_SIZE_BYTES	     (1LL << 40) /* largest maxP2pBytes and maxCollBytes, v9.. */

/* Kinds of memory: a bit mask in ptrSupport, one of HOST and CUDA as the type of regMr. */
#define NCCL_PTR_HOST	0x1
#define NCCL_PTR_CUDA	0x2
#define NCCL_PTR_DMABUF 0x4

/* Value that may stand in *request when irecv is called (v9..): the caller finds the data without
 * a completion. The plugin must overwrite it all the same. */
#define NCCL_NET_OPTIONAL_RECV_COMPLETION ((void *)(uintptr_t)0x1)

#define NCCL_NET_TRAFFIC_CLASS_UNDEF	(-1) /* config.trafficClass not set */
#define NCCL_NET_ATTR_UNDEF		(-1) /* attribute not known; all ones in the u32 fields */
#define NCCL_NET_ID_UNDEF		(-1) /* railId, planeId not known (v12) */
#define NCCL_NET_DEVICE_INVALID_VERSION 0x0  /* netDeviceVersion of a plugin for the host */

typedef enum {
	ncclSuccess = 0, /* also "not yet", told apart by a NULL output or done == 0 */
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,	 /* a local resource or system call failed */
	ncclInternalError = 3,	 /* cannot happen */
	ncclInvalidArgument = 4, /* the caller's value is wrong */
	ncclInvalidUsage = 5,	 /* the user's set-up is wrong */
	ncclRemoteError = 6,	 /* the peer or the path to it failed */
	ncclInProgress = 7,	 /* NCCL's own; a plugin never returns it */
	ncclTimeout = 8,	 /* NCCL 2.30.3 and later */
} ncclResult_t;

enum mpib_nccl_device_type {
	NCCL_NET_DEVICE_HOST = 0, /* the only one that suits a plugin driven from the host */
	NCCL_NET_DEVICE_UNPACK = 1,
	NCCL_NET_DEVICE_GIN_PROXY = 2,
	NCCL_NET_DEVICE_GIN_GDAKI = 3,
	NCCL_NET_DEVICE_GIN_GPI = 4,
};

/* ---- callbacks that NCCL hands in ---------------------------------------------------------- */

enum mpib_nccl_log_level {
	NCCL_LOG_NONE = 0,
	NCCL_LOG_VERSION = 1,
	NCCL_LOG_WARN = 2,
	NCCL_LOG_INFO = 3,
	NCCL_LOG_ABORT = 4,
	NCCL_LOG_TRACE = 5,
};

/* Subsystems of a log line, a bit mask. NCCL shows INIT, BOOTSTRAP and ENV by default; a warning
 * carries all bits, or it is filtered. */
#define NCCL_INIT 0x1ul
#define NCCL_NET  0x10ul
#define NCCL_ENV  0x80ul
#define NCCL_REG  0x2000ul
#define NCCL_ALL  (~0ul)

/* Any thread; adds the newline; cuts at 1024 bytes with its prefix; takes a mutex. */
typedef void (*ncclDebugLogger_t)(int level, unsigned long flags, const char *file, int line,
				  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

enum mpib_nccl_profiler_event {
	NCCL_PROFILER_NET_EVENT_START = 0, /* eHandle: address of a zeroed pointer */
	NCCL_PROFILER_NET_EVENT_STOP = 1,  /* the same eHandle, other arguments 0 */
	NCCL_PROFILER_NET_EVENT_UPDATE = 2,
	NCCL_PROFILER_NET_EVENT_UPDATE_AND_STOP = 3,
};

/* v10..: pHandle is the phandle of isend or irecv, never NULL in a start event. */
typedef ncclResult_t (*ncclProfilerCallback_t)(void **eHandle, int type, void *pHandle,
					       int64_t pluginId, void *extData);

/* ---- small structs ------------------------------------------------------------------------- */

/* What a device is made of: {1, {its own index}} unless it was made by makeVDevice. */
struct mpib_nccl_vdevice_v9 {
	int ndevs;
	int devs[NCCL_NET_MAX_DEVS_PER_NIC_V9];
};
#define mpib_nccl_vdevice_v10 mpib_nccl_vdevice_v9
#define mpib_nccl_vdevice_v11 mpib_nccl_vdevice_v9

struct mpib_nccl_vdevice_v12 {
	int ndevs;
	int devs[NCCL_NET_MAX_DEVS_PER_NIC];
};

/* Of one communicator: argument of connect in v10, of init in v11 and v12. */
struct mpib_nccl_config {
	int trafficClass; /* 0..255 or NCCL_NET_TRAFFIC_CLASS_UNDEF */
};

/* Traffic to expect in one direction; each may be NCCL_NET_ATTR_UNDEF. */
struct mpib_nccl_comm_attr {
	int32_t maxConcurrentPeers;
	int32_t minConcurrentPeers;
	int32_t maxFlowsPerPeer;
	int32_t minFlowsPerPeer;
};

/* A hint about the operation that follows (v11..). */
struct mpib_nccl_net_attr {
	struct mpib_nccl_comm_attr sendCommAttr;
	struct mpib_nccl_comm_attr recvCommAttr;
	uint32_t op; /* bit masks; all ones when not known */
	uint32_t algo;
	uint32_t proto;
};

/* For plugins with code on the device (v7..); a host plugin leaves the pointer to it alone. */
struct mpib_nccl_device_handle {
	enum mpib_nccl_device_type netDeviceType;
	int netDeviceVersion;
	void *handle;
	size_t size;
	int needsProxyProgress;
};

/* ---- device properties --------------------------------------------------------------------- */

/*
 * Fields, the same in all versions that have them:
 *   name, pciPath     owned by the plugin, live as long as it; name unique; pciPath (sysfs) or NULL
 *   guid              of the chip; devices with equal guid and port share bandwidth
 *   ptrSupport        mask of NCCL_PTR_*
 *   regIsGlobal       1: a registration is good for every connection of the device
 *   forceFlush        1: receives into GPU memory need iflush
 *   speed             Mbit/s
 *   port              number of the port on its chip
 *   latency           microseconds; NCCL cuts it to an integer
 *   maxComms          connections that the device can carry
 *   maxRecvs          1..: receives that one irecv may group
 *   netDeviceType, netDeviceVersion   NCCL_NET_DEVICE_HOST and its INVALID_VERSION on the host
 *   maxP2pBytes, maxCollBytes         1..NCCL_MAX_NET_SIZE_BYTES: largest message
 *   maxMultiRequestSize               1: no request carries several
 *   railId, planeId   0.. or NCCL_NET_ID_UNDEF
 */
#define MPIB_NCCL_PROPERTIES_NAME                                                                  \
	char *name;                                                                                \
	char *pciPath;                                                                             \
	uint64_t guid;                                                                             \
	int ptrSupport
#define MPIB_NCCL_PROPERTIES_LIMITS                                                                \
	int speed;                                                                                 \
	int port;                                                                                  \
	float latency;                                                                             \
	int maxComms;                                                                              \
	int maxRecvs
#define MPIB_NCCL_PROPERTIES_OFFLOAD                                                               \
	enum mpib_nccl_device_type netDeviceType;                                                  \
	int netDeviceVersion
/* All of v9, the version of whose virtual devices changed later. */
#define MPIB_NCCL_PROPERTIES_V9(version)                                                           \
	MPIB_NCCL_PROPERTIES_NAME;                                                                 \
	int regIsGlobal;                                                                           \
	int forceFlush;                                                                            \
	MPIB_NCCL_PROPERTIES_LIMITS;                                                               \
	MPIB_NCCL_PROPERTIES_OFFLOAD;                                                              \
	struct mpib_nccl_vdevice_##version vProps;                                                 \
	size_t maxP2pBytes;                                                                        \
	size_t maxCollBytes

struct mpib_nccl_properties_v6 {
	MPIB_NCCL_PROPERTIES_NAME;
	MPIB_NCCL_PROPERTIES_LIMITS;
};

struct mpib_nccl_properties_v7 {
	MPIB_NCCL_PROPERTIES_NAME;
	MPIB_NCCL_PROPERTIES_LIMITS;
	MPIB_NCCL_PROPERTIES_OFFLOAD;
};

struct mpib_nccl_properties_v8 {
	MPIB_NCCL_PROPERTIES_NAME;
	int regIsGlobal;
	MPIB_NCCL_PROPERTIES_LIMITS;
	MPIB_NCCL_PROPERTIES_OFFLOAD;
};

struct mpib_nccl_properties_v9 {
	MPIB_NCCL_PROPERTIES_V9(v9);
};
#define mpib_nccl_properties_v10 mpib_nccl_properties_v9

struct mpib_nccl_properties_v11 {
	MPIB_NCCL_PROPERTIES_V9(v11);
	int maxMultiRequestSize;
};

struct mpib_nccl_properties_v12 {
	MPIB_NCCL_PROPERTIES_V9(v12);
	int maxMultiRequestSize;
	int16_t railId;
	int16_t planeId;
};

/* ---- the functions ------------------------------------------------------------------------- */

/* One function type a signature, so that a plugin's implementation and the table can't disagree.
 * A suffix _vN means "from version N on"; without one the signature never changed. */

/* Once a process up to v10; once a communicator from v11 on, with the context of all later calls.
 */
typedef ncclResult_t mpib_nccl_init_v6(ncclDebugLogger_t logger);
typedef ncclResult_t mpib_nccl_init_v10(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
typedef ncclResult_t mpib_nccl_init_v11(void **ctx, uint64_t commId,
					struct mpib_nccl_config *config, ncclDebugLogger_t logger,
					ncclProfilerCallback_t profiler);

typedef ncclResult_t mpib_nccl_devices(int *ndev);

/* Service thread. handle: NCCL_NET_HANDLE_MAXSIZE bytes to fill, carried to the peer. */
typedef ncclResult_t mpib_nccl_listen_v6(int dev, void *handle, void **listenComm);
typedef ncclResult_t mpib_nccl_listen_v11(void *ctx, int dev, void *handle, void **listenComm);

/* Service thread, called again until *sendComm (*recvComm) is set; must not block. The handle is
 * the same writable buffer in each of these calls, private to the connection. */
typedef ncclResult_t mpib_nccl_connect_v6(int dev, void *handle, void **sendComm);
typedef ncclResult_t mpib_nccl_connect_v7(int dev, void *handle, void **sendComm,
					  struct mpib_nccl_device_handle **sendDevComm);
typedef ncclResult_t mpib_nccl_connect_v10(int dev, struct mpib_nccl_config *config, void *handle,
					   void **sendComm,
					   struct mpib_nccl_device_handle **sendDevComm);
typedef ncclResult_t mpib_nccl_connect_v11(void *ctx, int dev, void *handle, void **sendComm,
					   struct mpib_nccl_device_handle **sendDevComm);
typedef ncclResult_t mpib_nccl_accept_v6(void *listenComm, void **recvComm);
typedef ncclResult_t mpib_nccl_accept_v7(void *listenComm, void **recvComm,
					 struct mpib_nccl_device_handle **recvDevComm);

/* Service thread, also while the progress thread uses the same connection. comm: a send or a
 * receive connection. type: NCCL_PTR_HOST or NCCL_PTR_CUDA. fd is the caller's. */
typedef ncclResult_t mpib_nccl_reg_mr_v6(void *comm, void *data, int size, int type,
					 void **mhandle);
typedef ncclResult_t mpib_nccl_reg_mr_v8(void *comm, void *data, size_t size, int type,
					 void **mhandle);
typedef ncclResult_t mpib_nccl_reg_mr_dmabuf(void *comm, void *data, size_t size, int type,
					     uint64_t offset, int fd, void **mhandle);
typedef ncclResult_t mpib_nccl_dereg_mr(void *comm, void *mhandle);

/* Progress thread. *request is always written: NULL means "call again later". */
typedef ncclResult_t mpib_nccl_isend_v6(void *sendComm, void *data, int size, int tag,
					void *mhandle, void **request);
typedef ncclResult_t mpib_nccl_isend_v9(void *sendComm, void *data, size_t size, int tag,
					void *mhandle, void **request);
typedef ncclResult_t mpib_nccl_isend_v10(void *sendComm, void *data, size_t size, int tag,
					 void *mhandle, void *phandle, void **request);

/* n: 1..maxRecvs entries; sizes: bytes of room, in; tags may repeat within a group. */
typedef ncclResult_t mpib_nccl_irecv_v6(void *recvComm, int n, void **data, int *sizes, int *tags,
					void **mhandles, void **request);
typedef ncclResult_t mpib_nccl_irecv_v9(void *recvComm, int n, void **data, size_t *sizes,
					int *tags, void **mhandles, void **request);
typedef ncclResult_t mpib_nccl_irecv_v10(void *recvComm, int n, void **data, size_t *sizes,
					 int *tags, void **mhandles, void **phandles,
					 void **request);

/* After a receive into GPU memory was done; a NULL *request means "nothing to wait for". */
typedef ncclResult_t mpib_nccl_iflush(void *recvComm, int n, void **data, int *sizes,
				      void **mhandles, void **request);

/* Drives progress. *done = 1 hands the request back for good. sizes: one int a message, written
 * when done; may be NULL. */
typedef ncclResult_t mpib_nccl_test(void *request, int *done, int *sizes);

/* Service thread, once no request is outstanding and all registrations are gone. */
typedef ncclResult_t mpib_nccl_close(void *comm);

/* Device offload and fusing by NCCL: NULL in a plugin that has neither. */
typedef ncclResult_t mpib_nccl_get_device_mr(void *comm, void *mhandle, void **dptr_mhandle);
typedef ncclResult_t mpib_nccl_irecv_consumed(void *recvComm, int n, void *request);
typedef ncclResult_t mpib_nccl_make_vdevice_v9(int *dev, struct mpib_nccl_vdevice_v9 *props);
typedef ncclResult_t mpib_nccl_make_vdevice_v12(int *dev, struct mpib_nccl_vdevice_v12 *props);

/* v11..: once an init; ctx may be NULL where NCCL calls it after an init that failed. */
typedef ncclResult_t mpib_nccl_finalize(void *ctx);
typedef ncclResult_t mpib_nccl_set_net_attr(void *ctx, struct mpib_nccl_net_attr *attr);

typedef ncclResult_t mpib_nccl_get_properties_v6(int dev, struct mpib_nccl_properties_v6 *props);
typedef ncclResult_t mpib_nccl_get_properties_v7(int dev, struct mpib_nccl_properties_v7 *props);
typedef ncclResult_t mpib_nccl_get_properties_v8(int dev, struct mpib_nccl_properties_v8 *props);
typedef ncclResult_t mpib_nccl_get_properties_v9(int dev, struct mpib_nccl_properties_v9 *props);
typedef ncclResult_t mpib_nccl_get_properties_v11(int dev, struct mpib_nccl_properties_v11 *props);
typedef ncclResult_t mpib_nccl_get_properties_v12(int dev, struct mpib_nccl_properties_v12 *props);

/* ---- the tables ---------------------------------------------------------------------------- */

/* What all of them begin with: from which version the functions are that have changed. */
#define MPIB_NCCL_TABLE(init_vn, properties_vn, listen_vn, connect_vn, accept_vn, reg_vn,          \
			isend_vn, irecv_vn)                                                        \
	const char *name; /* valid before init */                                                  \
	mpib_nccl_init_##init_vn *init;                                                            \
	mpib_nccl_devices *devices;                                                                \
	mpib_nccl_get_properties_##properties_vn *getProperties;                                   \
	mpib_nccl_listen_##listen_vn *listen;                                                      \
	mpib_nccl_connect_##connect_vn *connect;                                                   \
	mpib_nccl_accept_##accept_vn *accept;                                                      \
	mpib_nccl_reg_mr_##reg_vn *regMr;                                                          \
	mpib_nccl_reg_mr_dmabuf *regMrDmaBuf;                                                      \
	mpib_nccl_dereg_mr *deregMr;                                                               \
	mpib_nccl_isend_##isend_vn *isend;                                                         \
	mpib_nccl_irecv_##irecv_vn *irecv;                                                         \
	mpib_nccl_iflush *iflush;                                                                  \
	mpib_nccl_test *test;                                                                      \
	mpib_nccl_close *closeSend;                                                                \
	mpib_nccl_close *closeRecv;                                                                \
	mpib_nccl_close *closeListen
#define MPIB_NCCL_TABLE_OFFLOAD                                                                    \
	mpib_nccl_get_device_mr *getDeviceMr;                                                      \
	mpib_nccl_irecv_consumed *irecvConsumed
#define MPIB_NCCL_TABLE_CONTEXT                                                                    \
	mpib_nccl_finalize *finalize;                                                              \
	mpib_nccl_set_net_attr *setNetAttr

struct mpib_nccl_net_v6 {
	MPIB_NCCL_TABLE(v6, v6, v6, v6, v6, v6, v6, v6);
};

struct mpib_nccl_net_v7 {
	MPIB_NCCL_TABLE(v6, v7, v6, v7, v7, v6, v6, v6);
	MPIB_NCCL_TABLE_OFFLOAD;
};

struct mpib_nccl_net_v8 {
	MPIB_NCCL_TABLE(v6, v8, v6, v7, v7, v8, v6, v6);
	MPIB_NCCL_TABLE_OFFLOAD;
};

struct mpib_nccl_net_v9 {
	MPIB_NCCL_TABLE(v6, v9, v6, v7, v7, v8, v9, v9);
	MPIB_NCCL_TABLE_OFFLOAD;
	mpib_nccl_make_vdevice_v9 *makeVDevice;
};

struct mpib_nccl_net_v10 {
	MPIB_NCCL_TABLE(v10, v9, v6, v10, v7, v8, v10, v10);
	MPIB_NCCL_TABLE_OFFLOAD;
	mpib_nccl_make_vdevice_v9 *makeVDevice;
};

struct mpib_nccl_net_v11 {
	MPIB_NCCL_TABLE(v11, v11, v11, v11, v7, v8, v10, v10);
	MPIB_NCCL_TABLE_OFFLOAD;
	mpib_nccl_make_vdevice_v9 *makeVDevice;
	MPIB_NCCL_TABLE_CONTEXT;
};

struct mpib_nccl_net_v12 {
	MPIB_NCCL_TABLE(v11, v12, v11, v11, v7, v8, v10, v10);
	MPIB_NCCL_TABLE_OFFLOAD;
	mpib_nccl_make_vdevice_v12 *makeVDevice;
	MPIB_NCCL_TABLE_CONTEXT;
};

#endif
