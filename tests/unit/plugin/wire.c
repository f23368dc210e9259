/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/plugin/wire.h"

#include "tests/unit/plugin/test.h"

#include <errno.h>
#include <pthread.h>

#include "plugin/connection/comm.h"
#include "plugin/setup/qp.h"
#include "plugin/verbs/device.h"
#include "plugin/verbs/srq.h"
#include "tests/unit/plugin/fake_verbs.h"

#define LINES_MAX   128
#define PENDING_MAX 4096

struct mpib_test_random wire_random;

struct held {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint8_t inlined[MPIB_INLINE_MAX];
};

/* A queue pair's requests that are posted and not gone. */
struct line {
	struct ibv_qp *qp;
	uint32_t qpn;
	struct ibv_cq *cq;
	unsigned int cq_depth;
	unsigned int rail, head, tail;
	uint32_t depth, posted, freed; /* entries of the send queue */
	uint32_t signalled[MPIB_SQ_DEPTH], signals, reported;
	struct held held[MPIB_SQ_DEPTH];
};

static struct {
	struct line *line[LINES_MAX];
	unsigned int lines;
	struct pending {
		struct ibv_cq *cq;
		struct ibv_wc wc;
	} pending[PENDING_MAX];
	unsigned int pendings;
	unsigned int frozen;		 /* rails that carry nothing */
	unsigned int unreported;	 /* rails whose completions aren't seen */
	bool closing;			 /* completions aren't held back */
	unsigned int refuse, break_poll; /* calls until one fails; 0: none does */
	int receives[2][MPIB_RAIL_MAX];
	struct ibv_context_ops real;
} wire;

/* The helper thread posts, too. */
static pthread_mutex_t wire_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct mpib_hca *hca_of(const struct ibv_context *ctx, int *ret_dev)
{
	for (int dev = 0; dev < 2; dev++)
		for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
			if (mpib_device_get(dev)->hca[rail].ctx == ctx) {
				*ret_dev = dev;
				return &mpib_device_get(dev)->hca[rail];
			}
	abort();
}

static struct line *line_of(struct ibv_qp *qp)
{
	struct fake_qp_state state;
	struct line *line;
	int dev;

	for (unsigned int k = 0; k < wire.lines; k++)
		if (wire.line[k]->qp == qp)
			return wire.line[k];
	assert_true(wire.lines < LINES_MAX);
	line = calloc(1, sizeof(*line));
	assert_non_null(line);
	line->qp = qp;
	line->rail = hca_of(qp->context, &dev)->rail;
	line->qpn = qp->qp_num;
	line->cq = qp->send_cq;
	line->cq_depth = (unsigned int)mpib_qps_cq_depth(qp->qp_context, line->rail);
	assert_int_equal(fake_qp(qp->qp_num, &state), 0);
	line->depth = state.cap.max_send_wr;
	assert_true(line->depth <= MPIB_SQ_DEPTH + MPIB_MAIL_SLOTS);
	wire.line[wire.lines++] = line;
	return line;
}

static int wire_post_locked(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct line *line = line_of(qp);

	if (wire.refuse && --wire.refuse == 0) {
		*bad = wr;
		return ENOMEM;
	}
	for (; wr; wr = wr->next) {
		struct held *held = &line->held[line->tail % MPIB_SQ_DEPTH];

		assert_true(line->posted - line->freed < line->depth);
		held->wr = *wr;
		held->wr.next = NULL;
		held->wr.sg_list = &held->sge;
		if (wr->num_sge)
			held->sge = *wr->sg_list;
		if (wr->send_flags & IBV_SEND_INLINE) {
			assert_true(held->sge.length <= sizeof(held->inlined));
			memcpy(held->inlined, (void *)(uintptr_t)held->sge.addr, held->sge.length);
			held->sge.addr = (uintptr_t)held->inlined;
		}
		line->posted++;
		if (wr->send_flags & IBV_SEND_SIGNALED)
			line->signalled[line->signals++ % MPIB_SQ_DEPTH] = line->posted;
		line->tail++;
	}
	return 0;
}

static int wire_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int r;

	(void)pthread_mutex_lock(&wire_mutex);
	r = wire_post_locked(qp, wr, bad);
	(void)pthread_mutex_unlock(&wire_mutex);
	return r;
}

/* A write may be seen in part before it is done: some of its first bytes, in whole elements of the
 * clear-to-send ring. */
static void move_part(const struct line *line, const struct ibv_send_wr *wr)
{
	size_t part = wr->num_sge ? wire_below(wr->sg_list->length + 1) & ~31u : 0;

	if (fake_state(line->qp) == IBV_QPS_RTS && wr->opcode != IBV_WR_RDMA_READ)
		fake_copy((void *)(uintptr_t)wr->wr.rdma.remote_addr,
			  (void *)(uintptr_t)wr->sg_list->addr, part);
}

static bool wire_move_locked(void)
{
	for (unsigned int k = 0, at = wire_below(wire.lines + 1); k < wire.lines; k++) {
		struct line *line = wire.line[(at + k) % wire.lines];
		struct ibv_send_wr *wr = &line->held[line->head % MPIB_SQ_DEPTH].wr, *bad;

		if (line->head == line->tail || wire.frozen & mpib_rail_bit(line->rail))
			continue;
		if (wire_below(4) == 0) {
			move_part(line, wr);
			return true;
		}
		assert_int_equal(wire.real.post_send(line->qp, wr, &bad), 0);
		line->head++;
		return true;
	}
	return false;
}

