/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/server.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/listen.h"
#include "agent/monitors.h"
#include "agent/peers.h"
#include "agent/poller.h"
#include "agent/room.h"

/* One non-root user leaves this part of the budget to others. */
#define RESERVED_PART 8u

/* Accepts of one dispatch, so that a storm of connections doesn't starve those that exist. */
#define ACCEPT_BATCH 16

#define IDLE_USEC (10u * 1000000u)

struct mpib_server {
	sd_event *loop;
	struct mpib_flows *flows;
	const struct mpib_server_ops *ops;
	void *user;
	struct mpib_listen listen;
	struct mpib_poller *poller;
	struct mpib_peers *peers;
	sd_event_source *io;
	bool paused;
	struct mpib_client_list clients;
	uint32_t n_clients;
	struct mpib_room room; /* for clients and watched processes together */
	struct mpib_monitors monitors;
};

uint32_t mpib_server_n_clients(const struct mpib_server *server)
{
	return server->n_clients;
}

uint32_t mpib_server_max_clients(const struct mpib_server *server)
{
	return server->room.budget;
}

static uint64_t now_usec(const struct mpib_server *server)
{
	uint64_t now = 0;

	(void)sd_event_now(server->loop, CLOCK_MONOTONIC, &now);
	return now;
}

/* ---- monitors ------------------------------------------------------------------------------- */

static bool on_client_may_monitor(void *user)
{
	struct mpib_server *server = user;

	return mpib_monitors_admit(&server->monitors);
}

static void on_entry(void *user, enum mpib_event event, int priority, const char *flow,
		     const char *message)
{
	struct mpib_server *server = user;

	mpib_monitors_tell(&server->monitors, event, priority, flow, message);
}

uint32_t mpib_server_n_monitors(const struct mpib_server *server)
{
	return mpib_monitors_count(&server->monitors);
}

uint64_t mpib_server_n_monitors_dropped(const struct mpib_server *server)
{
	return server->monitors.n_dropped;
}

/* ---- limits --------------------------------------------------------------------------------- */

static void say_limit(struct mpib_server *server, const char *what)
{
	mpib_room_say(&server->room, server->flows->journal, now_usec(server), what,
		      server->n_clients, mpib_peers_n_watched(server->peers));
}

static void pause_accept(struct mpib_server *server, const char *why)
{
	say_limit(server, why);
	if (server->paused)
		return;

	server->paused = true;
	(void)sd_event_source_set_enabled(server->io, SD_EVENT_OFF);
}

static void resume_accept(struct mpib_server *server)
{
	if (!server->paused)
		return;

	server->paused = false;
	(void)sd_event_source_set_enabled(server->io, SD_EVENT_ON);
}

static void on_room(void *user)
{
	resume_accept(user);
}

/* A connection takes one descriptor, and one more for its process. */
static bool has_room(const struct mpib_server *server)
{
	return server->n_clients + mpib_peers_n_watched(server->peers) + 2 <= server->room.budget;
}

static bool user_has_room(const struct mpib_server *server, const struct mpib_user *user)
{
	uint32_t part = server->room.budget - server->room.budget / RESERVED_PART;

	return user->uid == 0 || user->clients + user->pidfds + 2 <= part;
}

int mpib_server_adopt(struct mpib_server *server, const struct mpib_adopt_record *record)
{
	return mpib_peers_adopt(server->peers, record);
}

/* ---- connections ---------------------------------------------------------------------------- */

static void drop_client(struct mpib_server *server, struct mpib_client *client)
{
	struct mpib_peer *peer = client->peer;

	LIST_REMOVE(client, all);
	server->n_clients--;
	if (client->events)
		mpib_monitors_left(&server->monitors, client);
	client->user->clients--;
	mpib_registry_user_put(client->user);
	(void)mpib_client_free(client);

	mpib_peers_leave(server->peers, peer);
	resume_accept(server);
}

static void on_client_closed(void *user, struct mpib_client *client)
{
	drop_client(user, client);
}

static void on_client_status(void *user, struct mpib_admin_status *ret)
{
	struct mpib_server *server = user;

	server->ops->status(server->user, ret);
}

static int on_client_reload(void *user, struct mpib_flow_change **ret_changes, uint32_t *ret_n,
			    struct mpib_cause *cause)
{
	struct mpib_server *server = user;

	return server->ops->reload(server->user, ret_changes, ret_n, cause);
}

static const struct mpib_client_ops client_ops = {
	.status = on_client_status,
	.reload = on_client_reload,
	.may_monitor = on_client_may_monitor,
	.closed = on_client_closed,
};

