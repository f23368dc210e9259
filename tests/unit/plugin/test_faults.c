/* SPDX-License-Identifier: Apache-2.0 */
/* Each verbs call that the plugin makes fails once at each place, and so does each allocation: a
 * clean error or none, nothing left over, and the process good for a new connection. */
#include "tests/unit/plugin/test.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "common/macros.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/pair.h"

/* ---- allocations ----------------------------------------------------------------------------- */

/* The helper thread allocates too. */
static struct {
	atomic_int armed, failed;
	atomic_uint skip, calls;
} heap;

static int heap_fails(void)
{
	if (!heap.armed)
		return 0;
	heap.calls++;
	if (heap.skip-- != 0)
		return 0;
	heap.armed = 0;
	heap.failed = 1;
	errno = ENOMEM;
	return 1;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);

void *__wrap_malloc(size_t size)
{
	return heap_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return heap_fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
	return heap_fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	return heap_fails() ? NULL : __real_aligned_alloc(align, size);
}

/* ---- the scenario ---------------------------------------------------------------------------- */

static unsigned int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	if (!dir)
		return 0;
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n;
}

static int failed_before_close;

/* From init to finalize, with a message over each path of the sender. */
static ncclResult_t scenario(void)
{
	static const size_t sizes[] = { 0, 100, PAIR_BUFFER, 5000 };
	struct pair p;
	ncclResult_t r = pair_open(&p, test_logger, 0);

	for (size_t k = 0; r == ncclSuccess && k < MPIB_ARRAY_SIZE(sizes); k++)
		r = pair_transfer(&p, sizes[k], PAIR_BUFFER);
	heap.armed = 0;
	failed_before_close = fake_failed();
	pair_close(&p);
	return r;
}

static int set_up(void **state)
{
	(void)state;
	pair_env();
	(void)setenv("MPIB_MODE", "1", 1); /* both rails carry bytes */
	(void)setenv("MPIB_AGENT_OPTIONAL", "1", 1);
	(void)setenv("MPIB_AGENT_DIR", "/nonexistent/mpib", 1);
	(void)setenv("MPIB_CONNECT_TIMEOUT_SEC", "8", 1);
	fake_set_max_msg(32768); /* the largest message is cut */
	test_log_clear();
	return scenario() == ncclSuccess && fake_live() == 0 ? 0 : -1;
}

static void expect_clean(const char *what, unsigned int at, unsigned int files)
{
	ncclResult_t r;

	if (fake_live())
		fail_msg("%s %u: %u objects are left", what, at, fake_live());
	if (open_files() != files)
		fail_msg("%s %u: %u files were open, now %u", what, at, files, open_files());
	fake_fail(FAKE_LIST, 0, 0);
	test_log_clear();
	r = scenario();
	if (r != ncclSuccess) {
		print_error("%s", test_log_state.text);
		fail_msg("%s %u: the process is of no use afterwards: %d", what, at, r);
	}
}

/* A failed init, listen, connect, post or poll has to be told. The destructors' needs not, nor what
 * has another way: an empty GID entry is passed over, receives are posted again. */
static void one_failure(enum fake_verb verb, unsigned int at, int err, unsigned int files)
{
	ncclResult_t r;

	test_log_clear();
	fake_fail(verb, at, err);
	r = scenario();
	if (failed_before_close && verb < FAKE_DEREG_MR && verb != FAKE_POST_SRQ_RECV &&
	    verb != FAKE_QUERY_GID) {
		/* A request that can't be posted is the loss of its rail, and the other one takes
		 * over. */
		if (r == ncclSuccess && !(verb == FAKE_POST_SEND && test_log_has(" is lost ")))
			fail_msg("%s %u failed and nobody said so", fake_verb_name(verb), at);
		if (r == ncclInProgress)
			fail_msg("%s %u failed and nothing ever ended: %s", fake_verb_name(verb),
				 at, test_log_state.text);
		if (test_log_warnings() < 1 || test_log_warnings() > 3)
			fail_msg("%s %u: %u warnings: %s", fake_verb_name(verb), at,
				 test_log_warnings(), test_log_state.text);
	}
	if (r == ncclInternalError)
		fail_msg("%s %u: wrong bytes", fake_verb_name(verb), at);
	if (!fake_failed())
		fail_msg("%s %u never came", fake_verb_name(verb), at);
	expect_clean(fake_verb_name(verb), at, files);
}

