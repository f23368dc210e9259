/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/clients/peers.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "agent/clients/process.h"

struct watch {
	LIST_ENTRY(watch) all;
	struct mpib_peers *peers;
	struct mpib_peer *peer; /* one reference */
	struct mpib_poll_item exit;
	int pidfd;
};

LIST_HEAD(watch_list, watch);

struct mpib_peers {
	struct mpib_poller *poller;
	struct mpib_flows *flows;
	void (*on_room)(void *user);
	void *user;
	struct watch_list watches;
	uint32_t n_watches;
};

int mpib_peers_new(struct mpib_poller *poller, struct mpib_flows *flows,
		   void (*on_room)(void *user), void *user, struct mpib_peers **ret)
{
	struct mpib_peers *peers = calloc(1, sizeof(*peers));

	if (!peers)
		return -ENOMEM;

	*peers = (struct mpib_peers){
		.poller = poller,
		.flows = flows,
		.on_room = on_room,
		.user = user,
	};
	LIST_INIT(&peers->watches);
	*ret = peers;
	return 0;
}

uint32_t mpib_peers_n_watched(const struct mpib_peers *peers)
{
	return peers->n_watches;
}

/* ---- watching ------------------------------------------------------------------------------- */

static void unwatch(struct watch *watch)
{
	struct mpib_peers *peers = watch->peers;

	LIST_REMOVE(watch, all);
	peers->n_watches--;
	mpib_user_release(watch->peer->user, MPIB_GOOD_DESCRIPTORS, 1);
	watch->peer->watch = NULL;
	mpib_poller_remove(&watch->exit);
	(void)close(watch->pidfd);
	(void)mpib_registry_peer_put(peers->flows->registry, watch->peer);
	free(watch);
	peers->on_room(peers->user);
}

static void process_gone(struct watch *watch)
{
	mpib_flows_peer_gone(watch->peers->flows, watch->peer, "as its process ended");
	unwatch(watch);
}

static void on_exit_seen(void *user, uint32_t revents)
{
	(void)revents;
	process_gone(user);
}

/* Drops a process that has neither registrations nor connections. */
static void release_if_idle(struct mpib_peer *peer)
{
	if (peer->watch && peer->n_regs == 0 && peer->refs == 1)
		unwatch(peer->watch);
}

/* Watches @pidfd, which is the watch's from then on; closed on failure. */
static int watch_process(struct mpib_peers *peers, pid_t pid, uint64_t start_time, uid_t uid,
			 int pidfd, struct mpib_peer **ret)
{
	struct watch *watch = calloc(1, sizeof(*watch));
	int r;

	if (!watch) {
		(void)close(pidfd);
		return -ENOMEM;
	}

	r = mpib_registry_peer_new(peers->flows->registry, pid, start_time, uid, &watch->peer);
	if (r < 0)
		goto undo;

	r = mpib_poller_add(peers->poller, watch->peer->user->uid, &watch->exit, pidfd, EPOLLIN,
			    on_exit_seen, watch);
	if (r < 0)
		goto undo;

	watch->peers = peers;
	watch->pidfd = pidfd;
	watch->peer->watch = watch;
	mpib_user_charge(watch->peer->user, MPIB_GOOD_DESCRIPTORS, 1);
	LIST_INSERT_HEAD(&peers->watches, watch, all);
	peers->n_watches++;
	*ret = watch->peer;
	return 0;

undo:
	(void)mpib_registry_peer_put(peers->flows->registry, watch->peer);
	(void)close(pidfd);
	free(watch);
	return r;
}

struct mpib_peers *mpib_peers_free(struct mpib_peers *peers)
{
	if (!peers)
		return NULL;

	while (!LIST_EMPTY(&peers->watches)) {
		struct watch *watch = LIST_FIRST(&peers->watches);

		mpib_flows_forget_peer(peers->flows, watch->peer);
		unwatch(watch);
	}

	free(peers);
	return NULL;
}

/* ---- who is it ------------------------------------------------------------------------------ */

/* The process of a connection, known already or new. -ESRCH, -EPERM: it can't be proven. */
static int find_process(struct mpib_peers *peers, pid_t pid, uid_t uid, struct mpib_peer **ret)
{
	struct mpib_peer *peer = mpib_registry_peer_find(peers->flows->registry, pid);
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

	return watch_process(peers, pid, start_time, uid == MPIB_UID_ANY ? 0 : uid, pidfd, ret);
}

int mpib_peers_identify(struct mpib_peers *peers, const struct ucred *cred, struct mpib_peer **ret)
{
	int r = -ENOENT;

	if (cred->pid > 0)
		r = find_process(peers, cred->pid, cred->uid, ret);
	if (r == 0) {
		mpib_registry_peer_get(*ret);
		return 0;
	}
	if (r == -EPERM)
		mpib_journal_client(peers->flows->journal, cred->pid, cred->uid,
				    "kept apart: the process has other user ids than the one that "
				    "connected, so what it registers ends with the connection");
	if (r != -ENOENT && r != -ESRCH && r != -EPERM)
		return r;

	return mpib_registry_peer_new(peers->flows->registry, 0, 0, cred->uid, ret);
}

void mpib_peers_leave(struct mpib_peers *peers, struct mpib_peer *peer)
{
	const struct watch *watch = peer->watch;

	/* A peer without a name lives as long as its connection. */
	if (peer->pid == 0)
		mpib_flows_peer_gone(peers->flows, peer, "as its connection ended");
	(void)mpib_registry_peer_put(peers->flows->registry, peer);
	if (watch)
		release_if_idle(watch->peer);
}

int mpib_peers_adopt(struct mpib_peers *peers, const struct mpib_adopt_record *record,
		     uint32_t index)
{
	struct mpib_peer *peer;
	uint64_t start_time;
	int pidfd;
	int r;

	peer = mpib_registry_peer_find(peers->flows->registry, record->pid);
	if (!peer) {
		r = mpib_process_open(record->pid, MPIB_UID_ANY, &pidfd, &start_time);
		if (r < 0)
			return r == -ESRCH && mpib_process_exists(record->pid) ? -EACCES : r;
		if (start_time != record->start_time) {
			(void)close(pidfd);
			return -ESRCH;
		}
		r = watch_process(peers, record->pid, start_time, record->uid, pidfd, &peer);
		if (r < 0)
			return r;
	}

	if (peer->start_time != record->start_time)
		return -ESRCH;

	r = mpib_flows_adopt(peers->flows, peer, record, index);
	release_if_idle(peer);
	return r;
}
