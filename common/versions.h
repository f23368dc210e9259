/* SPDX-License-Identifier: Apache-2.0 */
/* What has to fit between parts of different releases, beside the release itself (MPIB_VERSION,
 * which is the project's in meson.build). Raised with every change that the other side must know
 * of; docs/install.md has the table of releases. */
#ifndef MPIB_COMMON_VERSIONS_H
#define MPIB_COMMON_VERSIONS_H

#include "common/mpib_agent_iface.h"

/* Between plugins: the handle and the frames of the control connection (docs/wire.md). */
#define MPIB_WIRE_VERSION 3

/* Between an agent and the next one: its state file. */
#define MPIB_STATE_VERSION 1

#define MPIB_VERSIONS_STRING_(number) #number
#define MPIB_VERSIONS_STRING(number)  MPIB_VERSIONS_STRING_(number)

#define MPIB_WIRE_TEXT	   MPIB_VERSIONS_STRING(MPIB_WIRE_VERSION)
#define MPIB_CONTRACT_TEXT MPIB_VERSIONS_STRING(MPIB_CONTRACT_VERSION)
#define MPIB_STATE_TEXT	   MPIB_VERSIONS_STRING(MPIB_STATE_VERSION)

/* What --version prints behind a program's name. */
#define MPIB_VERSION_LINE                                                                          \
	MPIB_VERSION " (wire " MPIB_WIRE_TEXT ", contract " MPIB_CONTRACT_TEXT                     \
		     ", state " MPIB_STATE_TEXT ")"

#endif
