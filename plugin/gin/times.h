/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Busy times of a peer's rails, for a share that finds itself (common/counters.h). A span begins
 * with a put that takes both rails, and ends when nothing is under way on the rail. Kept where the
 * flow's hint asks for it; a look at them is a part of SUP's poll, which small puts never come to.
 *
 * What has completed is known from what the send queue still holds: signals and READs count as
 * puts there, so that a put is now and then taken for done a little later than it is. Progress.
 */
#ifndef MPIB_PLUGIN_GIN_TIMES_H
#define MPIB_PLUGIN_GIN_TIMES_H

#include "plugin/gin/gin_impl.h"

/* Begins or ends what the hint asks for. */
void mpib_gin_times_follow(struct mpib_gin_peer *peer, bool asked);
/* Before a put's parts on both rails are posted. */
void mpib_gin_times_both(struct mpib_gin_peer *peer);
/* A put's part, of a peer whose times are kept. */
void mpib_gin_times_count(struct mpib_gin_peer *peer, unsigned int rail, uint64_t bytes);
/* Looks at all peers with a span. */
void mpib_gin_times_step(struct mpib_gin *gin);

/* A put's part is posted next. */
static inline void mpib_gin_count(struct mpib_gin_peer *peer, unsigned int rail, uint64_t bytes)
{
	if (mpib_unlikely(peer->timed)) {
		mpib_gin_times_count(peer, rail, bytes);
		return;
	}
	peer->counters->rail[rail].bytes += bytes;
	peer->counters->rail[rail].requests++;
}

#endif
