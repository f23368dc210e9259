/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs async events of an HCA, read by the helper thread and turned into flags. */
#ifndef MPIB_PLUGIN_ASYNC_H
#define MPIB_PLUGIN_ASYNC_H

#include "plugin/verbs/device.h"

/* Makes the async descriptor non-blocking and watches it. Needs a reference on the watch. */
int mpib_async_watch(struct mpib_hca *hca);

/* Reads what events there are, here and now: the helper thread may not have got to them. Any
 * thread; a system call or two. */
void mpib_async_look(struct mpib_hca *hca);

#endif
