/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of the process's counter table (common/counters.h). Watch lock inside; any thread. */
#ifndef MPIB_PLUGIN_COUNTERS_H
#define MPIB_PLUGIN_COUNTERS_H

#include <stdbool.h>

#include "common/counters.h"

/* A zeroed entry, or NULL where the table is full or can't be made: the caller then counts into
 * memory of its own. */
struct mpib_counter_entry *mpib_counters_get(void);
/* Makes a filled entry visible. */
void mpib_counters_publish(struct mpib_counter_entry *entry);
void mpib_counters_put(struct mpib_counter_entry *entry);
/* The table's descriptor, or -1 where there is none (yet); stays the module's. */
int mpib_counters_fd(void);
/* Tells the speed of the clock of busy times (ticks.h) in the table's header: false where it isn't
 * known yet, or there is no table. */
bool mpib_counters_time(void);
/* Unmaps the table; no entry may be in use. */
void mpib_counters_close(void);

#endif
