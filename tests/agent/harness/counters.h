/* SPDX-License-Identifier: Apache-2.0 */
/* Counter tables, hand-written, as a plugin's process hands them over. */
#ifndef MPIB_TESTS_AGENT_COUNTERS_H
#define MPIB_TESTS_AGENT_COUNTERS_H

#include "common/counters.h"
#include "tests/agent/harness/harness.h"

/* A good table of @size bytes, all entries free, with these seals; *ret_fd is the caller's. */
struct mpib_counters_header *counters_make(size_t size, int seals, int *ret_fd);
struct mpib_counter_entry *counters_entry(struct mpib_counters_header *header, uint32_t n);

/* Sends COUNTERS with @n_fds copies of @fd; the answer's status, or 255. */
uint8_t counters_hand_over(int socket, int fd, unsigned int n_fds, uint32_t size);

/* What mpibctl --json flows says once it has @part, for up to five seconds: fails without. */
void counters_await_flows(const struct agent *agent, const char *part);

#endif
