/* SPDX-License-Identifier: Apache-2.0 */
/* What an open HCA's port is at the moment: state, GID and address, MTU, speed. */
#ifndef MPIB_PLUGIN_PORT_H
#define MPIB_PLUGIN_PORT_H

#include "plugin/verbs/hca.h"

/* Reads port state, MTU, GID and partition afresh and fills @ret's rail; the warning names what is
 * wrong. */
int mpib_hca_describe(struct mpib_hca *hca, const struct mpib_env *env, struct mpib_peer *ret,
		      struct mpib_source *ret_source);

/* Whether a request that completed with LOC_QP_OP_ERR tells of a port that is down and not of a
 * mistake: rxe gives up the first packet that its interface doesn't take. Asks the device. */
bool mpib_port_is_down(const struct mpib_hca *hca);

/* Bits per second in Mbit/s of an active port: lanes times rate (InfiniBand specification, port
 * attributes). *ret_known false: a code is newer than this release, and the fastest speed that it
 * knows, or four lanes, stand for it. */
unsigned int mpib_speed_mbps(unsigned int active_width, unsigned int active_speed, bool *ret_known);

#endif
