/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/clients/server.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/clients/server_impl.h"

/* Accepts of one dispatch, so that a storm of connections doesn't starve those that exist. */
#define ACCEPT_BATCH 4

uint32_t mpib_server_n_clients(const struct mpib_server *server)
{
	return server->n_clients;
}

uint32_t mpib_server_max_clients(const struct mpib_server *server)
{
	return server->budget.fds;
}

uint32_t mpib_server_n_processes(const struct mpib_server *server)
{
	return mpib_registry_n_peers(server->flows->registry) - server->flows->n_unclaimed_peers;
}

/* ---- monitors ------------------------------------------------------------------------------- */

static const char *on_session_watch(void *user, struct mpib_session *session)
{
	struct mpib_server *server = user;

	switch (mpib_monitors_admit(&server->monitors, session)) {
	case MPIB_ADMITTED:
		return NULL;
	case MPIB_ADMISSION_NO_MEMORY:
		return "the agent is out of memory";
	default:
		return "too many watch already";
	}
}

static void on_entry(void *user, enum mpib_event event, int priority, const char *flow,
		     const char *message)
{
	struct mpib_server *server = user;

	mpib_monitors_tell(&server->monitors, event, priority, flow, message);
	if (server->monitors.again && server->flows->wake)
		server->flows->wake(server->flows->wake_user);
}

uint32_t mpib_server_n_monitors(const struct mpib_server *server)
{
	return server->monitors.n;
}

uint64_t mpib_server_n_events_missed(const struct mpib_server *server)
{
	return server->monitors.ring.n_missed;
}

/* ---- limits --------------------------------------------------------------------------------- */

static void pause_accept(struct mpib_server *server, const char *why)
{
	mpib_server_say_limit(server, why);
	if (server->paused)
		return;

	server->paused = true;
	(void)sd_event_source_set_enabled(server->io, SD_EVENT_OFF);
}

static void on_room(void *user)
{
	mpib_server_resume(user);
}

/* A connection takes one descriptor, and one more for its process. */
static bool has_room(const struct mpib_server *server)
{
	uint32_t taken = server->n_clients + mpib_peers_n_watched(server->peers) +
			 mpib_keeper_n_closing(server->keeper);

	return taken + MPIB_FD_BUDGET_CLIENT <= server->budget.fds;
}

int mpib_server_adopt(struct mpib_server *server, const struct mpib_adopt_record *record,
		      uint32_t index)
{
	return mpib_peers_adopt(server->peers, record, index);
}

/* ---- connections ---------------------------------------------------------------------------- */

void mpib_server_drop(struct mpib_server *server, struct mpib_client *client)
{
	struct mpib_peer *peer = client->peer;

	if (server->idle_next == client)
		server->idle_next = LIST_NEXT(client, all);
	LIST_REMOVE(client, all);
	server->n_clients--;
	if (mpib_session_watches(&client->session))
		mpib_monitors_left(&server->monitors, &client->session);
	mpib_user_release(client->user, MPIB_GOOD_DESCRIPTORS, 1);
	mpib_registry_user_put(server->flows->registry, client->user);
	(void)mpib_client_free(client);

	mpib_peers_leave(server->peers, peer);
	mpib_server_resume(server);
}

static void on_client_closed(void *user, struct mpib_client *client)
{
	mpib_server_drop(user, client);
}

static void on_session_status(void *user, struct mpib_admin_status *ret)
{
	struct mpib_server *server = user;

	server->ops->status(server->user, ret);
}

static void on_session_reload(void *user, struct mpib_session *session)
{
	struct mpib_server *server = user;

	mpib_session_wait(session, &server->asking);
	server->ops->reload(server->user);
}

static const struct mpib_client_ops client_ops = {
	.closed = on_client_closed,
};

void mpib_server_reload_begins(struct mpib_server *server)
{
	while (!LIST_EMPTY(&server->asking)) {
		struct mpib_session *session = LIST_FIRST(&server->asking);

		LIST_REMOVE(session, waiting);
		LIST_INSERT_HEAD(&server->reloading, session, waiting);
	}
}

void mpib_server_reloaded(struct mpib_server *server, struct mpib_share_changes *changes,
			  bool refused)
{
	mpib_sessions_reloaded(&server->reloading, changes, refused);
}

static const struct mpib_session_ops session_ops = {
	.status = on_session_status,
	.reload = on_session_reload,
	.watch = on_session_watch,
};

