/* SPDX-License-Identifier: Apache-2.0 */
/* Hash tables of fixed size over intrusive lists: three names (process, registration, flow), each
 * found in constant time however many there are. */
#include "agent/registry.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/registry_table.h"

int mpib_registry_new(uint32_t entries, struct mpib_registry **ret)
{
	struct mpib_registry *registry;

	assert(entries >= 1 && entries <= MPIB_HINT_ENTRIES_MAX);

	registry = calloc(1, sizeof(*registry));
	if (!registry)
		return -ENOMEM;

	registry->entries = entries;
	*ret = registry;
	return 0;
}

struct mpib_registry *mpib_registry_free(struct mpib_registry *registry)
{
	if (!registry)
		return NULL;

	assert(registry->n_regs == 0);
	assert(LIST_EMPTY(&registry->users));
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

uint32_t mpib_registry_n_peers(const struct mpib_registry *registry)
{
	return registry->n_peers;
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

static uint32_t mix(uint64_t key)
{
	key *= 0x9E3779B97F4A7C15u; /* 2^64 over the golden ratio: spreads neighbours */
	return (uint32_t)(key >> 32);
}

static struct mpib_slot_list *flow_bucket(struct mpib_registry *registry, uint32_t src_be,
					  uint32_t dst_be)
{
	return &registry->flows[mix((uint64_t)src_be << 32 | dst_be) % FLOW_BUCKETS];
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

/* Takes a slot from a flow that nobody holds any more, in turn. */
static struct mpib_slot *evict_orphan(struct mpib_registry *registry)
{
	if (!registry->n_orphans)
		return NULL;

	for (uint32_t n = 0; n < registry->entries; n++) {
		struct mpib_slot *slot =
			&registry->slots[registry->next_orphan % registry->entries];

		registry->next_orphan = (registry->next_orphan + 1) % registry->entries;
		if (mpib_slot_has_flow(slot) && slot->n_regs == 0) {
			unbind_flow(registry, slot);
			registry->n_orphans--;
			return slot;
		}
	}

	return NULL;
}

static void own_slot(struct mpib_slot *slot, struct mpib_user *user)
{
	if (slot->user)
		slot->user->slots--;
	slot->user = user;
	if (user)
		user->slots++;
}

/* A slot counts to one user who holds it. When that user's last registration of the flow goes and
 * another's stays, it counts to the other. */
static void settle_owner(struct mpib_slot *slot)
{
	struct mpib_reg *reg;

	LIST_FOREACH(reg, &slot->regs, of_slot)
	{
		if (reg->peer->user == slot->user)
			return;
	}

	reg = LIST_FIRST(&slot->regs);
	own_slot(slot, reg ? reg->peer->user : NULL);
}

/* ---- registrations -------------------------------------------------------------------------- */

static struct mpib_reg_list *reg_bucket(struct mpib_registry *registry,
					const struct mpib_peer *peer, uint32_t conn_id)
{
	return &registry->regs[mix((uintptr_t)peer ^ (uint64_t)conn_id << 32) % REG_BUCKETS];
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

	if (!reg)
		return NULL;

	if (slot->n_regs == 0)
		registry->n_flows++;
	if (!slot->user)
		own_slot(slot, peer->user);

	reg->peer = peer;
	reg->conn_id = conn_id;
	reg->slot = (uint32_t)(slot - registry->slots);
	reg->sup_src_be = addresses->sup_src_be;
	reg->sup_dst_be = addresses->sup_dst_be;
	reg->record = MPIB_RECORD_NONE;
	LIST_INSERT_HEAD(reg_bucket(registry, peer, conn_id), reg, bucket);
	LIST_INSERT_HEAD(&peer->regs, reg, of_peer);
	LIST_INSERT_HEAD(&slot->regs, reg, of_slot);
	slot->n_regs++;
	peer->n_regs++;
	peer->user->regs++;
	registry->n_regs++;
	return reg;
}

/* A slot for a flow that has none; 0 or the reason why not. The caller binds it. */
static int pick_slot(struct mpib_registry *registry, const struct mpib_user *user,
		     struct mpib_slot **ret)
{
	if (user->slots >= mpib_registry_user_part(user, registry->entries))
		return user->uid == 0 ? -ENOSPC : -EDQUOT;

	*ret = find_free(registry);
	if (!*ret)
		*ret = evict_orphan(registry);
	return *ret ? 0 : -ENOSPC;
}

int mpib_registry_add(struct mpib_registry *registry, struct mpib_peer *peer, uint32_t conn_id,
		      const struct mpib_addresses *addresses, struct mpib_reg **ret)
{
	struct mpib_reg *reg = mpib_registry_find(registry, peer, conn_id);
	struct mpib_slot *slot;
	bool was_orphan;
	int r;

	assert(!peer->dead);
	if (!addresses->sout_src_be || !addresses->sout_dst_be)
		return -EINVAL;

	slot = mpib_registry_find_flow(registry, addresses->sout_src_be, addresses->sout_dst_be);
	if (reg) {
		*ret = reg;
		return slot == &registry->slots[reg->slot] ? 0 : -EEXIST;
	}

	if (peer->user->regs >= mpib_registry_user_part(peer->user, MPIB_REGISTRY_MAX) ||
	    registry->n_regs >= MPIB_REGISTRY_MAX)
		return -EUSERS;

	was_orphan = slot && slot->n_regs == 0;
	if (was_orphan &&
	    peer->user->slots >= mpib_registry_user_part(peer->user, registry->entries))
		return -EDQUOT;
	if (!slot) {
		r = pick_slot(registry, peer->user, &slot);
		if (r < 0)
			return r;
		bind_flow(registry, slot, addresses->sout_src_be, addresses->sout_dst_be);
	}

	reg = attach(registry, peer, conn_id, addresses, slot);
	if (!reg) {
		if (slot->n_regs == 0 && !was_orphan)
			unbind_flow(registry, slot);
		return -ENOMEM;
	}

	if (was_orphan)
		registry->n_orphans--;
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
	else if (slot->n_regs == 0)
		registry->n_orphans--;

	reg = attach(registry, peer, conn_id, addresses, slot);
	if (!reg) {
		if (slot->n_regs == 0)
			unbind_flow(registry, slot);
		return -ENOMEM;
	}

	*ret = reg;
	return 0;
}

int mpib_registry_keep(struct mpib_registry *registry, uint32_t index, uint32_t src_be,
		       uint32_t dst_be)
{
	struct mpib_slot *slot = mpib_registry_slot(registry, index);

	if (!src_be || !dst_be)
		return -EINVAL;
	if (mpib_slot_has_flow(slot) || mpib_registry_find_flow(registry, src_be, dst_be))
		return -EEXIST;

	bind_flow(registry, slot, src_be, dst_be);
	registry->n_orphans++;
	return 0;
}

bool mpib_registry_remove(struct mpib_registry *registry, struct mpib_reg *reg)
{
	struct mpib_slot *slot = &registry->slots[reg->slot];

	LIST_REMOVE(reg, bucket);
	LIST_REMOVE(reg, of_peer);
	LIST_REMOVE(reg, of_slot);
	slot->n_regs--;
	reg->peer->n_regs--;
	reg->peer->user->regs--;
	registry->n_regs--;
	if (slot->user == reg->peer->user)
		settle_owner(slot);
	free(reg);

	if (slot->n_regs > 0)
		return false;

	registry->n_flows--;
	unbind_flow(registry, slot);
	return true;
}
