/* SPDX-License-Identifier: Apache-2.0 */
/* The policy as data, and the match. Lookups are binary searches, so that a file of ten thousand
 * rules costs a reload nothing that an operator would notice. */
#include "agent/policy/policy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ipv4.h"
#include "common/mpib_agent_iface.h"

#define NO_ISLAND (-1)

int mpib_policy_new(struct mpib_policy **ret)
{
	struct mpib_policy *policy = calloc(1, sizeof(*policy));

	if (!policy)
		return -ENOMEM;

	policy->slots = MPIB_POLICY_SLOTS_DEFAULT;
	policy->prefix_len = MPIB_POLICY_PREFIX_LEN_DEFAULT;
	policy->auto_floor = MPIB_POLICY_FLOOR_DEFAULT;
	policy->auto_settle_ms = MPIB_POLICY_SETTLE_DEFAULT;
	policy->intra = MPIB_POLICY_INTRA_DEFAULT;
	policy->inter = MPIB_POLICY_INTER_DEFAULT;
	*ret = policy;
	return 0;
}

struct mpib_policy *mpib_policy_free(struct mpib_policy *policy)
{
	if (!policy)
		return NULL;

	free(policy->islands);
	free(policy->names);
	free(policy->subnets);
	free(policy->by_island);
	free(policy->pairs);
	free(policy->flows);
	free(policy);
	return NULL;
}

/* Appends a copy of @entry; the array doubles each time its length reaches a power of two. */
static int append(void **array, size_t *count, size_t size, const void *entry)
{
	if ((*count & (*count - 1)) == 0) {
		size_t room = *count ? *count * 2 : 1;
		void *grown = reallocarray(*array, room, size);

		if (!grown)
			return -ENOMEM;
		*array = grown;
	}

	memcpy((char *)*array + *count * size, entry, size);
	(*count)++;
	return 0;
}

/* FNV-1a. */
static uint32_t hash_name(const char *name)
{
	uint32_t hash = 0x811C9DC5u;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 0x01000193u;
	return hash;
}

/* The place of a name, or the free one where it belongs. */
static uint32_t *name_place(const struct mpib_policy *policy, const char *name)
{
	size_t at = hash_name(name) & (policy->n_names - 1);

	while (policy->names[at] && strcmp(policy->islands[policy->names[at] - 1].name, name) != 0)
		at = (at + 1) & (policy->n_names - 1);
	return &policy->names[at];
}

/* Makes sure that one more name has its place. */
static int grow_names(struct mpib_policy *policy)
{
	size_t wanted = policy->n_names ? policy->n_names * 2 : 16;
	uint32_t *names;

	if (policy->n_islands < policy->n_names / 2)
		return 0;

	names = calloc(wanted, sizeof(*names));
	if (!names)
		return -ENOMEM;
	free(policy->names);
	policy->names = names;
	policy->n_names = wanted;
	for (size_t island = 0; island < policy->n_islands; island++)
		*name_place(policy, policy->islands[island].name) = (uint32_t)island + 1;
	return 0;
}

int mpib_policy_find_island(const struct mpib_policy *policy, const char *name)
{
	uint32_t island = policy->n_names ? *name_place(policy, name) : 0;

	return island ? (int)island - 1 : -ENOENT;
}

int mpib_policy_add_island(struct mpib_policy *policy, const char *name, unsigned int line)
{
	struct mpib_island island = { .line = line };
	int r;

	(void)snprintf(island.name, sizeof(island.name), "%s", name);
	r = grow_names(policy);
	if (r >= 0)
		r = append((void **)&policy->islands, &policy->n_islands, sizeof(island), &island);
	if (r < 0)
		return r;

	*name_place(policy, island.name) = (uint32_t)policy->n_islands;
	return (int)policy->n_islands - 1;
}

