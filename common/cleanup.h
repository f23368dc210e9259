/* SPDX-License-Identifier: Apache-2.0 */
/* Guarded locals: a variable that frees or closes what it holds when its block ends, and the way
 * to hand that over to somebody who keeps it. */
#ifndef MPIB_COMMON_CLEANUP_H
#define MPIB_COMMON_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define mpib_cleanup(fn) __attribute__((cleanup(fn)))

/* Makes fn##p, a guard for a pointer that @fn frees; @fn takes NULL. */
#define MPIB_DEFINE_CLEANUP(type, fn)                                                              \
	static inline void fn##p(__typeof__(type) *ptr)                                            \
	{                                                                                          \
		if (*ptr)                                                                          \
			(void)fn(*ptr);                                                            \
	}                                                                                          \
	struct mpib_cleanup_semicolon_

static inline void mpib_freep(void *ptr)
{
	free(*(void **)ptr);
}

static inline void mpib_closep(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

static inline void mpib_fclosep(FILE **file)
{
	if (*file)
		(void)fclose(*file);
}

/* Takes the pointer out of a guarded local, which then frees nothing. */
#define mpib_steal_ptr(ptr)                                                                        \
	__extension__({                                                                            \
		__typeof__(ptr) stolen_ = ptr;                                                     \
		(ptr) = NULL;                                                                      \
		stolen_;                                                                           \
	})

static inline int mpib_steal_fd(int *fd)
{
	int stolen = *fd;

	*fd = -1;
	return stolen;
}

#endif
