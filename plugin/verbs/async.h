/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs async events of an HCA, read by the helper thread and told to who owns what they concern.
 */
#ifndef MPIB_PLUGIN_ASYNC_H
#define MPIB_PLUGIN_ASYNC_H

#include "plugin/verbs/hca.h"

/* Who is to know what happened. Called under the watch lock. */
struct mpib_async_listener {
	/* A QP or CQ, "QP 0x12" say, of @owner, its context. The event holds up its destruction
	 * until the call returns, so @owner is still there. */
	void (*on_object)(const struct mpib_hca *hca, void *owner, const char *object,
			  const char *text);
	/* The HCA is lost to the process; lost_text says by what. */
	void (*on_lost)(const struct mpib_hca *hca);
	/* The HCA's port. */
	void (*on_port_down)(const struct mpib_hca *hca);
	void (*on_port_up)(const struct mpib_hca *hca);
};

/* One for the process; @listener stays the caller's. Under the watch lock. */
void mpib_async_listen(const struct mpib_async_listener *listener);

/* Makes the async descriptor non-blocking and watches it. Needs a reference on the watch. */
int mpib_async_watch(struct mpib_hca *hca);

/* Reads what events there are, here and now: the helper thread may not have got to them. Any
 * thread; a system call or two. */
void mpib_async_look(struct mpib_hca *hca);

/* True, with one warning that names the event, where the HCA is lost to this process. Looks at
 * events that the helper thread hasn't read yet: to be asked before a connection, and where a verb
 * failed, since then that is the cause. Not under srq_lock or the lock of registrations. */
bool mpib_hca_failed(struct mpib_hca *hca);

#endif
