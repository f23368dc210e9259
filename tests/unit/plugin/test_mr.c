/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations: reference counts, hits of the cache, and all or nothing over the rails. */
#include "tests/unit/plugin/test.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "plugin/base/result.h"
#include "plugin/verbs/device.h"
#include "plugin/verbs/mr.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/pair.h"

#define BOTH 3u
#define PAGE 4096u

static struct mpib_device *dev;
static char *area; /* 16 pages */

static int open_device(void **state)
{
	struct mpib_env env;

	(void)state;
	pair_env();
	test_log_clear();
	area = aligned_alloc(PAGE, (size_t)16 * PAGE);
	if (!area || mpib_env_read(&env) < 0 || mpib_watch_get() < 0 || mpib_devices_open(&env) < 0)
		return -1;
	dev = mpib_device_get(0);
	return 0;
}

static int close_device(void **state)
{
	(void)state;
	mpib_devices_close();
	mpib_watch_put();
	free(area);
	return fake_live() == 0 ? 0 : -1;
}

static struct mpib_mr *reg(unsigned int mask, size_t first, size_t pages, unsigned int access)
{
	struct mpib_mr *mr = NULL;

	assert_int_equal(mpib_mr_new(dev, mask, area + first * PAGE, pages * PAGE, access, &mr), 0);
	assert_non_null(mr);
	return mr;
}

static void test_references(void **state)
{
	struct mpib_mr *a, *b;

	(void)state;
	a = reg(BOTH, 0, 4, MPIB_MR_ACCESS);
	assert_int_equal(fake_live_mrs(), 2); /* one a rail */
	b = reg(BOTH, 0, 4, MPIB_MR_ACCESS);
	assert_int_equal(fake_live_mrs(), 2);
	assert_int_equal(a->lkey[0], b->lkey[0]);
	assert_int_equal(a->rkey[1], b->rkey[1]);
	assert_int_not_equal(a->lkey[0], a->lkey[1]);
	assert_int_equal(mpib_mr_free(a), 0);
	assert_int_equal(fake_live_mrs(), 2);
	assert_int_equal(mpib_mr_free(b), 0);
	assert_int_equal(fake_live_mrs(), 0);
	assert_int_equal(mpib_mr_free(NULL), 0);
}

static void test_sub_range(void **state)
{
	struct mpib_mr *whole = reg(BOTH, 2, 8, MPIB_MR_ACCESS), *part, *odd = NULL, *before;

	(void)state;
	part = reg(BOTH, 4, 3, MPIB_MR_ACCESS);
	assert_int_equal(part->lkey[0], whole->lkey[0]);
	/* Bytes inside the last page are covered by it. */
	assert_int_equal(mpib_mr_new(dev, BOTH, area + 9 * PAGE + 100, 3000, MPIB_MR_ACCESS, &odd),
			 0);
	assert_int_equal(odd->lkey[1], whole->lkey[1]);
	assert_int_equal(fake_live_mrs(), 2);
	/* One page before, and one byte beyond: not covered. */
	before = reg(BOTH, 1, 2, MPIB_MR_ACCESS);
	assert_int_not_equal(before->lkey[0], whole->lkey[0]);
	assert_int_equal(fake_live_mrs(), 4);
	assert_int_equal(mpib_mr_free(before), 0);
	assert_int_equal(mpib_mr_new(dev, BOTH, area + 9 * PAGE, PAGE + 1, MPIB_MR_ACCESS, &before),
			 0);
	assert_int_not_equal(before->lkey[0], whole->lkey[0]);
	assert_int_equal(mpib_mr_free(before), 0);
	/* The whole may go first; the parts hold it. */
	assert_int_equal(mpib_mr_free(whole), 0);
	assert_int_equal(fake_live_mrs(), 2);
	assert_int_equal(mpib_mr_free(part), 0);
	assert_int_equal(mpib_mr_free(odd), 0);
	assert_int_equal(fake_live_mrs(), 0);
}

