/* SPDX-License-Identifier: Apache-2.0 */
/* A small disk under the agent's directory, which can be full. */
#ifndef MPIB_TESTS_AGENT_DISK_H
#define MPIB_TESTS_AGENT_DISK_H

#include "tests/agent/harness/harness.h"

/* A tmpfs at the agent's directory, which isn't there yet; false where that isn't possible here.
 * umount2() ends it. */
bool disk_try_mount(const struct agent *agent, const char *options);
/* The same; skips the test where it isn't possible. */
void disk_mount(const struct agent *agent, const char *options);
/* Until only @left pages are free. */
void disk_fill(const struct agent *agent, unsigned int left);
/* Frees what disk_fill() took. */
void disk_empty(const struct agent *agent);

#endif
