/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of what can run out. One user leaves an eighth of it to others, and all users together
 * leave a sixteenth to root, who may have what there is. */
#ifndef MPIB_AGENT_QUOTA_H
#define MPIB_AGENT_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum mpib_good {
	MPIB_GOOD_SLOTS,
	MPIB_GOOD_REGISTRATIONS,
	MPIB_GOOD_DESCRIPTORS, /* open connections and watched processes */
	MPIB_GOOD_TABLES,      /* counter tables */
	MPIB_GOOD_ENTRIES,     /* of counter tables */
	MPIB_GOOD_MONITORS,
	MPIB_GOOD_MAX,
};

enum mpib_quota {
	MPIB_QUOTA_FREE = 0,
	MPIB_QUOTA_USER, /* the user has as much as one may */
	MPIB_QUOTA_ROOT, /* what is left is kept for root */
	MPIB_QUOTA_NONE, /* nothing is left */
};

/* What is held: by one user, or by all users but root together. */
struct mpib_holdings {
	uint32_t of[MPIB_GOOD_MAX];
};

/* What one user may have of @total, and what all users but root may. */
static inline uint32_t mpib_quota_user(uint32_t total)
{
	return total - total / 8;
}

static inline uint32_t mpib_quota_users(uint32_t total)
{
	return total < 8 ? total : total - (total < 16 ? 1 : total / 16);
}

#endif
