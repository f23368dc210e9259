/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/server.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "agent/process.h"
#include "common/cleanup.h"

/* Descriptors for everything but clients and their processes: standard streams, epoll, timer and
 * signal, directory, lock, hints, state, socket, journal, and one or two for the moment. */
#define RESERVED_FDS 14u

/* Connections and processes at once, whatever the descriptor limit says. */
#define BUDGET_MAX 32768u

/* One non-root user leaves this part of the budget to others. */
#define RESERVED_PART 8u

/* Accepts of one dispatch, so that a storm of connections doesn't starve those that exist. */
#define ACCEPT_BATCH 16

#define BACKLOG 4096

#define LIMIT_INTERVAL_USEC (30u * 1000000u)
#define IDLE_USEC	    (10u * 1000000u)

struct watch {
	LIST_ENTRY(watch) all;
	struct mpib_server *server;
	struct mpib_peer *peer; /* one reference */
	sd_event_source *io;
	int pidfd;
};

LIST_HEAD(watch_list, watch);

struct mpib_server {
	sd_event *loop;
	struct mpib_flows *flows;
	const struct mpib_server_ops *ops;
	void *user;
	int fd;
	int dir_fd;   /* the caller's; -1 where the name isn't ours to remove */
	dev_t device; /* of the socket's name, so that only our own is removed */
	ino_t inode;
	sd_event_source *io;
	bool paused;
	struct mpib_client_list clients;
	uint32_t n_clients;
	struct watch_list watches;
	uint32_t n_watches;
	uint32_t budget; /* clients and watched processes together */
	uint64_t limit_said_usec;
	uint64_t n_limited; /* not said yet */
	uint32_t n_monitors;
	uint64_t n_monitors_dropped;
};

uint32_t mpib_server_n_clients(const struct mpib_server *server)
{
	return server->n_clients;
}

uint32_t mpib_server_max_clients(const struct mpib_server *server)
{
	return server->budget;
}

static uint64_t now_usec(const struct mpib_server *server)
{
	uint64_t now = 0;

	(void)sd_event_now(server->loop, CLOCK_MONOTONIC, &now);
	return now;
}

/* ---- monitors ------------------------------------------------------------------------------- */

/* Each holds a queue of half a megabyte. */
#define MONITORS_MAX 32u

static uint32_t count_monitors(const struct mpib_server *server)
{
	const struct mpib_client *client;
	uint32_t count = 0;

	LIST_FOREACH(client, &server->clients, all)
	{
		count += client->events != NULL;
	}

	return count;
}

static bool on_client_may_monitor(void *user)
{
	struct mpib_server *server = user;

	/* The one who asks isn't counted yet. */
	server->n_monitors = count_monitors(server) + 1;
	return server->n_monitors <= MONITORS_MAX;
}

static void on_entry(void *user, enum mpib_event event, int priority, const char *flow,
		     const char *message)
{
	struct mpib_server *server = user;
	struct mpib_admin_event record = { .priority = (uint32_t)priority };
	struct mpib_client *client;
	struct timespec now = { 0 };

	if (!server->n_monitors)
		return;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	record.usec = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
	(void)snprintf(record.name, sizeof(record.name), "%s", mpib_event_name(event));
	(void)snprintf(record.flow, sizeof(record.flow), "%s", flow);
	(void)snprintf(record.text, sizeof(record.text), "%s", message);
	LIST_FOREACH(client, &server->clients, all)
	{
		if (client->events)
			mpib_client_push(client, &record);
	}
}

uint32_t mpib_server_n_monitors(const struct mpib_server *server)
{
	return count_monitors(server);
}

uint64_t mpib_server_n_monitors_dropped(const struct mpib_server *server)
{
	return server->n_monitors_dropped;
}

/* After one has left the list. */
static void monitor_gone(struct mpib_server *server, const struct mpib_client *client)
{
	struct mpib_cause text;

	server->n_monitors = count_monitors(server);
	if (!client->n_lost)
		return;

	server->n_monitors_dropped++;
	(void)mpib_cause_set(&text, 0,
			     "it watches events and reads too slowly: %u of them were lost",
			     client->n_lost);
	mpib_journal_client(server->flows->journal, client->pid, client->uid, text.text);
}

/* ---- limits --------------------------------------------------------------------------------- */

