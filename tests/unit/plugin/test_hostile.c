/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer may send that it should not: an error of this connection, whatever it says. */
#include "tests/unit/plugin/test.h"

#include "plugin/wire/imm.h"
#include "tests/unit/common/random.h"
#include "tests/unit/plugin/moved_pair.h"

static uint32_t sup_qpn(void)
{
	return recv_comm()->qp[MPIB_SUP][0]->qp_num;
}

/* Immediates that no honest peer sends: an error of this connection, whatever they say. */
static void test_hostile_immediates(void **state)
{
	void *in = p.in, *request = NULL;
	size_t room = 64;
	int tag = 1, done = 0;
	struct mpib_test_random random = mpib_test_random_init(23);
	uint32_t imm;

	(void)state;
	/* Until one is posted: a receive of ours that a completion can be made from. */
	assert_int_equal(mpib_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &request), 0);
	assert_non_null(request);
	do
		imm = (uint32_t)mpib_test_random_next(&random);
	while (mpib_imm_slot(imm) == 0);
	assert_int_equal(fake_immediate(sup_qpn(), imm, 8), 0);
	assert_int_equal(mpib_test(request, &done, NULL), ncclRemoteError);
	assert_logged("no receive is posted in its slot");
	assert_int_equal(test_log_warnings(), 1);
}

static void hostile(uint32_t imm, uint32_t byte_len, const char *line)
{
	void *in = p.in, *request = NULL;
	size_t room = 64;
	int tag = 1, done = 0;

	assert_int_equal(mpib_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &request), 0);
	assert_non_null(request);
	assert_int_equal(fake_immediate(sup_qpn(), imm, byte_len), 0);
	assert_int_equal(mpib_test(request, &done, NULL), ncclRemoteError);
	assert_int_equal(done, 0);
	assert_logged(line);
}

static void test_hostile_mask(void **state)
{
	(void)state;
	hostile(mpib_imm_encode(0, 0, 0), 8, "rails that can't be");
}

static void test_hostile_idle_rail(void **state)
{
	(void)state;
	hostile(mpib_imm_encode(0, 3, 0), 8, "rails that can't be");
}

static void test_hostile_size(void **state)
{
	(void)state;
	hostile(mpib_imm_encode(0, 2, 77), 8, "not that of the data");
}

static void test_hostile_length(void **state)
{
	(void)state;
	hostile(mpib_imm_encode(0, 2, 8), 1024, "larger than the posted receive");
}

static void test_hostile_record(void **state)
{
	(void)state;
	recv_comm()->recv.records[1] = UINT64_MAX;
	hostile(mpib_imm_encode(0, 2, MPIB_IMM_SIZE_RECORD), 8, "larger than the posted receive");
}

/* Less on SUP than arrived there, and more than there is. */
static void test_hostile_parts(void **state)
{
	(void)state;
	recv_comm()->recv.records[0] = 63;
	recv_comm()->recv.records[1] = 64;
	hostile(mpib_imm_encode(0, 2, MPIB_IMM_SIZE_RECORD), 8, "SUP bytes that can't be");
	assert_int_equal(recv_comm()->counters->rail[MPIB_SUP].bytes, 0);
}

/* A clear-to-send row that an honest receiver wouldn't write. */
static void test_hostile_row(void **state)
{
	void *request;

	(void)state;
	memset(send_comm()->send.cts, 0xff, sizeof(*send_comm()->send.cts));
	send_comm()->send.cts[0].element[0].seq = 1;
	send_comm()->send.cts[0].element[0].count = 200;
	assert_int_equal(mpib_isend(p.send, p.out, 8, -1, p.send_mr, &request), ncclRemoteError);
	assert_logged("wrong count");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		INTRA(test_hostile_immediates), INTRA(test_hostile_mask),
		INTRA(test_hostile_idle_rail),	INTRA(test_hostile_size),
		INTRA(test_hostile_length),	INTRA(test_hostile_record),
		INTRA(test_hostile_parts),	INTRA(test_hostile_row),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
