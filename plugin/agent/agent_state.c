/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/agent/agent_state.h"

struct mpib_agent mpib_agent = { .sock = { .fd = -1 } };
