/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what the plugin counts in this process, where it publishes that (common/counters.h). */
#ifndef MPIB_NETPERF_COUNTERS_H
#define MPIB_NETPERF_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/counters.h"

struct np_counters {
	const struct mpib_counters_header *header; /* mapped; NULL: not published */
	uint64_t len;
};

/* Finds and maps the memfd; false where there is none or it is not of this form. */
bool np_counters_open(struct np_counters *counters);
void np_counters_close(struct np_counters *counters);

/* The @n-th entry, of less than header->entries; NULL where no connection has it. */
const struct mpib_counter_entry *np_counters_entry(const struct np_counters *counters, uint32_t n);

/* Payload bytes of all live connections by rail. */
void np_counters_ways(const struct np_counters *counters, uint64_t ret_sent[2],
		      uint64_t ret_received[2]);
void np_counters_rails(const struct np_counters *counters, uint64_t ret_bytes[2]);

/* What happened to the rails, by rail, all live connections together. */
struct np_failover {
	uint64_t losses[2], returns[2],
		again[2]; /* again: parts of messages that were sent again */
};

/* False where the plugin doesn't count that. */
bool np_counters_failover(const struct np_counters *counters, struct np_failover *ret);

/* The live connections as the inside of a JSON array; the caller frees; NULL: no memory. */
char *np_counters_text(const struct np_counters *counters);

#endif
