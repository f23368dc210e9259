/* SPDX-License-Identifier: Apache-2.0 */
/* Whether two HCAs are likely to be meant as a pair. */
#ifndef MPIB_PLUGIN_DEVICE_PAIR_H
#define MPIB_PLUGIN_DEVICE_PAIR_H

#include "plugin/verbs/hca.h"

/* Warns where the rails of @dev, whose addresses are @ipv4_be, are hardly meant to be a pair. */
void mpib_device_check_pair(const struct mpib_device *dev, const uint32_t ipv4_be[MPIB_RAIL_MAX]);

#endif
