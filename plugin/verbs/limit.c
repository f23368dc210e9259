/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/verbs/limit.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>

#include "common/macros.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/verbs/depth.h"

/* A connection's ring, and a buffer. */
#define MRS_LEAST 2

static const char *qps_variable(const struct mpib_hca *hca)
{
	return hca->rail == MPIB_SOUT ? "MPIB_SOUT_QP" : "MPIB_SUP_QP";
}

/* Each driver has its own number for it: most ENOMEM, rxe EINVAL, a few ENOSPC; EAGAIN is also what
 * a control group says (rdma.max). */
static bool is_shortage(int r)
{
	return r == -ENOMEM || r == -EINVAL || r == -ENOSPC || r == -EAGAIN;
}

/* ENOMEM is what the kernel says, too, when the memory-lock limit is too low. */
static size_t memlock_advice(int r, char *buf, size_t size)
{
	struct rlimit limit;

	if (r != -ENOMEM || getrlimit(RLIMIT_MEMLOCK, &limit) < 0 ||
	    limit.rlim_cur == RLIM_INFINITY)
		return 0;
	return (size_t)snprintf(buf, size,
				"; this process may lock %llu KiB: raise it (ulimit -l unlimited, "
				"or LimitMEMLOCK= of its unit)",
				(unsigned long long)limit.rlim_cur / 1024);
}

const char *mpib_limit_advice(const struct mpib_hca *hca, enum mpib_object what, int r,
			      char buf[MPIB_ADVICE_MAX])
{
	const struct {
		const char *name;
		int most;
		const char *cure, *variable;
	} rows[] = {
		[MPIB_OBJECT_QP] = { "max_qp", hca->attr.max_qp,
				     "fewer channels (NCCL_MAX_CTAS) or ranks, or a lower ",
				     qps_variable(hca) },
		[MPIB_OBJECT_CQ] = { "max_cq", hca->attr.max_cq,
				     "fewer channels (NCCL_MAX_CTAS) or ranks", "" },
		[MPIB_OBJECT_SRQ] = { "max_srq", hca->attr.max_srq, "fewer ranks", "" },
		[MPIB_OBJECT_MR] = { "max_mr", hca->attr.max_mr,
				     "fewer channels (NCCL_MAX_CTAS), ranks or buffers "
				     "(NCCL_LOCAL_REGISTER)",
				     "" },
	};
	size_t used;

	buf[0] = '\0';
	if (!is_shortage(r))
		return buf;
	used = memlock_advice(r, buf, MPIB_ADVICE_MAX);
	(void)snprintf(buf + used, MPIB_ADVICE_MAX - used,
		       "; %sthe device has %d for the whole host%s (%s, \"rdma resource show\"): "
		       "use %s%s",
		       used ? "or " : "", rows[what].most,
		       r == -EAGAIN ? ", or its control group fewer" : "", rows[what].name,
		       rows[what].cure, rows[what].variable);
	return buf;
}

int mpib_limit_check(const struct mpib_hca *hca, const struct mpib_env *env)
{
	const int qps = env->qps[hca->rail];
	const int mail = env->failover ? MPIB_MAIL_SLOTS : 0;
	const int of_sender = MPIB_REQUESTS_MAX + qps * MPIB_SQ_CHAINED + mail;
	const int of_receiver = env->failover ? MPIB_CQ_FAILOVER : 0;
	char fewer[48];
	const struct {
		const char *name, *use;
		int has, least;
		const char *cure; /* beside another device */
	} rows[] = {
		{ "max_srq", "shared receive queues", hca->attr.max_srq, 1, NULL },
		{ "max_srq_wr", "entries of a shared receive queue", hca->attr.max_srq_wr, 1,
		  NULL },
		{ "max_qp", "queue pairs", hca->attr.max_qp, qps, fewer },
		{ "max_qp_wr", "requests in a queue", hca->attr.max_qp_wr, MPIB_SQ_DEPTH + mail,
		  NULL },
		{ "max_sge", "pieces of a request", hca->attr.max_sge, 1, NULL },
		{ "max_cq", "completion queues", hca->attr.max_cq, 1, NULL },
		{ "max_cqe", "entries of a completion queue", hca->attr.max_cqe,
		  of_receiver > of_sender ? of_receiver : of_sender,
		  of_receiver > of_sender ? "set MPIB_FAILOVER=0, or " : fewer },
		{ "max_mr", "registrations", hca->attr.max_mr, MRS_LEAST, NULL },
	};

	(void)snprintf(fewer, sizeof(fewer), "lower %s, or ", qps_variable(hca));
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(rows); k++) {
		/* Where a driver has no limit, its largest number may not fit. */
		if (rows[k].has >= rows[k].least || rows[k].has < 0)
			continue;
		MPIB_WARN("%s rail %s: the device has %d %s (%s), MPIB needs %d: %sname another "
			  "device",
			  mpib_rail_name(hca->rail), hca->name, rows[k].has, rows[k].use,
			  rows[k].name, rows[k].least, rows[k].cure ? rows[k].cure : "");
		return -MPIB_EUSAGE;
	}
	return 0;
}
