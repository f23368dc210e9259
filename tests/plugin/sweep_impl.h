/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of the hooks, and nobody else. */
#ifndef MPIB_TESTS_PLUGIN_SWEEP_IMPL_H
#define MPIB_TESTS_PLUGIN_SWEEP_IMPL_H

#include "tests/plugin/sweep.h"

/* True, with errno, for the call that has to fail. */
bool hook_fails(enum hooked which);

/* One import, or with @real one symbol that the plugin looks up itself. The name NULL ends a
 * table. */
struct hook_row {
	const char *name;
	void *function;
	void *real; /* where the address of the true one goes */
};

/* sweep_start.c: what a process calls once. */
extern const struct hook_row hook_start_rows[];

#endif
