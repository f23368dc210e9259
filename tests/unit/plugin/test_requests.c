/* SPDX-License-Identifier: Apache-2.0 */
/* What of a connection reaches which request; flushes; memory of GPUs. */
#include "tests/unit/plugin/test.h"

#include <errno.h>
#include <sys/mman.h>

#include "plugin/base/result.h"
#include "plugin/data/progress.h"
#include "tests/unit/plugin/one_pair.h"

/* An error found while another request is tested reaches all of the connection, and no other
 * connection; the process goes on with new ones. */
static void test_error_reaches_every_request(void **state)
{
	void *receives[5], *sends[5], *in, *other = NULL;
	size_t room = 100;
	int tag = 1, done = 0;
	struct pair second;

	(void)state;
	(void)setenv("MPIB_FAILOVER", "0", 1);
	open_pair(0);
	second = p;
	open_pair(0);
	in = p.in;
	for (unsigned int k = 0; k < 5; k++)
		assert_int_equal(mpib_irecv(p.recv, 1, &in, &room, &tag, &p.recv_mr, &receives[k]),
				 ncclSuccess);
	fake_bad_completion(SUP, IBV_WC_RETRY_EXC_ERR);
	for (unsigned int k = 0; k < 5; k++)
		assert_int_equal(mpib_isend(p.send, p.out, 8, tag, p.send_mr, &sends[k]),
				 ncclSuccess);
	assert_int_equal(mpib_test(sends[4], &done, NULL), ncclRemoteError);
	assert_int_equal(mpib_test(sends[0], &done, NULL), ncclRemoteError);
	assert_int_equal(done, 0);
	assert_int_equal(mpib_isend(p.send, p.out, 8, tag, p.send_mr, &other), ncclRemoteError);
	assert_null(other);
	assert_int_equal(test_log_warnings(), 1);
	/* The peer is told, and all of its requests have it. */
	for (unsigned int k = 0; k < 30000; k++) {
		if (mpib_test(receives[4], &done, NULL) != ncclSuccess)
			break;
		(void)poll(NULL, 0, 1);
	}
	assert_int_equal(mpib_test(receives[4], &done, NULL), ncclRemoteError);
	assert_int_equal(test_log_warnings(), 2);
	assert_logged("the peer failed: SUP rail sup:1, QP 0x");

	assert_int_equal(pair_transfer(&second, 1000, 1000), ncclSuccess);
	pair_close(&p);
	open_pair(0);
	assert_int_equal(pair_transfer(&p, 1000, 1000), ncclSuccess);
	pair_close(&second);
}

/* Reads on the rails that brought data, none else, and none where it is off. */
static void test_flush(void **state)
{
	static const struct {
		const char *flush, *gpudirect;
		unsigned int sup_reads;
	} rows[] = { { "1", "1", 1 }, { "0", "1", 0 }, { "1", "0", 0 } };

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		void *in, *request = (void *)1;
		int size = 1000, done = 0;
		unsigned int sup, sout;

		(void)setenv("MPIB_FLUSH", rows[k].flush, 1);
		(void)setenv("MPIB_GPUDIRECT", rows[k].gpudirect, 1);
		open_pair(0);
		in = p.in;
		sup = fake_reads(SUP);
		sout = fake_reads(SOUT);
		/* Nothing has arrived: nothing to wait for. */
		assert_int_equal(mpib_iflush(p.recv, 1, &in, &size, &p.recv_mr, &request),
				 ncclSuccess);
		assert_null(request);
		assert_int_equal(pair_transfer(&p, 1000, 1000), ncclSuccess);
		request = (void *)1;
		assert_int_equal(mpib_iflush(p.recv, 1, &in, &size, &p.recv_mr, &request),
				 ncclSuccess);
		assert_int_equal(request != NULL, rows[k].sup_reads);
		if (request)
			assert_int_equal(mpib_test(request, &done, NULL), ncclSuccess);
		assert_int_equal(done, rows[k].sup_reads);
		assert_int_equal(fake_reads(SUP) - sup, rows[k].sup_reads);
		assert_int_equal(fake_reads(SOUT) - sout, 0);
		pair_close(&p);
	}
}

static void test_flush_reads_both_rails(void **state)
{
	struct mpib_hint_entry half = { .sup_bw = 512 };
	unsigned int sup, sout;
	void *in, *request = NULL;
	int size = 4096, done = 0;

	(void)state;
	(void)setenv("MPIB_GPUDIRECT", "1", 1);
	(void)setenv("MPIB_MODE", "1", 1);
	open_pair(0);
	in = p.in;
	atomic_store(&send_base()->agent.hint, &half);
	assert_int_equal(pair_transfer(&p, 4096, 4096), ncclSuccess);
	sup = fake_reads(SUP);
	sout = fake_reads(SOUT);
	assert_int_equal(mpib_iflush(p.recv, 1, &in, &size, &p.recv_mr, &request), ncclSuccess);
	assert_non_null(request);
	assert_int_equal(mpib_test(request, &done, NULL), ncclSuccess);
	assert_int_equal(done, 1);
	assert_int_equal(fake_reads(SUP) - sup, 1);
	assert_int_equal(fake_reads(SOUT) - sout, 1);
	atomic_store(&send_base()->agent.hint, NULL);
}