int mpib_policy_add_subnet(struct mpib_policy *policy, const struct mpib_subnet *subnet)
{
	return append((void **)&policy->subnets, &policy->n_subnets, sizeof(*subnet), subnet);
}

int mpib_policy_add_pair(struct mpib_policy *policy, const struct mpib_pair_rule *pair)
{
	return append((void **)&policy->pairs, &policy->n_pairs, sizeof(*pair), pair);
}

int mpib_policy_add_flow(struct mpib_policy *policy, const struct mpib_flow_rule *flow)
{
	return append((void **)&policy->flows, &policy->n_flows, sizeof(*flow), flow);
}

static int compare(uint32_t a, uint32_t b)
{
	return a < b ? -1 : a > b;
}

static int subnet_key_compare(const void *left, const void *right)
{
	const struct mpib_subnet *a = left;
	const struct mpib_subnet *b = right;
	int r = compare(b->len, a->len);

	return r ? r : compare(ntohl(a->addr_be), ntohl(b->addr_be));
}

static int pair_key_compare(const void *left, const void *right)
{
	const struct mpib_pair_rule *a = left;
	const struct mpib_pair_rule *b = right;
	int r = compare(a->src_island, b->src_island);

	return r ? r : compare(a->dst_island, b->dst_island);
}

static int flow_key_compare(const void *left, const void *right)
{
	const struct mpib_flow_rule *a = left;
	const struct mpib_flow_rule *b = right;
	int r = compare(ntohl(a->src_be), ntohl(b->src_be));

	return r ? r : compare(ntohl(a->dst_be), ntohl(b->dst_be));
}

/* Full orders: equal keys stand in file order, so the later of two is the one refused. */
static int subnet_compare(const void *a, const void *b)
{
	int r = subnet_key_compare(a, b);

	return r ? r
		 : compare(((const struct mpib_subnet *)a)->line,
			   ((const struct mpib_subnet *)b)->line);
}

static int pair_compare(const void *a, const void *b)
{
	int r = pair_key_compare(a, b);

	return r ? r
		 : compare(((const struct mpib_pair_rule *)a)->line,
			   ((const struct mpib_pair_rule *)b)->line);
}

static int flow_compare(const void *a, const void *b)
{
	int r = flow_key_compare(a, b);

	return r ? r
		 : compare(((const struct mpib_flow_rule *)a)->line,
			   ((const struct mpib_flow_rule *)b)->line);
}

/* Keeps the conflict that comes first in the file. */
static void note_conflict(struct mpib_policy_conflict *conflict, const char *what,
			  unsigned int line, unsigned int first_line)
{
	if (conflict->what && conflict->line <= line)
		return;

	*conflict = (struct mpib_policy_conflict){
		.what = what,
		.line = line,
		.first_line = first_line,
	};
}

static void find_conflicts(const struct mpib_policy *policy, struct mpib_policy_conflict *conflict)
{
	for (size_t n = 1; n < policy->n_subnets; n++) {
		const struct mpib_subnet *s = &policy->subnets[n];

		if (subnet_key_compare(s - 1, s) == 0)
			note_conflict(conflict, "subnet", s->line, s[-1].line);
	}

	for (size_t n = 1; n < policy->n_pairs; n++) {
		const struct mpib_pair_rule *p = &policy->pairs[n];

		if (pair_key_compare(p - 1, p) == 0)
			note_conflict(conflict, "pair", p->line, p[-1].line);
	}

	for (size_t n = 1; n < policy->n_flows; n++) {
		const struct mpib_flow_rule *f = &policy->flows[n];

		if (flow_key_compare(f - 1, f) == 0)
			note_conflict(conflict, "flow", f->line, f[-1].line);
	}
}

static void index_lengths(struct mpib_policy *policy)
{
	size_t at = 0;

	for (unsigned int n = 0; n <= 32; n++) {
		while (at < policy->n_subnets && policy->subnets[at].len > 32 - n)
			at++;
		policy->first_of_len[n] = at;
	}
	policy->first_of_len[33] = policy->n_subnets;
}

