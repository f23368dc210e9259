/* SPDX-License-Identifier: Apache-2.0 */
/* A driver for machines without a GPU: "device memory" is an address range that the processor may
 * not touch, so whoever bypasses the driver's copies dies of it. Calls check what the real ones
 * need: a current context, and a stream made in it. Exported: what the fabric looks up, and two
 * helpers. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT	 __attribute__((visibility("default")))
#define ERROR	 1
#define GREATEST (-5) /* priority */

static uint8_t *device, *alias;
static size_t device_len;
static int stream_object, context_object;
static int broken;
static _Thread_local int depth; /* contexts pushed on this thread */

/* Makes the one piece of device memory; its address, or NULL. */
void *fake_alloc(size_t len);
EXPORT void *fake_alloc(size_t len)
{
	int fd = memfd_create("device", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)len) < 0)
		return NULL;
	device = mmap(NULL, len, PROT_NONE, MAP_SHARED, fd, 0);
	alias = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	device_len = len;
	return device == MAP_FAILED || alias == MAP_FAILED ? NULL : device;
}

/* The bytes behind device memory, for the test to fill and look at. */
void *fake_bytes(void);
EXPORT void *fake_bytes(void)
{
	return alias;
}

static uint8_t *behind(uint64_t ptr, size_t len)
{
	uint64_t at = ptr - (uint64_t)(uintptr_t)device;

	return device && at < device_len && len <= device_len - at ? alias + at : NULL;
}

int cuInit(unsigned int flags);
EXPORT int cuInit(unsigned int flags)
{
	return flags ? ERROR : 0;
}

int cuPointerGetAttribute(void *value, int attribute, uint64_t ptr);
EXPORT int cuPointerGetAttribute(void *value, int attribute, uint64_t ptr)
{
	if (!behind(ptr, 1))
		return ERROR;
	*(int *)value = attribute == 2 ? 2 : 0; /* device memory, of device 0 */
	return 0;
}

int cuDeviceGet(int *ret_device, int ordinal);
EXPORT int cuDeviceGet(int *ret_device, int ordinal)
{
	*ret_device = ordinal;
	return ordinal ? ERROR : 0;
}

int cuDevicePrimaryCtxRetain(void **ret_context, int dev);
EXPORT int cuDevicePrimaryCtxRetain(void **ret_context, int dev)
{
	*ret_context = &context_object;
	return dev ? ERROR : 0;
}

int cuCtxPushCurrent_v2(void *context);
EXPORT int cuCtxPushCurrent_v2(void *context)
{
	depth += context == &context_object;
	return context == &context_object ? 0 : ERROR;
}

int cuCtxPopCurrent_v2(void **ret_context);
EXPORT int cuCtxPopCurrent_v2(void **ret_context)
{
	*ret_context = &context_object;
	return depth-- > 0 ? 0 : ERROR;
}

/* A stream without a priority of its own would share a queue with the program's. */
int cuStreamCreate(void **ret_stream, unsigned int flags);
EXPORT int cuStreamCreate(void **ret_stream, unsigned int flags)
{
	(void)ret_stream;
	(void)flags;
	return ERROR;
}

int cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest);
EXPORT int cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
	*ret_least = 0;
	*ret_greatest = GREATEST;
	return depth > 0 ? 0 : ERROR;
}

int cuStreamCreateWithPriority(void **ret_stream, unsigned int flags, int priority);
EXPORT int cuStreamCreateWithPriority(void **ret_stream, unsigned int flags, int priority)
{
	*ret_stream = &stream_object;
	return depth > 0 && flags == 1 && priority == GREATEST ? 0 : ERROR;
}

/* From here on copies fail. */
void fake_break(void);
EXPORT void fake_break(void)
{
	broken = ERROR;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t len, void *stream);
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t len, void *stream)
{
	uint8_t *at = behind(to, len);

	if (!at || depth < 1 || stream != &stream_object)
		return ERROR;
	memcpy(at, from, len);
	return broken;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t len, void *stream);
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t len, void *stream)
{
	uint8_t *at = behind(from, len);

	if (!at || depth < 1 || stream != &stream_object)
		return ERROR;
	memcpy(to, at, len);
	return broken;
}

int cuStreamSynchronize(void *stream);
EXPORT int cuStreamSynchronize(void *stream)
{
	return depth > 0 && stream == &stream_object ? 0 : ERROR;
}
