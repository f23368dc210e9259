/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two halves of the state file: what is read of an earlier agent's in adopt_load.c,
 * what is written in adopt.c. */
#ifndef MPIB_AGENT_STATE_ADOPT_IMPL_H
#define MPIB_AGENT_STATE_ADOPT_IMPL_H

#include <sys/types.h>

#include "agent/state/adopt.h"

/* One for the marker beside those of the registrations. */
#define MPIB_ADOPT_PLACES (MPIB_ADOPT_RECORDS_MAX + 1u)

enum mpib_place_state {
	MPIB_PLACE_FREE = 0,
	MPIB_PLACE_USED,
	MPIB_PLACE_STALE, /* its record has to be erased before anything else is written there */
};

struct mpib_adopt {
	int fd;	    /* -1: can't be had at present */
	int dir_fd; /* the caller's */
	dev_t device;
	ino_t inode;
	char *dir;			  /* for messages */
	struct mpib_adopt_record *loaded; /* what was read, until it was visited */
	uint32_t *visit_order;		  /* their indices, the newest first */
	uint32_t n_loaded;
	uint32_t n_visits;
	uint64_t order;	   /* of the latest record */
	uint8_t *places;   /* enum mpib_place_state of each */
	uint32_t n_places; /* that are or were in use */
	uint32_t n_allocated;
	uint32_t lowest_free; /* no free place below it */
	uint32_t n_stale;
	uint32_t erase_next; /* the first that may be stale, in this round of looks */
	uint32_t marker;     /* place kept for the marker, MPIB_ADOPT_PLACES where none is */
	bool marked;
	bool header_due;
};

/* The header that an agent of this boot and pid namespace writes. */
void mpib_adopt_make_header(struct mpib_adopt_header *header);

void mpib_adopt_set_place(struct mpib_adopt *adopt, uint32_t index, enum mpib_place_state state);

/* Opens the file under its name (@flags: O_CREAT and the like), never through a link. Negative
 * errno; -EPERM where it isn't a file of ours. */
int mpib_adopt_open_file(struct mpib_adopt *adopt, int flags);
void mpib_adopt_close_file(struct mpib_adopt *adopt);

#endif