/* Counts, then places: as they are sealed within one. */
static int index_islands(struct mpib_policy *policy)
{
	uint32_t *next = calloc(policy->n_islands + 1, sizeof(*next));

	policy->by_island = calloc(policy->n_subnets + 1, sizeof(*policy->by_island));
	if (!next || !policy->by_island) {
		free(next);
		return -ENOMEM;
	}

	for (size_t n = 0; n < policy->n_subnets; n++)
		next[policy->subnets[n].island + 1]++;
	for (size_t island = 1; island <= policy->n_islands; island++)
		next[island] += next[island - 1];
	for (size_t n = 0; n < policy->n_subnets; n++)
		policy->by_island[next[policy->subnets[n].island]++] = (uint32_t)n;
	free(next);
	return 0;
}

static void sort(void *array, size_t count, size_t size, int (*order)(const void *, const void *))
{
	if (count > 1)
		qsort(array, count, size, order);
}

int mpib_policy_seal(struct mpib_policy *policy, struct mpib_policy_conflict *ret)
{
	struct mpib_policy_conflict conflict = { 0 };

	sort(policy->subnets, policy->n_subnets, sizeof(*policy->subnets), subnet_compare);
	sort(policy->pairs, policy->n_pairs, sizeof(*policy->pairs), pair_compare);
	sort(policy->flows, policy->n_flows, sizeof(*policy->flows), flow_compare);
	index_lengths(policy);
	find_conflicts(policy, &conflict);

	if (conflict.what) {
		*ret = conflict;
		return -EEXIST;
	}
	return index_islands(policy);
}

/* The island of the longest subnet that holds @addr_be, or NO_ISLAND. */
static int named_island(const struct mpib_policy *policy, uint32_t addr_be)
{
	for (unsigned int n = 0; n <= 32; n++) {
		size_t first = policy->first_of_len[n];
		size_t count = policy->first_of_len[n + 1] - first;
		struct mpib_subnet key = {
			.addr_be = addr_be & mpib_ipv4_mask(32 - n),
			.len = 32 - n,
		};
		const struct mpib_subnet *found;

		if (count == 0)
			continue;

		found = bsearch(&key, policy->subnets + first, count, sizeof(key),
				subnet_key_compare);
		if (found)
			return (int)found->island;
	}

	return NO_ISLAND;
}

static void island_text(const struct mpib_policy *policy, int island, uint32_t addr_be, char *buf)
{
	char addr[MPIB_IPV4_TEXT_MAX];

	if (island != NO_ISLAND) {
		memcpy(buf, policy->islands[island].name, MPIB_ISLAND_NAME_MAX);
		return;
	}

	(void)mpib_ipv4_format(addr_be & mpib_ipv4_mask(policy->prefix_len), addr);
	(void)snprintf(buf, MPIB_ISLAND_NAME_MAX, "%s/%u", addr, policy->prefix_len);
}

static const struct mpib_flow_rule *find_flow(const struct mpib_policy *policy, uint32_t src_be,
					      uint32_t dst_be)
{
	struct mpib_flow_rule key = { .src_be = src_be, .dst_be = dst_be };

	if (!policy->n_flows)
		return NULL;
	return bsearch(&key, policy->flows, policy->n_flows, sizeof(key), flow_key_compare);
}

static const struct mpib_pair_rule *find_pair(const struct mpib_policy *policy, int src, int dst)
{
	struct mpib_pair_rule key = {
		.src_island = (unsigned int)src,
		.dst_island = (unsigned int)dst,
	};

	if (!policy->n_pairs || src == NO_ISLAND || dst == NO_ISLAND)
		return NULL;
	return bsearch(&key, policy->pairs, policy->n_pairs, sizeof(key), pair_key_compare);
}

