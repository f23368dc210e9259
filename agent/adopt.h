/* SPDX-License-Identifier: Apache-2.0 */
/* What a restarted agent needs to know: which process registered which flow in which slot. A file
 * of checksummed records in the agent's directory; a record is written before its registration is
 * answered, so that even a killed agent has forgotten nothing it promised. The file may be
 * missing, old or damaged: what can't be trusted is left out. */
#ifndef MPIB_AGENT_ADOPT_H
#define MPIB_AGENT_ADOPT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/cause.h"

#define MPIB_ADOPT_NAME	   "state"
#define MPIB_ADOPT_MAGIC   0x4D504953u
#define MPIB_ADOPT_VERSION 1u

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
	int32_t pid; /* 0: a peer without a name, which can't outlive the agent: only its slot is
		      * kept */
	uint64_t start_time;
	uint32_t uid;
	uint32_t conn_id;
	uint32_t sout_src_be;
	uint32_t sout_dst_be;
	uint32_t sup_src_be;
	uint32_t sup_dst_be;
	uint8_t reserved[16];
	uint32_t used;	   /* 1 */
	uint32_t checksum; /* CRC-32 of all before it */
};

_Static_assert(sizeof(struct mpib_adopt_header) == 64, "header of the state file");
_Static_assert(sizeof(struct mpib_adopt_record) == 64, "record of the state file");

/* How a load ended. */
struct mpib_adopt_result {
	bool missing;	    /* no file */
	bool foreign;	    /* another boot, pid namespace or version: nothing was taken */
	bool damaged;	    /* the header, or the length, is wrong */
	uint32_t n_records; /* good ones */
	uint32_t n_damaged; /* records with a wrong checksum, left out */
};

struct mpib_adopt;

/* Calls @take for each good record of the file in @dir_fd, in file order. 0, or the errno of a
 * file that is there but can't be read. */
int mpib_adopt_load(int dir_fd, void (*take)(const struct mpib_adopt_record *record, void *user),
		    void *user, struct mpib_adopt_result *ret);

/* Starts a new file, written under another name until mpib_adopt_commit() puts it in place of the
 * old one. */
int mpib_adopt_new(int dir_fd, const char *dir, struct mpib_adopt **ret, struct mpib_cause *cause);
int mpib_adopt_commit(struct mpib_adopt *adopt, struct mpib_cause *cause);
struct mpib_adopt *mpib_adopt_free(struct mpib_adopt *adopt);

/* Writes @record (its used and checksum are filled in) and says where. On an error (full file
 * system) the registration is as good, it only won't survive a restart. */
int mpib_adopt_put(struct mpib_adopt *adopt, struct mpib_adopt_record *record, uint32_t *ret_index);
int mpib_adopt_clear(struct mpib_adopt *adopt, uint32_t index);

#endif