/* DMA-BUF where both drivers take it, peer memory where one refuses, and a line that says which. */
static void test_dmabuf(void **state)
{
	struct mpib_properties props;
	unsigned int before;
	void *mr = NULL;

	(void)state;
	fake_set_dmabuf(SOUT, 0);
	fake_set_dmabuf(SUP, 0);
	open_pair(0);
	assert_int_equal(mpib_entry_properties(0, &props), ncclSuccess);
	assert_true(props.ptr_support & NCCL_PTR_DMABUF);
	assert_logged("sout+sup: GPU memory through DMA-BUF");
	before = fake_calls(FAKE_REG_MR);
	assert_int_equal(mpib_entry_reg_mr_dmabuf(p.send, p.out, 4096, NCCL_PTR_CUDA, 0, 0, &mr),
			 ncclSuccess);
	assert_non_null(mr);
	assert_int_equal(fake_calls(FAKE_REG_MR) - before, 1); /* vanilla: SUP alone */
	assert_int_equal(mpib_entry_dereg_mr(p.send, mr), ncclSuccess);
	/* A driver that refuses after all, and no peer memory: an error that says so. */
	fake_set_dmabuf(SUP, EINVAL);
	test_log_clear();
	assert_int_not_equal(
		mpib_entry_reg_mr_dmabuf(p.send, p.out, 4096, NCCL_PTR_CUDA, 0, 0, &mr),
		ncclSuccess);
	assert_int_equal(test_log_warnings(), 1);
	pair_close(&p);

	/* SUP's driver knows none: not offered. */
	fake_set_dmabuf(SUP, EOPNOTSUPP);
	open_pair(0);
	assert_int_equal(mpib_entry_properties(0, &props), ncclSuccess);
	assert_false(props.ptr_support & NCCL_PTR_DMABUF);
	pair_close(&p);

	/* Peer memory too: the registration goes another way, in one line without a warning. */
	(void)setenv("MPIB_GPUDIRECT", "1", 1);
	fake_set_dmabuf(SUP, 0);
	open_pair(0);
	assert_logged("GPU memory through DMA-BUF, else ibv_reg_mr");
	fake_set_dmabuf(SUP, EINVAL);
	test_log_clear();
	assert_int_equal(mpib_entry_reg_mr_dmabuf(p.send, p.out, 4096, NCCL_PTR_CUDA, 0, 0, &mr),
			 ncclSuccess);
	assert_logged("DMA-BUF refused (Invalid argument): using peer memory");
	assert_int_equal(test_log_warnings(), 0);
	assert_int_equal(mpib_entry_dereg_mr(p.send, mr), ncclSuccess);
}

/* NCCL's buffers are relaxed in their order, the rings that a last word completes are not. */
static void test_relaxed_ordering(void **state)
{
	(void)state;
	open_pair(0);
	assert_true(fake_mr_access() & IBV_ACCESS_RELAXED_ORDERING); /* the latest: p.in */
	assert_false(MPIB_MR_ACCESS_RING & IBV_ACCESS_RELAXED_ORDERING);
	assert_int_equal(recv_base()->ring_mr->entry[MPIB_SUP] != NULL, 1);
}

/* Sizes that no 32-bit number holds, with a buffer that takes no memory. */
static void test_beyond_4_gib(void **state)
{
	const size_t size = ((size_t)5 << 30) + 130, half = (size * 512 >> 10) & ~127ul;
	struct mpib_hint_entry hint = { .sup_bw = 512 };
	void *from, *to, *from_mr = NULL, *to_mr = NULL, *rr = NULL, *sr = NULL;
	int tag = 1, done = 0, got = 0;

	(void)state;
	from = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
	to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		  -1, 0);
	if (from == MAP_FAILED || to == MAP_FAILED)
		skip();
	(void)setenv("MPIB_MODE", "1", 1);
	open_pair(0);
	atomic_store(&send_base()->agent.hint, &hint);
	assert_int_equal(mpib_entry_reg_mr(p.send, from, size, NCCL_PTR_HOST, &from_mr), 0);
	assert_int_equal(mpib_entry_reg_mr(p.recv, to, size, NCCL_PTR_HOST, &to_mr), 0);
	for (unsigned int round = 0; round < 2; round++) {
		size_t room = size;

		assert_int_equal(mpib_irecv(p.recv, 1, &to, &room, &tag, &to_mr, &rr), 0);
		assert_int_equal(mpib_isend(p.send, from, size, tag, from_mr, &sr), 0);
		assert_non_null(rr);
		assert_non_null(sr);
		for (done = 0; !done;)
			assert_int_equal(mpib_test(sr, &done, NULL), ncclSuccess);
		assert_int_equal(send_base()->counters->rail[MPIB_SUP].bytes, half * (round + 1));
		assert_int_equal(send_base()->counters->rail[MPIB_SOUT].bytes,
				 (size - half) * (round + 1));
		done = 0;
		if (round == 0) {
			while (!done)
				assert_int_equal(mpib_test(rr, &done, NULL), ncclSuccess);
			assert_int_equal(((struct mpib_request *)rr)->sizes[0], size);
		} else {
			/* NCCL's size is an int: an error, and no wrapped number. */
			assert_int_not_equal(mpib_test(rr, &done, &got), ncclSuccess);
			assert_int_equal(got, 0);
			assert_logged("2 GiB or more can't be reported");
		}
	}
	assert_int_equal(mpib_entry_dereg_mr(p.send, from_mr), ncclSuccess);
	assert_int_equal(mpib_entry_dereg_mr(p.recv, to_mr), ncclSuccess);
	atomic_store(&send_base()->agent.hint, NULL);
	(void)munmap(from, size);
	(void)munmap(to, size);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_error_reaches_every_request),
		CASE(test_flush),
		CASE(test_flush_reads_both_rails),
		CASE(test_dmabuf),
		CASE(test_relaxed_ordering),
		CASE(test_beyond_4_gib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
