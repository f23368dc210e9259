/* SPDX-License-Identifier: Apache-2.0 */
/* A share that finds itself from counters that say what can't be. */
#include "common/macros.h"
#include "tests/unit/agent/flow_model.h"

/* Each grows with each look. */
static void jump_back_done(struct mpib_balance_counts *counts, unsigned int n)
{
	counts->done[1] -= n * 1000;
}

static void jump_back_posts(struct mpib_balance_counts *counts, unsigned int n)
{
	counts->posts[1] -= n * 1000;
}

static void jump_back_bytes(struct mpib_balance_counts *counts, unsigned int n)
{
	counts->bytes[1] -= n * 1000000000ull;
}

static void jump_back_busy(struct mpib_balance_counts *counts, unsigned int n)
{
	counts->busy_nsec[1] -= n * 1000000000ull;
}

static void complete_too_many(struct mpib_balance_counts *counts, unsigned int n)
{
	counts->done[1] += n * 1000;
}

static void be_too_busy(struct mpib_balance_counts *counts, unsigned int n)
{
	counts->busy_nsec[1] += n * 3000000000ull;
}

static void take_no_time(struct mpib_balance_counts *counts, unsigned int n)
{
	(void)n;
	counts->busy_nsec[1] = 0;
	counts->under_way[1] = true;
}

static void counters_that_cannot_be_change_nothing_and_are_told_once(void **state)
{
	static const struct {
		enum mpib_balance_lie lie;
		void (*alter)(struct mpib_balance_counts *counts, unsigned int n);
	} lies[] = {
		{ MPIB_BALANCE_BACK, jump_back_done },
		{ MPIB_BALANCE_BACK, jump_back_posts },
		{ MPIB_BALANCE_BACK, jump_back_bytes },
		{ MPIB_BALANCE_BACK, jump_back_busy },
		{ MPIB_BALANCE_TOO_MANY, complete_too_many },
		{ MPIB_BALANCE_TOO_BUSY, be_too_busy },
		{ MPIB_BALANCE_NO_TIME, take_no_time },
	};

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(lies); k++) {
		struct flow flow = make_flow(500, 2000);
		uint32_t share;

		/* It has counted for long, so that there is something to jump back from. */
		flow.link.connection[0].counts.bytes[1] = 10000000000000;
		flow.link.connection[0].busy[1] = 10000000000;
		ticks(&flow, 50);
		share = flow.balance.share;
		flow.alter = lies[k].alter;
		flow.link.rate[1] = 500;
		ticks(&flow, 500);
		SHOULD(flow.balance.share == share, "lie %zu: %u to %u", k, share,
		       flow.balance.share);
		SHOULD(flow.lie == lies[k].lie, "lie %zu: %s", k, mpib_balance_lie_text(flow.lie));
		assert_int_equal(flow.told, 1);

		/* Who tells the truth again is believed again, after a while. */
		flow.alter = NULL;
		ticks(&flow, 100);
		assert_int_equal(flow.balance.share, share);
		ticks(&flow, 400);
		SHOULD(flow.balance.share > 490 && flow.balance.share < 535, "lie %zu: %u", k,
		       flow.balance.share);
		flow.alter = lies[k].alter;
		ticks(&flow, 500);
		assert_int_equal(flow.told, 1);
	}
}

/* ---- counters of honest processes that look like lies ---------------------------------------- */

/* Numbers of one moment are read one after the other while they are written, or their writer has no
 * processor between two of them: one look in ten has some of before, or some that are too high. */
static void tear(struct mpib_balance_counts *counts, unsigned int n)
{
	const unsigned int rail = n / 10 % 2;

	if (n % 10)
		return;
	switch (n / 20 % 6) {
	case 0:
		counts->posts[rail] += 7;
		break;
	case 1:
		counts->posts[rail] = counts->done[rail] - 7;
		break;
	case 2:
		counts->busy_nsec[rail] += 20000000;
		break;
	case 3:
		counts->busy_nsec[rail] -= 20000000;
		break;
	case 4:
		counts->bytes[rail] += 10000000;
		break;
	case 5:
		counts->done[rail] -= 30;
		break;
	}
}

static void a_torn_look_is_no_lie(void **state)
{
	struct flow flow = make_flow(500, 2000);
	double part;

	ticks(&flow, 50);
	flow.alter = tear;
	part = part_of_sum(&flow, 100000);
	assert_int_equal(flow.told, 0);
	SHOULD(part >= 0.98, "share %u carries %.3f", flow.balance.share, part);
	/* They were used, too. */
	flow.link.rate[1] = 500;
	ticks(&flow, 50);
	assert_in_range(flow.balance.share, 490, 535);
}

static void it_is_not_a_lie_to_begin_anew(void **state)
{
	struct flow flow = make_flow(500, 2000);
	struct mpib_balance_counts *counts = &flow.link.connection[0].counts;
	struct mpib_balance_look look = { 0 };
	struct mpib_balance_counts anew = { .timed = 2 };

	ticks(&flow, 50);
	assert_true(counts->done[0] > 0);
	assert_int_equal(
		mpib_balance_see(&flow.seen[0], &anew, (uint64_t)flow.link.now + 10000, &look),
		MPIB_BALANCE_TRUE);
	anew.timed = 0;
	assert_int_equal(
		mpib_balance_see(&flow.seen[0], &anew, (uint64_t)flow.link.now + 20000, &look),
		MPIB_BALANCE_TRUE);
	assert_int_equal(look.bytes[0] + look.bytes[1] + look.busy_nsec[0] + look.busy_nsec[1], 0);
}

static void every_lie_has_a_text(void **state)
{
	for (unsigned int n = 0; n < MPIB_BALANCE_LIE_MAX; n++)
		assert_string_not_equal(mpib_balance_lie_text((enum mpib_balance_lie)n), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counters_that_cannot_be_change_nothing_and_are_told_once),
		cmocka_unit_test(a_torn_look_is_no_lie),
		cmocka_unit_test(it_is_not_a_lie_to_begin_anew),
		cmocka_unit_test(every_lie_has_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