/* P06: who registered the whole range is gone, and may have unmapped what the part doesn't hold.
 * The entry lives on for the part, and answers nobody else: neither inside, nor for the same range.
 */
static void test_whole_is_gone(void **state)
{
	struct mpib_mr *whole = reg(BOTH, 0, 16, MPIB_MR_ACCESS), *last, *anew, *again, *inside;

	(void)state;
	last = reg(BOTH, 15, 1, MPIB_MR_ACCESS);
	assert_int_equal(last->rkey[0], whole->rkey[0]);
	assert_int_equal(mpib_mr_free(whole), 0);

	anew = reg(BOTH, 0, 15, MPIB_MR_ACCESS);
	assert_int_not_equal(anew->rkey[0], last->rkey[0]);
	assert_int_not_equal(anew->rkey[1], last->rkey[1]);
	again = reg(BOTH, 0, 16, MPIB_MR_ACCESS);
	assert_int_not_equal(again->rkey[0], last->rkey[0]);
	/* One that is held answers, though the other, of the same range, came first. */
	inside = reg(BOTH, 3, 2, MPIB_MR_ACCESS);
	assert_true(inside->rkey[0] == anew->rkey[0] || inside->rkey[0] == again->rkey[0]);
	assert_int_equal(fake_live_mrs(), 6);

	assert_int_equal(mpib_mr_free(last), 0);
	assert_int_equal(fake_live_mrs(), 4);
	assert_int_equal(mpib_mr_free(anew), 0);
	assert_int_equal(mpib_mr_free(again), 0);
	assert_int_equal(mpib_mr_free(inside), 0);
	assert_int_equal(fake_live_mrs(), 0);
}

static void test_other_access(void **state)
{
	struct mpib_mr *data = reg(BOTH, 0, 4, MPIB_MR_ACCESS), *ring;

	(void)state;
	assert_int_equal(fake_mr_access(), MPIB_MR_ACCESS);
	ring = reg(BOTH, 0, 4, MPIB_MR_ACCESS_RING);
	assert_int_equal(fake_mr_access(), MPIB_MR_ACCESS_RING);
	assert_int_not_equal(ring->lkey[0], data->lkey[0]);
	assert_int_equal(fake_live_mrs(), 4);
	assert_int_equal(mpib_mr_free(data), 0);
	assert_int_equal(mpib_mr_free(ring), 0);
}

static void test_one_rail(void **state)
{
	struct mpib_mr *mr = reg(1u << MPIB_SUP, 0, 1, MPIB_MR_ACCESS);

	(void)state;
	assert_int_equal(fake_live_mrs(), 1);
	assert_null(mr->entry[MPIB_SOUT]);
	assert_int_equal(mr->lkey[MPIB_SOUT], 0);
	assert_int_equal(mpib_mr_free(mr), 0);
}

/* A registration on rail 1 must not survive the failure of rail 2. */
static void test_second_rail_fails(void **state)
{
	struct mpib_mr *mr = NULL, *held;

	(void)state;
	test_log_clear();
	fake_fail(FAKE_REG_MR, 1, EFAULT);
	assert_int_equal(mpib_mr_new(dev, BOTH, area, PAGE, MPIB_MR_ACCESS, &mr), -EFAULT);
	assert_true(fake_failed());
	assert_null(mr);
	assert_int_equal(fake_live_mrs(), 0);
	assert_int_equal(test_log_warnings(), 1);
	assert_logged("SUP rail sup:1");
	assert_false(test_log_has("ulimit")); /* not a matter of the memory lock */

	/* Nor may it take a reference away from somebody else's. */
	held = reg(1u << MPIB_SOUT, 0, 1, MPIB_MR_ACCESS);
	fake_fail(FAKE_REG_MR, 0, EFAULT);
	assert_int_equal(mpib_mr_new(dev, BOTH, area, PAGE, MPIB_MR_ACCESS, &mr), -EFAULT);
	assert_int_equal(fake_live_mrs(), 1);
	assert_int_equal(mpib_mr_free(held), 0);
	assert_int_equal(fake_live_mrs(), 0);
}

