/* SPDX-License-Identifier: Apache-2.0 */
/* Memory registrations: one MR a rail, on every rail that a connection has or on none, through a
 * cache of each HCA with reference counts. A registration shares an earlier one's MR only if
 * somebody still holds the whole range that the MR was made for: what nobody holds may be other
 * memory by now. Any thread. */
#ifndef MPIB_PLUGIN_MR_H
#define MPIB_PLUGIN_MR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/verbs/hca.h"

struct mpib_mr_entry;

/* What NCCL gets as mhandle. */
struct mpib_mr {
	uint32_t lkey[MPIB_RAIL_MAX];
	uint32_t rkey[MPIB_RAIL_MAX];
	struct mpib_device *dev;
	struct mpib_mr_entry *entry[MPIB_RAIL_MAX]; /* NULL on a rail without registration */
	uintptr_t start, end;			    /* the pages that were asked for */
	struct mpib_mr *next, **link;		    /* all of the process; mr.c */
};

/* Access for NCCL's buffers: the peer writes; relaxed ordering as the HCA has it (its `relaxed`).
 */
#define MPIB_MR_ACCESS                                                                             \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_RELAXED_ORDERING)
/* For rings whose last word announces the rest: strictly ordered. */
#define MPIB_MR_ACCESS_RING (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

int mpib_mr_cache_new(struct mpib_hca *hca, struct mpib_mr_cache **ret);
/* Deregisters what is left. NULL is fine. */
void mpib_mr_cache_free(struct mpib_mr_cache *cache);

/* Registers @size bytes at @addr on the rails of @rail_mask. One warning with the cure (memlock)
 * on failure; no rail keeps a registration then. */
int mpib_mr_new(struct mpib_device *dev, unsigned int rail_mask, void *addr, size_t size,
		unsigned int access, struct mpib_mr **ret);

/* The same for a DMA-BUF; @fd stays the caller's. Not cached. @quiet: the caller has another way.
 * The first one has MPIB_MR_ACCESS. */
int mpib_mr_new_dmabuf(struct mpib_device *dev, unsigned int rail_mask, void *addr, size_t size,
		       uint64_t offset, int fd, bool quiet, struct mpib_mr **ret);
int mpib_mr_new_dmabuf_access(struct mpib_device *dev, unsigned int rail_mask, void *addr,
			      size_t size, uint64_t offset, int fd, unsigned int access, bool quiet,
			      struct mpib_mr **ret);

/* Gives the registration back; NULL is fine. */
int mpib_mr_free(struct mpib_mr *mr);

/* Gives back what NCCL dropped. Nobody registers meanwhile. */
void mpib_mr_free_all(void);

#endif
