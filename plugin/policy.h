/* SPDX-License-Identifier: Apache-2.0 */
/* The only place that answers "which share for this message?". */
#ifndef MPIB_PLUGIN_POLICY_H
#define MPIB_PLUGIN_POLICY_H

#include "common/hint.h"
#include "plugin/comm.h"

/* 0..1024. Vanilla reads nothing shared. Advanced reads the flow's slot; a slot that shows no
 * stable value within the bound leaves the last good one. No system call. Progress thread. */
static inline uint32_t mpib_policy_share(struct mpib_send_comm *send)
{
	const struct mpib_hint_entry *hint;

	if (!send->hinted)
		return send->share_fixed;
	hint = atomic_load_explicit(&send->base.agent.hint, memory_order_acquire);
	if (mpib_unlikely(!hint))
		return send->share_fixed;
	(void)mpib_hint_read(hint, &send->share_last);
	return send->share_last;
}

#endif
