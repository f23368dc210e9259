/* SPDX-License-Identifier: Apache-2.0 */
/* A made-up node for mpibctl doctor: a folder that looks like /sys, /dev, /proc and /lib of a
 * healthy one, and the environment of a job on it. Each test begins with such a node. */
#ifndef MPIB_TESTS_AGENT_NODE_H
#define MPIB_TESTS_AGENT_NODE_H

#include "tests/agent/harness/fresh.h"

/* Exit codes of doctor. */
#define CTL_OK	      0
#define CTL_FAIL      1
#define CTL_USAGE     2
#define CTL_FORBIDDEN 4
#define CTL_WARN      5

extern char node_root[TEMPDIR_MAX + 16];

/* @text into the file that @format names below the root. */
void node_put(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The kernel's table of routes, in its numbers: SOUT's network is 10.0.1.0/24 and SUP's 10.9.1.0
 * with @sup_mask; where @gateway is not NULL it leads on from SUP. */
void node_put_routes(const char *sup_mask, const char *gateway);
void node_make(void);
void node_remove(void);

int node_set_up(void **state);
int node_tear_down(void **state);

#define NODE_TEST(f) cmocka_unit_test_setup_teardown(f, node_set_up, node_tear_down)

/* The finding of a healthy node: the memlock limit of whoever runs the tests is not a fault of the
 * node; root isn't bound. */
int node_healthy(void);
/* Runs doctor over the node; its stdout, for the caller to free. */
char *node_doctor(int wanted);

#endif
