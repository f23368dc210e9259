/* SPDX-License-Identifier: Apache-2.0 */
/* Shares as people write them, and back. */
#include "common/share.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/mpib_agent_iface.h"

#define RATIO_MAX 65535u

/* Above every limit here, and far from overflow. */
#define NUMBER_MAX 1000000u

/* Reads an unsigned decimal number and moves *text past it; anything beyond NUMBER_MAX comes out
 * as NUMBER_MAX, so that "out of range" and "not a number" stay apart. */
static bool scan_number(const char **text, uint32_t *ret)
{
	const char *p = *text;
	uint32_t value = 0;

	if (*p < '0' || *p > '9')
		return false;

	for (; *p >= '0' && *p <= '9'; p++) {
		value = value * 10 + (uint32_t)(*p - '0');
		if (value > NUMBER_MAX)
			value = NUMBER_MAX;
	}

	*text = p;
	*ret = value;
	return true;
}

/* @part of @whole in 1/1024, to the nearest. */
static uint32_t to_share(uint32_t part, uint32_t whole)
{
	return (part * MPIB_SHARE_MAX + whole / 2) / whole;
}

int mpib_share_parse(const char *text, uint32_t *ret_share)
{
	uint32_t first;
	uint32_t second;

	if (!scan_number(&text, &first))
		return -EINVAL;

	switch (*text++) {
	case '\0':
		if (first > MPIB_SHARE_MAX)
			return -ERANGE;
		*ret_share = first;
		return 0;
	case '%':
		if (*text)
			return -EINVAL;
		if (first > 100)
			return -ERANGE;
		*ret_share = to_share(first, 100);
		return 0;
	case ':':
		if (!scan_number(&text, &second) || *text)
			return -EINVAL;
		if (first > RATIO_MAX || second > RATIO_MAX || first + second == 0)
			return -ERANGE;
		*ret_share = to_share(second, first + second);
		return 0;
	default:
		return -EINVAL;
	}
}

char *mpib_share_format(uint32_t share, char *buf)
{
	uint32_t tenths;

	if (share > MPIB_SHARE_MAX)
		share = MPIB_SHARE_MAX;

	tenths = (share * 1000 + MPIB_SHARE_MAX / 2) / MPIB_SHARE_MAX;
	(void)snprintf(buf, MPIB_SHARE_TEXT_MAX, "%u.%u%%", tenths / 10, tenths % 10);
	return buf;
}

/* ---- rules ---------------------------------------------------------------------------------- */

bool mpib_share_rule_is_valid(uint32_t rule)
{
	if (!mpib_share_is_auto(rule))
		return rule <= MPIB_SHARE_MAX;
	return mpib_share_least(rule) <= mpib_share_most(rule) &&
	       mpib_share_most(rule) <= MPIB_SHARE_MAX &&
	       rule == mpib_share_auto(mpib_share_least(rule), mpib_share_most(rule));
}

/* "10%..90%" */
static int parse_bounds(const char *text, uint32_t *ret_rule)
{
	char first[sizeof("65535:65535")];
	const char *dots = strstr(text, "..");
	uint32_t least;
	uint32_t most;
	int r;

	if (!dots || (size_t)(dots - text) >= sizeof(first))
		return -EINVAL;
	memcpy(first, text, (size_t)(dots - text));
	first[dots - text] = '\0';

	r = mpib_share_parse(first, &least);
	if (r == 0)
		r = mpib_share_parse(dots + 2, &most);
	if (r < 0)
		return r;
	if (least > most)
		return -ERANGE;
	*ret_rule = mpib_share_auto(least, most);
	return 0;
}

int mpib_share_rule_parse(const char *text, uint32_t *ret_rule)
{
	static const char name[] = "auto";
	size_t len = sizeof(name) - 1;

	if (strncmp(text, name, len) != 0)
		return mpib_share_parse(text, ret_rule);
	if (!text[len]) {
		*ret_rule = mpib_share_auto(0, MPIB_SHARE_MAX);
		return 0;
	}
	if (text[len] != ' ' && text[len] != '\t')
		return -EINVAL;
	return parse_bounds(text + len + strspn(text + len, " \t"), ret_rule);
}

char *mpib_share_rule_format(uint32_t rule, char *buf)
{
	if (!mpib_share_is_auto(rule))
		(void)snprintf(buf, MPIB_SHARE_RULE_TEXT_MAX, "%u", rule);
	else if (rule == mpib_share_auto(0, MPIB_SHARE_MAX))
		(void)snprintf(buf, MPIB_SHARE_RULE_TEXT_MAX, "auto");
	else
		(void)snprintf(buf, MPIB_SHARE_RULE_TEXT_MAX, "auto %u..%u", mpib_share_least(rule),
			       mpib_share_most(rule));
	return buf;
}
