/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/slots/traffic.h"

#include <errno.h>

#include "agent/base/clock.h"
#include "common/counters.h"

/* Tables at once, and entries of all: each costs the agent address space, and memory where it is
 * read. */
#define TABLES_MAX  4096u
#define ENTRIES_MAX (TABLES_MAX * MPIB_COUNTERS_ENTRIES)

/* Registrations, entries or slots looked at in one slice: about 50 us. */
#define SLICE 512u

/* Entries looked at for one user in a round: to find out where registrations are, and to search for
 * one that goes before it was found. What is more waits for a later round, or isn't counted. */
#define SCAN_MAX   131072u
#define SEARCH_MAX 32768u

/* A process puts one entry behind the other, and a registration may come before its entry: so a new
 * one is searched for so far beyond those that are known, often. */
#define NEAR 64u

/* What it costs to tell news, in looks. */
#define TELL_COST 64u

enum look {
	LOOK_NOT = 0,
	LOOK_REGS, /* at the entries whose place is known */
	LOOK_SCAN, /* for the others */
};

void mpib_traffic_init(struct mpib_traffic *traffic, struct mpib_registry *registry)
{
	*traffic = (struct mpib_traffic){ .registry = registry };
	TAILQ_INIT(&traffic->telling);
}

/* ---- rails ---------------------------------------------------------------------------------- */

static void tell(struct mpib_traffic *traffic, struct mpib_slot *slot)
{
	if (!slot->has_news)
		return;
	TAILQ_REMOVE(&traffic->telling, slot, telling);
	slot->has_news = false;
	if (traffic->ops)
		traffic->ops->rails(traffic->ops_user,
				    mpib_registry_slot_index(traffic->registry, slot), &slot->news);
}

/* Keeps what a connection added until all of its process were looked at. */
static void keep_news(struct mpib_traffic *traffic, struct mpib_slot *slot,
		      const struct mpib_reg *reg, const struct mpib_rail_counts *added)
{
	struct mpib_rail_news *news = &slot->news;

	if (slot->has_news && news->peer_key != reg->peer->key)
		tell(traffic, slot);
	if (!slot->has_news) {
		*news = (struct mpib_rail_news){
			.peer_key = reg->peer->key,
			.pid = reg->peer->pid,
			.uid = reg->peer->user->uid,
		};
		slot->has_news = true;
		TAILQ_INSERT_TAIL(&traffic->telling, slot, telling);
	}

	mpib_rails_add(&news->added, added);
	news->up |= reg->rails.up;
	for (unsigned int rail = 0; rail < 2; rail++) {
		news->lost_by[rail] += added->losses[rail] != 0;
		news->returned_to[rail] += added->returns[rail] != 0;
	}
}

static void uncount_rails(struct mpib_traffic *traffic, struct mpib_slot *slot,
			  struct mpib_reg_rails *rails)
{
	if (!rails->known)
		return;
	mpib_rails_count(&slot->rail_state, rails, false);
	mpib_rails_count(&traffic->rail_state, rails, false);
	rails->known = false;
}

static void disbelieve(struct mpib_traffic *traffic, struct mpib_reg *reg, const char *why)
{
	reg->rails.lied = true;
	if (traffic->ops && !reg->peer->rails_lied)
		traffic->ops->lie(traffic->ops_user, reg, why);
	reg->peer->rails_lied = true;
}

static void look_at_rails(struct mpib_traffic *traffic, struct mpib_slot *slot,
			  struct mpib_reg *reg)
{
	struct mpib_rail_counts added;
	struct mpib_counter_rails now;
	const char *why;

	if (reg->rails.lied)
		return;
	if (!mpib_counter_map_rails(reg->peer->counters, reg->place, &now)) {
		uncount_rails(traffic, slot, &reg->rails);
		return;
	}
	/* Nearly always: the rest isn't even fetched from memory. */
	if (mpib_rails_same(&reg->rails, &now, reg->peer->n_tables))
		return;

