/* SPDX-License-Identifier: Apache-2.0 */
/* How a mesh fails: as a whole, with one line, and the peers are told. NCCL hears of it from its
 * next put; what was under way is never done. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plugin/base/log.h"
#include "plugin/base/watch.h"
#include "plugin/gin/gin_impl.h"
#include "plugin/verbs/async.h"

int mpib_gin_fail(struct mpib_gin *gin, int error, const char *text)
{
	char told[MPIB_TEXT_MAX + 1];

	if (gin->error)
		return gin->error;
	gin->error = error;
	atomic_store_explicit(&gin->news, 1, memory_order_relaxed);
	MPIB_WARN("device-initiated communication of rank %u fails: %s", gin->rank, text);
	(void)snprintf(told, sizeof(told), "rank %u failed: %.360s", gin->rank, text);
	mpib_watch_lock();
	for (uint32_t k = 0; k < gin->nranks; k++)
		if (gin->peer[k].ctl.fd >= 0)
			mpib_ctl_send_text(&gin->peer[k].ctl, MPIB_FRAME_FAIL, told);
	mpib_watch_unlock();
	return gin->error;
}

static int device_lost(struct mpib_gin *gin)
{
	char text[MPIB_TEXT_MAX + 1];

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		struct mpib_hca *hca = &gin->dev->hca[rail];

		mpib_async_look(hca);
		if (!atomic_load_explicit(&hca->fatal, memory_order_acquire))
			continue;
		(void)snprintf(text, sizeof(text), "%s rail %.70s: the device is lost: %.90s",
			       mpib_rail_name(rail), hca->name, hca->lost_text);
		return mpib_gin_fail(gin, -EIO, text);
	}
	return 0;
}

int mpib_gin_look(struct mpib_gin *gin)
{
	char text[MPIB_TEXT_MAX + 1];

	if (gin->error)
		return gin->error;
	for (uint32_t k = 0; k < gin->nranks; k++) {
		const struct mpib_gin_peer *peer = &gin->peer[k];

		if (atomic_load_explicit(&peer->over, memory_order_acquire) != MPIB_GIN_GONE)
			continue;
		(void)snprintf(text, sizeof(text), "%s: %.300s", peer->text, peer->over_text);
		return mpib_gin_fail(gin, -ECONNRESET, text);
	}
	return device_lost(gin);
}

int mpib_gin_post_failed(struct mpib_gin_peer *peer, unsigned int rail, int r)
{
	struct mpib_gin *gin = peer->gin;
	char text[MPIB_TEXT_MAX + 1];

	if (gin->error || mpib_gin_look(gin) < 0)
		return gin->error;
	(void)snprintf(text, sizeof(text), "%s rail %s to %s: a request can't be posted: %s",
		       mpib_rail_name(rail), gin->dev->hca[rail].name, peer->text,
		       strerror(r < 0 ? -r : r));
	return mpib_gin_fail(gin, -EIO, text);
}

void mpib_gin_completion_failed(struct mpib_gin_peer *peer, unsigned int rail,
				const struct ibv_wc *wc)
{
	struct mpib_gin *gin = peer->gin;
	const char *over_text =
		atomic_load_explicit(&peer->over, memory_order_acquire) ? peer->over_text : "";
	char text[MPIB_TEXT_MAX + 1];
	const char *why = NULL;

	/* A flushed request tells that others know more. */
	if (gin->error || (wc->status == IBV_WC_WR_FLUSH_ERR && mpib_gin_look(gin) < 0))
		return;
	if (rail == MPIB_SOUT && mpib_gin_says_lost(wc->status)) {
		mpib_watch_lock();
		why = mpib_gin_sout_why_not(gin);
		mpib_watch_unlock();
	}
	(void)snprintf(text, sizeof(text),
		       "%s rail %.70s to %s: QP 0x%x: %s (status %d, vendor 0x%x)%s%.120s%s%s",
		       mpib_rail_name(rail), gin->dev->hca[rail].name, peer->text, wc->qp_num,
		       mpib_verbs_wc_text(wc->status), (int)wc->status, wc->vendor_err,
		       *over_text ? "; " : "", over_text, why ? "; SUP can't take over: " : "",
		       why ? why : "");
	(void)mpib_gin_fail(gin, -ECONNRESET, text);
}
