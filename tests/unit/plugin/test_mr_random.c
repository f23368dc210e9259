/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of registrations against a model: ranges of an arena are registered, deregistered,
 * unmapped and mapped anew at random. A page has an owner, which changes when it is mapped anew; a
 * key pins the owners that its range had when it was made, as a NIC does. */
#include "tests/unit/plugin/test.h"

#include <errno.h>
#include <stdlib.h>

#include "plugin/verbs/device.h"
#include "plugin/verbs/mr.h"
#include "tests/unit/common/random.h"
#include "tests/unit/plugin/fake_verbs.h"
#include "tests/unit/plugin/pair.h"

#define PAGE	((size_t)4096)
#define PAGES	24u
#define HANDLES 12u
#define STEPS	20000u

/* What a registration on one rail pinned. */
struct key {
	uint32_t key;
	size_t first, end;
	unsigned int access;
	unsigned int owner[PAGES];
};

struct handle {
	struct mpib_mr *mr; /* NULL: free */
	size_t first, end;
	unsigned int mask, access;
	struct key on[MPIB_RAIL_MAX];
};

static struct {
	struct mpib_device *dev;
	char *area;
	unsigned int owner[PAGES]; /* 0: not mapped */
	unsigned int owners;	   /* how many there were */
	struct handle handle[HANDLES];
} model;

static int open_device(void **state)
{
	struct mpib_env env;

	(void)state;
	pair_env();
	test_log_clear();
	model.area = aligned_alloc(PAGE, PAGES * PAGE);
	if (!model.area || mpib_env_read(&env) < 0 || mpib_watch_get() < 0 ||
	    mpib_devices_open(&env) < 0)
		return -1;
	model.dev = mpib_device_get(0);
	return 0;
}

static int close_device(void **state)
{
	(void)state;
	mpib_devices_close();
	mpib_watch_put();
	free(model.area);
	return fake_live() == 0 ? 0 : -1;
}

static bool held(size_t page)
{
	for (size_t k = 0; k < HANDLES; k++) {
		const struct handle *h = &model.handle[k];

		if (h->mr && page >= h->first && page < h->end)
			return true;
	}
	return false;
}

/* A living handle with this key, or NULL. */
static const struct key *find_key(uint32_t key, unsigned int rail)
{
	for (size_t k = 0; k < HANDLES; k++) {
		const struct handle *h = &model.handle[k];

		if (h->mr && (h->mask & mpib_rail_bit(rail)) && h->on[rail].key == key)
			return &h->on[rail];
	}
	return NULL;
}

/* Somebody who holds all that a key was made for, which is at least this. */
static bool must_hit(const struct handle *want, unsigned int rail)
{
	for (size_t k = 0; k < HANDLES; k++) {
		const struct handle *h = &model.handle[k];

		if (h->mr && (h->mask & mpib_rail_bit(rail)) && h->access == want->access &&
		    h->first == h->on[rail].first && h->end == h->on[rail].end &&
		    h->first <= want->first && h->end >= want->end)
			return true;
	}
	return false;
}

static void check_rail(struct handle *h, unsigned int rail, bool hit)
{
	const struct key *key = find_key(h->mr->rkey[rail], rail);
	struct key *mine = &h->on[rail];

	assert_int_equal(h->mr->lkey[rail], h->mr->rkey[rail]);
	assert_int_equal(key != NULL, hit);
	if (!key) {
		*mine = (struct key){ .key = h->mr->rkey[rail],
				      .first = h->first,
				      .end = h->end,
				      .access = h->access };
		memcpy(mine->owner, model.owner, sizeof(mine->owner));
		return;
	}
	*mine = *key;
	assert_int_equal(key->access, h->access);
	assert_true(key->first <= h->first && key->end >= h->end);
}

/* A key reaches the pages that its holder has, and one registration exists for each. */
static void check_all(void)
{
	unsigned int keys = 0;

	for (size_t k = 0; k < HANDLES; k++) {
		const struct handle *h = &model.handle[k];

		for (unsigned int rail = 0; h->mr && rail < MPIB_RAIL_MAX; rail++) {
			if (!(h->mask & mpib_rail_bit(rail)))
				continue;
			for (size_t page = h->first; page < h->end; page++)
				assert_int_equal(h->on[rail].owner[page], model.owner[page]);
			keys += find_key(h->on[rail].key, rail) == &h->on[rail];
		}
	}
	assert_int_equal(fake_live_mrs(), keys);
}

static void register_one(struct mpib_test_random *random, struct handle *slot)
{
	struct handle want = { .first = mpib_test_random_below(random, PAGES) };
	size_t inset = mpib_test_random_below(random, PAGE), bytes;
	bool hit[MPIB_RAIL_MAX], fails = false;
	int r;

	want.end = want.first + 1 + mpib_test_random_below(random, PAGES - want.first);
	want.mask = 1 + (unsigned int)mpib_test_random_below(random, 3);
	want.access = mpib_test_random_below(random, 4) ? MPIB_MR_ACCESS : MPIB_MR_ACCESS_RING;
	for (size_t page = want.first; page < want.end; page++)
		if (!model.owner[page])
			model.owner[page] = ++model.owners;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		hit[rail] = must_hit(&want, rail);
		fails |= !hit[rail] && (want.mask & mpib_rail_bit(rail));
	}
	fails &= mpib_test_random_below(random, 8) == 0;
	if (fails)
		fake_fail(FAKE_REG_MR, 0, EFAULT);
	/* At least one byte in the first page and in the last one. */
	bytes = (want.end - want.first) * PAGE - inset;
	if (want.end - want.first > 1)
		bytes -= mpib_test_random_below(random, PAGE);
	r = mpib_mr_new(model.dev, want.mask, model.area + want.first * PAGE + inset, bytes,
			want.access, &want.mr);
	assert_int_equal(r, fails ? -EFAULT : 0);
	if (fails)
		return;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (want.mask & mpib_rail_bit(rail))
			check_rail(&want, rail, hit[rail]);
	*slot = want;
}

/* The program unmaps what nobody holds; it is mapped anew when it is registered. */
static void unmap(struct mpib_test_random *random)
{
	size_t first = mpib_test_random_below(random, PAGES);
	size_t end = first + 1 + mpib_test_random_below(random, PAGES - first);

	for (size_t page = first; page < end; page++)
		if (!held(page))
			model.owner[page] = 0;
}

static void test_against_model(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(6);

	(void)state;
	for (unsigned int step = 0; step < STEPS; step++) {
		struct handle *slot = &model.handle[mpib_test_random_below(&random, HANDLES)];

		if (mpib_test_random_below(&random, 3) == 0) {
			unmap(&random);
		} else if (!slot->mr) {
			register_one(&random, slot);
		} else {
			assert_int_equal(mpib_mr_free(slot->mr), 0);
			slot->mr = NULL;
		}
		check_all();
	}
	for (size_t k = 0; k < HANDLES; k++)
		assert_int_equal(mpib_mr_free(model.handle[k].mr), 0);
	assert_int_equal(fake_live_mrs(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_against_model, open_device, close_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
