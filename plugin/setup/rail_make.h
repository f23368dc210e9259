/* SPDX-License-Identifier: Apache-2.0 */
/* New queue pairs for a rail that was lost. */
#ifndef MPIB_PLUGIN_RAIL_MAKE_H
#define MPIB_PLUGIN_RAIL_MAKE_H

#include "plugin/connection/rails.h"

extern const struct mpib_rail_maker mpib_rail_maker;

#endif
