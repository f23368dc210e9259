/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on several hosts: one process of each host keeps a TCP connection to that of the first one.
 */
#ifndef MPIB_TESTS_GIN_MEET_H
#define MPIB_TESTS_GIN_MEET_H

#include <stddef.h>

/* Waits for all; this one's number is @own. @address: the first host's. Ends the process where that
 * can't be. */
void meet_open(int of_hosts, int own, const char *address, int port);

/* All hosts have come this far, and each knows what the others have: @table has @entries of @size
 * bytes, entry k of which is the host's with the number k % hosts. */
void meet_exchange(void *table, size_t entries, size_t size);

#endif
