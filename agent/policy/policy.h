/* SPDX-License-Identifier: Apache-2.0 */
/* Which share a flow gets: islands, rules and the match, most specific first. Pure: no I/O, no
 * logging; addresses in network byte order. A policy is built (add_*), sealed once, then read. */
#ifndef MPIB_AGENT_POLICY_H
#define MPIB_AGENT_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/policy/balance.h"
#include "common/share.h"

#define MPIB_ISLAND_NAME_MAX 32 /* longest name of an island and its NUL */

#define MPIB_POLICY_SLOTS_DEFAULT      256u
#define MPIB_POLICY_PREFIX_LEN_DEFAULT 24u
#define MPIB_POLICY_INTRA_DEFAULT      1024u
#define MPIB_POLICY_INTER_DEFAULT      0u
#define MPIB_POLICY_FLOOR_DEFAULT      31u /* 3% */
#define MPIB_POLICY_FLOOR_MAX	       512u
#define MPIB_POLICY_SETTLE_DEFAULT     100u /* milliseconds */

struct mpib_island {
	char name[MPIB_ISLAND_NAME_MAX];
	unsigned int line; /* where the file names it */
};

struct mpib_subnet {
	uint32_t addr_be;
	unsigned int len; /* 0..32 */
	unsigned int island;
	unsigned int line;
};

struct mpib_pair_rule {
	unsigned int src_island;
	unsigned int dst_island;
	uint32_t share; /* a rule's, as common/share.h has it */
	unsigned int line;
};

struct mpib_flow_rule {
	uint32_t src_be;
	uint32_t dst_be;
	uint32_t share; /* the same */
	unsigned int line;
};

/* One state of a file, by what stat(2) tells. All 0: no file. */
struct mpib_policy_stamp {
	uint64_t device;
	uint64_t inode;
	uint64_t size;
	int64_t mtime_nsec; /* since the epoch */
	int64_t ctime_nsec;
};

/* The file that a policy came from, to tell later whether it says something else by now. */
struct mpib_policy_source {
	struct mpib_policy_stamp same;	/* the latest state that has the loaded text */
	struct mpib_policy_stamp other; /* the latest state that has another text */
	uint64_t size;			/* of the loaded text */
	uint32_t crc;
};

/* Plain values first: the table of keys in config_keys.c fills them by offset. */
struct mpib_policy {
	struct mpib_policy_source source;
	uint32_t slots;
	uint32_t prefix_len;
	uint32_t intra; /* rules' shares */
	uint32_t inter;
	uint32_t auto_floor;	 /* the least that a share finds for either rail, 0..512 */
	uint32_t auto_settle_ms; /* time constant of what is measured */
	unsigned int slots_line; /* 0 where the default stands */
	unsigned int prefix_len_line;
	unsigned int intra_line;
	unsigned int inter_line;
	unsigned int auto_floor_line;
	unsigned int auto_settle_ms_line;

	struct mpib_island *islands;
	size_t n_islands;
	uint32_t *names; /* islands by the hash of their name: index + 1, 0 where free */
	size_t n_names;	 /* places, a power of two, twice the islands at least */
	struct mpib_subnet *subnets; /* sealed: longest prefix first, then by address */
	size_t n_subnets;
	uint32_t *by_island;	 /* sealed: subnets by island, within one as above */
	size_t first_of_len[34]; /* sealed: where prefix length 32 - n starts; [33] = n_subnets */
	struct mpib_pair_rule *pairs; /* sealed: by both islands */
	size_t n_pairs;
	struct mpib_flow_rule *flows; /* sealed: by both addresses */
	size_t n_flows;
};

enum mpib_rule {
	MPIB_RULE_FLOW,		/* [flow S D] */
	MPIB_RULE_PAIR,		/* [pair A B] in this direction */
	MPIB_RULE_PAIR_REVERSE, /* [pair B A], which holds both ways as no [pair A B] is given */
	MPIB_RULE_INTRA,	/* both ends in one island */
	MPIB_RULE_INTER,	/* different islands */
	MPIB_RULE_OVERRIDE,	/* set by a person for a while; above all, and not of the policy */
	MPIB_RULE_MAX,
};

/* What one rule says about a flow. */
struct mpib_candidate {
	bool applies;
	uint32_t share;	   /* a rule's; also for intra and inter where they don't apply */
	unsigned int line; /* 0 for a default */
};

/* What a flow gets and why. */
struct mpib_verdict {
	uint32_t share; /* in force, 0..1024; of one that finds itself, where it starts */
	uint32_t given; /* what the rule says: that share, or auto and its bounds */
	enum mpib_rule rule;
	unsigned int line;		       /* of the rule, 0 for a default */
	char src_island[MPIB_ISLAND_NAME_MAX]; /* name, or the prefix as text where none is given */
	char dst_island[MPIB_ISLAND_NAME_MAX];
};

/* Two entries of a file that can't both stand; the later one is refused. */
struct mpib_policy_conflict {
	const char *what; /* "subnet", "pair" or "flow" */
	unsigned int line;
	unsigned int first_line;
};

/* A policy with the defaults only. -ENOMEM. */
int mpib_policy_new(struct mpib_policy **ret);
struct mpib_policy *mpib_policy_free(struct mpib_policy *policy);

/* Index of an island, or -ENOENT. */
int mpib_policy_find_island(const struct mpib_policy *policy, const char *name);

/* Add one entry each; -ENOMEM. add_island returns the index; the name must be shorter than
 * MPIB_ISLAND_NAME_MAX. */
int mpib_policy_add_island(struct mpib_policy *policy, const char *name, unsigned int line);
int mpib_policy_add_subnet(struct mpib_policy *policy, const struct mpib_subnet *subnet);
int mpib_policy_add_pair(struct mpib_policy *policy, const struct mpib_pair_rule *pair);
int mpib_policy_add_flow(struct mpib_policy *policy, const struct mpib_flow_rule *flow);

/* Sorts for the match and looks for duplicates: -EEXIST with the first in file order. -ENOMEM. */
int mpib_policy_seal(struct mpib_policy *policy, struct mpib_policy_conflict *ret);

/* The share of a flow under a sealed policy. */
void mpib_policy_match(const struct mpib_policy *policy, uint32_t src_be, uint32_t dst_be,
		       struct mpib_verdict *ret);

/* Puts what a rule gives into @ret; one that finds itself starts with equal parts. */
void mpib_policy_give(const struct mpib_policy *policy, uint32_t given, struct mpib_verdict *ret);
/* Between what a share finds itself where a rule gives @given, an auto share. */
struct mpib_balance_limits mpib_policy_limits(const struct mpib_policy *policy, uint32_t given);

/* What each rule of a sealed policy says about a flow, most specific first: the first that applies
 * is the one that mpib_policy_match() takes. */
void mpib_policy_candidates(const struct mpib_policy *policy, uint32_t src_be, uint32_t dst_be,
			    struct mpib_candidate ret[MPIB_RULE_MAX]);

/* "flow", "pair", "pair (reverse)", "intra", "inter", "override". */
const char *mpib_rule_name(enum mpib_rule rule);

#endif
