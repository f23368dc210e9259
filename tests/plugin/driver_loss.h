/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ends in this process, on node 1, while rails are lost and come back. */
#ifndef MPIB_TESTS_PLUGIN_DRIVER_LOSS_H
#define MPIB_TESTS_PLUGIN_DRIVER_LOSS_H

#include <stdatomic.h>

#include "tests/plugin/driver.h"

#define LOSS_BOUND_MS 60000 /* of what must happen */

/* Lines of both ends since loss_start: rails lost, rails back, control connections lost. */
extern atomic_uint loss_lost, loss_back, loss_control;

/* "WHAT", or "WHAT 1/sup MORE NUMBER", by fabricctl. */
void loss_ctl(const char *what, const char *more, unsigned int number);
void loss_port(const char *rail, bool up);

void *loss_start(struct ends *ends);
void loss_stop(struct ends *ends, void *ctx);

/* One message, every byte of it looked at, as a progress thread that leaves others the processor;
 * returns the milliseconds that it took. */
uint64_t loss_move(struct ends *ends);

/* Messages until both ends have told so many lines; the longest that one took. */
uint64_t loss_move_until(struct ends *ends, atomic_uint *lines, unsigned int want);

#endif