/* X7: too low a memory-lock limit gives the advice, with this process's limit. */
static void test_memlock_advice(void **state)
{
	struct rlimit old, low;
	struct mpib_mr *mr = NULL;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &old), 0);
	low = old;
	low.rlim_cur = (rlim_t)64 * 1024;
	if (old.rlim_max != RLIM_INFINITY && old.rlim_max < low.rlim_cur)
		skip();
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
	test_log_clear();
	fake_fail(FAKE_REG_MR, 0, ENOMEM);
	assert_int_equal(mpib_mr_new(dev, BOTH, area, 5 * PAGE, MPIB_MR_ACCESS, &mr), -ENOMEM);
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
	assert_int_equal(test_log_warnings(), 1);
	assert_logged("20480 bytes can't be registered");
	assert_logged("may lock 64 KiB");
	assert_logged("ulimit -l");
}

static void test_bad_arguments(void **state)
{
	struct mpib_mr *mr = NULL;

	(void)state;
	assert_int_equal(mpib_mr_new(dev, BOTH, area, 0, MPIB_MR_ACCESS, &mr), -MPIB_EARGUMENT);
	assert_int_equal(mpib_mr_new(dev, BOTH, area, SIZE_MAX, MPIB_MR_ACCESS, &mr),
			 -MPIB_EARGUMENT);
	assert_int_equal(mpib_mr_new_dmabuf(dev, BOTH, area, PAGE, 0, -1, false, &mr),
			 -MPIB_EARGUMENT);
	assert_null(mr);
	assert_int_equal(fake_live_mrs(), 0);
}

/* A DMA-BUF's addresses say nothing about its memory: it never serves another registration. */
static void test_dmabuf_not_shared(void **state)
{
	struct mpib_mr *buf = NULL, *other;

	(void)state;
	fake_set_dmabuf(0, 0);
	fake_set_dmabuf(1, 0);
	assert_int_equal(mpib_mr_new_dmabuf(dev, BOTH, area, PAGE, 0, 0, false, &buf), 0);
	other = reg(BOTH, 0, 1, MPIB_MR_ACCESS);
	assert_int_equal(fake_live_mrs(), 4);
	assert_int_equal(mpib_mr_free(buf), 0);
	assert_int_equal(mpib_mr_free(other), 0);
	assert_int_equal(fake_live_mrs(), 0);
}

static void test_many(void **state)
{
	struct mpib_mr *mrs[16][16] = { 0 };

	(void)state;
	/* Longer ones later: each is a registration of its own, and every short one still hits. */
	for (size_t first = 0; first < 16; first++)
		for (size_t pages = 1; first + pages <= 16; pages++)
			mrs[first][pages - 1] = reg(BOTH, first, pages, MPIB_MR_ACCESS);
	for (size_t pages = 16; pages-- > 0;)
		for (size_t first = 0; first < 16; first++)
			assert_int_equal(mpib_mr_free(mrs[first][pages]), 0);
	assert_int_equal(fake_live_mrs(), 0);
}

/* What is left when the device closes is deregistered with it. */
static void test_left_over(void **state)
{
	struct mpib_mr *mr = reg(BOTH, 0, 1, MPIB_MR_ACCESS);

	(void)state;
	mpib_devices_close();
	assert_int_equal(fake_live(), 0);
	free(mr);
}

int main(void)
{
#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_device, close_device)
	const struct CMUnitTest tests[] = {
		WITH_DEVICE(test_references),	     WITH_DEVICE(test_sub_range),
		WITH_DEVICE(test_whole_is_gone),     WITH_DEVICE(test_other_access),
		WITH_DEVICE(test_one_rail),	     WITH_DEVICE(test_second_rail_fails),
		WITH_DEVICE(test_memlock_advice),    WITH_DEVICE(test_bad_arguments),
		WITH_DEVICE(test_dmabuf_not_shared), WITH_DEVICE(test_many),
		WITH_DEVICE(test_left_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
