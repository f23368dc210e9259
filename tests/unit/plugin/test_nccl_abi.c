/* SPDX-License-Identifier: Apache-2.0 */
/* Holds plugin/base/nccl_abi.h to numbers that were measured by compiling against the headers of
 * every NCCL release from 2.19 to 2.30 (x86-64; the ABI is the same in all that speak a version).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/macros.h"
#include "plugin/base/nccl_abi.h"

struct field_row {
	const char *where;
	size_t have_offset, have_size;
	size_t want_offset, want_size;
};

struct struct_row {
	const char *name;
	size_t have_size, have_align;
	size_t want_size, want_align;
};

#define FIELD(type, field, offset, size)                                                           \
	{                                                                                          \
#type "." #field, offsetof(struct type, field), sizeof(((struct type *)0)->field), \
			offset, size                                                               \
	}
#define STRUCT(type, size, align)                                                                  \
	{                                                                                          \
#type, sizeof(struct type), _Alignof(struct type), size, align                     \
	}

static const struct struct_row structs[] = {
	STRUCT(mpib_nccl_net_v6, 136, 8),	  STRUCT(mpib_nccl_properties_v6, 48, 8),
	STRUCT(mpib_nccl_net_v7, 152, 8),	  STRUCT(mpib_nccl_properties_v7, 56, 8),
	STRUCT(mpib_nccl_device_handle, 32, 8),	  STRUCT(mpib_nccl_net_v8, 152, 8),
	STRUCT(mpib_nccl_properties_v8, 64, 8),	  STRUCT(mpib_nccl_net_v9, 160, 8),
	STRUCT(mpib_nccl_properties_v9, 104, 8),  STRUCT(mpib_nccl_vdevice_v9, 20, 4),
	STRUCT(mpib_nccl_net_v10, 160, 8),	  STRUCT(mpib_nccl_properties_v10, 104, 8),
	STRUCT(mpib_nccl_vdevice_v10, 20, 4),	  STRUCT(mpib_nccl_config, 4, 4),
	STRUCT(mpib_nccl_net_v11, 176, 8),	  STRUCT(mpib_nccl_properties_v11, 112, 8),
	STRUCT(mpib_nccl_vdevice_v11, 20, 4),	  STRUCT(mpib_nccl_net_attr, 44, 4),
	STRUCT(mpib_nccl_comm_attr, 16, 4),	  STRUCT(mpib_nccl_net_v12, 176, 8),
	STRUCT(mpib_nccl_properties_v12, 128, 8), STRUCT(mpib_nccl_vdevice_v12, 36, 4),
};

static const struct field_row fields[] = {
	FIELD(mpib_nccl_net_v6, name, 0, 8),
	FIELD(mpib_nccl_net_v6, init, 8, 8),
	FIELD(mpib_nccl_net_v6, devices, 16, 8),
	FIELD(mpib_nccl_net_v6, getProperties, 24, 8),
	FIELD(mpib_nccl_net_v6, listen, 32, 8),
	FIELD(mpib_nccl_net_v6, connect, 40, 8),
	FIELD(mpib_nccl_net_v6, accept, 48, 8),
	FIELD(mpib_nccl_net_v6, regMr, 56, 8),
	FIELD(mpib_nccl_net_v6, regMrDmaBuf, 64, 8),
	FIELD(mpib_nccl_net_v6, deregMr, 72, 8),
	FIELD(mpib_nccl_net_v6, isend, 80, 8),
	FIELD(mpib_nccl_net_v6, irecv, 88, 8),
	FIELD(mpib_nccl_net_v6, iflush, 96, 8),
	FIELD(mpib_nccl_net_v6, test, 104, 8),
	FIELD(mpib_nccl_net_v6, closeSend, 112, 8),
	FIELD(mpib_nccl_net_v6, closeRecv, 120, 8),
	FIELD(mpib_nccl_net_v6, closeListen, 128, 8),
	FIELD(mpib_nccl_properties_v6, name, 0, 8),
	FIELD(mpib_nccl_properties_v6, pciPath, 8, 8),
	FIELD(mpib_nccl_properties_v6, guid, 16, 8),
	FIELD(mpib_nccl_properties_v6, ptrSupport, 24, 4),
	FIELD(mpib_nccl_properties_v6, speed, 28, 4),
	FIELD(mpib_nccl_properties_v6, port, 32, 4),
	FIELD(mpib_nccl_properties_v6, latency, 36, 4),
	FIELD(mpib_nccl_properties_v6, maxComms, 40, 4),
	FIELD(mpib_nccl_properties_v6, maxRecvs, 44, 4),
	FIELD(mpib_nccl_net_v7, name, 0, 8),
	FIELD(mpib_nccl_net_v7, init, 8, 8),
	FIELD(mpib_nccl_net_v7, devices, 16, 8),
	FIELD(mpib_nccl_net_v7, getProperties, 24, 8),
	FIELD(mpib_nccl_net_v7, listen, 32, 8),
	FIELD(mpib_nccl_net_v7, connect, 40, 8),
	FIELD(mpib_nccl_net_v7, accept, 48, 8),
	FIELD(mpib_nccl_net_v7, regMr, 56, 8),
	FIELD(mpib_nccl_net_v7, regMrDmaBuf, 64, 8),
	FIELD(mpib_nccl_net_v7, deregMr, 72, 8),
	FIELD(mpib_nccl_net_v7, isend, 80, 8),
	FIELD(mpib_nccl_net_v7, irecv, 88, 8),
	FIELD(mpib_nccl_net_v7, iflush, 96, 8),
	FIELD(mpib_nccl_net_v7, test, 104, 8),
	FIELD(mpib_nccl_net_v7, closeSend, 112, 8),
	FIELD(mpib_nccl_net_v7, closeRecv, 120, 8),
	FIELD(mpib_nccl_net_v7, closeListen, 128, 8),
	FIELD(mpib_nccl_net_v7, getDeviceMr, 136, 8),
	FIELD(mpib_nccl_net_v7, irecvConsumed, 144, 8),
	FIELD(mpib_nccl_properties_v7, name, 0, 8),
	FIELD(mpib_nccl_properties_v7, pciPath, 8, 8),
	FIELD(mpib_nccl_properties_v7, guid, 16, 8),
	FIELD(mpib_nccl_properties_v7, ptrSupport, 24, 4),
	FIELD(mpib_nccl_properties_v7, speed, 28, 4),
	FIELD(mpib_nccl_properties_v7, port, 32, 4),
	FIELD(mpib_nccl_properties_v7, latency, 36, 4),
	FIELD(mpib_nccl_properties_v7, maxComms, 40, 4),
	FIELD(mpib_nccl_properties_v7, maxRecvs, 44, 4),
	FIELD(mpib_nccl_properties_v7, netDeviceType, 48, 4),
	FIELD(mpib_nccl_properties_v7, netDeviceVersion, 52, 4),
	FIELD(mpib_nccl_device_handle, netDeviceType, 0, 4),
	FIELD(mpib_nccl_device_handle, netDeviceVersion, 4, 4),
	FIELD(mpib_nccl_device_handle, handle, 8, 8),
	FIELD(mpib_nccl_device_handle, size, 16, 8),
	FIELD(mpib_nccl_device_handle, needsProxyProgress, 24, 4),
	FIELD(mpib_nccl_net_v8, name, 0, 8),
	FIELD(mpib_nccl_net_v8, init, 8, 8),
	FIELD(mpib_nccl_net_v8, devices, 16, 8),
	FIELD(mpib_nccl_net_v8, getProperties, 24, 8),
	FIELD(mpib_nccl_net_v8, listen, 32, 8),
	FIELD(mpib_nccl_net_v8, connect, 40, 8),
	FIELD(mpib_nccl_net_v8, accept, 48, 8),
	FIELD(mpib_nccl_net_v8, regMr, 56, 8),
	FIELD(mpib_nccl_net_v8, regMrDmaBuf, 64, 8),
	FIELD(mpib_nccl_net_v8, deregMr, 72, 8),
	FIELD(mpib_nccl_net_v8, isend, 80, 8),
	FIELD(mpib_nccl_net_v8, irecv, 88, 8),
	FIELD(mpib_nccl_net_v8, iflush, 96, 8),
	FIELD(mpib_nccl_net_v8, test, 104, 8),
	FIELD(mpib_nccl_net_v8, closeSend, 112, 8),
	FIELD(mpib_nccl_net_v8, closeRecv, 120, 8),
	FIELD(mpib_nccl_net_v8, closeListen, 128, 8),
	FIELD(mpib_nccl_net_v8, getDeviceMr, 136, 8),
	FIELD(mpib_nccl_net_v8, irecvConsumed, 144, 8),
	FIELD(mpib_nccl_properties_v8, name, 0, 8),
	FIELD(mpib_nccl_properties_v8, pciPath, 8, 8),
	FIELD(mpib_nccl_properties_v8, guid, 16, 8),
	FIELD(mpib_nccl_properties_v8, ptrSupport, 24, 4),
	FIELD(mpib_nccl_properties_v8, regIsGlobal, 28, 4),
	FIELD(mpib_nccl_properties_v8, speed, 32, 4),
	FIELD(mpib_nccl_properties_v8, port, 36, 4),
	FIELD(mpib_nccl_properties_v8, latency, 40, 4),
	FIELD(mpib_nccl_properties_v8, maxComms, 44, 4),
	FIELD(mpib_nccl_properties_v8, maxRecvs, 48, 4),
	FIELD(mpib_nccl_properties_v8, netDeviceType, 52, 4),
	FIELD(mpib_nccl_properties_v8, netDeviceVersion, 56, 4),
	FIELD(mpib_nccl_net_v9, name, 0, 8),
	FIELD(mpib_nccl_net_v9, init, 8, 8),
	FIELD(mpib_nccl_net_v9, devices, 16, 8),
	FIELD(mpib_nccl_net_v9, getProperties, 24, 8),
	FIELD(mpib_nccl_net_v9, listen, 32, 8),
	FIELD(mpib_nccl_net_v9, connect, 40, 8),
	FIELD(mpib_nccl_net_v9, accept, 48, 8),
	FIELD(mpib_nccl_net_v9, regMr, 56, 8),
	FIELD(mpib_nccl_net_v9, regMrDmaBuf, 64, 8),
	FIELD(mpib_nccl_net_v9, deregMr, 72, 8),
	FIELD(mpib_nccl_net_v9, isend, 80, 8),
	FIELD(mpib_nccl_net_v9, irecv, 88, 8),
	FIELD(mpib_nccl_net_v9, iflush, 96, 8),
	FIELD(mpib_nccl_net_v9, test, 104, 8),
	FIELD(mpib_nccl_net_v9, closeSend, 112, 8),
	FIELD(mpib_nccl_net_v9, closeRecv, 120, 8),
	FIELD(mpib_nccl_net_v9, closeListen, 128, 8),
	FIELD(mpib_nccl_net_v9, getDeviceMr, 136, 8),
	FIELD(mpib_nccl_net_v9, irecvConsumed, 144, 8),
	FIELD(mpib_nccl_net_v9, makeVDevice, 152, 8),
	FIELD(mpib_nccl_properties_v9, name, 0, 8),
	FIELD(mpib_nccl_properties_v9, pciPath, 8, 8),
	FIELD(mpib_nccl_properties_v9, guid, 16, 8),
	FIELD(mpib_nccl_properties_v9, ptrSupport, 24, 4),
	FIELD(mpib_nccl_properties_v9, regIsGlobal, 28, 4),
	FIELD(mpib_nccl_properties_v9, forceFlush, 32, 4),
	FIELD(mpib_nccl_properties_v9, speed, 36, 4),
	FIELD(mpib_nccl_properties_v9, port, 40, 4),
	FIELD(mpib_nccl_properties_v9, latency, 44, 4),
	FIELD(mpib_nccl_properties_v9, maxComms, 48, 4),
	FIELD(mpib_nccl_properties_v9, maxRecvs, 52, 4),
	FIELD(mpib_nccl_properties_v9, netDeviceType, 56, 4),
	FIELD(mpib_nccl_properties_v9, netDeviceVersion, 60, 4),
	FIELD(mpib_nccl_properties_v9, vProps, 64, 20),
	FIELD(mpib_nccl_properties_v9, maxP2pBytes, 88, 8),
	FIELD(mpib_nccl_properties_v9, maxCollBytes, 96, 8),
	FIELD(mpib_nccl_vdevice_v9, ndevs, 0, 4),
	FIELD(mpib_nccl_vdevice_v9, devs, 4, 16),
	FIELD(mpib_nccl_net_v10, name, 0, 8),
	FIELD(mpib_nccl_net_v10, init, 8, 8),
	FIELD(mpib_nccl_net_v10, devices, 16, 8),
	FIELD(mpib_nccl_net_v10, getProperties, 24, 8),
	FIELD(mpib_nccl_net_v10, listen, 32, 8),
	FIELD(mpib_nccl_net_v10, connect, 40, 8),
	FIELD(mpib_nccl_net_v10, accept, 48, 8),
	FIELD(mpib_nccl_net_v10, regMr, 56, 8),
	FIELD(mpib_nccl_net_v10, regMrDmaBuf, 64, 8),
	FIELD(mpib_nccl_net_v10, deregMr, 72, 8),
	FIELD(mpib_nccl_net_v10, isend, 80, 8),
	FIELD(mpib_nccl_net_v10, irecv, 88, 8),
	FIELD(mpib_nccl_net_v10, iflush, 96, 8),
	FIELD(mpib_nccl_net_v10, test, 104, 8),
	FIELD(mpib_nccl_net_v10, closeSend, 112, 8),
	FIELD(mpib_nccl_net_v10, closeRecv, 120, 8),
	FIELD(mpib_nccl_net_v10, closeListen, 128, 8),
	FIELD(mpib_nccl_net_v10, getDeviceMr, 136, 8),
	FIELD(mpib_nccl_net_v10, irecvConsumed, 144, 8),
	FIELD(mpib_nccl_net_v10, makeVDevice, 152, 8),
	FIELD(mpib_nccl_properties_v10, name, 0, 8),
	FIELD(mpib_nccl_properties_v10, pciPath, 8, 8),
	FIELD(mpib_nccl_properties_v10, guid, 16, 8),
	FIELD(mpib_nccl_properties_v10, ptrSupport, 24, 4),
	FIELD(mpib_nccl_properties_v10, regIsGlobal, 28, 4),
	FIELD(mpib_nccl_properties_v10, forceFlush, 32, 4),
	FIELD(mpib_nccl_properties_v10, speed, 36, 4),
	FIELD(mpib_nccl_properties_v10, port, 40, 4),
	FIELD(mpib_nccl_properties_v10, latency, 44, 4),
	FIELD(mpib_nccl_properties_v10, maxComms, 48, 4),
	FIELD(mpib_nccl_properties_v10, maxRecvs, 52, 4),
	FIELD(mpib_nccl_properties_v10, netDeviceType, 56, 4),
	FIELD(mpib_nccl_properties_v10, netDeviceVersion, 60, 4),
	FIELD(mpib_nccl_properties_v10, vProps, 64, 20),
	FIELD(mpib_nccl_properties_v10, maxP2pBytes, 88, 8),
	FIELD(mpib_nccl_properties_v10, maxCollBytes, 96, 8),
	FIELD(mpib_nccl_vdevice_v10, ndevs, 0, 4),
	FIELD(mpib_nccl_vdevice_v10, devs, 4, 16),
	FIELD(mpib_nccl_config, trafficClass, 0, 4),
	FIELD(mpib_nccl_net_v11, name, 0, 8),
	FIELD(mpib_nccl_net_v11, init, 8, 8),
	FIELD(mpib_nccl_net_v11, devices, 16, 8),
	FIELD(mpib_nccl_net_v11, getProperties, 24, 8),
	FIELD(mpib_nccl_net_v11, listen, 32, 8),
	FIELD(mpib_nccl_net_v11, connect, 40, 8),
	FIELD(mpib_nccl_net_v11, accept, 48, 8),
	FIELD(mpib_nccl_net_v11, regMr, 56, 8),
	FIELD(mpib_nccl_net_v11, regMrDmaBuf, 64, 8),
	FIELD(mpib_nccl_net_v11, deregMr, 72, 8),
	FIELD(mpib_nccl_net_v11, isend, 80, 8),
	FIELD(mpib_nccl_net_v11, irecv, 88, 8),
	FIELD(mpib_nccl_net_v11, iflush, 96, 8),
	FIELD(mpib_nccl_net_v11, test, 104, 8),
	FIELD(mpib_nccl_net_v11, closeSend, 112, 8),
	FIELD(mpib_nccl_net_v11, closeRecv, 120, 8),
	FIELD(mpib_nccl_net_v11, closeListen, 128, 8),
	FIELD(mpib_nccl_net_v11, getDeviceMr, 136, 8),
	FIELD(mpib_nccl_net_v11, irecvConsumed, 144, 8),
	FIELD(mpib_nccl_net_v11, makeVDevice, 152, 8),
	FIELD(mpib_nccl_net_v11, finalize, 160, 8),
	FIELD(mpib_nccl_net_v11, setNetAttr, 168, 8),
	FIELD(mpib_nccl_properties_v11, name, 0, 8),
	FIELD(mpib_nccl_properties_v11, pciPath, 8, 8),
	FIELD(mpib_nccl_properties_v11, guid, 16, 8),
	FIELD(mpib_nccl_properties_v11, ptrSupport, 24, 4),
	FIELD(mpib_nccl_properties_v11, regIsGlobal, 28, 4),
	FIELD(mpib_nccl_properties_v11, forceFlush, 32, 4),
	FIELD(mpib_nccl_properties_v11, speed, 36, 4),
	FIELD(mpib_nccl_properties_v11, port, 40, 4),
	FIELD(mpib_nccl_properties_v11, latency, 44, 4),
	FIELD(mpib_nccl_properties_v11, maxComms, 48, 4),
	FIELD(mpib_nccl_properties_v11, maxRecvs, 52, 4),
	FIELD(mpib_nccl_properties_v11, netDeviceType, 56, 4),
	FIELD(mpib_nccl_properties_v11, netDeviceVersion, 60, 4),
	FIELD(mpib_nccl_properties_v11, vProps, 64, 20),
	FIELD(mpib_nccl_properties_v11, maxP2pBytes, 88, 8),
	FIELD(mpib_nccl_properties_v11, maxCollBytes, 96, 8),
	FIELD(mpib_nccl_properties_v11, maxMultiRequestSize, 104, 4),
	FIELD(mpib_nccl_vdevice_v11, ndevs, 0, 4),
	FIELD(mpib_nccl_vdevice_v11, devs, 4, 16),
	FIELD(mpib_nccl_net_attr, sendCommAttr, 0, 16),
	FIELD(mpib_nccl_net_attr, recvCommAttr, 16, 16),
	FIELD(mpib_nccl_net_attr, op, 32, 4),
	FIELD(mpib_nccl_net_attr, algo, 36, 4),
	FIELD(mpib_nccl_net_attr, proto, 40, 4),
	FIELD(mpib_nccl_comm_attr, maxConcurrentPeers, 0, 4),
	FIELD(mpib_nccl_comm_attr, minConcurrentPeers, 4, 4),
	FIELD(mpib_nccl_comm_attr, maxFlowsPerPeer, 8, 4),
	FIELD(mpib_nccl_comm_attr, minFlowsPerPeer, 12, 4),
	FIELD(mpib_nccl_net_v12, name, 0, 8),
	FIELD(mpib_nccl_net_v12, init, 8, 8),
	FIELD(mpib_nccl_net_v12, devices, 16, 8),
	FIELD(mpib_nccl_net_v12, getProperties, 24, 8),
	FIELD(mpib_nccl_net_v12, listen, 32, 8),
	FIELD(mpib_nccl_net_v12, connect, 40, 8),
	FIELD(mpib_nccl_net_v12, accept, 48, 8),
	FIELD(mpib_nccl_net_v12, regMr, 56, 8),
	FIELD(mpib_nccl_net_v12, regMrDmaBuf, 64, 8),
	FIELD(mpib_nccl_net_v12, deregMr, 72, 8),
	FIELD(mpib_nccl_net_v12, isend, 80, 8),
	FIELD(mpib_nccl_net_v12, irecv, 88, 8),
	FIELD(mpib_nccl_net_v12, iflush, 96, 8),
	FIELD(mpib_nccl_net_v12, test, 104, 8),
	FIELD(mpib_nccl_net_v12, closeSend, 112, 8),
	FIELD(mpib_nccl_net_v12, closeRecv, 120, 8),
	FIELD(mpib_nccl_net_v12, closeListen, 128, 8),
	FIELD(mpib_nccl_net_v12, getDeviceMr, 136, 8),
	FIELD(mpib_nccl_net_v12, irecvConsumed, 144, 8),
	FIELD(mpib_nccl_net_v12, makeVDevice, 152, 8),
	FIELD(mpib_nccl_net_v12, finalize, 160, 8),
	FIELD(mpib_nccl_net_v12, setNetAttr, 168, 8),
	FIELD(mpib_nccl_properties_v12, name, 0, 8),
	FIELD(mpib_nccl_properties_v12, pciPath, 8, 8),
	FIELD(mpib_nccl_properties_v12, guid, 16, 8),
	FIELD(mpib_nccl_properties_v12, ptrSupport, 24, 4),
	FIELD(mpib_nccl_properties_v12, regIsGlobal, 28, 4),
	FIELD(mpib_nccl_properties_v12, forceFlush, 32, 4),
	FIELD(mpib_nccl_properties_v12, speed, 36, 4),
	FIELD(mpib_nccl_properties_v12, port, 40, 4),
	FIELD(mpib_nccl_properties_v12, latency, 44, 4),
	FIELD(mpib_nccl_properties_v12, maxComms, 48, 4),
	FIELD(mpib_nccl_properties_v12, maxRecvs, 52, 4),
	FIELD(mpib_nccl_properties_v12, netDeviceType, 56, 4),
	FIELD(mpib_nccl_properties_v12, netDeviceVersion, 60, 4),
	FIELD(mpib_nccl_properties_v12, vProps, 64, 36),
	FIELD(mpib_nccl_properties_v12, maxP2pBytes, 104, 8),
	FIELD(mpib_nccl_properties_v12, maxCollBytes, 112, 8),
	FIELD(mpib_nccl_properties_v12, maxMultiRequestSize, 120, 4),
	FIELD(mpib_nccl_properties_v12, railId, 124, 2),
	FIELD(mpib_nccl_properties_v12, planeId, 126, 2),
	FIELD(mpib_nccl_vdevice_v12, ndevs, 0, 4),
	FIELD(mpib_nccl_vdevice_v12, devs, 4, 32),
};

static void sizes_match_the_abi(void **state)
{
	(void)state;

	for (size_t n = 0; n < MPIB_ARRAY_SIZE(structs); n++) {
		const struct struct_row *row = &structs[n];

		if (row->have_size != row->want_size || row->have_align != row->want_align)
			fail_msg("%s: size %zu align %zu, the ABI says %zu and %zu", row->name,
				 row->have_size, row->have_align, row->want_size, row->want_align);
	}
}

static void fields_match_the_abi(void **state)
{
	(void)state;

	for (size_t n = 0; n < MPIB_ARRAY_SIZE(fields); n++) {
		const struct field_row *row = &fields[n];

		if (row->have_offset != row->want_offset || row->have_size != row->want_size)
			fail_msg("%s: offset %zu size %zu, the ABI says %zu and %zu", row->where,
				 row->have_offset, row->have_size, row->want_offset,
				 row->want_size);
	}
}

/* The width of an argument is not seen in any offset: each signature is spelled out again, as the
 * reference has it. */
