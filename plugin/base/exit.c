/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/base/exit.h"

#include <stddef.h>

/* Of the C++ ABI, which glibc follows for C, too: a handler for the exit of the process or the end
 * of this library, whichever comes first. atexit() is the same where the C library's own is linked,
 * but a sanitizer's forgets the library, and calls a handler whose code is gone. */
int __cxa_atexit(void (*handler)(void *), void *arg, void *library); /* NOLINT(bugprone-*,cert-*) */
extern void *__dso_handle __attribute__((visibility("hidden")));     /* NOLINT(bugprone-*,cert-*) */

static bool watched, exits;

/* exit() calls all handlers before any destructor; dlclose calls destructors first. */
static void on_exit_of_process(void *arg)
{
	(void)arg;
	exits = true;
}

void mpib_process_watch_exit(void)
{
	if (!watched)
		watched = __cxa_atexit(on_exit_of_process, NULL, &__dso_handle) == 0;
}

bool mpib_process_exits(void)
{
	return exits;
}
