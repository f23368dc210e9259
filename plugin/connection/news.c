/* SPDX-License-Identifier: Apache-2.0 */
/* What the helper thread learns about connections, and tells their progress threads. */
#include "plugin/connection/news.h"

#include <stdio.h>
#include <sys/epoll.h>

#include "plugin/agent/agent_shares.h"
#include "plugin/base/log.h"
#include "plugin/connection/mail.h"
#include "plugin/connection/stall.h"
#include "plugin/verbs/async.h"

/* What comes of a rail whose loss is known. */
static bool is_lost(const struct mpib_comm *comm, unsigned int rail)
{
	mpib_watch_assert_locked();
	return comm->rails && comm->rails->live && !mpib_rail_usable(comm, rail);
}

/* An event of a QP or a CQ. */
static void on_object(const struct mpib_hca *hca, void *owner, const char *object, const char *text)
{
	struct mpib_comm *comm = owner;

	mpib_watch_assert_locked();
	/* A rail that carries none of its data can't harm it. */
	if (!(comm->data_mask & mpib_rail_bit(hca->rail))) {
		if (comm->events_ignored++ == 0)
			MPIB_INFO("%s rail %s, %s: %s; the connection with %s doesn't use this "
				  "rail and goes on",
				  mpib_rail_name(hca->rail), hca->name, object, text,
				  comm->peer_text);
		return;
	}
	if (is_lost(comm, hca->rail))
		return;
	/* A completion usually tells more: the data path speaks first, this text is its last
	 * resort. */
	if (!(atomic_load_explicit(&comm->flags, memory_order_relaxed) & MPIB_FLAG_QP_FATAL))
		(void)snprintf(comm->qp_text, sizeof(comm->qp_text), "%s rail %s, %s: %s",
			       mpib_rail_name(hca->rail), hca->name, object, text);
	mpib_comm_flag(comm, MPIB_FLAG_QP_FATAL);
}

static void on_lost(const struct mpib_hca *hca)
{
	mpib_watch_assert_locked();
	for (struct mpib_comm *comm = mpib_comms_first(); comm; comm = comm->next)
		if (&comm->dev->hca[hca->rail] == hca && comm->data_mask & mpib_rail_bit(hca->rail))
			mpib_comm_flag(comm, MPIB_FLAG_DEVICE_FATAL);
}

static void on_port_up(const struct mpib_hca *hca)
{
	mpib_watch_assert_locked();
	for (struct mpib_comm *comm = mpib_comms_first(); comm; comm = comm->next)
		if (&comm->dev->hca[hca->rail] == hca)
			mpib_rails_port_up(comm, hca->rail);
}

static void on_port_down(const struct mpib_hca *hca)
{
	mpib_watch_assert_locked();
	for (struct mpib_comm *comm = mpib_comms_first(); comm; comm = comm->next)
		if (&comm->dev->hca[hca->rail] == hca)
			mpib_rails_port_down(comm, hca->rail);
}

/* What the helper thread does with the control connection of a live connection. */
static void on_ctl(struct mpib_watch_item *item, uint32_t events)
{
	struct mpib_comm *comm = mpib_container_of(item, struct mpib_comm, ctl_watch);
	struct mpib_frame frame;
	int r;

	mpib_watch_assert_locked();
	(void)events;
	while ((r = mpib_ctl_recv(&comm->ctl, &frame)) > 0) {
		if (frame.type == MPIB_FRAME_BYE) {
			unsigned int rows = MPIB_FLAG_PEER_ROWS;

			if (mpib_bye_decode(frame.payload, frame.payload_len, &comm->bye_rows) < 0)
				rows = 0;
			mpib_comm_flag(comm, MPIB_FLAG_PEER_BYE | rows);
		} else if (frame.type == MPIB_FRAME_FAIL) {
			comm->fail_device = mpib_fail_decode(frame.payload, frame.payload_len,
							     comm->fail_text) == MPIB_FAIL_DEVICE;
			mpib_comm_flag(comm, MPIB_FLAG_PEER_FAIL);
		} else if (frame.type >= MPIB_FRAME_RAIL_DOWN &&
			   frame.type <= MPIB_FRAME_RAIL_PORT) {
			mpib_rails_on_frame(comm, &frame);
		}
		/* Other types come from a later release, which goes without an answer: what needs
		 * one is sent where both ends have its feature. */
	}
	if (r < 0) {
		mpib_watch_del(item);
		if (!mpib_mail_outlives_ctl(comm, r))
			mpib_comm_flag(comm, MPIB_FLAG_PEER_GONE);
	}
}

int mpib_comm_watch_ctl(struct mpib_comm *comm)
{
	int r;

	comm->ctl_watch.fd = comm->ctl.fd;
	comm->ctl_watch.on_event = on_ctl;
	mpib_watch_lock();
	r = mpib_watch_add(&comm->ctl_watch, EPOLLIN);
	if (comm->rails)
		comm->rails->live = r == 0;
	if (r == 0 && comm->rails) {
		mpib_stall_watch(comm);
		mpib_mail_watch(comm);
	}
	if (r == 0)
		on_ctl(&comm->ctl_watch, EPOLLIN); /* what came together with the last frame */
	mpib_watch_unlock();
	return r;
}

void mpib_comm_follow_agent(struct mpib_comm *comm, bool follow)
{
	mpib_watch_assert_locked();
	comm->agent.unread = !follow;
	mpib_agent_publish(&comm->agent);
}

bool mpib_comm_peer_closed(struct mpib_comm *comm)
{
	if (!(atomic_load_explicit(&comm->flags, memory_order_acquire) & MPIB_FLAG_PEER_BYE)) {
		mpib_watch_lock();
		if (comm->ctl_watch.id)
			on_ctl(&comm->ctl_watch, EPOLLIN);
		mpib_watch_unlock();
	}
	return atomic_load_explicit(&comm->flags, memory_order_acquire) & MPIB_FLAG_PEER_BYE;
}

void mpib_comms_listen(void)
{
	static const struct mpib_async_listener listener = { on_object, on_lost, on_port_down,
							     on_port_up };

	mpib_watch_lock();
	mpib_async_listen(&listener);
	mpib_watch_unlock();
}