#define SAME(table, field, ...)                                                                    \
	_Static_assert(__builtin_types_compatible_p(                                               \
			       __typeof__(*((struct mpib_nccl_net_##table *)0)->field),            \
			       ncclResult_t(__VA_ARGS__)),                                         \
		       "signature of " #table "." #field)

SAME(v6, init, ncclDebugLogger_t);
SAME(v6, devices, int *);
SAME(v6, getProperties, int, struct mpib_nccl_properties_v6 *);
SAME(v6, listen, int, void *, void **);
SAME(v6, connect, int, void *, void **);
SAME(v6, accept, void *, void **);
SAME(v6, regMr, void *, void *, int, int, void **);
SAME(v6, regMrDmaBuf, void *, void *, size_t, int, uint64_t, int, void **);
SAME(v6, deregMr, void *, void *);
SAME(v6, isend, void *, void *, int, int, void *, void **);
SAME(v6, irecv, void *, int, void **, int *, int *, void **, void **);
SAME(v6, iflush, void *, int, void **, int *, void **, void **);
SAME(v6, test, void *, int *, int *);
SAME(v6, closeSend, void *);
SAME(v6, closeRecv, void *);
SAME(v6, closeListen, void *);
SAME(v7, init, ncclDebugLogger_t);
SAME(v7, devices, int *);
SAME(v7, getProperties, int, struct mpib_nccl_properties_v7 *);
SAME(v7, listen, int, void *, void **);
SAME(v7, connect, int, void *, void **, struct mpib_nccl_device_handle **);
SAME(v7, accept, void *, void **, struct mpib_nccl_device_handle **);
SAME(v7, regMr, void *, void *, int, int, void **);
SAME(v7, regMrDmaBuf, void *, void *, size_t, int, uint64_t, int, void **);
SAME(v7, deregMr, void *, void *);
SAME(v7, isend, void *, void *, int, int, void *, void **);
SAME(v7, irecv, void *, int, void **, int *, int *, void **, void **);
SAME(v7, iflush, void *, int, void **, int *, void **, void **);
SAME(v7, test, void *, int *, int *);
SAME(v7, closeSend, void *);
SAME(v7, closeRecv, void *);
SAME(v7, closeListen, void *);
SAME(v7, getDeviceMr, void *, void *, void **);
SAME(v7, irecvConsumed, void *, int, void *);
SAME(v8, init, ncclDebugLogger_t);
SAME(v8, devices, int *);
SAME(v8, getProperties, int, struct mpib_nccl_properties_v8 *);
SAME(v8, listen, int, void *, void **);
SAME(v8, connect, int, void *, void **, struct mpib_nccl_device_handle **);
SAME(v8, accept, void *, void **, struct mpib_nccl_device_handle **);
SAME(v8, regMr, void *, void *, size_t, int, void **);
SAME(v8, regMrDmaBuf, void *, void *, size_t, int, uint64_t, int, void **);
SAME(v8, deregMr, void *, void *);
SAME(v8, isend, void *, void *, int, int, void *, void **);
SAME(v8, irecv, void *, int, void **, int *, int *, void **, void **);
SAME(v8, iflush, void *, int, void **, int *, void **, void **);
SAME(v8, test, void *, int *, int *);
SAME(v8, closeSend, void *);
SAME(v8, closeRecv, void *);
SAME(v8, closeListen, void *);
SAME(v8, getDeviceMr, void *, void *, void **);
SAME(v8, irecvConsumed, void *, int, void *);
SAME(v9, init, ncclDebugLogger_t);
SAME(v9, devices, int *);
SAME(v9, getProperties, int, struct mpib_nccl_properties_v9 *);
SAME(v9, listen, int, void *, void **);
SAME(v9, connect, int, void *, void **, struct mpib_nccl_device_handle **);
SAME(v9, accept, void *, void **, struct mpib_nccl_device_handle **);
SAME(v9, regMr, void *, void *, size_t, int, void **);
SAME(v9, regMrDmaBuf, void *, void *, size_t, int, uint64_t, int, void **);
SAME(v9, deregMr, void *, void *);
SAME(v9, isend, void *, void *, size_t, int, void *, void **);
SAME(v9, irecv, void *, int, void **, size_t *, int *, void **, void **);
SAME(v9, iflush, void *, int, void **, int *, void **, void **);
SAME(v9, test, void *, int *, int *);
SAME(v9, closeSend, void *);
SAME(v9, closeRecv, void *);
SAME(v9, closeListen, void *);
SAME(v9, getDeviceMr, void *, void *, void **);
SAME(v9, irecvConsumed, void *, int, void *);
SAME(v9, makeVDevice, int *, struct mpib_nccl_vdevice_v9 *);
SAME(v10, init, ncclDebugLogger_t, ncclProfilerCallback_t);
SAME(v10, devices, int *);
SAME(v10, getProperties, int, struct mpib_nccl_properties_v10 *);
SAME(v10, listen, int, void *, void **);
SAME(v10, connect, int, struct mpib_nccl_config *, void *, void **,
     struct mpib_nccl_device_handle **);
SAME(v10, accept, void *, void **, struct mpib_nccl_device_handle **);
SAME(v10, regMr, void *, void *, size_t, int, void **);
SAME(v10, regMrDmaBuf, void *, void *, size_t, int, uint64_t, int, void **);
SAME(v10, deregMr, void *, void *);
SAME(v10, isend, void *, void *, size_t, int, void *, void *, void **);
SAME(v10, irecv, void *, int, void **, size_t *, int *, void **, void **, void **);
SAME(v10, iflush, void *, int, void **, int *, void **, void **);
SAME(v10, test, void *, int *, int *);
SAME(v10, closeSend, void *);
SAME(v10, closeRecv, void *);
SAME(v10, closeListen, void *);
SAME(v10, getDeviceMr, void *, void *, void **);
SAME(v10, irecvConsumed, void *, int, void *);
SAME(v10, makeVDevice, int *, struct mpib_nccl_vdevice_v9 *);
SAME(v11, init, void **, uint64_t, struct mpib_nccl_config *, ncclDebugLogger_t,
     ncclProfilerCallback_t);
SAME(v11, devices, int *);
SAME(v11, getProperties, int, struct mpib_nccl_properties_v11 *);
SAME(v11, listen, void *, int, void *, void **);
SAME(v11, connect, void *, int, void *, void **, struct mpib_nccl_device_handle **);
SAME(v11, accept, void *, void **, struct mpib_nccl_device_handle **);
SAME(v11, regMr, void *, void *, size_t, int, void **);
SAME(v11, regMrDmaBuf, void *, void *, size_t, int, uint64_t, int, void **);
SAME(v11, deregMr, void *, void *);
SAME(v11, isend, void *, void *, size_t, int, void *, void *, void **);
SAME(v11, irecv, void *, int, void **, size_t *, int *, void **, void **, void **);
SAME(v11, iflush, void *, int, void **, int *, void **, void **);
SAME(v11, test, void *, int *, int *);
SAME(v11, closeSend, void *);
SAME(v11, closeRecv, void *);
SAME(v11, closeListen, void *);
SAME(v11, getDeviceMr, void *, void *, void **);
SAME(v11, irecvConsumed, void *, int, void *);
SAME(v11, makeVDevice, int *, struct mpib_nccl_vdevice_v9 *);
SAME(v11, finalize, void *);
SAME(v11, setNetAttr, void *, struct mpib_nccl_net_attr *);
SAME(v12, init, void **, uint64_t, struct mpib_nccl_config *, ncclDebugLogger_t,
     ncclProfilerCallback_t);
SAME(v12, devices, int *);
SAME(v12, getProperties, int, struct mpib_nccl_properties_v12 *);
SAME(v12, listen, void *, int, void *, void **);
SAME(v12, connect, void *, int, void *, void **, struct mpib_nccl_device_handle **);
SAME(v12, accept, void *, void **, struct mpib_nccl_device_handle **);
SAME(v12, regMr, void *, void *, size_t, int, void **);
SAME(v12, regMrDmaBuf, void *, void *, size_t, int, uint64_t, int, void **);
SAME(v12, deregMr, void *, void *);
SAME(v12, isend, void *, void *, size_t, int, void *, void *, void **);
SAME(v12, irecv, void *, int, void **, size_t *, int *, void **, void **, void **);
SAME(v12, iflush, void *, int, void **, int *, void **, void **);
SAME(v12, test, void *, int *, int *);
SAME(v12, closeSend, void *);
SAME(v12, closeRecv, void *);
SAME(v12, closeListen, void *);
SAME(v12, getDeviceMr, void *, void *, void **);
SAME(v12, irecvConsumed, void *, int, void *);
SAME(v12, makeVDevice, int *, struct mpib_nccl_vdevice_v12 *);
SAME(v12, finalize, void *);
SAME(v12, setNetAttr, void *, struct mpib_nccl_net_attr *);

static void constants_match_the_abi(void **state)
{
	(void)state;

	assert_int_equal(NCCL_NET_HANDLE_MAXSIZE, 128);
	assert_int_equal(NCCL_NET_MAX_REQUESTS, 32);
	assert_int_equal(NCCL_NET_MAX_REQUESTS_V6, 8);
	assert_int_equal(NCCL_PTR_HOST, 1);
	assert_int_equal(NCCL_PTR_CUDA, 2);
	assert_int_equal(NCCL_PTR_DMABUF, 4);
	assert_int_equal(NCCL_MAX_NET_SIZE_BYTES, 1099511627776);
	assert_int_equal((uintptr_t)NCCL_NET_OPTIONAL_RECV_COMPLETION, 1);
	assert_int_equal(sizeof(ncclResult_t), 4);
	assert_int_equal(ncclSystemError, 2);
	assert_int_equal(ncclInternalError, 3);
	assert_int_equal(ncclInvalidArgument, 4);
	assert_int_equal(ncclInvalidUsage, 5);
	assert_int_equal(ncclRemoteError, 6);
	assert_int_equal(NCCL_LOG_WARN, 2);
	assert_int_equal(NCCL_LOG_INFO, 3);
	assert_int_equal(NCCL_LOG_TRACE, 5);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_match_the_abi),
		cmocka_unit_test(fields_match_the_abi),
		cmocka_unit_test(constants_match_the_abi),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
