/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of agent.ini. Plain ones are rows of a table; islands and shares have a function each.
 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/policy/config_impl.h"
#include "agent/policy/ini_source.h"
#include "common/cleanup.h"
#include "common/ipv4.h"
#include "common/macros.h"
#include "common/share.h"

enum key_kind { KEY_NUMBER, KEY_RULE, KEY_SHARE };

/* One row a plain key: how it is read and where it goes. */
struct key_row {
	struct mpib_config_key doc;
	enum mpib_config_section section;
	enum key_kind kind;
	uint32_t min; /* but of rules' shares */
	uint32_t max;
	size_t value;
	size_t line;
};

#define FIELD(name) offsetof(struct mpib_policy, name), offsetof(struct mpib_policy, name##_line)

static const struct key_row key_rows[] = {
	{ { "agent", "slots", "1..65536",
	    "entries of the hint table; an existing table never shrinks" },
	  SECTION_AGENT,
	  KEY_NUMBER,
	  1,
	  MPIB_HINT_ENTRIES_MAX,
	  FIELD(slots) },
	{ { "islands", "prefix_len", "0..32",
	    "addresses that no subnet names share an island where they share this prefix" },
	  SECTION_ISLANDS,
	  KEY_NUMBER,
	  0,
	  32,
	  FIELD(prefix_len) },
	{ { "policy", "intra", "share", "both ends in one island" },
	  SECTION_POLICY,
	  KEY_RULE,
	  0,
	  0,
	  FIELD(intra) },
	{ { "policy", "inter", "share", "ends in different islands" },
	  SECTION_POLICY,
	  KEY_RULE,
	  0,
	  0,
	  FIELD(inter) },
	{ { "policy", "auto_floor", "0..512 or 0%..50%",
	    "the least that an auto share gives either rail" },
	  SECTION_POLICY,
	  KEY_SHARE,
	  0,
	  MPIB_POLICY_FLOOR_MAX,
	  FIELD(auto_floor) },
	{ { "policy", "auto_settle_ms", "10..60000",
	    "time constant of what an auto share goes by" },
	  SECTION_POLICY,
	  KEY_NUMBER,
	  10,
	  60000,
	  FIELD(auto_settle_ms) },
};

const struct mpib_config_key *mpib_config_key_at(size_t n)
{
	return n < MPIB_ARRAY_SIZE(key_rows) ? &key_rows[n].doc : NULL;
}

/* ---- values --------------------------------------------------------------------------------- */

static int parse_share(const char *key, const char *value, uint32_t *ret, struct mpib_cause *cause)
{
	int r = mpib_share_rule_parse(value, ret);

	if (r == -ERANGE && strncmp(value, "auto", 4) == 0)
		return mpib_cause_set(cause, -EBADMSG,
				      "%s = %s is out of range; the bounds of auto are two shares, "
				      "the smaller one first",
				      key, value);
	if (r == -EINVAL && strncmp(value, "auto", 4) == 0)
		return mpib_cause_set(cause, -EBADMSG,
				      "%s = %s is not a share; auto is written auto, or auto "
				      "LEAST..MOST with two shares",
				      key, value);
	if (r == -ERANGE)
		return mpib_cause_set(cause, -EBADMSG,
				      "%s = %s is out of range; a share is 0..1024, 0%%..100%%, or "
				      "SOUT:SUP with at least one part above 0",
				      key, value);
	if (r < 0)
		return mpib_cause_set(
			cause, -EBADMSG,
			"%s = %s is not a share; write 0..1024, N%%, SOUT:SUP or auto%s", key,
			value,
			strchr(value, '#') ? " (# starts no comment after a value, "
					     "a blank and ; do)"
					   : "");
	return 0;
}

static int parse_number(const struct key_row *row, const char *value, uint32_t *ret,
			struct mpib_cause *cause)
{
	char *end;
	unsigned long number;

