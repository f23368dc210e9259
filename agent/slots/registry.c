/* SPDX-License-Identifier: Apache-2.0 */
/* Hash tables of fixed size over intrusive lists: three names (process, registration, flow), each
 * found in constant time however many there are. */
#include "agent/slots/registry.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "agent/slots/registry_impl.h"

int mpib_registry_new(uint32_t entries, struct mpib_registry **ret)
{
	struct mpib_registry *registry;

	assert(entries >= 1 && entries <= MPIB_HINT_ENTRIES_MAX);

	registry = calloc(1, sizeof(*registry));
	if (!registry)
		return -ENOMEM;

	registry->entries = entries;
	TAILQ_INIT(&registry->counted);
	/* Without it names are found as well, but somebody could make the search slow. */
	(void)getrandom(&registry->seed, sizeof(registry->seed), GRND_NONBLOCK);
	*ret = registry;
	return 0;
}

struct mpib_registry *mpib_registry_free(struct mpib_registry *registry)
{
	if (!registry)
		return NULL;

	assert(registry->n_regs == 0);
	assert(registry->n_users == 0);
	free(registry);
	return NULL;
}

uint32_t mpib_registry_entries(const struct mpib_registry *registry)
{
	return registry->entries;
}

uint32_t mpib_registry_n_flows(const struct mpib_registry *registry)
{
	return registry->n_flows;
}

uint32_t mpib_registry_n_regs(const struct mpib_registry *registry)
{
	return registry->n_regs;
}

uint32_t mpib_registry_n_unclaimed(const struct mpib_registry *registry)
{
	return registry->n_unclaimed;
}

uint32_t mpib_registry_n_peers(const struct mpib_registry *registry)
{
	return registry->n_peers;
}

uint32_t mpib_registry_n_touched(const struct mpib_registry *registry)
{
	return registry->n_touched;
}

void mpib_registry_grow(struct mpib_registry *registry, uint32_t entries)
{
	assert(entries <= MPIB_HINT_ENTRIES_MAX);
	if (entries > registry->entries)
		registry->entries = entries;
}

struct mpib_slot *mpib_registry_slot(struct mpib_registry *registry, uint32_t index)
{
	assert(index < registry->entries);
	return &registry->slots[index];
}

uint32_t mpib_registry_slot_index(const struct mpib_registry *registry,
				  const struct mpib_slot *slot)
{
	return (uint32_t)(slot - registry->slots);
}

bool mpib_slot_has_flow(const struct mpib_slot *slot)
{
	return slot->src_be != 0;
}

/* ---- flows and slots ------------------------------------------------------------------------ */

/* The finalizer of MurmurHash3, and a seed that nobody knows. */
uint32_t mpib_registry_mix(const struct mpib_registry *registry, uint64_t key)
{
	key += registry->seed;
	key ^= key >> 33;
	key *= 0xFF51AFD7ED558CCDu;
	key ^= key >> 33;
	key += registry->seed;
	key *= 0xC4CEB9FE1A85EC53u;
	key ^= key >> 33;
	return (uint32_t)key;
}

static struct mpib_slot_list *flow_bucket(struct mpib_registry *registry, uint32_t src_be,
					  uint32_t dst_be)
{
	return &registry->flows[mpib_registry_mix(registry, (uint64_t)src_be << 32 | dst_be) %
				FLOW_BUCKETS];
}

struct mpib_slot *mpib_registry_find_flow(struct mpib_registry *registry, uint32_t src_be,
					  uint32_t dst_be)
{
	struct mpib_slot *slot;

	LIST_FOREACH(slot, flow_bucket(registry, src_be, dst_be), bucket)
	{
		if (slot->src_be == src_be && slot->dst_be == dst_be)
			return slot;
	}

	return NULL;
}

static void bind_flow(struct mpib_registry *registry, struct mpib_slot *slot, uint32_t src_be,
		      uint32_t dst_be)
{
	slot->src_be = src_be;
	slot->dst_be = dst_be;
	memset(&slot->bytes, 0, sizeof(slot->bytes));
	memset(&slot->rate, 0, sizeof(slot->rate));
	memset(&slot->sampled, 0, sizeof(slot->sampled));
	slot->moved_usec = 0;
	memset(&slot->rails, 0, sizeof(slot->rails));
	memset(&slot->rail_state, 0, sizeof(slot->rail_state));
	if (slot >= &registry->slots[registry->n_touched])
		registry->n_touched = (uint32_t)(slot - registry->slots) + 1;
	LIST_INSERT_HEAD(flow_bucket(registry, src_be, dst_be), slot, bucket);
}

