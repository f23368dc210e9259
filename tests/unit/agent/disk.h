/* SPDX-License-Identifier: Apache-2.0 */
/* Between the state layer and the file system of a test: lets the N-th call that changes something
 * fail, half happen or be the agent's last, and plays a full and a broken disk. The calls are led
 * here by the linker (--wrap), so that the code under test is the one that is installed. */
#ifndef MPIB_TESTS_UNIT_AGENT_DISK_H
#define MPIB_TESTS_UNIT_AGENT_DISK_H

#include <stdbool.h>
#include <stdint.h>

/* What becomes of the call that was chosen. */
enum disk_fault {
	DISK_FAILS,	  /* an error, and nothing happened */
	DISK_FAILS_LATE,  /* an error, and it happened all the same */
	DISK_SHORT,	  /* a write of a part; other calls fail */
	DISK_KILLS,	  /* the agent dies before it */
	DISK_KILLS_LATE,  /* ...after it */
	DISK_KILLS_AMIDST /* ...after a part of it: a write, or the stores into a slot */
};

struct disk {
	int dir_fd;	    /* of the agent's directory */
	bool full;	    /* files can't get another block */
	bool broken;	    /* every write fails: EIO */
	bool frozen;	    /* the agent is dead: nothing that it does has an effect */
	unsigned int calls; /* since the latest disk_arm() */
	bool hit;	    /* the call that was chosen came */
	bool torn;	    /* ...and was a write that a kill cut short */
	bool failing;	    /* one was chosen that fails and doesn't kill */
};

extern struct disk disk;

/* Chooses the call after @skip others. @amount: how much of it happens where a part does. */
void disk_arm(unsigned int skip, enum disk_fault fault, int error, unsigned int amount);
/* Chooses none. */
void disk_disarm(void);

/* Puts the table back to what it was when the agent died: its stores can't be kept from
 * happening. Files can be changed again. */
void disk_thaw(void);

/* The table as it is in the file: up to @max slots. Returns how many, 0 where there is none. */
struct mpib_hint_entry;
uint32_t disk_read_table(struct mpib_hint_entry *ret, uint32_t max);

#endif
