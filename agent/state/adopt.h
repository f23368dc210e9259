/* SPDX-License-Identifier: Apache-2.0 */
/* What a restarted agent needs to know: which process registered which flow in which slot. A file
 * of checksummed records in the agent's directory; a record is written before its registration is
 * answered, so that even a killed agent has forgotten nothing it promised.
 *
 * The file is written in place, one record of 64 bytes at a time, into blocks that are allocated
 * ahead: a full disk doesn't keep a registration out of it, and there is no moment at which it is
 * half replaced. It is good after any prefix of the writes. Nothing is synced: what it says is
 * about processes, which don't outlive a boot, and within a boot every agent reads the same page
 * cache. What the file can't say it marks as missing (MPIB_ADOPT_MARKER). */
#ifndef MPIB_AGENT_STATE_ADOPT_H
#define MPIB_AGENT_STATE_ADOPT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cause.h"
#include "common/versions.h"

#define MPIB_ADOPT_NAME	   "state"
#define MPIB_ADOPT_MAGIC   0x4D504953u
#define MPIB_ADOPT_VERSION MPIB_STATE_VERSION

/* Registrations that it holds. */
#define MPIB_ADOPT_RECORDS_MAX 131072u

/* Slot of a record that is no registration but says: registrations are missing here. No table has
 * that slot, so an agent that doesn't know the marker finds a contradiction, and keeps all slots.
 */
#define MPIB_ADOPT_MARKER UINT32_MAX

/* First bytes of the file. */
struct mpib_adopt_header {
	uint32_t magic;
	uint32_t version;
	uint32_t record_size;
	uint32_t pad;
	uint8_t boot_id[16]; /* pids and start times mean something within one boot... */
	uint64_t pid_ns;     /* ...and one pid namespace (its inode number) */
	uint8_t reserved[20];
	uint32_t checksum; /* CRC-32 of all before it */
};

/* One registration. A record of zeros is a free place. */
struct mpib_adopt_record {
	uint32_t slot;
	int32_t pid; /* 0: a process that can't be told; its slot is kept */
	uint64_t start_time;
	uint32_t uid;
	uint32_t conn_id;
	uint32_t sout_src_be;
	uint32_t sout_dst_be;
	uint32_t sup_src_be;
	uint32_t sup_dst_be;
	uint64_t order; /* of two that contradict each other the one with more is newer; 0 in
			 * those of agents that don't know it */
	uint8_t reserved[8];
	uint32_t used;	   /* 1 */
	uint32_t checksum; /* CRC-32 of all before it */
};

_Static_assert(sizeof(struct mpib_adopt_header) == 64, "header of the state file");
_Static_assert(sizeof(struct mpib_adopt_record) == 64, "record of the state file");

/* How a load ended. */
struct mpib_adopt_result {
	int error;	    /* negative errno of a file that is there but can't be read */
	bool missing;	    /* no file, or an empty one */
	bool foreign;	    /* another boot or pid namespace: pids in it mean nothing here */
	bool unknown;	    /* another version: nothing in it can be read */
	bool damaged;	    /* the header, or the length, is wrong */
	bool incomplete;    /* its writer could not save all */
	uint32_t n_records; /* good ones */
	uint32_t n_damaged; /* records with a wrong checksum */
};

/* True where pids of the file's records name processes of this host as this agent sees them. */
static inline bool mpib_adopt_names_processes(const struct mpib_adopt_result *result)
{
	return !result->error && !result->missing && !result->foreign && !result->unknown &&
	       !result->damaged;
}

struct mpib_adopt;

/* Reads the file of an earlier agent in @dir_fd (the caller's, called @dir in messages). Nothing is
 * written yet. -ENOMEM alone; *ret_result says what was found. */
int mpib_adopt_open(int dir_fd, const char *dir, struct mpib_adopt **ret,
		    struct mpib_adopt_result *ret_result);
struct mpib_adopt *mpib_adopt_free(struct mpib_adopt *adopt);

/* What a visit says of a record. */
enum mpib_adopt_visit {
	MPIB_ADOPT_STAYS, /* where it is, byte for byte */
	MPIB_ADOPT_GOES,  /* the first save erases it */
	MPIB_ADOPT_LATER, /* it is visited again by the next mpib_adopt_each() */
};

/* Goes through the records that were read and are not decided yet, the newest first: one that
 * couldn't be erased comes after what took its place. Before anything else; @last:
 * what is still undecided after it goes. */
void mpib_adopt_each(struct mpib_adopt *adopt, bool last,
		     enum mpib_adopt_visit (*visit)(const struct mpib_adopt_record *record,
						    uint32_t index, void *user),
		     void *user);

/* Erases what doesn't stay, puts the header of this boot on top, and allocates ahead; makes the
 * file where there is none (*ret_made: all registrations have to be put again). @incomplete: some
 * are not in it, which the file says from then on. Called about once a second: costs a look at the
 * name where nothing is to be done. 1: some are still to be erased, by another call at once.
 * Negative errno with @cause: something is still unsaved. */
int mpib_adopt_save(struct mpib_adopt *adopt, bool incomplete, bool *ret_made,
		    struct mpib_cause *cause);

/* The directory was made anew: the file belongs there from now on. */
void mpib_adopt_move(struct mpib_adopt *adopt, int dir_fd);

/* Writes @record (its order, used and checksum are filled in) and says where. On an error it isn't
 * in the file. */
int mpib_adopt_put(struct mpib_adopt *adopt, struct mpib_adopt_record *record, uint32_t *ret_index);
/* Writes @record over the one at @index, in one write: a kill leaves one of them. On an error the
 * place may have either or be damaged. */
int mpib_adopt_replace(struct mpib_adopt *adopt, struct mpib_adopt_record *record, uint32_t index);
/* Erases. On an error mpib_adopt_save() tries again. */
int mpib_adopt_clear(struct mpib_adopt *adopt, uint32_t index);

/* Says in the file that registrations are missing in it, or that none is any more. Where even that
 * can't be written the file is removed, since no file says the same. On an error nothing can be
 * said, and nothing more must be promised. */
int mpib_adopt_mark(struct mpib_adopt *adopt, bool incomplete);

#endif
