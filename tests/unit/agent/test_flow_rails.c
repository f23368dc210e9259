/* SPDX-License-Identifier: Apache-2.0 */
/* The rails of a flow, in words and as the share in force. */
#include "agent/ctl/flow_rails.h"
#include "tests/unit/agent/test.h"

static void rails_and_share_are_told(void **state)
{
	static const struct {
		struct mpib_admin_rails rails;
		const char *text;
		const char *share; /* where the table has 256 */
		uint32_t in_force;
	} rows[] = {
		{ { .known = 0 }, "-", "25.0%", 256 },
		{ { .known = 4, .up = { 4, 4 } }, "both", "25.0%", 256 },
		{ { .known = 4, .up = { 4, 0 } }, "SOUT", "25.0% now 0.0%", 0 },
		{ { .known = 4, .up = { 4, 2 } }, "both", "25.0%", 256 },
		{ { .known = 4, .up = { 0, 4 } }, "SUP", "25.0% now 100.0%", 1024 },
		{ { .known = 4 }, "none", "25.0% now none", 0 },
		{ { .known = 4, .up = { 4, 0 }, .lost = { 0, 4 } },
		  "SUP lost",
		  "25.0% now 0.0%",
		  0 },
		{ { .known = 4, .up = { 0, 4 }, .lost = { 4, 0 } },
		  "SOUT lost",
		  "25.0% now 100.0%",
		  1024 },
		{ { .known = 4, .up = { 4, 1 }, .lost = { 0, 3 } }, "SUP lost 3/4", "25.0%", 256 },
		{ { .known = 4, .up = { 3, 4 }, .lost = { 1, 0 } }, "SOUT lost 1/4", "25.0%", 256 },
		{ { .known = 4, .lost = { 4, 4 } }, "both lost", "25.0% now none", 0 },
		{ { .known = 4, .up = { 3, 1 }, .lost = { 1, 3 } },
		  "SOUT lost 1/4, SUP 3/4",
		  "25.0%",
		  256 },
		{ { .known = UINT32_MAX,
		    .up = { 1, 1 },
		    .lost = { UINT32_MAX - 1, UINT32_MAX - 1 } },
		  "SOUT lost 4294967294/4294967295, SUP 4294967294/4294967295",
		  "25.0%",
		  256 },
	};
	char text[MPIB_RAILS_TEXT_MAX];

	(void)state;
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		assert_string_equal(mpib_rails_format(&rows[n].rails, text), rows[n].text);
		assert_string_equal(mpib_rails_format_share(&rows[n].rails, 256, text),
				    rows[n].share);
		assert_int_equal(mpib_rails_share(&rows[n].rails, 256), rows[n].in_force);
	}
}

/* Where the table's share is what one rail gives anyway, there is nothing to say. */
static void the_same_share_is_told_once(void **state)
{
	struct mpib_admin_rails rails = { .known = 2, .up = { 2, 0 }, .lost = { 0, 2 } };
	char text[MPIB_RAILS_TEXT_MAX];

	(void)state;
	assert_string_equal(mpib_rails_format_share(&rails, 0, text), "0.0%");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rails_and_share_are_told),
		cmocka_unit_test(the_same_share_is_told_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