void mpib_policy_candidates(const struct mpib_policy *policy, uint32_t src_be, uint32_t dst_be,
			    struct mpib_candidate ret[MPIB_RULE_MAX])
{
	int src = named_island(policy, src_be);
	int dst = named_island(policy, dst_be);
	const struct mpib_flow_rule *flow = find_flow(policy, src_be, dst_be);
	const struct mpib_pair_rule *pair = find_pair(policy, src, dst);
	const struct mpib_pair_rule *reverse = find_pair(policy, dst, src);
	bool same = src == dst &&
		    (src != NO_ISLAND || mpib_ipv4_same_prefix(src_be, dst_be, policy->prefix_len));

	memset(ret, 0, MPIB_RULE_MAX * sizeof(*ret));
	if (flow)
		ret[MPIB_RULE_FLOW] = (struct mpib_candidate){ true, flow->share, flow->line };
	if (pair)
		ret[MPIB_RULE_PAIR] = (struct mpib_candidate){ true, pair->share, pair->line };
	if (reverse)
		ret[MPIB_RULE_PAIR_REVERSE] =
			(struct mpib_candidate){ !pair, reverse->share, reverse->line };
	ret[MPIB_RULE_INTRA] = (struct mpib_candidate){ same, policy->intra, policy->intra_line };
	ret[MPIB_RULE_INTER] = (struct mpib_candidate){ !same, policy->inter, policy->inter_line };
}

static uint32_t lesser(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

struct mpib_balance_limits mpib_policy_limits(const struct mpib_policy *policy, uint32_t given)
{
	uint32_t least = mpib_share_least(given);
	uint32_t most = lesser(mpib_share_most(given), MPIB_SHARE_MAX - policy->auto_floor);

	/* Bounds of a person hold where the floor isn't within them. */
	if (most < least)
		most = least;
	if (least < policy->auto_floor)
		least = lesser(policy->auto_floor, most);
	return (struct mpib_balance_limits){
		.least = least,
		.most = most,
		.settle_usec = policy->auto_settle_ms * 1000,
	};
}

void mpib_policy_give(const struct mpib_policy *policy, uint32_t given, struct mpib_verdict *ret)
{
	ret->given = given;
	ret->share = given;
	if (mpib_share_is_auto(given)) {
		struct mpib_balance_limits limits = mpib_policy_limits(policy, given);
		uint32_t half = MPIB_SHARE_MAX / 2;

		ret->share = half < limits.least ? limits.least : lesser(half, limits.most);
	}
}

void mpib_policy_match(const struct mpib_policy *policy, uint32_t src_be, uint32_t dst_be,
		       struct mpib_verdict *ret)
{
	struct mpib_candidate candidates[MPIB_RULE_MAX];

	memset(ret, 0, sizeof(*ret));
	island_text(policy, named_island(policy, src_be), src_be, ret->src_island);
	island_text(policy, named_island(policy, dst_be), dst_be, ret->dst_island);

	mpib_policy_candidates(policy, src_be, dst_be, candidates);
	for (unsigned int rule = 0; rule < MPIB_RULE_MAX; rule++) {
		if (!candidates[rule].applies)
			continue;
		ret->rule = (enum mpib_rule)rule;
		mpib_policy_give(policy, candidates[rule].share, ret);
		ret->line = candidates[rule].line;
		return;
	}
}

const char *mpib_rule_name(enum mpib_rule rule)
{
	static const char *const names[MPIB_RULE_MAX] = {
		[MPIB_RULE_FLOW] = "flow",
		[MPIB_RULE_PAIR] = "pair",
		[MPIB_RULE_PAIR_REVERSE] = "pair (reverse)",
		[MPIB_RULE_INTRA] = "intra",
		[MPIB_RULE_INTER] = "inter",
		[MPIB_RULE_OVERRIDE] = "override",
	};

	return rule < MPIB_RULE_MAX ? names[rule] : "unknown";
}
