/* SPDX-License-Identifier: Apache-2.0 */
/* The socket: listens, tells who connects, bounds how many, watches their processes. */
#ifndef MPIB_AGENT_SERVER_H
#define MPIB_AGENT_SERVER_H

#include <stdint.h>
#include <systemd/sd-event.h>

#include "agent/cause.h"
#include "agent/client.h"
#include "agent/flows.h"

struct mpib_server;

/* What the owner does for clients. */
struct mpib_server_ops {
	void (*status)(void *user, struct mpib_admin_status *ret);
	int (*reload)(void *user, struct mpib_flow_change **ret_changes, uint32_t *ret_n,
		      struct mpib_cause *cause);
};

/* A server without a socket yet: peers of an earlier incarnation can be adopted. */
int mpib_server_new(sd_event *loop, struct mpib_flows *flows, const struct mpib_server_ops *ops,
		    void *user, struct mpib_server **ret);
/* Closes everything. Hints and state file stay as they are; the socket's name is removed unless
 * the service manager owns it. */
struct mpib_server *mpib_server_free(struct mpib_server *server);

/* Listens at agent.sock in the directory, with the service manager's socket where it passed one.
 * A dead agent's socket is replaced; anything else at that name is left intact: -EEXIST. */
int mpib_server_listen(struct mpib_server *server, int dir_fd, const char *dir,
		       struct mpib_cause *cause);

/* Adopts a record whose process lives: 0; -ESRCH where it doesn't; -ENOENT for a peer without a
 * name, whose slot is kept. */
int mpib_server_adopt(struct mpib_server *server, const struct mpib_adopt_record *record);

/* About once a second: ends a pause, closes idle connections where room is short. */
void mpib_server_tick(struct mpib_server *server);

uint32_t mpib_server_n_monitors(const struct mpib_server *server);
uint64_t mpib_server_n_monitors_dropped(const struct mpib_server *server);
uint32_t mpib_server_n_clients(const struct mpib_server *server);
uint32_t mpib_server_max_clients(const struct mpib_server *server);

#endif
