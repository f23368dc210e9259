/* SPDX-License-Identifier: Apache-2.0 */
/* The effective policy as an INI file that says the same, piece by piece: nothing is kept of it, so
 * that a large policy costs a reader of it no more than a small one. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agent/policy/config.h"
#include "common/ipv4.h"
#include "common/share.h"

#define LINE_COLUMNS 100

enum part {
	PART_HEAD,
	PART_ISLANDS,
	PART_POLICY,
	PART_PAIRS,
	PART_FLOWS,
	PART_END,
};

/* One item of the text. Longer than any. */
struct item {
	size_t len;
	char text[MPIB_CONFIG_PIECE_MIN];
};

static void __attribute__((format(printf, 2, 3))) add(struct item *item, const char *format, ...)
{
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(item->text + item->len, sizeof(item->text) - item->len, format, args);
	va_end(args);
	if (len > 0)
		item->len += (size_t)len;
}

/* The subnets of an island from place->at on that one line takes: an island that is given again
 * gets more of them. */
static void print_island(const struct mpib_policy *policy, struct mpib_config_place *place,
			 struct item *item)
{
	const char *separator = "";

	add(item, "%s = ", policy->islands[place->at].name);
	while (place->subnet < policy->n_subnets) {
		const struct mpib_subnet *subnet =
			&policy->subnets[policy->by_island[place->subnet]];
		char text[MPIB_IPV4_TEXT_MAX + sizeof("/32")];
		char addr[MPIB_IPV4_TEXT_MAX];
		int len;

		if (subnet->island != place->at)
			break;
		len = snprintf(text, sizeof(text), "%s/%u", mpib_ipv4_format(subnet->addr_be, addr),
			       subnet->len);
		if (*separator && item->len + (size_t)len + 2 > LINE_COLUMNS) {
			add(item, "\n");
			return;
		}
		add(item, "%s%s", separator, text);
		separator = ", ";
		place->subnet++;
	}
	add(item, "\n");
	place->at++;
}

static void print_pair(const struct mpib_policy *policy, size_t n, struct item *item)
{
	char share[MPIB_SHARE_RULE_TEXT_MAX];

	add(item, "\n[pair %s %s]\nshare = %s\n", policy->islands[policy->pairs[n].src_island].name,
	    policy->islands[policy->pairs[n].dst_island].name,
	    mpib_share_rule_format(policy->pairs[n].share, share));
}

static void print_flow(const struct mpib_policy *policy, size_t n, struct item *item)
{
	char src[MPIB_IPV4_TEXT_MAX];
	char dst[MPIB_IPV4_TEXT_MAX];
	char share[MPIB_SHARE_RULE_TEXT_MAX];

	add(item, "\n[flow %s %s]\nshare = %s\n", mpib_ipv4_format(policy->flows[n].src_be, src),
	    mpib_ipv4_format(policy->flows[n].dst_be, dst),
	    mpib_share_rule_format(policy->flows[n].share, share));
}

static void print_policy(const struct mpib_policy *policy, struct item *item)
{
	char intra[MPIB_SHARE_RULE_TEXT_MAX];
	char inter[MPIB_SHARE_RULE_TEXT_MAX];

	add(item, "\n[policy]\nintra = %s\ninter = %s\nauto_floor = %u\nauto_settle_ms = %u\n",
	    mpib_share_rule_format(policy->intra, intra),
	    mpib_share_rule_format(policy->inter, inter), policy->auto_floor,
	    policy->auto_settle_ms);
}

/* Prints the item at @place, if any, and moves on behind it. */
static void print_item(const struct mpib_policy *policy, struct mpib_config_place *place,
		       struct item *item)
{
	const size_t counts[PART_END] = {
		[PART_HEAD] = 1,
		[PART_ISLANDS] = policy->n_islands,
		[PART_POLICY] = 1,
		[PART_PAIRS] = policy->n_pairs,
		[PART_FLOWS] = policy->n_flows,
	};

	while (place->part < PART_END && place->at >= counts[place->part]) {
		place->part++;
		place->at = 0;
	}

	switch (place->part) {
	case PART_HEAD:
		add(item, "[agent]\nslots = %u\n\n[islands]\nprefix_len = %u\n", policy->slots,
		    policy->prefix_len);
		break;
	case PART_ISLANDS:
		print_island(policy, place, item);
		return;
	case PART_POLICY:
		print_policy(policy, item);
		break;
	case PART_PAIRS:
		print_pair(policy, place->at, item);
		break;
	case PART_FLOWS:
		print_flow(policy, place->at, item);
		break;
	default:
		return;
	}
	place->at++;
}

size_t mpib_config_print_some(const struct mpib_policy *policy, struct mpib_config_place *place,
			      char *buf, size_t size)
{
	size_t used = 0;

	for (;;) {
		struct mpib_config_place next = *place;
		struct item item = { 0 };

		print_item(policy, &next, &item);
		if (!item.len || used + item.len > size)
			return used;
		memcpy(buf + used, item.text, item.len);
		used += item.len;
		*place = next;
	}
}

void mpib_config_print(const struct mpib_policy *policy, FILE *out)
{
	struct mpib_config_place place = { 0 };
	char piece[4096];
	size_t len;

	while ((len = mpib_config_print_some(policy, &place, piece, sizeof(piece))) > 0)
		(void)fwrite(piece, 1, len, out);
}