/* One line an interval, with a count, however often a limit is met. */
static void say_limit(struct mpib_server *server, const char *what)
{
	uint64_t now = now_usec(server);
	struct mpib_cause text;

	server->n_limited++;
	if (server->limit_said_usec && now - server->limit_said_usec < LIMIT_INTERVAL_USEC)
		return;

	(void)mpib_cause_set(&text, 0,
			     "%s (%u connections, %u processes, room for %u in all; met %" PRIu64
			     " times); raise LimitNOFILE= of the unit",
			     what, server->n_clients, server->n_watches, server->budget,
			     server->n_limited);
	mpib_journal_limit(server->flows->journal, text.text);
	server->limit_said_usec = now;
	server->n_limited = 0;
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

/* A connection takes one descriptor, and one more for its process. */
static bool has_room(const struct mpib_server *server)
{
	return server->n_clients + server->n_watches + 2 <= server->budget;
}

static bool user_has_room(const struct mpib_server *server, const struct mpib_user *user)
{
	uint32_t part = server->budget - server->budget / RESERVED_PART;

	return user->uid == 0 || user->clients + user->pidfds + 2 <= part;
}

static uint32_t descriptor_budget(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 2;

	/* The soft limit protects programs that use select(); this one doesn't. */
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	(void)getrlimit(RLIMIT_NOFILE, &limit);

	if (limit.rlim_cur >= BUDGET_MAX + RESERVED_FDS)
		return BUDGET_MAX;
	if (limit.rlim_cur < RESERVED_FDS + 2)
		return 2;
	return (uint32_t)limit.rlim_cur - RESERVED_FDS;
}

/* ---- processes ------------------------------------------------------------------------------ */

static void unwatch(struct watch *watch)
{
	struct mpib_server *server = watch->server;

	LIST_REMOVE(watch, all);
	server->n_watches--;
	watch->peer->user->pidfds--;
	watch->peer->watch = NULL;
	(void)sd_event_source_unref(watch->io);
	(void)close(watch->pidfd);
	(void)mpib_registry_peer_put(server->flows->registry, watch->peer);
	free(watch);
	resume_accept(server);
}

static void process_gone(struct watch *watch)
{
	mpib_flows_peer_gone(watch->server->flows, watch->peer, "as its process ended");
	unwatch(watch);
}

static int on_process_exit(sd_event_source *source, int fd, uint32_t revents, void *user)
{
	(void)source;
	(void)fd;
	(void)revents;
	process_gone(user);
	return 0;
}

/* Drops a process that has neither registrations nor connections. */
static void release_if_idle(struct mpib_peer *peer)
{
	if (peer->watch && peer->n_regs == 0 && peer->refs == 1)
		unwatch(peer->watch);
}

/* Watches @pidfd, which is the watch's from then on; closed on failure. */
static int watch_process(struct mpib_server *server, pid_t pid, uint64_t start_time, uid_t uid,
			 int pidfd, struct mpib_peer **ret)
{
	struct watch *watch = calloc(1, sizeof(*watch));
	int r;

	if (!watch) {
		(void)close(pidfd);
		return -ENOMEM;
	}

	r = mpib_registry_peer_new(server->flows->registry, pid, start_time, uid, &watch->peer);
	if (r < 0)
		goto undo;

	r = sd_event_add_io(server->loop, &watch->io, pidfd, EPOLLIN, on_process_exit, watch);
	if (r < 0)
		goto undo;

	(void)sd_event_source_set_description(watch->io, "process");
	watch->server = server;
	watch->pidfd = pidfd;
	watch->peer->watch = watch;
	watch->peer->user->pidfds++;
	LIST_INSERT_HEAD(&server->watches, watch, all);
	server->n_watches++;
	*ret = watch->peer;
	return 0;

undo:
	(void)mpib_registry_peer_put(server->flows->registry, watch->peer);
	(void)close(pidfd);
	free(watch);
	return r;
}

/* The process of a connection, known already or new. -ESRCH, -EPERM: it can't be proven. */
static int find_process(struct mpib_server *server, pid_t pid, uid_t uid, struct mpib_peer **ret)
{
	struct mpib_peer *peer = mpib_registry_peer_find(server->flows->registry, pid);
	uint64_t start_time;
	int pidfd;
	int r;

	if (peer) {
		struct watch *watch = peer->watch;

		/* While it lives, its pid is nobody else's. */
		if (mpib_process_alive(watch->pidfd)) {
			*ret = peer;
			return 0;
		}
		process_gone(watch);
	}

	r = mpib_process_open(pid, uid, &pidfd, &start_time);
	if (r < 0)
		return r;

	return watch_process(server, pid, start_time, uid == MPIB_UID_ANY ? 0 : uid, pidfd, ret);
}

int mpib_server_adopt(struct mpib_server *server, const struct mpib_adopt_record *record)
{
	struct mpib_peer *peer;
	uint64_t start_time;
	int pidfd;
	int r;

	if (record->pid <= 0)
		return -ENOENT;

	peer = mpib_registry_peer_find(server->flows->registry, record->pid);
	if (!peer) {
		r = mpib_process_open(record->pid, MPIB_UID_ANY, &pidfd, &start_time);
		if (r < 0)
			return r;
		if (start_time != record->start_time) {
			(void)close(pidfd);
			return -ESRCH;
		}
		r = watch_process(server, record->pid, start_time, record->uid, pidfd, &peer);
		if (r < 0)
			return r;
	}

	if (peer->start_time != record->start_time)
		return -ESRCH;

	r = mpib_flows_adopt(server->flows, peer, record);
	release_if_idle(peer);
	return r;
}

/* ---- connections ---------------------------------------------------------------------------- */

static void drop_client(struct mpib_server *server, struct mpib_client *client)
{
	struct mpib_peer *peer = client->peer;
	const struct watch *watch = peer->watch;

	LIST_REMOVE(client, all);
	server->n_clients--;
	if (client->events)
		monitor_gone(server, client);
	client->user->clients--;
	mpib_registry_user_put(client->user);
	(void)mpib_client_free(client);

	/* A peer without a name lives as long as its connection. */
	if (peer->pid == 0)
		mpib_flows_peer_gone(server->flows, peer, "as its connection ended");
	(void)mpib_registry_peer_put(server->flows->registry, peer);
	if (watch)
		release_if_idle(watch->peer);
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

/* Who is it? A process that can be proven, or else one that lives as long as this connection. A
 * reference is taken for the client. */
static int identify(struct mpib_server *server, const struct ucred *cred, struct mpib_peer **ret)
{
	int r = -ENOENT;

	if (cred->pid > 0)
		r = find_process(server, cred->pid, cred->uid, ret);
	if (r == 0) {
		(*ret)->refs++;
		return 0;
	}
	if (r == -EPERM)
		mpib_journal_client(server->flows->journal, cred->pid, cred->uid,
				    "kept apart: the process has other user ids than the one that "
				    "connected, so what it registers ends with the connection");
	if (r != -ENOENT && r != -ESRCH && r != -EPERM)
		return r;

	return mpib_registry_peer_new(server->flows->registry, 0, 0, cred->uid, ret);
}

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

	r = identify(server, cred, &client->peer);
	if (r < 0)
		goto undo;

	client->user->clients++;
	LIST_INSERT_HEAD(&server->clients, client, all);
	server->n_clients++;
	r = mpib_client_start(client, server->loop);
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

/* 0: one was taken or lost, go on; 1: no more for now; a negative errno ends the agent. */
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

	fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
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

	if (!server)
		return -ENOMEM;

	server->loop = sd_event_ref(loop);
	server->flows = flows;
	server->ops = ops;
	server->user = user;
	server->fd = -1;
	server->dir_fd = -1;
	server->budget = descriptor_budget();
	mpib_journal_listen(flows->journal, on_entry, server);
	LIST_INIT(&server->clients);
	LIST_INIT(&server->watches);
	*ret = server;
	return 0;
}

struct mpib_server *mpib_server_free(struct mpib_server *server)
{
	struct stat st;

	if (!server)
		return NULL;

	/* Forget first: what ends now must not be taken for a job's end. */
	while (!LIST_EMPTY(&server->clients)) {
		struct mpib_client *client = LIST_FIRST(&server->clients);

		mpib_flows_forget_peer(server->flows, client->peer);
		drop_client(server, client);
	}
	while (!LIST_EMPTY(&server->watches)) {
		struct watch *watch = LIST_FIRST(&server->watches);

		mpib_flows_forget_peer(server->flows, watch->peer);
		unwatch(watch);
	}

	mpib_journal_listen(server->flows->journal, NULL, NULL);
	(void)sd_event_source_unref(server->io);
	if (server->dir_fd >= 0 &&
	    fstatat(server->dir_fd, MPIB_SOCKET_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_dev == server->device && st.st_ino == server->inode)
		(void)unlinkat(server->dir_fd, MPIB_SOCKET_NAME, 0);
	if (server->fd >= 0)
		(void)close(server->fd);
	(void)sd_event_unref(server->loop);
	free(server);
	return NULL;
}

/* Takes a dead agent's socket away; leaves everything else alone. */
static int clear_name(int dir_fd, const char *path, struct mpib_cause *cause)
{
	struct stat st;

	if (fstatat(dir_fd, MPIB_SOCKET_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT)
			return 0;
		return mpib_cause_set(cause, -errno, "can't look at %s: %s", path, strerror(errno));
	}
	if (!S_ISSOCK(st.st_mode))
		return mpib_cause_set(cause, -EEXIST,
				      "%s is in the way and is not a socket; remove it and start "
				      "again",
				      path);
	if (unlinkat(dir_fd, MPIB_SOCKET_NAME, 0) < 0)
		return mpib_cause_set(cause, -errno, "can't remove the old socket %s: %s", path,
				      strerror(errno));
	return 0;
}

/* Makes the socket with the mode that any user's job needs, from its first moment on. */
static int make_socket(struct mpib_server *server, int dir_fd, const struct sockaddr_un *address,
		       struct mpib_cause *cause)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	struct stat st;
	mode_t mask;
	int r;

	r = clear_name(dir_fd, address->sun_path, cause);
	if (r < 0)
		return r;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return mpib_cause_set(cause, -errno, "can't make a socket: %s", strerror(errno));

	mask = umask(0111);
	r = bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;
	(void)umask(mask);
	if (r < 0)
		return mpib_cause_set(cause, r, "can't bind %s: %s", address->sun_path,
				      strerror(-r));

	/* bind() goes by path, everything else by the directory that was checked. */
	if (fstatat(dir_fd, MPIB_SOCKET_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISSOCK(st.st_mode))
		return mpib_cause_set(cause, -EPERM, "%s was moved away while the agent started",
				      address->sun_path);

	server->dir_fd = dir_fd;
	server->device = st.st_dev;
	server->inode = st.st_ino;
	server->fd = mpib_steal_fd(&fd);
	return 0;
}

/* The service manager's socket. 1: taken; 0: none was passed. */
static int take_passed_socket(struct mpib_server *server, const char *path,
			      struct mpib_cause *cause)
{
	int n = sd_listen_fds(1);

	if (n < 0)
		return mpib_cause_set(cause, n, "can't take the passed socket: %s", strerror(-n));
	if (n == 0)
		return 0;
	if (n > 1 || sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_STREAM, 1, path, 0) <= 0)
		return mpib_cause_set(cause, -EINVAL,
				      "the service manager passed something else than one stream "
				      "socket at %s",
				      path);

	server->fd = SD_LISTEN_FDS_START;
	if (fcntl(server->fd, F_SETFL, O_NONBLOCK) < 0)
		return mpib_cause_set(cause, -errno, "can't set up the passed socket: %s",
				      strerror(errno));
	return 1;
}

int mpib_server_listen(struct mpib_server *server, int dir_fd, const char *dir,
		       struct mpib_cause *cause)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int len;
	int r;

	len = snprintf(address.sun_path, sizeof(address.sun_path), "%s/" MPIB_SOCKET_NAME, dir);
	if (len < 0 || (size_t)len >= sizeof(address.sun_path))
		return mpib_cause_set(cause, -ENAMETOOLONG,
				      "directory name %s is too long for a socket in it (%zu "
				      "bytes at most)",
				      dir, sizeof(address.sun_path) - sizeof(MPIB_SOCKET_NAME) - 1);

	r = take_passed_socket(server, address.sun_path, cause);
	if (r == 0)
		r = make_socket(server, dir_fd, &address, cause);
	if (r < 0)
		return r;

	if (listen(server->fd, BACKLOG) < 0)
		return mpib_cause_set(cause, -errno, "can't listen at %s: %s", address.sun_path,
				      strerror(errno));

	r = sd_event_add_io(server->loop, &server->io, server->fd, EPOLLIN, on_connect, server);
	if (r < 0)
		return mpib_cause_set(cause, r, "can't watch the socket: %s", strerror(-r));

	(void)sd_event_source_set_description(server->io, "socket");
	return 0;
}