	errno = 0;
	number = strtoul(value, &end, 10);
	if (!isdigit((unsigned char)*value) || *end)
		return mpib_cause_set(cause, -EBADMSG, "%s = %s is not a whole number",
				      row->doc.key, value);
	if (errno || number < row->min || number > row->max)
		return mpib_cause_set(cause, -EBADMSG, "%s = %s is out of range; it is %s",
				      row->doc.key, value, row->doc.range);

	*ret = (uint32_t)number;
	return 0;
}

static int parse_part(const struct key_row *row, const char *value, uint32_t *ret,
		      struct mpib_cause *cause)
{
	uint32_t share;
	int r = mpib_share_parse(value, &share);

	if (r == -ERANGE || (r == 0 && (share < row->min || share > row->max)))
		return mpib_cause_set(cause, -EBADMSG, "%s = %s is out of range; it is %s",
				      row->doc.key, value, row->doc.range);
	if (r < 0)
		return mpib_cause_set(cause, -EBADMSG, "%s = %s is not a share; write %s",
				      row->doc.key, value, row->doc.range);
	*ret = share;
	return 0;
}

static int parse_value(const struct key_row *row, const char *value, uint32_t *ret,
		       struct mpib_cause *cause)
{
	switch (row->kind) {
	case KEY_NUMBER:
		return parse_number(row, value, ret, cause);
	case KEY_SHARE:
		return parse_part(row, value, ret, cause);
	case KEY_RULE:
		return parse_share(row->doc.key, value, ret, cause);
	}
	return -EINVAL;
}

static int set_plain_key(struct mpib_config_parser *parser, const struct key_row *row,
			 unsigned int line, const char *value, struct mpib_cause *cause)
{
	char *base = (char *)parser->policy;
	uint32_t *target = (uint32_t *)(void *)(base + row->value);
	unsigned int *target_line = (unsigned int *)(void *)(base + row->line);
	int r;

	if (*target_line)
		return mpib_cause_set(cause, -EBADMSG, "%s is given again; line %u has it already",
				      row->doc.key, *target_line);

	r = parse_value(row, value, target, cause);
	if (r < 0)
		return r;

	*target_line = line;
	return 0;
}

/* ---- islands -------------------------------------------------------------------------------- */

int mpib_config_check_island(const char *name, struct mpib_cause *cause)
{
	if (strlen(name) >= MPIB_ISLAND_NAME_MAX)
		return mpib_cause_set(cause, -EBADMSG,
				      "island name \"%s\" is longer than %d characters", name,
				      MPIB_ISLAND_NAME_MAX - 1);

	for (const char *p = name; *p; p++) {
		if (!isalnum((unsigned char)*p) && !strchr("_-.", *p))
			return mpib_cause_set(cause, -EBADMSG,
					      "island name \"%s\" has a character other than "
					      "letters, digits, \"_\", \"-\" and \".\"",
					      name);
	}

	return 0;
}

static int add_subnet(struct mpib_config_parser *parser, unsigned int island, unsigned int line,
		      const char *text, struct mpib_cause *cause)
{
	struct mpib_subnet subnet = { .island = island, .line = line };
	int r = mpib_cidr_parse(text, &subnet.addr_be, &subnet.len);

	if (r == -ERANGE)
		return mpib_cause_set(cause, -EBADMSG, "subnet %s: a prefix length is 0..32", text);
	if (r == -EADDRNOTAVAIL)
		return mpib_cause_set(cause, -EBADMSG,
				      "subnet %s has bits set beyond its prefix length", text);
	if (r < 0)
		return mpib_cause_set(cause, -EBADMSG,
				      "\"%.*s\" is not a subnet; write address/length, several "
				      "with commas between them",
				      (int)MPIB_INI_WORD_MAX, text);

	return mpib_policy_add_subnet(parser->policy, &subnet);
}

/* "A += ..." as some know it from elsewhere; to give A again does what is meant. */
static int refuse_plus(const char *name, struct mpib_cause *cause)
{
	size_t len = strlen(name);

	if (len == 0 || name[len - 1] != '+')
		return 0;
	len--;
	while (len > 0 && (name[len - 1] == ' ' || name[len - 1] == '\t'))
		len--;
	return mpib_cause_set(
		cause, -EBADMSG,
		"\"+=\" is unknown; another line \"%.*s = SUBNET\" adds to the island", (int)len,
		name);
}

