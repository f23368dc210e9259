/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the harness: the agent and processes in harness.c, its clients and the table
 * in clients.c, mpibctl in ctl.c. */
#ifndef MPIB_TESTS_AGENT_HARNESS_IMPL_H
#define MPIB_TESTS_AGENT_HARNESS_IMPL_H

#include "tests/agent/harness/harness.h"

/* The program that an environment variable names. */
const char *harness_program(const char *variable);
/* In a child: standard error to the agent's log. */
void harness_redirect(const struct agent *agent);

#endif
