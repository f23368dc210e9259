/* SPDX-License-Identifier: Apache-2.0 */
/* The two rails and their names. */
#ifndef MPIB_PLUGIN_RAIL_H
#define MPIB_PLUGIN_RAIL_H

enum mpib_rail {
	MPIB_SOUT = 0,
	MPIB_SUP = 1,
	MPIB_RAIL_MAX = 2,
};

static inline const char *mpib_rail_name(unsigned int rail)
{
	return rail == MPIB_SOUT ? "SOUT" : "SUP";
}

#endif
