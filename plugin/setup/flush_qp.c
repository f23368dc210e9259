/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/setup/flush_qp.h"

#include <errno.h>
#include <string.h>

#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/setup/qp.h"
#include "plugin/verbs/async.h"
#include "plugin/verbs/limit.h"

/* Every request of the pool could be a flush: the queue can't overflow. */
#define FLUSH_DEPTH MPIB_REQUESTS_MAX

int mpib_flush_make(struct mpib_comm *comm, unsigned int rail, const struct mpib_env *env)
{
	struct ibv_qp_init_attr init;
	struct mpib_qp_end self;
	int r;

	memset(&init, 0, sizeof(init));
	init.qp_context = comm;
	init.send_cq = comm->cq[rail];
	init.recv_cq = comm->cq[rail];
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = FLUSH_DEPTH;
	init.cap.max_recv_wr = 1;
	init.cap.max_send_sge = 1;
	init.cap.max_recv_sge = 1;
	r = mpib_verbs_create_qp(comm->dev->hca[rail].pd, &init, &comm->recv.flush_qp[rail]);
	if (r < 0)
		return r;

	self.qpn = comm->recv.flush_qp[rail]->qp_num;
	self.gid = comm->local.rail[rail].gid;
	self.mtu = comm->local.rail[rail].mtu;
	self.lid = comm->local.rail[rail].lid;
	self.traffic_class = comm->local.traffic_class;
	r = mpib_qp_to_init(comm, rail, comm->recv.flush_qp[rail], IBV_ACCESS_REMOTE_READ);
	if (r == 0)
		r = mpib_qp_to_rtr(comm, rail, comm->recv.flush_qp[rail], &self, env);
	if (r == 0)
		r = mpib_qp_to_rts(comm->recv.flush_qp[rail], env);
	return r;
}

int mpib_flush_init(struct mpib_comm *comm, const struct mpib_env *env)
{
	char advice[MPIB_ADVICE_MAX];

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		int r;

		if (!(comm->mem_mask & mpib_rail_bit(rail)))
			continue;
		r = mpib_flush_make(comm, rail, env);
		if (r < 0 && mpib_hca_failed(&comm->dev->hca[rail]))
			return -EIO;
		if (r < 0) {
			MPIB_WARN("%s rail %s: no QP for flushes: %s; MPIB_FLUSH=0 does without, "
				  "where the GPU needs none%s",
				  mpib_rail_name(rail), comm->dev->hca[rail].name, strerror(-r),
				  mpib_limit_advice(&comm->dev->hca[rail], MPIB_OBJECT_QP, r,
						    advice));
			return mpib_error_of_host(r);
		}
	}
	return 0;
}

void mpib_flush_fini(struct mpib_comm *comm, unsigned int rail)
{
	(void)mpib_verbs_destroy_qp(comm->recv.flush_qp[rail]);
	comm->recv.flush_qp[rail] = NULL;
}
