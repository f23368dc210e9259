/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of the grammar of agent.ini share: sections (config.c), and the keys in them
 * (config_keys.c). */
#ifndef MPIB_AGENT_CONFIG_IMPL_H
#define MPIB_AGENT_CONFIG_IMPL_H

#include <stdint.h>

#include "agent/policy/config.h"
#include "agent/policy/ini_source.h"
#include "common/mpib_agent_iface.h"

enum mpib_config_section {
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

struct mpib_config_parser {
	struct mpib_policy *policy;
	enum mpib_config_section section;
	unsigned int section_line;
	unsigned int error_line; /* of a refusal that is about an earlier line, or 0 */
	unsigned int share_line; /* where the current [pair] or [flow] got its share, or 0 */
	unsigned int seen_line[SECTION_FLOW + 1]; /* first line of each section without words */
	struct pending_pair *pairs;		  /* newest first; the head is the current one */
	struct mpib_flow_rule flow;		  /* the current one */
};

/* A text on its way to a policy. */
struct mpib_config_parse {
	const char *path; /* for messages */
	struct mpib_config_parser parser;
	struct mpib_ini ini;
	struct mpib_cause detail;
	bool read; /* all lines are */
};

/* @parse doesn't move until its end; @path and @text live as long. -ENOMEM. */
int mpib_config_parse_begin(struct mpib_config_parse *parse, const char *path, const char *text,
			    size_t len, struct mpib_cause *cause);
/* 1 where there is more; 0 with the policy, the caller's, or a negative errno. */
int mpib_config_parse_step(struct mpib_config_parse *parse, size_t size, struct mpib_policy **ret,
			   struct mpib_cause *cause);
void mpib_config_parse_end(struct mpib_config_parse *parse);

/* Refuses what is no name of an island: -EBADMSG with the reason in @cause. */
int mpib_config_check_island(const char *name, struct mpib_cause *cause);

/* One "key = value" of the current section; @user is the parser. The `pair` of mpib_ini_ops. */
int mpib_config_on_pair(void *user, unsigned int line, const char *key, const char *value,
			struct mpib_cause *cause);

#endif