	uncount_rails(traffic, slot, &reg->rails);
	why = mpib_rails_judge(&reg->rails, &now, reg->peer->n_tables, reg->restored, &added);
	if (why) {
		disbelieve(traffic, reg, why);
		return;
	}

	reg->rails.known = true;
	mpib_rails_count(&slot->rail_state, &reg->rails, true);
	mpib_rails_count(&traffic->rail_state, &reg->rails, true);
	mpib_rails_add(&slot->rails, &added);
	mpib_rails_add(&traffic->rails, &added);
	if (mpib_rails_changed(&added))
		keep_news(traffic, slot, reg, &added);
}

static uint32_t tell_news(struct mpib_traffic *traffic, uint32_t budget)
{
	while (budget && !TAILQ_EMPTY(&traffic->telling)) {
		tell(traffic, TAILQ_FIRST(&traffic->telling));
		budget -= budget < TELL_COST ? budget : TELL_COST;
	}
	return budget;
}

/* ---- one registration ----------------------------------------------------------------------- */

/* What was added since *seen; a count that went back began anew. */
static uint64_t advance(uint64_t *seen, uint64_t now)
{
	uint64_t added = now >= *seen ? now - *seen : now;

	*seen = now;
	return added;
}

/* Two ranks' puts and signals, where the entry is of a mesh; once it is, it stays so. */
static void look_at_puts(struct mpib_slot *slot, struct mpib_reg *reg, const uint64_t sent[2])
{
	uint64_t puts[2];

	if (!mpib_counter_map_gin(reg->peer->counters, reg->place, puts))
		return;
	slot->n_gin += !reg->gin;
	reg->gin = true;
	for (unsigned int rail = 0; rail < 2; rail++) {
		slot->puts.count[rail] += advance(&reg->puts_seen[rail], puts[rail]);
		slot->puts.bytes[rail] += sent[rail];
	}
}

/* Looks at the entry that was the registration's. False where it is another's by now. */
static bool look_at(struct mpib_traffic *traffic, struct mpib_reg *reg)
{
	struct mpib_slot *slot = mpib_registry_slot(traffic->registry, reg->slot);
	struct mpib_counter_bytes bytes;
	uint64_t sent[2], moved = 0;
	uint32_t conn_id;

	if (reg->place == MPIB_PLACE_NONE)
		return false;
	if (!mpib_counter_map_at(reg->peer->counters, reg->place, &conn_id, &bytes) ||
	    conn_id != reg->conn_id) {
		uncount_rails(traffic, slot, &reg->rails);
		reg->place = MPIB_PLACE_NONE;
		return false;
	}

	for (unsigned int rail = 0; rail < 2; rail++) {
		uint64_t received = advance(&reg->seen.received[rail], bytes.received[rail]);

		sent[rail] = advance(&reg->seen.sent[rail], bytes.sent[rail]);
		slot->bytes.sent[rail] += sent[rail];
		slot->bytes.received[rail] += received;
		moved |= sent[rail] | received;
	}
	look_at_puts(slot, reg, sent);
	if (moved)
		slot->moved_usec = mpib_clock_usec(CLOCK_REALTIME);
	look_at_rails(traffic, slot, reg);
	return true;
}

static struct mpib_user *user_of_round(const struct mpib_traffic *traffic,
				       const struct mpib_peer *peer)
{
	struct mpib_user *user = peer->user;

	if (user->round != traffic->round) {
		user->round = traffic->round;
		user->scanned = 0;
		user->searched = 0;
	}
	return user;
}

static void found(struct mpib_traffic *traffic, struct mpib_reg *reg, uint32_t index)
{
	reg->place = index;
	reg->peer->place_next = index + 1;
	if (index >= reg->peer->places_end)
		reg->peer->places_end = index + 1;
	(void)look_at(traffic, reg);
}

