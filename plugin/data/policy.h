/* SPDX-License-Identifier: Apache-2.0 */
/* The only place that answers "which share for this message?". */
#ifndef MPIB_PLUGIN_POLICY_H
#define MPIB_PLUGIN_POLICY_H

#include "common/hint.h"
#include "plugin/connection/comm.h"

/* 0..1024. Vanilla reads nothing shared. Advanced reads the flow's slot. No system call. Progress
 * thread. False where the slot has to be looked at again, or isn't what is wanted: *ret_share then
 * means nothing. */
static mpib_always_inline bool mpib_policy_try(struct mpib_comm *comm, enum mpib_hint_want want,
					       uint32_t *ret_share)
{
	const struct mpib_hint_entry *hint =
		atomic_load_explicit(&comm->agent.hint, memory_order_acquire);

	if (!hint) {
		*ret_share = comm->send.share_fixed;
		return want != MPIB_HINT_WANT_TIMED;
	}
	if (mpib_unlikely(!mpib_hint_read_once(hint, want, ret_share)))
		return false;
	comm->send.share_last = *ret_share;
	return true;
}

/* The same with as many looks as it takes; a slot that shows no stable value within the bound
 * leaves the last good one. */
static inline uint32_t mpib_policy_share(struct mpib_comm *comm)
{
	const struct mpib_hint_entry *hint =
		atomic_load_explicit(&comm->agent.hint, memory_order_acquire);

	if (!hint)
		return comm->send.share_fixed;
	(void)mpib_hint_read(hint, &comm->send.share_last);
	return comm->send.share_last;
}

/* True where the flow's share finds itself: its senders keep busy times. */
static inline bool mpib_policy_is_timed(struct mpib_comm *comm)
{
	const struct mpib_hint_entry *hint =
		atomic_load_explicit(&comm->agent.hint, memory_order_acquire);

	return hint && mpib_hint_load(&hint->seq) & MPIB_HINT_TIMED;
}

#endif
