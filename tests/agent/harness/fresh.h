/* SPDX-License-Identifier: Apache-2.0 */
/* What each test of a program begins with and leaves: an agent in a directory of its own, with an
 * empty policy file, not started; killed and removed after the test. */
#ifndef MPIB_TESTS_AGENT_FRESH_H
#define MPIB_TESTS_AGENT_FRESH_H

#include "tests/agent/harness/harness.h"

extern struct agent agent;

/* For cmocka. A test file with more to set up calls them from its own. */
int agent_set_up(void **state);
int agent_tear_down(void **state);

#define AGENT_TEST(f) cmocka_unit_test_setup_teardown(f, agent_set_up, agent_tear_down)

#endif