static void unbind_flow(struct mpib_registry *registry, struct mpib_slot *slot)
{
	uint32_t index = (uint32_t)(slot - registry->slots);

	LIST_REMOVE(slot, bucket);
	slot->src_be = 0;
	slot->dst_be = 0;
	if (index < registry->lowest_free)
		registry->lowest_free = index;
}

static struct mpib_slot *find_free(struct mpib_registry *registry)
{
	for (uint32_t n = registry->lowest_free; n < registry->entries; n++) {
		registry->lowest_free = n;
		if (!mpib_slot_has_flow(&registry->slots[n]))
			return &registry->slots[n];
	}

	registry->lowest_free = registry->entries;
	return NULL;
}

static void own_slot(struct mpib_slot *slot, struct mpib_user *user)
{
	if (slot->user)
		mpib_user_release(slot->user, MPIB_GOOD_SLOTS, 1);
	slot->user = user;
	if (user)
		mpib_user_charge(user, MPIB_GOOD_SLOTS, 1);
}

static struct mpib_hold_list *hold_bucket(struct mpib_registry *registry, uint32_t slot, uid_t uid)
{
	return &registry->holds[mpib_registry_mix(registry, (uint64_t)slot << 32 | uid) %
				HOLD_BUCKETS];
}

/* What @user holds of @slot, made on first sight. NULL where memory is out. */
static struct mpib_hold *get_hold(struct mpib_registry *registry, struct mpib_slot *slot,
				  struct mpib_user *user)
{
	uint32_t index = (uint32_t)(slot - registry->slots);
	struct mpib_hold_list *bucket = hold_bucket(registry, index, user->uid);
	struct mpib_hold *hold;

	LIST_FOREACH(hold, bucket, bucket)
	{
		if (hold->slot == index && hold->user == user)
			return hold;
	}

	hold = calloc(1, sizeof(*hold));
	if (!hold)
		return NULL;
	hold->user = user;
	hold->slot = index;
	LIST_INSERT_HEAD(bucket, hold, bucket);
	LIST_INSERT_HEAD(&slot->holds, hold, of_slot);
	return hold;
}

/* A slot counts to one user who holds it. When that user's last registration of the flow goes and
 * another's stays, it counts to the other. */
static void put_hold(struct mpib_slot *slot, struct mpib_hold *hold)
{
	struct mpib_user *user = hold->user;

	if (hold->n_regs > 0)
		return;

	LIST_REMOVE(hold, bucket);
	LIST_REMOVE(hold, of_slot);
	free(hold);
	if (slot->user != user)
		return;
	hold = LIST_FIRST(&slot->holds);
	own_slot(slot, hold ? hold->user : NULL);
}

/* ---- registrations -------------------------------------------------------------------------- */

static struct mpib_reg_list *reg_bucket(struct mpib_registry *registry,
					const struct mpib_peer *peer, uint32_t conn_id)
{
	return &registry->regs[mpib_registry_mix(registry, peer->key << 32 | conn_id) %
			       REG_BUCKETS];
}

struct mpib_reg *mpib_registry_find(struct mpib_registry *registry, const struct mpib_peer *peer,
				    uint32_t conn_id)
{
	struct mpib_reg *reg;

	LIST_FOREACH(reg, reg_bucket(registry, peer, conn_id), bucket)
	{
		if (reg->peer == peer && reg->conn_id == conn_id)
			return reg;
	}

	return NULL;
}

static struct mpib_reg *attach(struct mpib_registry *registry, struct mpib_peer *peer,
			       uint32_t conn_id, const struct mpib_addresses *addresses,
			       struct mpib_slot *slot)
{
	struct mpib_reg *reg = calloc(1, sizeof(*reg));
	struct mpib_hold *hold = reg ? get_hold(registry, slot, peer->user) : NULL;

	if (!hold) {
		free(reg);
		return NULL;
	}

	if (slot->n_regs == 0)
		registry->n_flows++;
	if (!slot->user)
		own_slot(slot, peer->user);

	reg->peer = peer;
	reg->hold = hold;
	hold->n_regs++;
	reg->conn_id = conn_id;
	reg->slot = (uint32_t)(slot - registry->slots);
	reg->sup_src_be = addresses->sup_src_be;
	reg->sup_dst_be = addresses->sup_dst_be;
	reg->place = MPIB_PLACE_NONE;
	reg->record = MPIB_RECORD_NONE;
	LIST_INSERT_HEAD(reg_bucket(registry, peer, conn_id), reg, bucket);
	LIST_INSERT_HEAD(&peer->regs, reg, of_peer);
	LIST_INSERT_HEAD(&slot->regs, reg, of_slot);
	slot->n_regs++;
	slot->n_unclaimed += peer->unclaimed;
	registry->n_unclaimed += peer->unclaimed;
	peer->n_regs++;
	mpib_user_charge(peer->user, MPIB_GOOD_REGISTRATIONS, 1);
	registry->n_regs++;
	return reg;
}

