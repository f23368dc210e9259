/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the plugin's file and the C library: the N-th call of one function fails, once. Only
 * calls of the plugin itself are led here (its own table of imports is rewritten), from whichever
 * thread; those of the verbs library and of the test go where they always go.
 */
#ifndef MPIB_TESTS_PLUGIN_SWEEP_H
#define MPIB_TESTS_PLUGIN_SWEEP_H

#include <stdbool.h>

enum hooked {
	HOOK_ALLOC, /* malloc, calloc, realloc, aligned_alloc */
	HOOK_MMAP,
	HOOK_SOCKET,
	HOOK_BIND,
	HOOK_LISTEN,
	HOOK_CONNECT,
	HOOK_ACCEPT4,
	HOOK_GETSOCKNAME,
	HOOK_GETSOCKOPT,
	HOOK_SEND,
	HOOK_RECV,
	HOOK_POLL,
	HOOK_EPOLL_CTL,
	HOOK_EPOLL_WAIT,
	HOOK_MEMFD,
	HOOK_IOCTL,
	HOOK_GETRANDOM,
	HOOK_OPEN, /* open, openat, fopen, opendir */
	HOOK_STAT,
	HOOK_FTRUNCATE,
	HOOK_FCNTL,
	HOOK_EPOLL_CREATE,
	HOOK_EVENTFD,
	HOOK_THREAD,
	HOOK_GETIFADDRS,
	HOOK_SETSOCKOPT,
	HOOK_SENDMSG,
	HOOK_DEVICE_LIST, /* the first verb */
	HOOK_OPEN_DEVICE,
	HOOK_QUERY_DEVICE,
	HOOK_ALLOC_PD,
	HOOK_QUERY_GID,
	HOOK_QUERY_PORT,
	HOOK_REG_MR,
	HOOK_CREATE_CQ,
	HOOK_CREATE_SRQ,
	HOOK_CREATE_QP,
	HOOK_MODIFY_QP,
	HOOK_POST_SEND,
	HOOK_POLL_CQ,
	HOOK_DEREG_MR,
	HOOK_DESTROY_CQ,
	HOOK_DESTROY_QP,
	HOOK_MAX,
};

/* Leads the imports of the library that dlopen gave here. Once, before its init. */
void hook_library(void *opened);

/* The call of @which after the next @skip ones fails with @err; err 0: none does. Counts from 0. */
void hook_arm(enum hooked which, unsigned int skip, int err);
bool hook_hit(void);
unsigned int hook_calls(enum hooked which);
const char *hook_name(enum hooked which);

/* What the plugin has allocated and made, and not given back. */
int hook_live_memory(void);
int hook_live_verbs(void);

#endif