bool wire_move(void)
{
	bool r;

	(void)pthread_mutex_lock(&wire_mutex);
	r = wire_move_locked();
	(void)pthread_mutex_unlock(&wire_mutex);
	return r;
}

static void check_depth(const struct ibv_cq *cq)
{
	unsigned int n = 0;

	for (unsigned int k = 0; k < wire.pendings; k++)
		n += wire.pending[k].cq == cq;
	for (unsigned int k = 0; k < wire.lines; k++)
		assert_true(wire.line[k]->cq != cq || n <= wire.line[k]->cq_depth);
}

static void wire_drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int dev;

	while (wire.real.poll_cq(cq, 1, &wc) > 0) {
		assert_true(wire.pendings < PENDING_MAX);
		if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
			unsigned int rail = hca_of(cq->context, &dev)->rail;

			wc.wr_id = MPIB_WR_RECV;
			wire.receives[dev][rail]--;
		}
		wire.pending[wire.pendings++] = (struct pending){ cq, wc };
	}
	check_depth(cq);
}

/* The first completion of the queue that is of the same QP and direction as a random one. */
static unsigned int pick(const struct ibv_cq *cq)
{
	unsigned int at = wire_below(wire.pendings + 1);

	for (unsigned int k = 0; k < wire.pendings; k++) {
		const struct pending *p = &wire.pending[(at + k) % wire.pendings];

		if (p->cq != cq)
			continue;
		for (unsigned int first = 0;; first++)
			if (wire.pending[first].cq == cq &&
			    wire.pending[first].wc.qp_num == p->wc.qp_num &&
			    (wire.pending[first].wc.wr_id == MPIB_WR_RECV) ==
				    (p->wc.wr_id == MPIB_WR_RECV))
				return first;
	}
	return PENDING_MAX;
}

static void report(struct ibv_wc *ret, unsigned int at)
{
	*ret = wire.pending[at].wc;
	memmove(&wire.pending[at], &wire.pending[at + 1],
		(--wire.pendings - at) * sizeof(wire.pending[0]));
	if (ret->wr_id == MPIB_WR_RECV)
		return;
	for (unsigned int k = 0; k < wire.lines; k++)
		if (wire.line[k]->qpn == ret->qp_num &&
		    wire.line[k]->reported != wire.line[k]->signals)
			wire.line[k]->freed =
				wire.line[k]->signalled[wire.line[k]->reported++ % MPIB_SQ_DEPTH];
}

/* A queue pair's completions come at once when it is in ERR: what is at work on then has come out
 * of the queue by the time for which a receiver looks (MPIB_RAIL_DRAIN_MS). */
static bool has_failed(const struct ibv_cq *cq)
{
	const struct mpib_comm *comm = cq->cq_context;
	unsigned int rail;
	int dev;

	rail = hca_of(cq->context, &dev)->rail;
	for (unsigned int k = 0; k < comm->nqps[rail]; k++)
		if (fake_state(comm->qp[rail][k]) == IBV_QPS_ERR)
			return true;
	return false;
}

static int wire_poll_locked(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	int dev, n = 0;

	wire_drain(cq);
	if (!wire.closing && !has_failed(cq)) {
		if (wire.break_poll && --wire.break_poll == 0)
			return -1;
		if (wire.unreported & mpib_rail_bit(hca_of(cq->context, &dev)->rail))
			return 0;
		count = (int)wire_below((unsigned int)count + 1);
	}
	while (n < count) {
		unsigned int at = pick(cq);

		if (at == PENDING_MAX)
			break;
		report(&wc[n++], at);
	}
	return n;
}

static int wire_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	int r;

	(void)pthread_mutex_lock(&wire_mutex);
	r = wire_poll_locked(cq, count, wc);
	(void)pthread_mutex_unlock(&wire_mutex);
	return r;
}

static int wire_post_srq_locked(struct ibv_srq *srq, struct ibv_recv_wr *wr,
				struct ibv_recv_wr **bad)
{
	int dev, r = wire.real.post_srq_recv(srq, wr, bad);
	unsigned int rail = hca_of(srq->context, &dev)->rail;

	for (; wr && !(r && wr == *bad); wr = wr->next)
		wire.receives[dev][rail]++;
	return r;
}

static int wire_post_srq(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int r;

	(void)pthread_mutex_lock(&wire_mutex);
	r = wire_post_srq_locked(srq, wr, bad);
	(void)pthread_mutex_unlock(&wire_mutex);
	return r;
}

void wire_connect(void)
{
	for (int dev = 0; dev < 2; dev++)
		for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
			struct ibv_context_ops *ops = &mpib_device_get(dev)->hca[rail].ctx->ops;

			wire.real = *ops;
			ops->post_send = wire_post;
			ops->poll_cq = wire_poll;
			ops->post_srq_recv = wire_post_srq;
		}
}

void wire_cut(void)
{
	while (wire.lines)
		free(wire.line[--wire.lines]);
	wire.pendings = 0;
	wire.frozen = wire.unreported = 0;
	wire.closing = false;
	wire.refuse = wire.break_poll = 0;
	memset(wire.receives, 0, sizeof(wire.receives));
}

void wire_freeze(unsigned int carry_nothing, unsigned int report_nothing)
{
	wire.frozen = carry_nothing;
	wire.unreported = report_nothing;
}

void wire_report_all(void)
{
	wire.closing = true;
}

void wire_refuse_post(unsigned int n)
{
	wire.refuse = n;
}

void wire_break_poll(unsigned int n)
{
	wire.break_poll = n;
}

int wire_receives(int dev, unsigned int rail)
{
	return wire.receives[dev][rail];
}
