/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of what is called at the start of the plugin's life: files, descriptors, the thread, and
 * the verbs that open a device. */
#include "tests/plugin/sweep_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the plugin's files none is made by open. */
static int hook_open(const char *path, int flags, ...)
{
	return hook_fails(HOOK_OPEN) ? -1 : open(path, flags);
}

static int hook_openat(int dir, const char *path, int flags, ...)
{
	return hook_fails(HOOK_OPEN) ? -1 : openat(dir, path, flags);
}

static FILE *hook_fopen(const char *path, const char *mode)
{
	return hook_fails(HOOK_OPEN) ? NULL : fopen(path, mode);
}

static DIR *hook_opendir(const char *path)
{
	return hook_fails(HOOK_OPEN) ? NULL : opendir(path);
}

static int hook_fstat(int fd, struct stat *ret)
{
	return hook_fails(HOOK_STAT) ? -1 : fstat(fd, ret);
}

static int hook_lstat(const char *path, struct stat *ret)
{
	return hook_fails(HOOK_STAT) ? -1 : lstat(path, ret);
}

static int hook_ftruncate(int fd, off_t size)
{
	return hook_fails(HOOK_FTRUNCATE) ? -1 : ftruncate(fd, size);
}

static int hook_fcntl(int fd, int command, ...)
{
	va_list args;
	long arg;

	va_start(args, command);
	arg = va_arg(args, long);
	va_end(args);
	return hook_fails(HOOK_FCNTL) ? -1 : fcntl(fd, command, arg);
}

static int hook_epoll_create1(int flags)
{
	return hook_fails(HOOK_EPOLL_CREATE) ? -1 : epoll_create1(flags);
}

static int hook_eventfd(unsigned int value, int flags)
{
	return hook_fails(HOOK_EVENTFD) ? -1 : eventfd(value, flags);
}

static int hook_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *),
			       void *arg)
{
	return hook_fails(HOOK_THREAD) ? errno : pthread_create(ret, attr, run, arg);
}

static int hook_getifaddrs(struct ifaddrs **ret)
{
	return hook_fails(HOOK_GETIFADDRS) ? -1 : getifaddrs(ret);
}

static int hook_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	return hook_fails(HOOK_SETSOCKOPT) ? -1 : setsockopt(fd, level, name, value, len);
}

static ssize_t hook_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	return hook_fails(HOOK_SENDMSG) ? -1 : sendmsg(fd, msg, flags);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

static struct {
	struct ibv_device **(*get_device_list)(int *);
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*query_gid_ex)(struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *,
			    uint32_t, size_t);
} real;

static struct ibv_device **hook_get_device_list(int *count)
{
	return hook_fails(HOOK_DEVICE_LIST) ? NULL : real.get_device_list(count);
}

static int hook_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	return hook_fails(HOOK_QUERY_DEVICE) ? errno : real.query_device(ctx, attr);
}

static struct ibv_pd *hook_alloc_pd(struct ibv_context *ctx)
{
	return hook_fails(HOOK_ALLOC_PD) ? NULL : real.alloc_pd(ctx);
}

static int hook_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
			     struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	return hook_fails(HOOK_QUERY_GID) ? errno
					  : real.query_gid_ex(ctx, port, index, entry, flags, size);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Where files are of 64 bits, as here, the C library's names say so. */
#define FILE64(name)                                                                               \
	{ #name, (void *)(uintptr_t)hook_##name, NULL },                                           \
	{                                                                                          \
#name "64", (void *)(uintptr_t)hook_##name, NULL                                   \
	}
#define HOOK(name)                                                                                 \
	{                                                                                          \
#name, (void *)(uintptr_t)hook_##name, NULL                                        \
	}
#define VERB(symbol, name)                                                                         \
	{                                                                                          \
		symbol, (void *)(uintptr_t)hook_##name, &real.name                                 \
	}

const struct hook_row hook_start_rows[] = {
	FILE64(open),
	FILE64(openat),
	FILE64(fopen),
	HOOK(opendir),
	FILE64(fstat),
	FILE64(lstat),
	FILE64(ftruncate),
	FILE64(fcntl),
	HOOK(epoll_create1),
	HOOK(eventfd),
	HOOK(pthread_create),
	HOOK(getifaddrs),
	HOOK(setsockopt),
	HOOK(sendmsg),
	VERB("ibv_get_device_list", get_device_list),
	VERB("ibv_query_device", query_device),
	VERB("ibv_alloc_pd", alloc_pd),
	VERB("_ibv_query_gid_ex", query_gid_ex),
	{ NULL, NULL, NULL },
};
