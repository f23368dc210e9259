/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's side of the hint table: one file, made or re-adopted with the same inode, never
 * shrunk, its blocks allocated before anybody is told that it is there. One writer, one thread. */
#ifndef MPIB_AGENT_HINTS_H
#define MPIB_AGENT_HINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cause.h"
#include "common/mpib_agent_iface.h"

struct mpib_hints;

/* Opens or makes the table in the directory @dir_fd (called @dir in messages) with at least
 * @entries slots; what an existing one holds stays, odd counts of a dead writer are mended. A new
 * generation is in force after it. Negative errno of the cause: ENOSPC, EFBIG, EPERM, EBADMSG... */
int mpib_hints_open(int dir_fd, const char *dir, uint32_t entries, struct mpib_hints **ret,
		    struct mpib_cause *cause);
struct mpib_hints *mpib_hints_free(struct mpib_hints *hints);

/* More slots, same file; fewer are ignored. On an error nothing has changed. */
int mpib_hints_grow(struct mpib_hints *hints, uint32_t entries, struct mpib_cause *cause);

/* True while the name in @dir_fd leads to this table. */
bool mpib_hints_is_current(const struct mpib_hints *hints, int dir_fd);
/* Makes the table anew in @dir_fd, whole, with the same contents and the next generation, in the
 * place of whatever has its name. On an error the table of before stays in use. */
int mpib_hints_remake(struct mpib_hints *hints, int dir_fd, struct mpib_cause *cause);

uint32_t mpib_hints_entries(const struct mpib_hints *hints);
uint32_t mpib_hints_generation(const struct mpib_hints *hints);
uint32_t mpib_hints_heartbeat(const struct mpib_hints *hints);

/* The flow that slot @index holds; false for a free slot. */
bool mpib_hints_flow(const struct mpib_hints *hints, uint32_t index, uint32_t *ret_src_be,
		     uint32_t *ret_dst_be);

/* The share that slot @index holds. */
uint32_t mpib_hints_share(const struct mpib_hints *hints, uint32_t index);
/* True where it was one that finds itself. */
bool mpib_hints_is_auto(const struct mpib_hints *hints, uint32_t index);

/* Writes slot @index (below entries); addresses 0 mean free. @share: 0..1024, with MPIB_SHARE_AUTO
 * where it finds itself. Nothing is written where it says so already. */
void mpib_hints_set(struct mpib_hints *hints, uint32_t index, uint32_t share, uint32_t src_be,
		    uint32_t dst_be);

void mpib_hints_beat(struct mpib_hints *hints);

#endif
