/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/traffic.h"

#include <errno.h>
#include <time.h>

/* Tables at once: each costs the agent address space, and memory where it is read. */
#define TABLES_MAX 4096u

/* One user leaves this part of them to others. */
#define RESERVED_PART 8u

struct tally {
	uid_t uid;
	unsigned int all;
	unsigned int of_user;
};

static void count_table(void *user, struct mpib_peer *peer)
{
	struct tally *tally = user;

	tally->all += peer->counters != NULL;
	tally->of_user += peer->counters && peer->user->uid == tally->uid;
}

int mpib_traffic_take(struct mpib_registry *registry, struct mpib_peer *peer, int fd, size_t size)
{
	struct mpib_counter_map *map;
	struct tally tally = { .uid = peer->user->uid };
	int r;

	/* Only what has a name is looked at. */
	if (peer->pid == 0)
		return -ESRCH;
	mpib_registry_each_peer(registry, count_table, &tally);
	if (!peer->counters &&
	    (tally.all >= TABLES_MAX ||
	     (tally.uid != 0 && tally.of_user >= TABLES_MAX - TABLES_MAX / RESERVED_PART)))
		return -EDQUOT;

	r = mpib_counter_map_new(fd, size, &map);
	if (r < 0)
		return r;

	/* The connections of the earlier table count anew in this one. */
	mpib_traffic_look(registry, peer);
	(void)mpib_counter_map_free(peer->counters);
	peer->counters = map;
	return 0;
}

/* ---- a look --------------------------------------------------------------------------------- */

struct look {
	struct mpib_registry *registry;
	struct mpib_peer *peer;
	uint32_t left; /* registrations not met yet: no need to look further when there are none */
	uint64_t now_usec;
};

/* What was added since *seen; a count that went back began anew. */
static uint64_t advance(uint64_t *seen, uint64_t now)
{
	uint64_t added = now >= *seen ? now - *seen : now;

	*seen = now;
	return added;
}

static int take_entry(void *user, uint32_t conn_id, const struct mpib_counter_bytes *bytes)
{
	struct look *look = user;
	struct mpib_reg *reg = mpib_registry_find(look->registry, look->peer, conn_id);
	struct mpib_slot *slot;
	uint64_t moved = 0;

	/* Not one of this process's registrations: nothing of anybody's flow. */
	if (!reg)
		return 1;

	slot = mpib_registry_slot(look->registry, reg->slot);
	for (unsigned int rail = 0; rail < 2; rail++) {
		uint64_t sent = advance(&reg->seen.sent[rail], bytes->sent[rail]);
		uint64_t received = advance(&reg->seen.received[rail], bytes->received[rail]);

		slot->bytes.sent[rail] += sent;
		slot->bytes.received[rail] += received;
		moved |= sent | received;
	}
	if (moved)
		slot->moved_usec = look->now_usec;
	return --look->left > 0;
}

void mpib_traffic_look(struct mpib_registry *registry, struct mpib_peer *peer)
{
	struct look look = { .registry = registry, .peer = peer, .left = peer->n_regs };
	struct timespec now = { 0 };

	if (!peer->counters || !peer->n_regs)
		return;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	look.now_usec = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
	mpib_counter_map_each(peer->counters, take_entry, &look);
}

static void look_at(void *user, struct mpib_peer *peer)
{
	mpib_traffic_look(user, peer);
}

void mpib_traffic_look_all(struct mpib_registry *registry)
{
	mpib_registry_each_peer(registry, look_at, registry);
}

/* ---- rates ---------------------------------------------------------------------------------- */

static uint64_t per_second(uint64_t bytes, uint64_t usec)
{
	return (uint64_t)((double)bytes * 1e6 / (double)usec);
}

void mpib_traffic_rate(struct mpib_registry *registry, uint64_t usec)
{
	for (uint32_t n = 0; usec && n < mpib_registry_entries(registry); n++) {
		struct mpib_slot *slot = mpib_registry_slot(registry, n);

		if (!mpib_slot_has_flow(slot))
			continue;
		for (unsigned int rail = 0; rail < 2; rail++) {
			slot->rate.sent[rail] =
				per_second(slot->bytes.sent[rail] - slot->sampled.sent[rail], usec);
			slot->rate.received[rail] = per_second(
				slot->bytes.received[rail] - slot->sampled.received[rail], usec);
		}
		slot->sampled = slot->bytes;
	}
}
