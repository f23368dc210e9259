/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which two ends part with a rail: in no order of events a byte is lost, written twice
 * or written late; and every order that is known to be wrong is found to be wrong. */
#include "tests/unit/common/cmocka_all.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/macros.h"
#include "tests/unit/plugin/failover_model.h"

#define STEPS_SIZE 16384

static const struct model_config right[] = {
	{ .name = "one loss, a ring of one", .rows = 3, .slots = 1, .losses = 1, .repeats = 1 },
	{ .name = "lost and back", .rows = 2, .slots = 1, .losses = 1, .returns = 1, .repeats = 1 },
	{ .name = "both rails, one is back", .rows = 2, .slots = 1, .losses = 2, .returns = 1 },
	{ .name = "lost while coming back", .rows = 1, .slots = 1, .losses = 3, .returns = 2 },
	{ .name = "lost and back, a ring of two",
	  .rows = 2,
	  .slots = 2,
	  .losses = 1,
	  .returns = 1 },
	{ .name = "one loss, a ring of two", .rows = 3, .slots = 2, .losses = 1 },
	{ .name = "both rails, both are back", .rows = 1, .slots = 1, .losses = 2, .returns = 2 },
};

/* Minutes: with MPIB_TEST_MODEL. */
static const struct model_config longer[] = {
	{ .name = "lost and back twice",
	  .rows = 2,
	  .slots = 1,
	  .losses = 2,
	  .returns = 2,
	  .repeats = 1 },
	{ .name = "both rails, three rows", .rows = 3, .slots = 1, .losses = 2, .returns = 1 },
	{ .name = "three rows, a ring of two", .rows = 3, .slots = 2, .losses = 1, .returns = 1 },
};

static void holds(const struct model_config *config)
{
	char steps[STEPS_SIZE];
	uint64_t states;
	const char *wrong = model_search(config, steps, sizeof(steps), &states);

	if (wrong)
		fail_msg("%s: %s:\n%s", config->name, wrong, steps);
	print_message("%s: %" PRIu64 " states\n", config->name, states);
}

static void test_right_order_holds(void **state)
{
	(void)state;
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(right); k++)
		holds(&right[k]);
	for (size_t k = 0; getenv("MPIB_TEST_MODEL") && k < MPIB_ARRAY_SIZE(longer); k++)
		holds(&longer[k]);
}

static const char *const faults[MODEL_FAULTS] = {
	[MODEL_RECEIVER_SAYS_FIRST] = "the receiver says RAIL_DOWN before ERR",
	[MODEL_SENDER_SAYS_FIRST] = "the sender says RAIL_DOWN before ERR",
	[MODEL_SENDER_DOESNT_WAIT] = "parts are sent again before the receiver's RAIL_DOWN",
	[MODEL_RECEIVER_DOESNT_WAIT] = "clear-to-sends are written again before the sender's",
	[MODEL_CTS_OF_DONE_ROWS] = "clear-to-sends are written again for rows that are done",
	[MODEL_CTS_CHANGES_RAIL] = "clear-to-sends change the rail while some are under way",
	[MODEL_NO_CTS_AGAIN] = "clear-to-sends aren't written again",
	[MODEL_DIVIDED_ANEW] = "a part is divided anew",
	[MODEL_CREDITED_TWICE] = "a part is credited twice",
	[MODEL_OLD_COMPLETIONS] = "completions of the lost queue pairs count",
	[MODEL_EPOCH_AGAIN] = "an epoch comes again",
	[MODEL_REPLAY_ALONE] = "the immediate of a part sent again names that part alone",
	[MODEL_BEFORE_POLLING] = "RAIL_DOWN leaves out what wasn't polled",
	[MODEL_OLDER_ROWS] = "the bits of a slot are taken for those of the row before",
	[MODEL_NEWER_ROWS] =
		"the bits of a slot are taken for those of a row that was posted since",
	[MODEL_ONE_BITMAP] = "one bitmap, whichever part came over the rail",
	[MODEL_NO_MORE_RECEIVES] = "parts of both rails find one receive on the one that is left",
	[MODEL_TOO_FEW_RECEIVES] = "so do those of a row that the sender still divides",
	[MODEL_ONE_SIDED] = "the end that is told keeps its queue pairs",
	[MODEL_FEW_ON_RETURN] = "rows have one receive on a rail that is back before the other one",
};

/* The first of the runs above in which it shows. */
static void test_wrong_orders_are_found(void **state)
{
	char steps[STEPS_SIZE];

	(void)state;
	for (int fault = MODEL_RIGHT + 1; fault < MODEL_FAULTS; fault++) {
		const char *wrong = NULL;
		uint64_t states = 0;

		for (size_t k = 0; k < MPIB_ARRAY_SIZE(right) && !wrong; k++) {
			struct model_config config = right[k];

			config.fault = (enum model_fault)fault;
			wrong = model_search(&config, steps, sizeof(steps), &states);
		}
		if (!wrong)
			fail_msg("not found: %s", faults[fault]);
		print_message("%s: %s, after %" PRIu64 " states\n", faults[fault], wrong, states);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right_order_holds),
		cmocka_unit_test(test_wrong_orders_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
