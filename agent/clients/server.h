/* SPDX-License-Identifier: Apache-2.0 */
/* The socket: listens, tells who connects, bounds how many, watches their processes. */
#ifndef MPIB_AGENT_SERVER_H
#define MPIB_AGENT_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "agent/base/cause.h"
#include "agent/clients/client.h"
#include "agent/flows/flows.h"

struct mpib_server;

/* What the owner does for clients. */
struct mpib_server_ops {
	void (*status)(void *user, struct mpib_admin_status *ret);
	/* Asks for a reload, which comes later; see mpib_server_reload_begins(). */
	void (*reload)(void *user);
	/* The agent can't go on: ends the loop with @error, for @why. */
	void (*failed)(void *user, int error, const char *why);
};

/* A server without a socket yet: peers of an earlier incarnation can be adopted. @keeper is the
 * caller's and outlives it. */
int mpib_server_new(sd_event *loop, struct mpib_keeper *keeper, struct mpib_flows *flows,
		    const struct mpib_server_ops *ops, void *user, struct mpib_server **ret);
/* Whoever has asked for a reload so far is told how this one ends: @changes (NULL: memory is out),
 * and whether it was refused. */
void mpib_server_reload_begins(struct mpib_server *server);
void mpib_server_reloaded(struct mpib_server *server, struct mpib_share_changes *changes,
			  bool refused);
/* Closes everything. Hints and state file stay as they are; the socket's name is removed unless
 * the service manager owns it. */
struct mpib_server *mpib_server_free(struct mpib_server *server);

/* Listens at agent.sock in the directory, with the service manager's socket where it passed one.
 * A dead agent's socket is replaced; anything else at that name is left intact: -EEXIST. Another
 * time it listens at a new one; on an error the one of before stays. */
int mpib_server_listen(struct mpib_server *server, int dir_fd, const char *dir,
		       struct mpib_cause *cause);

/* The same again after somebody took the name away: clients that are there stay. */
bool mpib_server_socket_is_current(const struct mpib_server *server, int dir_fd);
/* The directory is no longer the one of the socket's name, which isn't removed at the end. */
void mpib_server_leave_dir(struct mpib_server *server);
/* Closes all connections: whoever needs one connects again, and looks at the table anew. */
void mpib_server_disconnect_all(struct mpib_server *server);

/* A turn of clients and of the loop; waits until there is something to do. Negative errno. */
int mpib_server_turn(struct mpib_server *server);

/* Adopts the record at @index of the state file, whose process lives: 0; -ESRCH where it is known
 * to be gone; -EEXIST, -EINVAL, -ERANGE where it contradicts others; else it can't be told. */
int mpib_server_adopt(struct mpib_server *server, const struct mpib_adopt_record *record,
		      uint32_t index);

/* About once a second: ends a pause, has idle connections closed where room is short. */
void mpib_server_tick(struct mpib_server *server);
/* A slice of that. True where more is to be done. */
bool mpib_server_step(struct mpib_server *server);

uint32_t mpib_server_n_monitors(const struct mpib_server *server);
/* Events that monitors missed for reading too slowly. */
uint64_t mpib_server_n_events_missed(const struct mpib_server *server);
/* Living ones that are known, and connections of those that can't be named. */
uint32_t mpib_server_n_processes(const struct mpib_server *server);
uint32_t mpib_server_n_clients(const struct mpib_server *server);
uint32_t mpib_server_max_clients(const struct mpib_server *server);

#endif
