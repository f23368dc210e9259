/* SPDX-License-Identifier: Apache-2.0 */
/* The registration socket: requests go out in order and are answered in order. Under the watch
 * lock. */
#ifndef MPIB_PLUGIN_AGENT_SOCKET_H
#define MPIB_PLUGIN_AGENT_SOCKET_H

#include "plugin/agent/agent_state.h"

/* Negative errno; the next try is set. */
int mpib_agent_connect_socket(void);
/* Closes the socket; connections that wait for an answer ask again on the next one. */
void mpib_agent_disconnect(void);
/* One warning: the agent's answer was wrong. Set-ups that wait for one fail. */
void mpib_agent_protocol_error(const char *what);
void mpib_agent_read_answers(void);
/* Hands the counters over, once a connection of the socket. */
void mpib_agent_send_counters(void);
/* Connects if need be and sends what waits. */
void mpib_agent_pump(void);
/* The id may be taken again. */
void mpib_agent_free_id(uint32_t conn_id);
/* The agent must still be told that the connection is gone. */
void mpib_agent_add_leaving(uint32_t conn_id);

#endif
