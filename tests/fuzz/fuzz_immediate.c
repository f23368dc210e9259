/* SPDX-License-Identifier: Apache-2.0 */
/* A receiver whose peer is hostile: the input is a program of receives posted, immediates and
 * completion records that arrive, and tests. Against it stands a model of what may be reported. */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "plugin/base/result.h"
#include "plugin/data/progress.h"
#include "plugin/data/recv.h"
#include "plugin/setup/prepare.h"
#include "plugin/verbs/srq.h"
#include "plugin/wire/imm.h"
#include "tests/fuzz/fuzz.h"

#define QUEUE_MAX 64 /* completions that wait on a rail */

/* The model's view of one posted receive. */
struct posted {
	struct mpib_request *req; /* NULL: handed back, or never there */
	unsigned int count;
	unsigned int seen; /* rails whose immediate was polled */
	unsigned int mask; /* rails that the first one named */
	bool again;	   /* one came too many: must not pass */
	uint32_t imm[MPIB_RAIL_MAX];
	uint64_t bytes;
	size_t room[MPIB_GROUP_MAX];
};

struct rail {
	struct ibv_wc wc[QUEUE_MAX];
	unsigned int waiting;
	int posted, used; /* receives of the shared queue */
};

static struct mpib_comm receiver;
static struct mpib_device device;
static struct mpib_counter_entry counters;
static struct mpib_request requests[MPIB_REQUESTS_MAX];
static struct mpib_cts_row cts_out[MPIB_ROWS];
static uint64_t records[MPIB_ROWS * MPIB_RECORD_NUMBERS];
static struct mpib_mr ring_mr;
static struct ibv_context context;
static struct ibv_cq cq[MPIB_RAIL_MAX];
static struct ibv_srq srq[MPIB_RAIL_MAX];
static struct ibv_qp qp;
static struct rail rails[MPIB_RAIL_MAX];
static struct posted rows[MPIB_ROWS];
static uint64_t done_bytes;

static const size_t room_sizes[] = { 0, 1, 127, 128, 4096, 1 << 20, 1ull << 31, 1ull << 40 };

/* ---- verbs ---------------------------------------------------------------------------------- */

static int post_send(struct ibv_qp *which, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)bad;
	FUZZ_CHECK(which == &qp && wr->num_sge == 1);
	return 0;
}

static int post_srq_recv(struct ibv_srq *which, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct rail *rail = &rails[which - srq];

	for (; wr; wr = wr->next) {
		if (rail->posted - rail->used >= MPIB_SRQ_DEPTH) {
			*bad = wr;
			return ENOMEM;
		}
		rail->posted++;
	}
	return 0;
}

static void note_immediate(unsigned int rail, const struct ibv_wc *wc)
{
	uint32_t imm = ntohl(wc->imm_data);
	struct posted *row = &rows[mpib_imm_slot(imm)];

	if (!row->req)
		return;
	if (row->seen & mpib_rail_bit(rail) || (row->seen && row->seen == row->mask)) {
		row->again = true;
		return;
	}
	if (!row->seen)
		row->mask = mpib_imm_mask(imm);
	row->seen |= mpib_rail_bit(rail);
	row->imm[rail] = imm;
	row->bytes += wc->byte_len;
}

static int poll_cq(struct ibv_cq *which, int n, struct ibv_wc *wc)
{
	unsigned int number = (unsigned int)(which - cq);
	struct rail *rail = &rails[number];
	unsigned int taken = rail->waiting < (unsigned int)n ? rail->waiting : (unsigned int)n;

	for (unsigned int k = 0; k < taken; k++) {
		wc[k] = rail->wc[k];
		if (wc[k].wr_id == MPIB_WR_RECV && wc[k].status == IBV_WC_SUCCESS)
			note_immediate(number, &wc[k]);
	}
	rail->waiting -= taken;
	memmove(rail->wc, rail->wc + taken, rail->waiting * sizeof(rail->wc[0]));
	return (int)taken;
}

const char *__wrap_mpib_verbs_wc_text(enum ibv_wc_status status);
const char *__wrap_mpib_verbs_wc_text(enum ibv_wc_status status)
{
	(void)status;
	return "a status";
}

/* ---- set-up --------------------------------------------------------------------------------- */

