/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the server: who gets in in server.c, what is done where there is no room in
 * server_limits.c. */
#ifndef MPIB_AGENT_SERVER_IMPL_H
#define MPIB_AGENT_SERVER_IMPL_H

#include "agent/keeper/keeper.h"
#include "agent/clients/listen.h"
#include "agent/clients/peers.h"
#include "agent/clients/poller.h"
#include "agent/admin/monitors.h"
#include "agent/clients/fd_budget.h"
#include "agent/clients/server.h"

struct mpib_server {
	sd_event *loop;
	struct mpib_flows *flows;
	const struct mpib_server_ops *ops;
	void *user;
	struct mpib_listen listen;
	bool listen_held; /* by the keeper; a passed one the service manager holds */
	struct mpib_keeper *keeper;
	struct mpib_poller *poller;
	struct mpib_peers *peers;
	sd_event_source *io;
	bool paused;
	struct mpib_client_list clients;
	struct mpib_client *idle_next; /* the next to be looked at for being idle, or NULL */
	uint32_t n_clients;
	struct mpib_fd_budget budget; /* for clients and watched processes together */
	struct mpib_monitors monitors;
	struct mpib_session_list asking;    /* for a reload that hasn't begun */
	struct mpib_session_list reloading; /* waiting for the end of the one that has */
};

/* @what was met: one line an interval, with a count. */
void mpib_server_say_limit(struct mpib_server *server, const char *what);
/* Ends a pause: there is room again, or may be. */
void mpib_server_resume(struct mpib_server *server);
/* Ends a connection. */
void mpib_server_drop(struct mpib_server *server, struct mpib_client *client);

#endif