/* Makes a client of @fd, which is the client's from then on; closed on failure. */
static int add_client(struct mpib_server *server, int fd, const struct ucred *cred)
{
	struct mpib_registry *registry = server->flows->registry;
	struct mpib_client *client = calloc(1, sizeof(*client));
	int r = -ENOMEM;

	if (!client) {
		mpib_keeper_close(server->keeper, fd);
		return -ENOMEM;
	}

	client->keeper = server->keeper;
	client->fd = fd;
	client->table_fd = -1;
	client->pid = cred->pid;
	client->uid = cred->uid;
	client->flows = server->flows;
	client->ops = &client_ops;
	client->ops_user = server;
	client->user = mpib_registry_user_get(registry, cred->uid);
	if (!client->user)
		goto undo;
	client->session = (struct mpib_session){
		.pid = cred->pid,
		.uid = cred->uid,
		.user = client->user,
		.flows = server->flows,
		.ops = &session_ops,
		.ops_user = server,
	};

	if (mpib_user_may(client->user, MPIB_GOOD_DESCRIPTORS, MPIB_FD_BUDGET_CLIENT, 0,
			  server->budget.fds) != MPIB_QUOTA_FREE) {
		mpib_flows_refused(server->flows, client->user, cred->pid, MPIB_GOOD_DESCRIPTORS,
				   "as many connections and processes as one user may have, or as "
				   "leave root some; the connection is closed; see ss -xp");
		r = -EDQUOT;
		goto undo;
	}

	r = mpib_peers_identify(server->peers, cred, &client->peer);
	if (r < 0)
		goto undo;

	mpib_user_charge(client->user, MPIB_GOOD_DESCRIPTORS, 1);
	LIST_INSERT_HEAD(&server->clients, client, all);
	server->n_clients++;
	r = mpib_client_start(client, server->loop, server->poller);
	if (r < 0)
		mpib_server_drop(server, client);
	return r;

undo:
	if (client->user)
		mpib_registry_user_put(registry, client->user);
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
	const int on = 1;
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

	/* Neither fails on such a socket. Out-of-band data stays in line: else it would be skipped,
	 * and descriptors that came with it closed, unseen. */
	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	(void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
	mpib_keeper_hold(server->keeper, fd, cred.uid);

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

/* Connections that nobody accepted end with it. */
static void close_listen(struct mpib_server *server)
{
	int fd = server->listen.fd;

	if (server->listen_held)
		server->listen.fd = -1;
	mpib_listen_close(&server->listen);
	if (server->listen_held)
		mpib_keeper_close(server->keeper, fd);
	server->listen_held = false;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void on_keeper_gone(void *user)
{
	struct mpib_server *server = user;

	server->ops->failed(server->user, -EPIPE,
			    "its process that holds connections (mpib-keeper) was killed: the "
			    "agent ends, too; the service manager starts it again");
}

int mpib_server_new(sd_event *loop, struct mpib_keeper *keeper, struct mpib_flows *flows,
		    const struct mpib_server_ops *ops, void *user, struct mpib_server **ret)
{
	static const struct mpib_keeper_ops keeper_ops = {
		.fetched = mpib_client_fetched,
		.gone = on_keeper_gone,
	};
	struct mpib_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return -ENOMEM;

	server->loop = sd_event_ref(loop);
	server->keeper = keeper;
	server->flows = flows;
	server->ops = ops;
	server->user = user;
	server->listen.fd = -1;
	server->listen.dir_fd = -1;
	mpib_fd_budget_measure(&server->budget);
	LIST_INIT(&server->clients);
	LIST_INIT(&server->monitors.sessions);
	LIST_INIT(&server->reloading);
	LIST_INIT(&server->asking);
	r = mpib_poller_new(loop, &server->poller);
	if (r >= 0)
		r = mpib_peers_new(server->poller, flows, on_room, server, &server->peers);
	if (r >= 0)
		r = mpib_keeper_start(keeper, loop, &keeper_ops, server);
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
		mpib_server_drop(server, client);
	}
	(void)mpib_peers_free(server->peers);
	(void)mpib_poller_free(server->poller);

	mpib_journal_listen(server->flows->journal, NULL, NULL);
	(void)sd_event_source_unref(server->io);
	close_listen(server);
	(void)sd_event_unref(server->loop);
	free(server);
	return NULL;
}

int mpib_server_turn(struct mpib_server *server)
{
	return mpib_poller_turn(server->poller, true);
}

bool mpib_server_socket_is_current(const struct mpib_server *server, int dir_fd)
{
	struct stat st;

	return fstatat(dir_fd, MPIB_SOCKET_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_dev == server->listen.device && st.st_ino == server->listen.inode;
}

void mpib_server_leave_dir(struct mpib_server *server)
{
	server->listen.dir_fd = -1;
	server->listen.inode = 0;
}

void mpib_server_disconnect_all(struct mpib_server *server)
{
	while (!LIST_EMPTY(&server->clients))
		mpib_server_drop(server, LIST_FIRST(&server->clients));
}

int mpib_server_listen(struct mpib_server *server, int dir_fd, const char *dir,
		       struct mpib_cause *cause)
{
	struct mpib_listen fresh = { .fd = -1, .dir_fd = -1 };
	sd_event_source *io = NULL;
	int r = mpib_listen_open(dir_fd, dir, &fresh, cause);

	if (r < 0)
		return r;

	r = sd_event_add_io(server->loop, &io, fresh.fd, EPOLLIN, on_connect, server);
	if (r < 0) {
		mpib_listen_close(&fresh);
		return mpib_cause_set(cause, r, "can't watch the socket: %s", strerror(-r));
	}

	(void)sd_event_source_set_description(io, "socket");
	(void)sd_event_source_unref(server->io);
	server->listen.dir_fd = -1; /* its name is another's by now */
	close_listen(server);
	server->io = io;
	server->listen = fresh;
	server->listen_held = fresh.dir_fd >= 0;
	if (server->listen_held)
		mpib_keeper_hold(server->keeper, fresh.fd, 0);
	server->paused = false;
	return 0;
}
