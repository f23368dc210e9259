/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/setup/comm_activate.h"

#include <errno.h>
#include <string.h>

#include "plugin/agent/agent_link.h"
#include "plugin/base/clock.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/setup/flush_qp.h"
#include "plugin/setup/qp.h"

/* Peers whose SUP could not be resolved lately. The kernel takes a second to find that out, inside
 * the call; the next connections to the same peer shouldn't wait for it again. */
#define UNREACHABLE_MS	60000
#define UNREACHABLE_MAX 64

static struct {
	uint32_t local_be, remote_be;
	uint64_t until_ms;
} unreachable[UNREACHABLE_MAX]; /* under the watch lock */

static bool known_unreachable(const struct mpib_comm *comm)
{
	const uint64_t now = mpib_now_ms();
	bool found = false;

	mpib_watch_lock();
	for (unsigned int k = 0; k < UNREACHABLE_MAX && !found; k++)
		found = unreachable[k].until_ms > now &&
			unreachable[k].local_be == comm->local.rail[MPIB_SUP].ipv4_be &&
			unreachable[k].remote_be == comm->remote.rail[MPIB_SUP].ipv4_be;
	mpib_watch_unlock();
	return found;
}

static void remember_unreachable(const struct mpib_comm *comm)
{
	static unsigned int next;

	mpib_watch_lock();
	unreachable[next].local_be = comm->local.rail[MPIB_SUP].ipv4_be;
	unreachable[next].remote_be = comm->remote.rail[MPIB_SUP].ipv4_be;
	unreachable[next].until_ms = mpib_now_ms() + UNREACHABLE_MS;
	next = (next + 1) % UNREACHABLE_MAX;
	mpib_watch_unlock();
}

bool mpib_comm_may_drop_sup(const struct mpib_comm *comm)
{
	return comm->mode == MPIB_MODE_ADVANCED && comm->path == MPIB_PATH_INTER;
}

void mpib_comm_drop_sup(struct mpib_comm *comm, const char *who)
{
	char local[MPIB_IPV4_TEXT_MAX], remote[MPIB_IPV4_TEXT_MAX];

	MPIB_INFO("SUP %s doesn't reach %s (found by %s): the connection to %s uses SOUT alone",
		  mpib_ipv4_format(comm->local.rail[MPIB_SUP].ipv4_be, local),
		  mpib_ipv4_format(comm->remote.rail[MPIB_SUP].ipv4_be, remote), who,
		  comm->peer_text);
	mpib_qps_destroy(comm, MPIB_SUP);
	comm->nqps[MPIB_SUP] = 0;
	comm->rail_mask = comm->mem_mask = comm->data_mask = mpib_rail_bit(MPIB_SOUT);
}

int mpib_comm_register(struct mpib_comm *comm)
{
	bool sup = comm->rail_mask & mpib_rail_bit(MPIB_SUP);

	comm->agent.unread = !sup;
	return mpib_agent_register(&comm->agent, comm->local.rail[MPIB_SOUT].ipv4_be,
				   comm->remote.rail[MPIB_SOUT].ipv4_be,
				   sup ? comm->local.rail[MPIB_SUP].ipv4_be : 0,
				   sup ? comm->remote.rail[MPIB_SUP].ipv4_be : 0);
}

int mpib_comm_activate(struct mpib_comm *comm, const struct mpib_env *env)
{
	const struct mpib_peer_qps *remote = &comm->remote_qps;
	bool may_drop = mpib_comm_may_drop_sup(comm);

	if (remote->path != comm->path) {
		MPIB_WARN("%s: this end says %s-island and the peer %s-island: the SOUT addresses "
			  "that both see must be the same ones",
			  comm->peer_text, comm->path ? "inter" : "intra",
			  remote->path ? "inter" : "intra");
		return -MPIB_EUSAGE;
	}
	if (may_drop && comm->nqps[MPIB_SUP] && !(remote->rail_mask & mpib_rail_bit(MPIB_SUP)))
		mpib_comm_drop_sup(comm, "the peer");

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r;

		if (comm->nqps[rail] != remote->qps[rail]) {
			MPIB_WARN("%s: %u QPs on %s here and %u there", comm->peer_text,
				  comm->nqps[rail], mpib_rail_name(rail), remote->qps[rail]);
			return -EPROTO;
		}
		if (rail == MPIB_SUP && may_drop && comm->nqps[rail] && known_unreachable(comm))
			r = -EHOSTUNREACH;
		else
			r = mpib_qps_connect(comm, rail, env);
		if (r < 0 && !mpib_qps_unreachable(r))
			return r;
		if (r < 0 && rail == MPIB_SUP && may_drop) {
			remember_unreachable(comm);
			mpib_comm_drop_sup(comm, "this end");
		} else if (r < 0) {
			MPIB_WARN("%s rail %s doesn't reach %s: %s; check addresses, routes and "
				  "cables of that rail",
				  mpib_rail_name(rail), comm->dev->hca[rail].name, comm->peer_text,
				  strerror(-r));
			return r;
		}
	}

	if (comm->kind == MPIB_COUNTER_RECV && comm->dev->ptr_support && env->flush)
		return mpib_flush_init(comm, env);
	return 0;
}
