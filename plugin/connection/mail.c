/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/connection/mail.h"

#include <errno.h>
#include <string.h>

#include "plugin/base/log.h"

#define ASK_MS	1000
#define LOOK_MS 450 /* each fifth tick */

void mpib_mail_look(struct mpib_comm *comm)
{
	struct mpib_rails *rails = comm->rails;
	struct mpib_mail_slot slot;
	struct mpib_frame frame;

	mpib_watch_assert_locked();
	while (rails->box.in && rails->live && !rails->wrong &&
	       mpib_mailbox_take(&rails->box, &slot, &frame)) {
		const uint32_t heard = rails->box.heard;

		if (frame.type >= MPIB_FRAME_RAIL_DOWN && frame.type <= MPIB_FRAME_RAIL_PORT)
			mpib_rails_on_frame(comm, &frame);
		if (rails->box.heard == heard && !rails->wrong) {
			rails->wrong = "the mailbox has what is no frame about a rail";
			mpib_comm_flag(comm, MPIB_FLAG_RAIL);
		}
	}
}

static void on_tick(struct mpib_watch_tick *tick, uint64_t now_ms)
{
	static uint64_t due_ms;
	bool any = false;

	/* A look at thousands of mailboxes costs as many cache lines. */
	if (now_ms < due_ms)
		return;
	due_ms = now_ms + LOOK_MS;
	for (struct mpib_comm *comm = mpib_comms_first(); comm; comm = comm->next) {
		struct mpib_rails *rails = comm->rails;

		if (!rails || !rails->live || !rails->box.in)
			continue;
		any = true;
		mpib_mail_look(comm);
		if (rails->box.ctl_dead && now_ms >= rails->box.ask_ms) {
			rails->box.ask_ms = now_ms + ASK_MS;
			rails->box.ask = true;
			mpib_comm_flag(comm, MPIB_FLAG_LOOK);
		}
	}
	if (!any)
		mpib_watch_tick_del(tick);
}

void mpib_mail_watch(const struct mpib_comm *comm)
{
	static struct mpib_watch_tick tick = { .on_tick = on_tick };

	mpib_watch_assert_locked();
	if (comm->rails->box.in)
		mpib_watch_tick_add(&tick);
}

static bool says_no_way(int r)
{
	return r == -ETIMEDOUT || r == -EHOSTUNREACH || r == -ENETUNREACH || r == -ENETDOWN ||
	       r == -EHOSTDOWN;
}

bool mpib_mail_outlives_ctl(struct mpib_comm *comm, int r)
{
	mpib_watch_assert_locked();
	if (!says_no_way(r) || !comm->rails || !comm->rails->box.in || !mpib_rails_any(comm))
		return false;
	comm->rails->box.ctl_dead = true;
	MPIB_WARN("the control connection with %s is lost: %s; the connection goes on over its "
		  "rails; see MPIB_OOB_IF",
		  comm->peer_text, strerror(-r));
	return true;
}
