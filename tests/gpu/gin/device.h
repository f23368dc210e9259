// SPDX-License-Identifier: Apache-2.0
// What kernels that put and signal need of a communicator. NCCL 2.28.7 and later.
#ifndef MPIB_TESTS_GPU_GIN_DEVICE_H
#define MPIB_TESTS_GPU_GIN_DEVICE_H

#include <cstring>

#include "rank.h"
#include "nccl_device.h"

static ncclDevComm device_new(ncclComm_t comm, int signals)
{
	ncclDevCommRequirements need;
	ncclDevComm device;

#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
	need = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
	need.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
#else
	memset(&need, 0, sizeof(need));
#endif
	need.railGinBarrierCount = 1;
	need.ginSignalCount = signals;
	CHECK(ncclDevCommCreate(comm, &need, &device));
	return device;
}

#endif
