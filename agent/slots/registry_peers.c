/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/slots/registry_impl.h"

/* ---- users ---------------------------------------------------------------------------------- */

struct mpib_user *mpib_registry_user_get(struct mpib_registry *registry, uid_t uid)
{
	struct mpib_user_list *bucket =
		&registry->users[mpib_registry_mix(registry, uid) % USER_BUCKETS];
	struct mpib_user *user;

	LIST_FOREACH(user, bucket, all)
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
	user->others = uid == 0 ? NULL : &registry->others;
	LIST_INSERT_HEAD(bucket, user, all);
	registry->n_users++;
	return user;
}

void mpib_registry_user_put(struct mpib_registry *registry, struct mpib_user *user)
{
	assert(user->refs > 0);
	if (--user->refs > 0)
		return;

	LIST_REMOVE(user, all);
	registry->n_users--;
	free(user);
}

enum mpib_quota mpib_user_may(const struct mpib_user *user, enum mpib_good good, uint32_t count,
			      uint32_t taken, uint32_t total)
{
	if (user->others && user->held.of[good] + count > mpib_quota_user(total))
		return MPIB_QUOTA_USER;
	if (user->others && user->others->of[good] + count > mpib_quota_users(total))
		return MPIB_QUOTA_ROOT;
	return taken + count > total ? MPIB_QUOTA_NONE : MPIB_QUOTA_FREE;
}

void mpib_user_charge(struct mpib_user *user, enum mpib_good good, uint32_t count)
{
	user->held.of[good] += count;
	if (user->others)
		user->others->of[good] += count;
}

void mpib_user_release(struct mpib_user *user, enum mpib_good good, uint32_t count)
{
	user->held.of[good] -= count;
	if (user->others)
		user->others->of[good] -= count;
}

uint32_t mpib_user_refuse(struct mpib_user *user, enum mpib_good good)
{
	return ++user->refused.of[good];
}

void mpib_user_refusals_told(struct mpib_user *user, enum mpib_good good)
{
	user->refused.of[good] = 0;
}

/* ---- peers ---------------------------------------------------------------------------------- */

static struct mpib_peer_list *peer_bucket(struct mpib_registry *registry, pid_t pid)
{
	return &registry->peers[mpib_registry_mix(registry, (uint32_t)pid) % PEER_BUCKETS];
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

	peer->key = registry->n_peers_ever++;
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

void mpib_registry_peer_get(struct mpib_peer *peer)
{
	peer->refs++;
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
	mpib_registry_peer_count(registry, peer, NULL);
	mpib_registry_user_put(registry, peer->user);
	registry->n_peers--;
	free(peer);
	return NULL;
}

void mpib_registry_peer_count(struct mpib_registry *registry, struct mpib_peer *peer,
			      struct mpib_counter_map *counters)
{
	uint32_t before = peer->counters ? mpib_counter_map_entries(peer->counters) : 0;
	uint32_t after = counters ? mpib_counter_map_entries(counters) : 0;

	mpib_user_release(peer->user, MPIB_GOOD_ENTRIES, before);
	mpib_user_charge(peer->user, MPIB_GOOD_ENTRIES, after);
	registry->n_table_entries += after - before;
	if (peer->counters) {
		TAILQ_REMOVE(&registry->counted, peer, counted);
		registry->n_tables--;
		mpib_user_release(peer->user, MPIB_GOOD_TABLES, 1);
	}
	(void)mpib_counter_map_free(peer->counters);
	peer->counters = counters;
	peer->look = 0;
	if (counters) {
		TAILQ_INSERT_TAIL(&registry->counted, peer, counted);
		registry->n_tables++;
		mpib_user_charge(peer->user, MPIB_GOOD_TABLES, 1);
	}
}

struct mpib_peer_queue *mpib_registry_counted(struct mpib_registry *registry)
{
	return &registry->counted;
}

uint32_t mpib_registry_n_entries(const struct mpib_registry *registry)
{
	return registry->n_table_entries;
}

uint32_t mpib_registry_n_tables(const struct mpib_registry *registry)
{
	return registry->n_tables;
}
