/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of agent.ini. Plain keys are rows of a table; islands, pairs and flows have a
 * function each. What can only be judged when the whole file is known (an island named further
 * down, two equal subnets) is judged at the end, with the line that is to blame. */
#include "agent/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/ini_source.h"
#include "common/cleanup.h"
#include "common/ipv4.h"
#include "common/macros.h"
#include "common/mpib_agent_iface.h"
#include "common/share.h"

MPIB_DEFINE_CLEANUP(struct mpib_policy *, mpib_policy_free);

enum section_kind {
	SECTION_NONE,
	SECTION_AGENT,
	SECTION_ISLANDS,
	SECTION_POLICY,
	SECTION_PAIR,
	SECTION_FLOW,
};

/* A [pair A B] until every island is known. */
struct pending_pair {
	char src[MPIB_ISLAND_NAME_MAX];
	char dst[MPIB_ISLAND_NAME_MAX];
	unsigned int line;
	uint32_t share;
	struct pending_pair *next;
};

struct parser {
	struct mpib_policy *policy;
	enum section_kind section;
	unsigned int section_line;
	unsigned int error_line; /* of a refusal that is about an earlier line, or 0 */
	unsigned int share_line; /* where the current [pair] or [flow] got its share, or 0 */
	unsigned int seen_line[SECTION_FLOW + 1]; /* first line of each section without words */
	struct pending_pair *pairs;		  /* newest first; the head is the current one */
	struct mpib_flow_rule flow;		  /* the current one */
};

/* One row a plain key: how it is read and where it goes. */
struct key_row {
	struct mpib_config_key doc;
	enum section_kind section;
	uint32_t min; /* numbers only */
	uint32_t max; /* 0: the value is a share */
	size_t value;
	size_t line;
};

#define FIELD(name) offsetof(struct mpib_policy, name), offsetof(struct mpib_policy, name##_line)

static const struct key_row key_rows[] = {
	{ { "agent", "slots", "1..65536",
	    "entries of the hint table; an existing table never shrinks" },
	  SECTION_AGENT,
	  1,
	  MPIB_HINT_ENTRIES_MAX,
	  FIELD(slots) },
	{ { "islands", "prefix_len", "0..32",
	    "addresses that no subnet names share an island where they share this prefix" },
	  SECTION_ISLANDS,
	  0,
	  32,
	  FIELD(prefix_len) },
	{ { "policy", "intra", "share", "both ends in one island" },
	  SECTION_POLICY,
	  0,
	  0,
	  FIELD(intra) },
	{ { "policy", "inter", "share", "ends in different islands" },
	  SECTION_POLICY,
	  0,
	  0,
	  FIELD(inter) },
};

const struct mpib_config_key *mpib_config_key_at(size_t n)
{
	return n < MPIB_ARRAY_SIZE(key_rows) ? &key_rows[n].doc : NULL;
}

/* ---- values --------------------------------------------------------------------------------- */

