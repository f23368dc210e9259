/* SPDX-License-Identifier: Apache-2.0 */
/* A function that needs a lock says so on its first line. */
#ifndef MPIB_PLUGIN_LOCK_H
#define MPIB_PLUGIN_LOCK_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>

/* Somebody holds @lock, which isn't recursive. Nothing in builds without assertions. */
static inline void mpib_assert_locked(pthread_mutex_t *lock)
{
	(void)lock;
	assert(pthread_mutex_trylock(lock) == EBUSY);
}

#endif
