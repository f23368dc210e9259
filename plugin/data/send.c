/* SPDX-License-Identifier: Apache-2.0 */
/* isend: what is unusual about single messages. The usual message is in send.h,
 * groups are in send_group.c and .h, those that are cut in send_slow.c. */
#include "plugin/data/send.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int mpib_send_not_now(struct mpib_send_comm *send)
{
	struct mpib_comm *comm = &send->base;

	comm->counters->stalls++;
	if (mpib_unlikely(atomic_load_explicit(&comm->flags, memory_order_relaxed)))
		return mpib_comm_check(comm);
	return 0;
}

__attribute__((cold)) int mpib_send_too_large(struct mpib_send_comm *send, size_t size,
					      const struct mpib_cts *cts)
{
	char text[160];

	(void)snprintf(text, sizeof(text),
		       "a message of %zu bytes (tag 0x%x) met a receive of %llu bytes: nothing was "
		       "sent",
		       size, cts->tag, (unsigned long long)mpib_cts_size(cts));
	return mpib_comm_fail(&send->base, -EPROTO, text);
}

__attribute__((cold)) int mpib_send_post_failed(struct mpib_send_comm *send, unsigned int rail,
						int r)
{
	struct mpib_comm *comm = &send->base;
	char text[160];

	(void)snprintf(text, sizeof(text), "%s rail %s: ibv_post_send failed: %s",
		       mpib_rail_name(rail), comm->dev->hca[rail].name, strerror(r < 0 ? -r : r));
	return mpib_comm_verb_failed(comm, text);
}

unsigned int mpib_send_empty_mask(const struct mpib_send_comm *send, uint32_t share)
{
	return mpib_rail_bit(mpib_split_whole(0, share, send->split_min) >= MPIB_SHARE_MAX
				     ? MPIB_SUP
				     : MPIB_SOUT);
}
