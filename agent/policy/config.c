/* SPDX-License-Identifier: Apache-2.0 */
/* The sections of agent.ini. What can only be judged when the whole file is known (an island named
 * further down, two equal subnets) is judged at the end, with the line that is to blame. */
#include "agent/policy/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/policy/config_impl.h"
#include "agent/policy/ini_source.h"
#include "common/cleanup.h"
#include "common/ipv4.h"
#include "common/macros.h"

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
static int finish_section(struct mpib_config_parser *parser, struct mpib_cause *cause)
{
	if ((parser->section != SECTION_PAIR && parser->section != SECTION_FLOW) ||
	    parser->share_line)
		return 0;

	parser->error_line = parser->section_line;
	return mpib_cause_set(cause, -EBADMSG, "this [%s] has no share",
			      parser->section == SECTION_PAIR ? "pair" : "flow");
}

static int open_pair(struct mpib_config_parser *parser, unsigned int line, char *const words[],
		     struct mpib_cause *cause)
{
	struct pending_pair *pair;
	int r;

	for (unsigned int n = 1; n <= 2; n++) {
		r = mpib_config_check_island(words[n], cause);
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

static int open_flow(struct mpib_config_parser *parser, unsigned int line, char *const words[],
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

static int open_plain(struct mpib_config_parser *parser, enum mpib_config_section kind,
		      unsigned int line, const char *name, struct mpib_cause *cause)
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
		enum mpib_config_section kind;
		size_t words;
		const char *form;
	} forms[] = {
		{ "agent", SECTION_AGENT, 1, "[agent]" },
		{ "islands", SECTION_ISLANDS, 1, "[islands]" },
		{ "policy", SECTION_POLICY, 1, "[policy]" },
		{ "pair", SECTION_PAIR, 3, "[pair ISLAND ISLAND]" },
		{ "flow", SECTION_FLOW, 3, "[flow SOURCE DESTINATION]" },
	};
	struct mpib_config_parser *parser = user;
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

/* ---- the whole file ------------------------------------------------------------------------- */

/* Islands of a pair may be named further down than the pair, so this comes last. */
static int resolve_pairs(struct mpib_config_parser *parser, struct mpib_cause *cause)
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

static int seal(struct mpib_config_parser *parser, struct mpib_cause *cause)
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
	if (r == -ENOMEM)
		return mpib_cause_set(cause, r, "out of memory");
	if (r < 0) {
		parser->error_line = conflict.line;
		return mpib_cause_set(cause, -EBADMSG,
				      "this %s is given again; line %u has it already",
				      conflict.what, conflict.first_line);
	}

	return 0;
}

static void free_pairs(struct mpib_config_parser *parser)
{
	while (parser->pairs) {
		struct pending_pair *next = parser->pairs->next;

		free(parser->pairs);
		parser->pairs = next;
	}
}

int mpib_config_parse_begin(struct mpib_config_parse *parse, const char *path, const char *text,
			    size_t len, struct mpib_cause *cause)
{
	static const struct mpib_ini_ops ops = { .section = on_section,
						 .pair = mpib_config_on_pair };
	int r;

	*parse = (struct mpib_config_parse){ .path = path };
	r = mpib_policy_new(&parse->parser.policy);
	if (r < 0)
		return mpib_cause_set(cause, r, "%s: out of memory", path);

	mpib_ini_begin(&parse->ini, text, len, &ops, &parse->parser, &parse->detail);
	return 0;
}

int mpib_config_parse_step(struct mpib_config_parse *parse, size_t size, struct mpib_policy **ret,
			   struct mpib_cause *cause)
{
	struct mpib_config_parser *parser = &parse->parser;
	unsigned int line = 0;
	int r;

	if (parse->read) {
		r = seal(parser, &parse->detail);
	} else {
		r = mpib_ini_step(&parse->ini, size, &line);
		parse->read = r == 0;
		if (r >= 0)
			return 1;
	}
	if (parser->error_line)
		line = parser->error_line;

	if (r == -ENOMEM)
		return mpib_cause_set(cause, r, "%s: out of memory", parse->path);
	if (r < 0)
		return mpib_cause_set(cause, r, "%s:%u: %s", parse->path, line, parse->detail.text);

	*ret = mpib_steal_ptr(parser->policy);
	return 0;
}

void mpib_config_parse_end(struct mpib_config_parse *parse)
{
	free_pairs(&parse->parser);
	parse->parser.policy = mpib_policy_free(parse->parser.policy);
}

int mpib_config_parse(const char *path, const char *text, size_t len, struct mpib_policy **ret,
		      struct mpib_cause *cause)
{
	struct mpib_config_parse parse;
	int r = mpib_config_parse_begin(&parse, path, text, len, cause);

	if (r < 0)
		return r;
	do
		r = mpib_config_parse_step(&parse, len, ret, cause);
	while (r > 0);
	mpib_config_parse_end(&parse);
	return r;
}