static void set_up(unsigned int mask)
{
	memset(&receiver, 0, sizeof(receiver));
	memset(&counters, 0, sizeof(counters));
	memset(requests, 0, sizeof(requests));
	memset(records, 0, sizeof(records));
	memset(rails, 0, sizeof(rails));
	memset(rows, 0, sizeof(rows));
	done_bytes = 0;
	context.ops.post_send = post_send;
	context.ops.post_srq_recv = post_srq_recv;
	context.ops.poll_cq = poll_cq;
	qp.context = &context;

	receiver.kind = MPIB_COUNTER_RECV;
	receiver.data_mask = mask;
	receiver.counters = &counters;
	receiver.dev = &device;
	receiver.ring_mr = &ring_mr;
	receiver.ctl.fd = -1;
	receiver.pool.requests = requests;
	receiver.pool.free = NULL;
	for (uint16_t k = 0; k < MPIB_REQUESTS_MAX; k++) {
		requests[k].comm = &receiver;
		requests[k].index = k;
		mpib_request_put(&receiver.pool, &requests[k]);
	}
	receiver.path = mask & 1 ? MPIB_PATH_INTER : MPIB_PATH_INTRA; /* clear-to-sends */
	receiver.qp[MPIB_SOUT][0] = receiver.qp[MPIB_SUP][0] = &qp;
	receiver.recv.cts_out = cts_out;
	receiver.recv.records = records;
	mpib_comm_prepare(&receiver, NULL);

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		struct mpib_hca *hca = &device.hca[rail];

		cq[rail].context = srq[rail].context = &context;
		receiver.cq[rail] = &cq[rail];
		hca->srq = &srq[rail];
		hca->srq_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
		atomic_store(&hca->srq_credits, 0);
	}
}

/* ---- the program ---------------------------------------------------------------------------- */

struct input {
	const uint8_t *data;
	size_t left;
};

/* Bytes past the end are 0. */
static uint64_t take(struct input *in, size_t bytes)
{
	uint64_t value = 0;

	for (size_t k = 0; k < bytes && in->left; k++, in->left--)
		value |= (uint64_t)*in->data++ << 8 * k;
	return value;
}

static void test_receive(unsigned int slot);

static void post_receive(struct input *in)
{
	unsigned int what = (unsigned int)take(in, 1);
	int n = (int)(what % MPIB_GROUP_MAX) + 1, tags[MPIB_GROUP_MAX] = { 0 };
	static struct mpib_mr registered;
	struct posted *row = &rows[receiver.recv.tail % MPIB_ROWS];
	void *mrs[MPIB_GROUP_MAX] = { NULL };
	size_t sizes[MPIB_GROUP_MAX];
	void *data[MPIB_GROUP_MAX] = { NULL };
	struct mpib_request *req = NULL;
	ncclResult_t r;
	int error;

	/* The slot may be free again before its last request was handed back; the model isn't. */
	test_receive(receiver.recv.tail % MPIB_ROWS);
	error = receiver.error;
	for (int k = 0; k < n; k++)
		sizes[k] = room_sizes[(what >> 3) % (sizeof(room_sizes) / sizeof(room_sizes[0]))];
	if (n == 1)
		mrs[0] = &registered;
	r = mpib_irecv(&receiver, n, data, sizes, tags, mrs, (void **)&req);
	FUZZ_CHECK(error ? r == mpib_result(error) && !req
			 : r == ncclSuccess || r == mpib_result(receiver.error));
	if (!req)
		return;
	FUZZ_CHECK(r == ncclSuccess && req->remaining && !row->req);
	memset(row, 0, sizeof(*row));
	row->req = req;
	row->count = (unsigned int)n;
	memcpy(row->room, sizes, (size_t)n * sizeof(sizes[0]));
}

static void arrive(unsigned int rail, uint32_t imm, uint32_t byte_len, enum ibv_wc_status status)
{
	struct rail *to = &rails[rail];

	/* A NIC delivers nothing without a receive; QPs of a rail that carries no data aren't
	 * there. */
	if (!(receiver.data_mask & mpib_rail_bit(rail)) || to->waiting == QUEUE_MAX ||
	    to->posted == to->used)
		return;
	to->used++;
	to->wc[to->waiting++] = (struct ibv_wc){
		.wr_id = MPIB_WR_RECV,
		.status = status,
		.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
		.imm_data = htonl(imm),
		.byte_len = byte_len,
	};
}

