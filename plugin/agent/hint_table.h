/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's hint table, mapped read-only. What is in the file is not trusted: the number of slots
 * is bounded by its size. */
#ifndef MPIB_PLUGIN_HINT_TABLE_H
#define MPIB_PLUGIN_HINT_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/mpib_agent_iface.h"

struct mpib_hint_table {
	const struct mpib_hint_header *header; /* NULL: not mapped */
	size_t size;
	uint32_t entries;
	dev_t dev;
	ino_t ino;
};

/* Maps DIR/hints. -EBADMSG for a file that is no table, -EPERM for a directory or file that an
 * ordinary user other than ours owns, or a directory that others may write to; or the system's
 * error. Silent. */
int mpib_hint_table_map(const char *dir, struct mpib_hint_table *ret);
/* Fine for one that isn't mapped. */
void mpib_hint_table_unmap(struct mpib_hint_table *table);

/* False where DIR/hints is another file now, or has grown. */
bool mpib_hint_table_is_current(const char *dir, const struct mpib_hint_table *table);

/* NULL for a slot that the table doesn't have. */
const struct mpib_hint_entry *mpib_hint_table_slot(const struct mpib_hint_table *table,
						   uint32_t slot);

#endif
