/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A wire between the plugin and fake_verbs.c that holds every request and every completion back,
 * and lets go of them in any order that verbs allow: requests of a QP in their order, completions
 * of a QP in theirs, and nothing else. What is sent inline is read when it is posted, everything
 * else when it goes. Broken rules of verbs end the test.
 */
#ifndef MPIB_TESTS_UNIT_PLUGIN_WIRE_H
#define MPIB_TESTS_UNIT_PLUGIN_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/unit/common/random.h"

/* What chance decides, here and in the tests on top. */
extern struct mpib_test_random wire_random;

static inline unsigned int wire_below(unsigned int limit)
{
	return (unsigned int)mpib_test_random_below(&wire_random, limit);
}

/* Between init and the first connection. */
void wire_connect(void);
/* Forgets all; with no connection left. */
void wire_cut(void);

/* Lets one request go, of a QP that may move; false where none may. */
bool wire_move(void);

/* Rails (bits) that carry nothing from now on, and rails whose completions aren't seen. */
void wire_freeze(unsigned int carry_nothing, unsigned int report_nothing);
/* Completions are not held back any more: connections are about to close. */
void wire_report_all(void);

/* The @n-th post or poll from now on fails; 0: none. */
void wire_refuse_post(unsigned int n);
void wire_break_poll(unsigned int n);

/* Receives in the shared queue of the rail of device @dev. */
int wire_receives(int dev, unsigned int rail);

#endif