/* An immediate that is nearly right, so that the deeper states are reached. */
static void arrive_likely(struct input *in)
{
	unsigned int rail = (unsigned int)take(in, 1), slot = (unsigned int)take(in, 1);
	uint32_t len = (uint32_t)take(in, 4), size_q = mpib_imm_size_q(len);

	if (rail & 8)
		size_q = MPIB_IMM_SIZE_RECORD;
	if (receiver.recv.tail && rail & 16)
		slot = (receiver.recv.tail - 1) % MPIB_ROWS;
	arrive(rail & 1, mpib_imm_encode(slot, rail >> 1, size_q), len, IBV_WC_SUCCESS);
}

static void clear_to_send_done(void)
{
	struct rail *to = &rails[receiver.recv.cts_rail];

	if (!receiver.recv.tail || to->waiting == QUEUE_MAX)
		return;
	to->wc[to->waiting++] = (struct ibv_wc){
		.wr_id = receiver.recv.tail - 1,
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RDMA_WRITE,
	};
}

/* Every receive of the shared queue is spare, reserved, used or on its way. */
static void check_receives(void)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		const struct rail *at = &rails[rail];
		int arriving = 0;

		for (unsigned int k = 0; k < at->waiting; k++)
			arriving += at->wc[k].wr_id == MPIB_WR_RECV;
		FUZZ_CHECK(atomic_load(&device.hca[rail].srq_credits) +
				   (int)receiver.recv.reserved[rail] ==
			   at->posted - (at->used - arriving));
	}
}

static void check_done(const struct posted *row, const int *sizes)
{
	uint32_t size_q = mpib_imm_size(row->imm[row->seen & 1 ? 0 : 1]);

	FUZZ_CHECK(row->seen && row->seen == row->mask);
	FUZZ_CHECK(!(row->mask & ~receiver.data_mask));
	if (row->seen == 3)
		FUZZ_CHECK(row->imm[0] == row->imm[1]);
	for (unsigned int k = 0; k < row->count; k++) {
		FUZZ_CHECK(sizes[k] >= 0 && (size_t)sizes[k] <= row->room[k]);
		done_bytes += (uint64_t)sizes[k];
	}
	/* Each byte is counted on one rail; usual messages half way are counted, too. */
	FUZZ_CHECK(counters.rail[MPIB_SOUT].bytes + counters.rail[MPIB_SUP].bytes >= done_bytes);
	if (size_q != MPIB_IMM_SIZE_RECORD)
		FUZZ_CHECK(row->count == 1 && (uint64_t)sizes[0] == row->bytes &&
			   size_q == mpib_imm_size_q((size_t)row->bytes));
}

static void test_receive(unsigned int slot)
{
	struct posted *row = &rows[slot];
	int sizes[MPIB_GROUP_MAX], done = 7;
	ncclResult_t r;

	if (!row->req)
		return;
	memset(sizes, 0xff, sizeof(sizes)); /* what isn't written fails the check */
	r = mpib_test(row->req, &done, sizes);
	check_receives();
	FUZZ_CHECK(r == ncclSuccess || r == mpib_result(receiver.error));
	FUZZ_CHECK(done == 0 || (done == 1 && r == ncclSuccess));
	if (!done) {
		FUZZ_CHECK(r != ncclSuccess || row->seen != 3);
		return;
	}
	FUZZ_CHECK(!row->again || receiver.error);
	check_done(row, sizes);
	row->req = NULL;
}

static void step(struct input *in)
{
	switch (take(in, 1) % 8) {
	case 0:
	case 1:
		post_receive(in);
		break;
	case 2: {
		unsigned int rail = (unsigned int)take(in, 1) & 1;
		uint32_t imm = (uint32_t)take(in, 4);

		arrive(rail, imm, (uint32_t)take(in, 4), IBV_WC_SUCCESS);
		break;
	}
	case 3:
	case 4:
		arrive_likely(in);
		break;
	case 5: { /* the records are the peer's to write, at any time */
		size_t at = (size_t)take(in, 2) % (MPIB_ROWS * MPIB_RECORD_NUMBERS);

		records[at] = take(in, 8);
		break;
	}
	case 6:
		if (take(in, 1) & 1)
			clear_to_send_done();
		else
			arrive((unsigned int)take(in, 1) & 1, 0, 0,
			       (enum ibv_wc_status)(take(in, 1) % IBV_WC_TM_ERR + 1));
		break;
	default:
		test_receive((unsigned int)take(in, 1));
		break;
	}
	check_receives();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };

	set_up((unsigned int)take(&in, 1) % 3 + 1);
	while (in.left)
		step(&in);
	for (unsigned int slot = 0; slot < MPIB_ROWS; slot++)
		test_receive(slot);
	return 0;
}
