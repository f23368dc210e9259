/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/registry_table.h"

/* ---- users ---------------------------------------------------------------------------------- */

struct mpib_user *mpib_registry_user_get(struct mpib_registry *registry, uid_t uid)
{
	struct mpib_user *user;

	LIST_FOREACH(user, &registry->users, all)
	{
		if (user->uid == uid) {
			user->refs++;
			return user;
		}
	}

	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;

	user->uid = uid;
	user->refs = 1;
	LIST_INSERT_HEAD(&registry->users, user, all);
	return user;
}

void mpib_registry_user_put(struct mpib_user *user)
{
	assert(user->refs > 0);
	if (--user->refs > 0)
		return;

	LIST_REMOVE(user, all);
	free(user);
}

/* ---- peers ---------------------------------------------------------------------------------- */

static struct mpib_peer_list *peer_bucket(struct mpib_registry *registry, pid_t pid)
{
	return &registry->peers[(uint32_t)pid % PEER_BUCKETS];
}

struct mpib_peer *mpib_registry_peer_find(struct mpib_registry *registry, pid_t pid)
{
	struct mpib_peer *peer;

	if (pid == 0)
		return NULL;

	LIST_FOREACH(peer, peer_bucket(registry, pid), bucket)
	{
		if (peer->pid == pid)
			return peer;
	}

	return NULL;
}

int mpib_registry_peer_new(struct mpib_registry *registry, pid_t pid, uint64_t start_time,
			   uid_t uid, struct mpib_peer **ret)
{
	struct mpib_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return -ENOMEM;

	peer->user = mpib_registry_user_get(registry, uid);
	if (!peer->user) {
		free(peer);
		return -ENOMEM;
	}

	peer->pid = pid;
	peer->start_time = start_time;
	peer->refs = 1;
	LIST_INIT(&peer->regs);
	if (pid != 0)
		LIST_INSERT_HEAD(peer_bucket(registry, pid), peer, bucket);
	registry->n_peers++;
	*ret = peer;
	return 0;
}

void mpib_registry_peer_bury(struct mpib_peer *peer)
{
	if (!peer->dead && peer->pid != 0)
		LIST_REMOVE(peer, bucket);
	peer->dead = true;
}

struct mpib_peer *mpib_registry_peer_put(struct mpib_registry *registry, struct mpib_peer *peer)
{
	if (!peer)
		return NULL;

	assert(peer->refs > 0);
	if (--peer->refs > 0)
		return NULL;

	assert(LIST_EMPTY(&peer->regs));
	mpib_registry_peer_bury(peer);
	peer->counters = mpib_counter_map_free(peer->counters);
	mpib_registry_user_put(peer->user);
	registry->n_peers--;
	free(peer);
	return NULL;
}

void mpib_registry_each_peer(struct mpib_registry *registry,
			     void (*take)(void *user, struct mpib_peer *peer), void *user)
{
	struct mpib_peer *peer;

	for (size_t n = 0; n < PEER_BUCKETS; n++) {
		LIST_FOREACH(peer, &registry->peers[n], bucket)
		{
			take(user, peer);
		}
	}
}
