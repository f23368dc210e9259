/* SPDX-License-Identifier: Apache-2.0 */
/* Why the library's destructor runs. */
#ifndef MPIB_PLUGIN_EXIT_H
#define MPIB_PLUGIN_EXIT_H

#include <stdbool.h>

/* From here on mpib_process_exits knows. Any number of times; callers serialise. */
void mpib_process_watch_exit(void);

/* In a destructor: true where the process exits, and other threads may still run; false where
 * dlclose takes the library away. */
bool mpib_process_exits(void);

#endif