/* Searches the first @entries, from behind the one that was found last. */
static void search(struct mpib_traffic *traffic, struct mpib_reg *reg, uint32_t entries)
{
	struct mpib_user *user = user_of_round(traffic, reg->peer);
	struct mpib_counter_bytes bytes;
	uint32_t conn_id;

	for (uint32_t n = 0; n < entries && user->searched < SEARCH_MAX; n++, user->searched++) {
		uint32_t index = (reg->peer->place_next + n) % entries;

		if (mpib_counter_map_at(reg->peer->counters, index, &conn_id, &bytes) &&
		    conn_id == reg->conn_id) {
			found(traffic, reg, index);
			return;
		}
	}
}

bool mpib_traffic_find(struct mpib_traffic *traffic, struct mpib_reg *reg)
{
	uint32_t entries, near = reg->peer->places_end + NEAR;

	if (reg->place == MPIB_PLACE_NONE && reg->peer->counters) {
		entries = mpib_counter_map_entries(reg->peer->counters);
		search(traffic, reg, near < entries ? near : entries);
	}
	return reg->place != MPIB_PLACE_NONE;
}

void mpib_traffic_last(struct mpib_traffic *traffic, struct mpib_reg *reg)
{
	struct mpib_slot *slot = mpib_registry_slot(traffic->registry, reg->slot);

	if (reg->peer->counters && !look_at(traffic, reg))
		search(traffic, reg, mpib_counter_map_entries(reg->peer->counters));
	uncount_rails(traffic, slot, &reg->rails);
	slot->n_gin -= reg->gin;
	if (slot->n_regs == 1)
		tell(traffic, slot);
}

/* ---- a round -------------------------------------------------------------------------------- */

/* Looks at registrations of a process. Returns what is left of @budget. */
static uint32_t look_at_regs(struct mpib_traffic *traffic, struct mpib_peer *peer, uint32_t budget)
{
	for (; budget && peer->look_next; budget--) {
		struct mpib_reg *reg = peer->look_next;

		peer->look_next = LIST_NEXT(reg, of_peer);
		if (!look_at(traffic, reg))
			peer->scan_left = mpib_counter_map_entries(peer->counters);
	}
	if (!peer->look_next)
		peer->look = LOOK_SCAN;
	return budget;
}

/* Goes through the table for registrations whose place isn't known; goes on where it stopped. */
static uint32_t scan(struct mpib_traffic *traffic, struct mpib_peer *peer, uint32_t budget)
{
	struct mpib_user *user = user_of_round(traffic, peer);
	struct mpib_counter_bytes bytes;
	uint32_t conn_id;

	for (; budget && peer->scan_left && user->scanned < SCAN_MAX; budget--) {
		uint32_t index = peer->scan_next;
		struct mpib_reg *reg = NULL;

		user->scanned++;
		peer->scan_left--;
		peer->scan_next = (index + 1) % mpib_counter_map_entries(peer->counters);
		if (mpib_counter_map_at(peer->counters, index, &conn_id, &bytes))
			reg = mpib_registry_find(traffic->registry, peer, conn_id);
		if (reg && reg->place == MPIB_PLACE_NONE)
			found(traffic, reg, index);
	}
	if (!peer->scan_left || user->scanned >= SCAN_MAX)
		peer->look = LOOK_NOT;
	return budget;
}

static uint32_t look_at_peer(struct mpib_traffic *traffic, struct mpib_peer *peer, uint32_t budget)
{
	struct mpib_peer_queue *queue = mpib_registry_counted(traffic->registry);

	if (peer->look == LOOK_NOT) {
		peer->look = LOOK_REGS;
		peer->look_next = LIST_FIRST(&peer->regs);
		peer->scan_left = 0;
	}
	if (peer->look == LOOK_REGS)
		budget = look_at_regs(traffic, peer, budget);
	if (peer->look == LOOK_SCAN)
		budget = scan(traffic, peer, budget);
	if (peer->look != LOOK_NOT)
		return budget;

	TAILQ_REMOVE(queue, peer, counted);
	TAILQ_INSERT_TAIL(queue, peer, counted);
	traffic->peers_left--;
	return budget ? budget - 1 : 0;
}