/* A slot for a flow that has none; 0 or the reason why not. The caller binds it. */
static int pick_slot(struct mpib_registry *registry, const struct mpib_user *user,
		     struct mpib_slot **ret)
{
	enum mpib_quota quota = mpib_user_may(user, MPIB_GOOD_SLOTS, 1, 0, registry->entries);

	if (quota == MPIB_QUOTA_USER)
		return -EDQUOT;
	if (quota == MPIB_QUOTA_ROOT)
		return -EACCES;
	*ret = find_free(registry);
	return *ret ? 0 : -ENOSPC;
}

int mpib_registry_add(struct mpib_registry *registry, struct mpib_peer *peer, uint32_t conn_id,
		      const struct mpib_addresses *addresses, struct mpib_reg **ret)
{
	struct mpib_reg *reg = mpib_registry_find(registry, peer, conn_id);
	struct mpib_slot *slot;
	int r;

	assert(!peer->dead);
	if (!addresses->sout_src_be || !addresses->sout_dst_be)
		return -EINVAL;

	slot = mpib_registry_find_flow(registry, addresses->sout_src_be, addresses->sout_dst_be);
	if (reg) {
		*ret = reg;
		if (slot != &registry->slots[reg->slot])
			return -EEXIST;
		reg->adopted = false;
		return 0;
	}

	if (mpib_user_may(peer->user, MPIB_GOOD_REGISTRATIONS, 1, registry->n_regs,
			  MPIB_REGISTRY_MAX) != MPIB_QUOTA_FREE)
		return -EUSERS;

	if (!slot) {
		r = pick_slot(registry, peer->user, &slot);
		if (r < 0)
			return r;
		bind_flow(registry, slot, addresses->sout_src_be, addresses->sout_dst_be);
	}

	reg = attach(registry, peer, conn_id, addresses, slot);
	if (!reg) {
		if (slot->n_regs == 0)
			unbind_flow(registry, slot);
		return -ENOMEM;
	}

	*ret = reg;
	return 1;
}

int mpib_registry_adopt(struct mpib_registry *registry, struct mpib_peer *peer, uint32_t conn_id,
			const struct mpib_addresses *addresses, uint32_t index,
			struct mpib_reg **ret)
{
	struct mpib_slot *slot;
	struct mpib_slot *known;
	struct mpib_reg *reg;

	if (index >= registry->entries || registry->n_regs >= MPIB_REGISTRY_MAX)
		return -ERANGE;
	if (!addresses->sout_src_be || !addresses->sout_dst_be)
		return -EINVAL;
	if (mpib_registry_find(registry, peer, conn_id))
		return -EEXIST;

	slot = &registry->slots[index];
	known = mpib_registry_find_flow(registry, addresses->sout_src_be, addresses->sout_dst_be);
	if (known ? known != slot : mpib_slot_has_flow(slot))
		return -EEXIST;

	if (!known)
		bind_flow(registry, slot, addresses->sout_src_be, addresses->sout_dst_be);

	reg = attach(registry, peer, conn_id, addresses, slot);
	if (!reg) {
		if (slot->n_regs == 0)
			unbind_flow(registry, slot);
		return -ENOMEM;
	}

	reg->adopted = true;
	reg->restored = true;
	*ret = reg;
	return 0;
}

bool mpib_registry_remove(struct mpib_registry *registry, struct mpib_reg *reg)
{
	struct mpib_slot *slot = &registry->slots[reg->slot];

	if (reg->peer->look_next == reg)
		reg->peer->look_next = LIST_NEXT(reg, of_peer);
	LIST_REMOVE(reg, bucket);
	LIST_REMOVE(reg, of_peer);
	LIST_REMOVE(reg, of_slot);
	slot->n_regs--;
	slot->n_unclaimed -= reg->peer->unclaimed;
	registry->n_unclaimed -= reg->peer->unclaimed;
	reg->peer->n_regs--;
	mpib_user_release(reg->peer->user, MPIB_GOOD_REGISTRATIONS, 1);
	registry->n_regs--;
	reg->hold->n_regs--;
	put_hold(slot, reg->hold);
	free(reg);

	if (slot->n_regs > 0)
		return false;

	registry->n_flows--;
	unbind_flow(registry, slot);
	return true;
}
