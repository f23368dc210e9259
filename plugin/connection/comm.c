/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of the process. */
#include "plugin/connection/comm.h"

#include <errno.h>
#include <unistd.h>

#include "plugin/base/clock.h"
#include "plugin/base/log.h"

/* Under the watch lock. */
static struct mpib_comm *all_comms;

/* ---- news ---------------------------------------------------------------------------------- */

void mpib_comm_flag(struct mpib_comm *comm, unsigned int flag)
{
	mpib_watch_assert_locked();
	if (flag & ~(unsigned int)MPIB_FLAG_RAIL &&
	    !(atomic_load_explicit(&comm->flags, memory_order_relaxed) &
	      ~(unsigned int)MPIB_FLAG_RAIL))
		comm->news_ms = mpib_now_ms();
	(void)atomic_fetch_or_explicit(&comm->flags, flag, memory_order_release);
}

/* ---- the list ------------------------------------------------------------------------------ */

void mpib_comms_add(struct mpib_comm *comm)
{
	mpib_watch_lock();
	comm->next = all_comms;
	comm->link = &all_comms;
	if (all_comms)
		all_comms->link = &comm->next;
	all_comms = comm;
	mpib_watch_unlock();
}

void mpib_comms_del(struct mpib_comm *comm)
{
	mpib_watch_lock();
	*comm->link = comm->next;
	if (comm->next)
		comm->next->link = comm->link;
	mpib_watch_unlock();
}

struct mpib_comm *mpib_comms_first(void)
{
	return all_comms;
}

void mpib_comms_fork_child(void)
{
	for (struct mpib_comm *comm = all_comms; comm; comm = comm->next) {
		if (comm->ctl.fd >= 0)
			(void)close(comm->ctl.fd);
		comm->ctl.fd = -1; /* the number may be another file's soon */
		comm->error = -ESHUTDOWN;
		comm->busy |= MPIB_BUSY_FAILED;
	}
}