static uint64_t per_second(uint64_t bytes, uint64_t usec)
{
	return (uint64_t)((double)bytes * 1e6 / (double)usec);
}

static void rate(struct mpib_slot *slot, uint64_t usec)
{
	if (!mpib_slot_has_flow(slot))
		return;
	for (unsigned int rail = 0; rail < 2; rail++) {
		slot->rate.sent[rail] =
			per_second(slot->bytes.sent[rail] - slot->sampled.sent[rail], usec);
		slot->rate.received[rail] =
			per_second(slot->bytes.received[rail] - slot->sampled.received[rail], usec);
	}
	slot->sampled = slot->bytes;
}

static uint32_t make_rates(struct mpib_traffic *traffic, uint32_t budget)
{
	uint64_t now = mpib_clock_usec(CLOCK_MONOTONIC);

	if (traffic->next_slot == 0) {
		traffic->span_usec = traffic->rate_usec ? now - traffic->rate_usec : 0;
		traffic->rate_usec = now;
	}
	for (; budget && traffic->next_slot < mpib_registry_n_touched(traffic->registry);
	     budget--) {
		struct mpib_slot *slot =
			mpib_registry_slot(traffic->registry, traffic->next_slot++);

		if (traffic->span_usec)
			rate(slot, traffic->span_usec);
	}
	return budget;
}

void mpib_traffic_begin(struct mpib_traffic *traffic)
{
	if (traffic->going)
		return;

	traffic->going = true;
	traffic->round++;
	traffic->peers_left = mpib_registry_n_tables(traffic->registry);
	traffic->next_slot = 0;
}

bool mpib_traffic_step(struct mpib_traffic *traffic)
{
	uint32_t budget = SLICE;

	while (traffic->going && budget && traffic->peers_left) {
		struct mpib_peer *peer = TAILQ_FIRST(mpib_registry_counted(traffic->registry));

		if (peer)
			budget = look_at_peer(traffic, peer, budget);
		else
			traffic->peers_left = 0;
	}
	if (traffic->going)
		budget = tell_news(traffic, budget);
	/* Budget that is left means that all slots had their turn, too. */
	if (traffic->going && budget && make_rates(traffic, budget))
		traffic->going = false;
	return traffic->going;
}

/* ---- tables --------------------------------------------------------------------------------- */

int mpib_traffic_set_table(struct mpib_traffic *traffic, struct mpib_peer *peer, int fd,
			   size_t size)
{
	struct mpib_registry *registry = traffic->registry;
	struct mpib_counter_map *map;
	int r;

	/* Only what has a name is looked at. */
	if (peer->pid == 0)
		return -ESRCH;
	if (!peer->counters &&
	    mpib_user_may(peer->user, MPIB_GOOD_TABLES, 1, mpib_registry_n_tables(registry),
			  TABLES_MAX) != MPIB_QUOTA_FREE)
		return -EDQUOT;

	r = mpib_counter_map_new(fd, size, &map);
	if (r < 0)
		return r;
	if (mpib_user_may(peer->user, MPIB_GOOD_ENTRIES, mpib_counter_map_entries(map),
			  mpib_registry_n_entries(registry), ENTRIES_MAX) != MPIB_QUOTA_FREE) {
		(void)mpib_counter_map_free(map);
		return -EDQUOT;
	}

	/* What moved in the earlier table since the latest look, as far as a slice sees it. */
	if (peer->counters) {
		peer->look_next = LIST_FIRST(&peer->regs);
		(void)look_at_regs(traffic, peer, SLICE);
	}
	mpib_registry_peer_count(registry, peer, map);
	peer->n_tables++;
	peer->scan_next = 0;
	peer->place_next = 0;
	peer->places_end = 0;
	return 0;
}
