/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mesh comes up. Between any two ranks one connects to the other's listener, so that each rank
 * connects to about half of the others, those behind it first, a few at a time: no listener gets a
 * crowd, and the work is linear in ranks.
 *
 * connector                                acceptor
 *   TCP connect  -------------------------->  (helper thread) GREETING
 *   HELLO (nonce, who) ------------------->
 *             <------------------------ TURN
 *   JOIN (rank, QPs) --------------------->  checks both, RTR and RTS
 *             <------------------------ MEET  who, rank, QPs
 *   RTR and RTS
 *   READY --------------------------------->
 *
 * Either end answers REFUSE or FAIL with a reason instead, and the whole set-up fails with it.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/base/watch.h"
#include "plugin/gin/mesh_impl.h"

#define AT_ONCE	  16 /* connections under way of one rank's own */
#define PAUSE_MS  1
#define NAMED_MAX 8 /* ranks that a time-out names */

/* Of two ranks the one connects that the other one is less far behind; at the same distance both
 * ways the lower one. */
static bool connects(const struct mpib_gin *gin, uint32_t to)
{
	uint32_t behind = (to + gin->nranks - gin->rank) % gin->nranks;

	return 2 * behind == gin->nranks ? gin->rank < to : 2 * behind < gin->nranks;
}

static int begin_more(struct mpib_gin_mesh *mesh)
{
	struct mpib_gin *gin = mesh->gin;

	while (mesh->under_way < AT_ONCE && mesh->distance < gin->nranks) {
		struct mpib_gin_peer *peer =
			&gin->peer[(gin->rank + mesh->distance++) % gin->nranks];
		int r = peer->connects ? mpib_gin_begin(mesh, peer) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

static int turn(struct mpib_gin_mesh *mesh)
{
	int r = begin_more(mesh);

	if (r == 0)
		r = mpib_gin_hear_guests(mesh);
	for (uint32_t k = 0; r == 0 && k < mesh->gin->nranks; k++)
		r = mpib_gin_step(mesh, &mesh->gin->peer[k]);
	/* One that was up fails, perhaps for another one that never will be. */
	if (r == 0 && atomic_load_explicit(&mesh->gin->news, memory_order_acquire))
		r = mpib_gin_look(mesh->gin);
	return r;
}

static int too_late(const struct mpib_gin_mesh *mesh)
{
	const struct mpib_gin *gin = mesh->gin;
	char missing[NAMED_MAX * 12 + 8] = "";
	unsigned int named = 0;

	for (uint32_t k = 0; k < gin->nranks; k++) {
		size_t used = strlen(missing);

		if (gin->peer[k].step == MPIB_GIN_UP)
			continue;
		if (named++ == NAMED_MAX)
			(void)snprintf(missing + used, sizeof(missing) - used, " ...");
		else if (named <= NAMED_MAX)
			(void)snprintf(missing + used, sizeof(missing) - used, " %u", k);
	}
	MPIB_WARN("rank %u of %u: no connection to %u ranks within %d s "
		  "(MPIB_CONNECT_TIMEOUT_SEC):%s",
		  gin->rank, gin->nranks, named, gin->env.connect_timeout_sec, missing);
	return -ETIMEDOUT;
}

/* The own rank takes part like any other, through the NICs. */
static int connect_self(struct mpib_gin_mesh *mesh)
{
	struct mpib_gin_peer *self = &mesh->gin->peer[mesh->gin->rank];
	int r;

	self->remote = mesh->gin->local;
	mpib_gin_name_peer(self);
	mpib_gin_describe(self, &self->join);
	r = mpib_gin_qps_connect(self);
	return r < 0 ? r : mpib_gin_is_up(mesh, self);
}

static void tell_all(struct mpib_gin_mesh *mesh, int error)
{
	char text[MPIB_TEXT_MAX + 1], subject[48];

	(void)snprintf(subject, sizeof(subject), "set-up of rank %u", mesh->gin->rank);
	(void)snprintf(text, sizeof(text), "rank %u failed: %.360s", mesh->gin->rank,
		       mpib_log_explain(subject, error));
	mpib_watch_lock(); /* those that are up are the helper thread's, too */
	for (uint32_t k = 0; k < mesh->gin->nranks; k++)
		if (mesh->gin->peer[k].step > MPIB_GIN_TCP && mesh->gin->peer[k].ctl.fd >= 0)
			mpib_ctl_send_text(&mesh->gin->peer[k].ctl, MPIB_FRAME_FAIL, text);
	mpib_watch_unlock();
	for (unsigned int k = 0; k < MPIB_GIN_GUESTS; k++)
		if (mesh->guest[k].used)
			mpib_ctl_send_text(&mesh->guest[k].ctl, MPIB_FRAME_FAIL, text);
}

int mpib_gin_mesh(struct mpib_gin *gin, struct mpib_listener *listener)
{
	struct mpib_gin_mesh *mesh = calloc(1, sizeof(*mesh));
	int r;

	if (!mesh)
		return -ENOMEM;
	mesh->gin = gin;
	mesh->listener = listener;
	mesh->distance = 1;
	mesh->deadline_ms = mpib_now_ms() + (uint64_t)gin->env.connect_timeout_sec * 1000;
	for (uint32_t k = 0; k < gin->nranks; k++)
		gin->peer[k].connects = k != gin->rank && connects(gin, k);
	r = connect_self(mesh);
	while (r == 0 && mesh->up < gin->nranks) {
		mesh->moved = false;
		r = turn(mesh);
		if (r == 0 && mpib_now_ms() > mesh->deadline_ms)
			r = too_late(mesh);
		if (r == 0 && !mesh->moved)
			(void)poll(NULL, 0, PAUSE_MS);
	}
	if (r < 0 && !gin->error)
		tell_all(mesh, r);
	for (unsigned int k = 0; k < MPIB_GIN_GUESTS; k++)
		if (mesh->guest[k].used)
			mpib_ctl_close(&mesh->guest[k].ctl);
	free(mesh);
	return r;
}