static int parse_share(const char *key, const char *value, uint32_t *ret, struct mpib_cause *cause)
{
	int r = mpib_share_parse(value, ret);

	if (r == -ERANGE)
		return mpib_cause_set(cause, -EBADMSG,
				      "%s = %s is out of range; a share is 0..1024, 0%%..100%%, or "
				      "SOUT:SUP with at least one part above 0",
				      key, value);
	if (r < 0)
		return mpib_cause_set(cause, -EBADMSG,
				      "%s = %s is not a share; write 0..1024, N%% or SOUT:SUP%s",
				      key, value,
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

static int set_plain_key(struct parser *parser, const struct key_row *row, unsigned int line,
			 const char *value, struct mpib_cause *cause)
{
	char *base = (char *)parser->policy;
	uint32_t *target = (uint32_t *)(void *)(base + row->value);
	unsigned int *target_line = (unsigned int *)(void *)(base + row->line);
	int r;

	if (*target_line)
		return mpib_cause_set(cause, -EBADMSG, "%s is given again; line %u has it already",
				      row->doc.key, *target_line);

	r = row->max ? parse_number(row, value, target, cause)
		     : parse_share(row->doc.key, value, target, cause);
	if (r < 0)
		return r;

	*target_line = line;
	return 0;
}

/* ---- islands -------------------------------------------------------------------------------- */

static int check_island_name(const char *name, struct mpib_cause *cause)
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

static int add_subnet(struct parser *parser, unsigned int island, unsigned int line,
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
				      "\"%s\" is not a subnet; write address/length, several with "
				      "commas between them",
				      text);

	return mpib_policy_add_subnet(parser->policy, &subnet);
}

static int add_island(struct parser *parser, unsigned int line, const char *name, const char *value,
		      struct mpib_cause *cause)
{
	mpib_cleanup(mpib_freep) char *list = NULL;
	char *cursor;
	char *item;
	int island;
	int r;

	r = check_island_name(name, cause);
	if (r < 0)
		return r;

	island = mpib_policy_find_island(parser->policy, name);
	if (island >= 0)
		return mpib_cause_set(cause, -EBADMSG,
				      "island %s is given again; line %u has it already", name,
				      parser->policy->islands[island].line);

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

/* ---- sections ------------------------------------------------------------------------------- */

/* Splits "word A B" in place; returns how many words there are (at most 4 are stored). */
static size_t split_words(char *text, char *words[4])
{
	size_t count = 0;
	char *word;
	char *save = NULL;

	for (word = strtok_r(text, " \t", &save); word; word = strtok_r(NULL, " \t", &save)) {
		if (count == 4)
			break;
		words[count++] = word;
	}

	return count;
}

/* A [pair] or [flow] without its share says nothing: refuse it where it stands. */
static int finish_section(struct parser *parser, struct mpib_cause *cause)
{
	if ((parser->section != SECTION_PAIR && parser->section != SECTION_FLOW) ||
	    parser->share_line)
		return 0;

	parser->error_line = parser->section_line;
	return mpib_cause_set(cause, -EBADMSG, "this [%s] has no share",
			      parser->section == SECTION_PAIR ? "pair" : "flow");
}

static int open_pair(struct parser *parser, unsigned int line, char *const words[],
		     struct mpib_cause *cause)
{
	struct pending_pair *pair;
	int r;

	for (unsigned int n = 1; n <= 2; n++) {
		r = check_island_name(words[n], cause);
		if (r < 0)
			return r;
	}
	if (strcmp(words[1], words[2]) == 0)
		return mpib_cause_set(cause, -EBADMSG,
				      "[pair %s %s] names one island twice; inside an island the "
				      "intra share of [policy] holds",
				      words[1], words[2]);

	pair = calloc(1, sizeof(*pair));
	if (!pair)
		return -ENOMEM;

	(void)snprintf(pair->src, sizeof(pair->src), "%s", words[1]);
	(void)snprintf(pair->dst, sizeof(pair->dst), "%s", words[2]);
	pair->line = line;
	pair->next = parser->pairs;
	parser->pairs = pair;
	return 0;
}

static int open_flow(struct parser *parser, unsigned int line, char *const words[],
		     struct mpib_cause *cause)
{
	uint32_t *const target[] = { &parser->flow.src_be, &parser->flow.dst_be };

	parser->flow.line = line;
	for (unsigned int n = 0; n < 2; n++) {
		if (mpib_ipv4_parse(words[n + 1], target[n]) < 0 || !*target[n])
			return mpib_cause_set(cause, -EBADMSG,
					      "\"%s\" in [flow] is not an IPv4 address of a host",
					      words[n + 1]);
	}

	return 0;
}

static int open_plain(struct parser *parser, enum section_kind kind, unsigned int line,
		      const char *name, struct mpib_cause *cause)
{
	if (parser->seen_line[kind])
		return mpib_cause_set(cause, -EBADMSG,
				      "section [%s] is given again; line %u has it already", name,
				      parser->seen_line[kind]);

	parser->seen_line[kind] = line;
	return 0;
}

static int on_section(void *user, unsigned int line, const char *name, struct mpib_cause *cause)
{
	static const struct {
		const char *word;
		enum section_kind kind;
		size_t words;
		const char *form;
	} forms[] = {
		{ "agent", SECTION_AGENT, 1, "[agent]" },
		{ "islands", SECTION_ISLANDS, 1, "[islands]" },
		{ "policy", SECTION_POLICY, 1, "[policy]" },
		{ "pair", SECTION_PAIR, 3, "[pair ISLAND ISLAND]" },
		{ "flow", SECTION_FLOW, 3, "[flow SOURCE DESTINATION]" },
	};
	struct parser *parser = user;
	mpib_cleanup(mpib_freep) char *copy = strdup(name);
	char *words[4] = { 0 };
	size_t count;
	int r;

	if (!copy)
		return -ENOMEM;

	r = finish_section(parser, cause);
	if (r < 0)
		return r;

	count = split_words(copy, words);
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(forms); n++) {
		if (count == 0 || strcmp(words[0], forms[n].word) != 0)
			continue;
		if (count != forms[n].words)
			return mpib_cause_set(cause, -EBADMSG, "[%s] is written %s", name,
					      forms[n].form);

		parser->section = forms[n].kind;
		parser->section_line = line;
		parser->share_line = 0;
		if (forms[n].kind == SECTION_PAIR)
			return open_pair(parser, line, words, cause);
		if (forms[n].kind == SECTION_FLOW)
			return open_flow(parser, line, words, cause);
		return open_plain(parser, forms[n].kind, line, name, cause);
	}

	return mpib_cause_set(cause, -EBADMSG,
			      "unknown section [%s]; there are [agent], [islands], [policy], "
			      "[pair A B] and [flow S D]",
			      name);
}

/* ---- keys ----------------------------------------------------------------------------------- */

static int set_share(struct parser *parser, unsigned int line, const char *key, const char *value,
		     struct mpib_cause *cause)
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

static int unknown_key(const struct parser *parser, const char *key, struct mpib_cause *cause)
{
	if (parser->section == SECTION_AGENT)
		return mpib_cause_set(cause, -EBADMSG, "unknown key \"%s\"; [agent] has only slots",
				      key);
	return mpib_cause_set(cause, -EBADMSG, "unknown key \"%s\"; [policy] has intra and inter",
			      key);
}

static int on_pair(void *user, unsigned int line, const char *key, const char *value,
		   struct mpib_cause *cause)
{
	struct parser *parser = user;

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

/* ---- the whole file ------------------------------------------------------------------------- */

/* Islands of a pair may be named further down than the pair, so this comes last. */
static int resolve_pairs(struct parser *parser, struct mpib_cause *cause)
{
	int error = 0;

	/* The list runs from the end of the file to its start: the last refusal found here is
	 * the first one of the file. */
	for (const struct pending_pair *p = parser->pairs; p; p = p->next) {
		int src = mpib_policy_find_island(parser->policy, p->src);
		int dst = mpib_policy_find_island(parser->policy, p->dst);
		struct mpib_pair_rule rule;
		int r;

		if (src < 0 || dst < 0) {
			parser->error_line = p->line;
			error = mpib_cause_set(cause, -EBADMSG,
					       "[pair %s %s]: no island \"%s\" in [islands]",
					       p->src, p->dst, src < 0 ? p->src : p->dst);
			continue;
		}

		rule = (struct mpib_pair_rule){
			.src_island = (unsigned int)src,
			.dst_island = (unsigned int)dst,
			.share = p->share,
			.line = p->line,
		};
		r = mpib_policy_add_pair(parser->policy, &rule);
		if (r < 0)
			return r;
	}

	return error;
}

static int seal(struct parser *parser, struct mpib_cause *cause)
{
	struct mpib_policy_conflict conflict;
	int r;

	r = finish_section(parser, cause);
	if (r < 0)
		return r;

	r = resolve_pairs(parser, cause);
	if (r < 0)
		return r;

	r = mpib_policy_seal(parser->policy, &conflict);
	if (r < 0) {
		parser->error_line = conflict.line;
		return mpib_cause_set(cause, -EBADMSG,
				      "this %s is given again; line %u has it already",
				      conflict.what, conflict.first_line);
	}

	return 0;
}

static void free_pairs(struct parser *parser)
{
	while (parser->pairs) {
		struct pending_pair *next = parser->pairs->next;

		free(parser->pairs);
		parser->pairs = next;
	}
}

int mpib_config_parse(const char *path, const char *text, size_t len, struct mpib_policy **ret,
		      struct mpib_cause *cause)
{
	static const struct mpib_ini_ops ops = { .section = on_section, .pair = on_pair };
	mpib_cleanup(mpib_policy_freep) struct mpib_policy *policy = NULL;
	struct mpib_cause detail = { "" };
	struct parser parser = { 0 };
	unsigned int line = 0;
	int r;

	r = mpib_policy_new(&policy);
	if (r < 0)
		return mpib_cause_set(cause, r, "%s: out of memory", path);

	parser.policy = policy;
	r = mpib_ini_parse(text, len, &ops, &parser, &line, &detail);
	if (r == 0)
		r = seal(&parser, &detail);
	if (parser.error_line)
		line = parser.error_line;
	free_pairs(&parser);

	if (r == -ENOMEM)
		return mpib_cause_set(cause, r, "%s: out of memory", path);
	if (r < 0)
		return mpib_cause_set(cause, r, "%s:%u: %s", path, line, detail.text);

	*ret = mpib_steal_ptr(policy);
	return 0;
}
