/* SPDX-License-Identifier: Apache-2.0 */
/* The model of failover_model.h with more of everything than can be tried in all orders: chance
 * takes one order after another. */
#include "tests/unit/common/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/macros.h"
#include "tests/unit/common/random.h"
#include "tests/unit/plugin/failover_impl.h"

#define RUNS	   4000
#define RUNS_FAULT 20000 /* that a wrong order may take to be found */
#define STEPS_MAX  3000

static struct mpib_test_random dice;

struct taken {
	const struct model_action *action;
	unsigned int a, b;
};

struct run {
	struct model_config config;
	const struct model_action *slow; /* what seldom happens in this run */
	struct taken steps[STEPS_MAX];
	unsigned int len;
	const char *wrong;
};

static unsigned int below(unsigned int limit)
{
	return (unsigned int)mpib_test_random_below(&dice, limit);
}

/* Rails are lost and come back seldom, as all else has to have its turn. */
static bool is_rare(const struct run *run, const struct model_action *action)
{
	return action == run->slow || action->apply == model_do_lose ||
	       action->apply == model_do_repeat || action->apply == model_do_return;
}

/* One of all that may come next, each as likely as the others; false where nothing must. */
static bool step(struct run *run, struct model *m)
{
	struct model next = *m, chosen = *m;
	struct taken *taken = &run->steps[run->len];
	const char *wrong = NULL;
	bool must = false, rare = below(12) == 0;
	unsigned int n = 0;

	for (const struct model_action *action = model_actions; action->name; action++)
		for (unsigned int k = 0; k < action->as * action->bs; k++) {
			unsigned int a = k / action->bs, b = k % action->bs;
			enum model_can can = action->apply(&run->config, &next, a, b);
			const char *text = model_wrong();

			if (can == MODEL_CANT)
				continue;
			must |= can == MODEL_MUST;
			if ((!is_rare(run, action) || rare) && below(++n) == 0) {
				chosen = next;
				wrong = text;
				*taken = (struct taken){ action, a, b };
			}
			next = *m;
		}
	*m = chosen;
	run->len += n != 0;
	run->wrong = wrong;
	return must;
}

/* NULL where all of the run's messages arrive, or no rail is left. */
static const char *walk(struct run *run)
{
	struct model m;

	model_init(&run->config, &m);
	run->len = 0;
	run->wrong = NULL;
	while (!run->wrong && run->len < STEPS_MAX) {
		if (model_finished(&run->config, &m))
			return NULL;
		if (!step(run, &m) && !run->wrong)
			return model_cut_off(&m) ? NULL : "nothing goes on";
	}
	return run->wrong ? run->wrong : "an order without an end";
}

static struct run *any_run(enum model_fault fault)
{
	struct run *run = calloc(1, sizeof(*run));

	assert_non_null(run);
	run->slow = &model_actions[below(9)];
	run->config = (struct model_config){
		.name = "by chance",
		.rows = (uint8_t)(2 + below(MODEL_ROWS - 1)),
		.slots = (uint8_t)(1 << below(3)),
		.losses = (uint8_t)(1 + below(6)),
		.returns = (uint8_t)below(MODEL_EPOCHS),
		.repeats = (uint8_t)below(4),
		.fault = fault,
	};
	return run;
}

static void tell(const struct run *run)
{
	print_message("%u rows, %u slots, %u losses, %u returns\n", run->config.rows,
		      run->config.slots, run->config.losses, run->config.returns);
	for (unsigned int k = 0; k < run->len; k++)
		print_message("  %s %u %u\n", run->steps[k].action->name, run->steps[k].a,
			      run->steps[k].b);
}

static void test_right_order_holds(void **state)
{
	unsigned long steps = 0, runs = getenv("MPIB_TEST_MODEL") ? 100 * RUNS : RUNS;

	(void)state;
	for (unsigned long n = 0; n < runs; n++) {
		struct run *run = any_run(MODEL_RIGHT);
		const char *wrong = walk(run);

		steps += run->len;
		if (wrong) {
			tell(run);
			fail_msg("%s", wrong);
		}
		free(run);
	}
	print_message("%lu orders, %lu steps\n", runs, steps);
}

/* Whether the dice see anything at all. What is wrong with clear-to-sends shows in one order of
 * tens of thousands: those are for the search through all. */
static void test_wrong_orders_are_found(void **state)
{
	const char *wrong;
	unsigned int n;

	(void)state;
	for (int fault = MODEL_RIGHT + 1; fault < MODEL_FAULTS; fault++) {
		if (fault == MODEL_RECEIVER_DOESNT_WAIT || fault == MODEL_CTS_OF_DONE_ROWS ||
		    fault == MODEL_CTS_CHANGES_RAIL || fault == MODEL_FEW_ON_RETURN)
			continue;
		wrong = NULL;
		for (n = 0; n < RUNS_FAULT && !wrong; n++) {
			struct run *run = any_run((enum model_fault)fault);

			wrong = walk(run);
			free(run);
		}
		if (!wrong)
			fail_msg("fault %d is not found", fault);
		print_message("fault %d: after %u orders\n", fault, n);
	}
}

static int set_up(void **state)
{
	(void)state;
	dice = mpib_test_random_init(16);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right_order_holds),
		cmocka_unit_test(test_wrong_orders_are_found),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
