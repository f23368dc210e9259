/* SPDX-License-Identifier: Apache-2.0 */
/* The two rails and their names. */
#ifndef MPIB_PLUGIN_RAIL_H
#define MPIB_PLUGIN_RAIL_H

enum mpib_rail {
	MPIB_SOUT = 0,
	MPIB_SUP = 1,
	MPIB_RAIL_MAX = 2,
};

/* A mask of both. */
#define MPIB_RAILS_ALL 3u

/* The rail's bit in a mask: 1 SOUT, 2 SUP. */
static inline unsigned int mpib_rail_bit(unsigned int rail)
{
	return rail == MPIB_SUP ? 2u : 1u;
}

static inline const char *mpib_rail_name(unsigned int rail)
{
	return rail == MPIB_SOUT ? "SOUT" : "SUP";
}

#endif
