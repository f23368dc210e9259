/* SPDX-License-Identifier: Apache-2.0 */
/* Shares that a person set for a while, above the policy. Kept in two files of the agent's
 * directory, so that a restart doesn't end them; the end of the boot does. A file may be missing or
 * damaged: what can't be trusted is left out, whole. One of another version is kept under another
 * name, for an agent of that version, which looks for it there. One thread. */
#ifndef MPIB_AGENT_OVERRIDES_H
#define MPIB_AGENT_OVERRIDES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cause.h"

#define MPIB_OVERRIDES_NAME	 "overrides"
#define MPIB_OVERRIDES_AUTO_NAME "overrides.auto" /* those that find themselves */
#define MPIB_OVERRIDES_MAGIC	 0x4D50494Fu
#define MPIB_OVERRIDES_VERSION	 1u
#define MPIB_OVERRIDES_MAX	 1024u

/* Longest time that one can be set for. */
#define MPIB_OVERRIDE_SECONDS_MAX (366u * 86400u)

struct mpib_override {
	uint32_t src_be;
	uint32_t dst_be;
	uint32_t share; /* a rule's (common/share.h) */
	uint32_t uid;	/* who set it */
	uint64_t
		until_usec; /* CLOCK_BOOTTIME, which a change of the date doesn't move; 0: no end */
};

/* First bytes of the file; the overrides follow. */
struct mpib_overrides_header {
	uint32_t magic;
	uint32_t version;
	uint32_t record_size;
	uint32_t count;
	uint8_t boot_id[16]; /* times mean something within one boot */
	uint32_t reserved[7];
	uint32_t checksum; /* CRC-32 of all before it and of all records */
};

_Static_assert(sizeof(struct mpib_override) == 24, "record of the file");
_Static_assert(sizeof(struct mpib_overrides_header) == 64, "header of the file");

struct mpib_overrides;

/* Reads the file in @dir_fd (the caller's, called @dir in messages). Always gives a set, an empty
 * one where the file is missing or another boot's (0) or can't be trusted (negative errno, with
 * @cause); -ENOMEM gives none. */
int mpib_overrides_open(int dir_fd, const char *dir, struct mpib_overrides **ret,
			struct mpib_cause *cause);
struct mpib_overrides *mpib_overrides_free(struct mpib_overrides *overrides);

uint32_t mpib_overrides_count(const struct mpib_overrides *overrides);
/* By flow, in order; n below count. */
const struct mpib_override *mpib_overrides_at(const struct mpib_overrides *overrides, uint32_t n);
/* The one of a flow, or NULL. */
const struct mpib_override *mpib_overrides_find(const struct mpib_overrides *overrides,
						uint32_t src_be, uint32_t dst_be);

/* Adds or replaces. What isn't in the file isn't in force: -ENOSPC (also for too many), -EIO... */
int mpib_overrides_set(struct mpib_overrides *overrides, const struct mpib_override *override,
		       struct mpib_cause *cause);
/* Removes: -ENOENT where there is none. One that can't be removed from the file is removed all the
 * same, and the errno returned: it may come back with a restart, until mpib_overrides_check() has
 * written the file. */
int mpib_overrides_unset(struct mpib_overrides *overrides, uint32_t src_be, uint32_t dst_be,
			 struct mpib_cause *cause);

/* The directory was made anew: the file belongs there from now on. */
void mpib_overrides_move(struct mpib_overrides *overrides, int dir_fd);
/* Writes the file again where it doesn't say what is in force: it is gone, couldn't be written or
 * couldn't be read. Called about once a second. */
int mpib_overrides_check(struct mpib_overrides *overrides, struct mpib_cause *cause);

/* One whose time is over at @now_usec, or NULL. */
const struct mpib_override *mpib_overrides_expired(const struct mpib_overrides *overrides,
						   uint64_t now_usec);

#endif
