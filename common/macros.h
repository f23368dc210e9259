/* SPDX-License-Identifier: Apache-2.0 */
/* Small macros that every part uses. */
#ifndef MPIB_COMMON_MACROS_H
#define MPIB_COMMON_MACROS_H

#include <stddef.h>

#define MPIB_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define mpib_likely(x)	 __builtin_expect(!!(x), 1)
#define mpib_unlikely(x) __builtin_expect(!!(x), 0)

/* Only where the instruction count shows what it gives (tests/bench). */
#define mpib_always_inline inline __attribute__((always_inline))

#define mpib_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#endif
