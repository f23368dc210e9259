/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/harness/fresh.h"

struct agent agent;

int agent_set_up(void **state)
{
	(void)state;
	agent_init(&agent);
	return 0;
}

int agent_tear_down(void **state)
{
	(void)state;
	agent_fini(&agent);
	return 0;
}
