/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: told apart from host memory, and copied to and from by the CUDA driver, which is
 * found with dlopen when the configuration says `gpu = yes`. Copies run on a stream of our own that
 * waits for nothing else, in the primary context that CUDA programs use. */
#include "tests/fabric/fabric.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of the CUDA driver's interface that is used; names and values are the driver's. */
#define CU_POINTER_ATTRIBUTE_CONTEXT	    1
#define CU_POINTER_ATTRIBUTE_MEMORY_TYPE    2
#define CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL 9
#define CU_MEMORYTYPE_DEVICE		    2
#define CU_STREAM_NON_BLOCKING		    1
#define CU_DEVICES_MAX			    64

static struct {
	pthread_once_t once;
	bool usable;
	int (*init)(unsigned int flags);
	int (*pointer_attribute)(void *value, int attribute, uint64_t ptr);
	int (*device_get)(int *device, int ordinal);
	int (*primary_retain)(void **context, int device);
	int (*context_push)(void *context);
	int (*context_pop)(void **context);
	int (*stream_create)(void **stream, unsigned int flags);
	/* Newer drivers; NULL otherwise. */
	int (*stream_create_urgent)(void **stream, unsigned int flags, int priority);
	int (*priorities)(int *least, int *greatest);
	int (*to_device)(uint64_t to, const void *from, size_t len, void *stream);
	int (*to_host)(void *to, uint64_t from, size_t len, void *stream);
	int (*stream_wait)(void *stream);
	/* engine lock; made when a device is first copied to */
	void *context[CU_DEVICES_MAX], *stream[CU_DEVICES_MAX];
} cuda = { .once = PTHREAD_ONCE_INIT };

static bool find(void *lib, const char *name, void *ret_function)
{
	void *symbol = dlsym(lib, name);

	memcpy(ret_function, &symbol, sizeof(symbol));
	return symbol != NULL;
}

static void load_cuda(void)
{
	void *lib;

	if (!fab.conf->gpu)
		return;
	lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	cuda.usable = lib && find(lib, "cuInit", &cuda.init) &&
		      find(lib, "cuPointerGetAttribute", &cuda.pointer_attribute) &&
		      find(lib, "cuDeviceGet", &cuda.device_get) &&
		      find(lib, "cuDevicePrimaryCtxRetain", &cuda.primary_retain) &&
		      find(lib, "cuCtxPushCurrent_v2", &cuda.context_push) &&
		      find(lib, "cuCtxPopCurrent_v2", &cuda.context_pop) &&
		      find(lib, "cuStreamCreate", &cuda.stream_create) &&
		      find(lib, "cuMemcpyHtoDAsync_v2", &cuda.to_device) &&
		      find(lib, "cuMemcpyDtoHAsync_v2", &cuda.to_host) &&
		      find(lib, "cuStreamSynchronize", &cuda.stream_wait) && cuda.init(0) == 0;
	if (!cuda.usable || !find(lib, "cuStreamCreateWithPriority", &cuda.stream_create_urgent) ||
	    !find(lib, "cuCtxGetStreamPriorityRange", &cuda.priorities))
		cuda.stream_create_urgent = NULL;
	if (!cuda.usable)
		(void)fprintf(stderr, "mpib-fabric: gpu = yes, but the CUDA driver can't be "
				      "used: device memory will be refused\n");
}

bool fab_gpu_pointer(const void *ptr)
{
	unsigned int type = 0;

	(void)pthread_once(&cuda.once, load_cuda);
	return cuda.usable &&
	       cuda.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				      (uint64_t)(uintptr_t)ptr) == 0 &&
	       type == CU_MEMORYTYPE_DEVICE;
}

/* A GPU has few queues for its streams (CUDA_DEVICE_MAX_CONNECTIONS), and one of a program with
 * many shares its queue with others: behind a kernel that spins until a copy has come, the copy
 * would never begin. Streams of another priority have queues of their own. */
static int make_stream(void **ret)
{
	int least = 0, greatest = 0;

	if (cuda.stream_create_urgent && cuda.priorities(&least, &greatest) == 0 &&
	    cuda.stream_create_urgent(ret, CU_STREAM_NON_BLOCKING, greatest) == 0)
		return 0;
	return cuda.stream_create(ret, CU_STREAM_NON_BLOCKING);
}

/* Makes the device of @ptr current on this thread; its stream, or NULL. Engine lock. */
static void *enter(uint64_t ptr)
{
	int ordinal = -1, device;

	if (cuda.pointer_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr) != 0 ||
	    ordinal < 0 || ordinal >= CU_DEVICES_MAX)
		return NULL;
	if (!cuda.context[ordinal] && (cuda.device_get(&device, ordinal) != 0 ||
				       cuda.primary_retain(&cuda.context[ordinal], device) != 0))
		return NULL;
	if (cuda.context_push(cuda.context[ordinal]) != 0)
		return NULL;
	if (!cuda.stream[ordinal] && make_stream(&cuda.stream[ordinal]) != 0) {
		(void)cuda.context_pop(&(void *){ NULL });
		return NULL;
	}
	return cuda.stream[ordinal];
}

/* Memory that was freed under a live registration: a NIC would write to pages that nobody sees. */
void fab_gpu_copy(bool in, uint64_t device, void *host, size_t len)
{
	void *stream = enter(device), *popped;
	static bool told; /* engine lock */
	int error;

	if (!stream) {
		if (!in)
			memset(host, 0, len);
		return;
	}
	error = in ? cuda.to_device(device, host, len, stream)
		   : cuda.to_host(host, device, len, stream);
	if (!error)
		error = cuda.stream_wait(stream);
	(void)cuda.context_pop(&popped);
	if (!error || told)
		return;
	told = true;
	(void)fprintf(stderr,
		      "mpib-fabric: %zu bytes %s device memory at 0x%" PRIx64
		      " can't be copied: CUDA error %d\n",
		      len, in ? "to" : "from", device, error);
}