static void test_each_verb_fails_once(void **state)
{
	const unsigned int files = open_files();
	unsigned int tried = 0;

	(void)state;
	for (enum fake_verb verb = 0; verb < FAKE_VERB_MAX; verb++) {
		unsigned int before = fake_calls(verb), calls, step;

		fake_fail(FAKE_LIST, 0, 0);
		assert_int_equal(scenario(), ncclSuccess);
		calls = fake_calls(verb) - before;
		/* Hundreds of polls are alike: every place once, then at growing distances. */
		for (unsigned int at = 0; at < calls; at += step) {
			one_failure(verb, at, verb == FAKE_POST_SEND ? EINVAL : EIO, files);
			step = at < 60 ? 1 : at / 8;
			tried++;
		}
	}
	print_message("%u places\n", tried);
	assert_true(tried > 100);
}

/* Whatever number a verb gives, it is this host's error: not the caller's, nor the peer's. */
static void test_a_verb_is_no_argument(void **state)
{
	static const int errors[] = { EINVAL, ETIMEDOUT, EPROTO, EREMOTEIO, EBADR, EBADRQC };
	static const enum fake_verb verbs[] = { FAKE_LIST, FAKE_OPEN, FAKE_QUERY_DEVICE,
						FAKE_QUERY_PORT, FAKE_ALLOC_PD };

	(void)state;
	for (size_t v = 0; v < MPIB_ARRAY_SIZE(verbs); v++)
		for (size_t k = 0; k < MPIB_ARRAY_SIZE(errors); k++) {
			void *ctx = NULL;

			test_log_clear();
			fake_fail(verbs[v], 0, errors[k]);
			assert_int_equal(mpib_entry_init(&ctx, NULL, test_logger), ncclSystemError);
			assert_logged(strerror(errors[k]));
		}
	fake_fail(FAKE_LIST, 0, 0);
}

/* A registration, and what undoes it. */
static void test_registering_is_no_argument(void **state)
{
	static const int errors[] = { EINVAL, ETIMEDOUT, EPROTO, EREMOTEIO, EBADR, EBADRQC };
	static char buffer[4096];
	struct pair p;
	void *mr = NULL;

	(void)state;
	(void)setenv("MPIB_IB_PCI_RELAXED_ORDERING", "0", 1);
	assert_int_equal(pair_open(&p, test_logger, 0), ncclSuccess);
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(errors); k++) {
		fake_fail(FAKE_REG_MR, 0, errors[k]);
		assert_int_equal(
			mpib_entry_reg_mr(p.send, buffer, sizeof(buffer), NCCL_PTR_HOST, &mr),
			ncclSystemError);
		fake_fail(FAKE_DEREG_MR, 0, errors[k]);
		assert_int_equal(
			mpib_entry_reg_mr(p.send, buffer, sizeof(buffer), NCCL_PTR_HOST, &mr),
			ncclSuccess);
		assert_int_equal(mpib_entry_dereg_mr(p.send, mr), ncclSystemError);
	}
	fake_fail(FAKE_LIST, 0, 0);
	assert_int_equal(mpib_entry_reg_mr(p.send, buffer, 0, NCCL_PTR_HOST, &mr),
			 ncclInvalidArgument);
	pair_close(&p);
	(void)unsetenv("MPIB_IB_PCI_RELAXED_ORDERING");
}

static void test_each_allocation_fails_once(void **state)
{
	const unsigned int files = open_files();
	unsigned int calls, told = 0;

	(void)state;
	heap.armed = 1;
	heap.skip = UINT32_MAX;
	heap.calls = 0;
	assert_int_equal(scenario(), ncclSuccess);
	calls = heap.calls;
	assert_true(calls > 20);
	for (unsigned int at = 0; at < calls; at++) {
		ncclResult_t r;

		test_log_clear();
		heap.skip = at;
		heap.failed = 0;
		heap.armed = 1;
		r = scenario();
		assert_true(heap.failed);
		if (r == ncclInternalError || r == ncclInProgress)
			fail_msg("allocation %u: result %d: %s", at, r, test_log_state.text);
		told += r != ncclSuccess;
		expect_clean("allocation", at, files);
	}
	print_message("%u allocations, %u of them ended in an error\n", calls, told);
	assert_true(told > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_each_verb_fails_once, set_up),
		cmocka_unit_test_setup(test_a_verb_is_no_argument, set_up),
		cmocka_unit_test_setup(test_registering_is_no_argument, set_up),
		cmocka_unit_test_setup(test_each_allocation_fails_once, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