static int add_island(struct mpib_config_parser *parser, unsigned int line, const char *name,
		      const char *value, struct mpib_cause *cause)
{
	mpib_cleanup(mpib_freep) char *list = NULL;
	char *cursor;
	char *item;
	int island;
	int r;

	r = refuse_plus(name, cause);
	if (r < 0)
		return r;
	r = mpib_config_check_island(name, cause);
	if (r < 0)
		return r;

	/* Lists of subnets add up over the lines of an island, as lists do in systemd's files. */
	island = mpib_policy_find_island(parser->policy, name);
	if (island < 0)
		island = mpib_policy_add_island(parser->policy, name, line);
	if (island < 0)
		return island;

	list = strdup(value);
	if (!list)
		return -ENOMEM;

	cursor = list;
	while ((item = strsep(&cursor, ","))) {
		size_t len;

		item += strspn(item, " \t");
		len = strcspn(item, " \t");
		if (item[len + strspn(item + len, " \t")] == '\0')
			item[len] = '\0';
		r = add_subnet(parser, (unsigned int)island, line, item, cause);
		if (r < 0)
			return r;
	}

	return 0;
}

/* ---- any key -------------------------------------------------------------------------------- */

static int set_share(struct mpib_config_parser *parser, unsigned int line, const char *key,
		     const char *value, struct mpib_cause *cause)
{
	uint32_t share;
	int r;

	if (strcmp(key, "share") != 0)
		return mpib_cause_set(cause, -EBADMSG,
				      "unknown key \"%s\"; [pair] and [flow] have only share", key);
	if (parser->share_line)
		return mpib_cause_set(cause, -EBADMSG,
				      "share is given again; line %u has it already",
				      parser->share_line);

	r = parse_share(key, value, &share, cause);
	if (r < 0)
		return r;

	parser->share_line = line;
	if (parser->section == SECTION_PAIR) {
		parser->pairs->share = share;
		return 0;
	}

	parser->flow.share = share;
	return mpib_policy_add_flow(parser->policy, &parser->flow);
}

static int unknown_key(const struct mpib_config_parser *parser, const char *key,
		       struct mpib_cause *cause)
{
	if (parser->section == SECTION_AGENT)
		return mpib_cause_set(cause, -EBADMSG, "unknown key \"%s\"; [agent] has only slots",
				      key);
	return mpib_cause_set(cause, -EBADMSG,
			      "unknown key \"%s\"; [policy] has intra, inter, "
			      "auto_floor and auto_settle_ms",
			      key);
}

int mpib_config_on_pair(void *user, unsigned int line, const char *key, const char *value,
			struct mpib_cause *cause)
{
	struct mpib_config_parser *parser = user;
	bool is_list = parser->section == SECTION_ISLANDS && strcmp(key, "prefix_len") != 0;

	if (!is_list && strlen(value) > MPIB_INI_WORD_MAX)
		return mpib_cause_set(cause, -EBADMSG, "the value of %s is longer than %u bytes",
				      key, MPIB_INI_WORD_MAX);

	for (size_t n = 0; n < MPIB_ARRAY_SIZE(key_rows); n++) {
		if (key_rows[n].section == parser->section && strcmp(key_rows[n].doc.key, key) == 0)
			return set_plain_key(parser, &key_rows[n], line, value, cause);
	}

	switch (parser->section) {
	case SECTION_NONE:
		return mpib_cause_set(cause, -EBADMSG, "\"%s\" stands before the first section",
				      key);
	case SECTION_AGENT:
	case SECTION_POLICY:
		return unknown_key(parser, key, cause);
	case SECTION_ISLANDS:
		return add_island(parser, line, key, value, cause);
	case SECTION_PAIR:
	case SECTION_FLOW:
		return set_share(parser, line, key, value, cause);
	}

	return -EINVAL;
}