/* Makes a client of @fd, which is the client's from then on; closed on failure. */
static int add_client(struct mpib_server *server, int fd, const struct ucred *cred)
{
	struct mpib_registry *registry = server->flows->registry;
	struct mpib_client *client = calloc(1, sizeof(*client));
	int r = -ENOMEM;

	if (!client) {
		(void)close(fd);
		return -ENOMEM;
	}

	client->fd = fd;
	client->passed_fd = -1;
	client->pid = cred->pid;
	client->uid = cred->uid;
	client->flows = server->flows;
	client->ops = &client_ops;
	client->ops_user = server;
	client->user = mpib_registry_user_get(registry, cred->uid);
	if (!client->user)
		goto undo;

	if (!user_has_room(server, client->user)) {
		say_limit(server, "a user has as many connections and processes as one may");
		r = -EDQUOT;
		goto undo;
	}

	r = mpib_peers_identify(server->peers, cred, &client->peer);
	if (r < 0)
		goto undo;

	client->user->clients++;
	LIST_INSERT_HEAD(&server->clients, client, all);
	server->n_clients++;
	r = mpib_client_start(client, server->loop, server->poller);
	if (r < 0)
		drop_client(server, client);
	return r;

undo:
	if (client->user)
		mpib_registry_user_put(client->user);
	(void)mpib_client_free(client);
	return r;
}

static bool is_shortage(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ENOBUFS;
}

/* 0: one was taken or lost, go on; 1: none is left; a negative errno ends the agent. */
static int accept_one(struct mpib_server *server)
{
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	int fd;
	int r;

	if (!has_room(server)) {
		pause_accept(server, "no room for further connections: they wait");
		return 1;
	}

	fd = accept4(server->listen.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		r = -errno;
		if (is_shortage(r)) {
			pause_accept(server, "out of descriptors or memory: connections wait");
			return 1;
		}
		if (r == -EAGAIN)
			return 1;
		return r == -EINTR || r == -ECONNABORTED || r == -EPERM ? 0 : r;
	}

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) {
		(void)close(fd);
		return 0;
	}

	r = add_client(server, fd, &cred);
	if (is_shortage(r)) {
		pause_accept(server, "out of descriptors or memory: connections wait");
		return 1;
	}
	return 0;
}

static int on_connect(sd_event_source *source, int fd, uint32_t revents, void *user)
{
	struct mpib_server *server = user;

	(void)source;
	(void)fd;
	(void)revents;
	for (unsigned int n = 0; n < ACCEPT_BATCH; n++) {
		int r = accept_one(server);

		if (r == 1)
			return 0;
		if (r < 0)
			return sd_event_exit(server->loop, r);
	}

	return 0;
}

/* Where connections wait for room, those that said nothing for long make it; a client that needs
 * its connection again opens another, and what a process registered outlives it. */
static void close_idle(struct mpib_server *server)
{
	uint64_t now = now_usec(server);
	struct mpib_client *client = LIST_FIRST(&server->clients);
	uint32_t n_closed = 0;

	while (client) {
		struct mpib_client *next = LIST_NEXT(client, all);
		bool needed = client->peer->pid == 0 && client->peer->n_regs > 0;

		if (!needed && now - client->active_usec >= IDLE_USEC) {
			drop_client(server, client);
			n_closed++;
		}
		client = next;
	}

	if (n_closed)
		say_limit(server, "idle connections closed to make room");
}

void mpib_server_tick(struct mpib_server *server)
{
	if (!server->paused)
		return;

	close_idle(server);
	resume_accept(server);
}

/* ---- life ----------------------------------------------------------------------------------- */

int mpib_server_new(sd_event *loop, struct mpib_flows *flows, const struct mpib_server_ops *ops,
		    void *user, struct mpib_server **ret)
{
	struct mpib_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return -ENOMEM;

	server->loop = sd_event_ref(loop);
	server->flows = flows;
	server->ops = ops;
	server->user = user;
	server->listen.fd = -1;
	server->listen.dir_fd = -1;
	mpib_room_measure(&server->room);
	LIST_INIT(&server->clients);
	server->monitors.clients = &server->clients;
	server->monitors.journal = flows->journal;
	r = mpib_poller_new(loop, &server->poller);
	if (r >= 0)
		r = mpib_peers_new(server->poller, flows, on_room, server, &server->peers);
	if (r < 0) {
		(void)mpib_server_free(server);
		return r;
	}

	mpib_journal_listen(flows->journal, on_entry, server);
	*ret = server;
	return 0;
}

struct mpib_server *mpib_server_free(struct mpib_server *server)
{
	if (!server)
		return NULL;

	/* Forget first: what ends now must not be taken for a job's end. */
	while (!LIST_EMPTY(&server->clients)) {
		struct mpib_client *client = LIST_FIRST(&server->clients);

		mpib_flows_forget_peer(server->flows, client->peer);
		drop_client(server, client);
	}
	(void)mpib_peers_free(server->peers);
	(void)mpib_poller_free(server->poller);

	mpib_journal_listen(server->flows->journal, NULL, NULL);
	(void)sd_event_source_unref(server->io);
	mpib_listen_close(&server->listen);
	(void)sd_event_unref(server->loop);
	free(server);
	return NULL;
}

int mpib_server_listen(struct mpib_server *server, int dir_fd, const char *dir,
		       struct mpib_cause *cause)
{
	int r = mpib_listen_open(dir_fd, dir, &server->listen, cause);

	if (r < 0)
		return r;

	r = sd_event_add_io(server->loop, &server->io, server->listen.fd, EPOLLIN, on_connect,
			    server);
	if (r < 0)
		return mpib_cause_set(cause, r, "can't watch the socket: %s", strerror(-r));

	(void)sd_event_source_set_description(server->io, "socket");
	return 0;
}
