/* SPDX-License-Identifier: Apache-2.0 */
/* The three ways to write a share: 0..1024, "25%", "1:3" (SOUT:SUP); and "auto", a share that finds
 * itself. Pure. */
#ifndef MPIB_COMMON_SHARE_H
#define MPIB_COMMON_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define MPIB_SHARE_TEXT_MAX 8 /* "100.0%" and its NUL */

/* Reads a share. N% takes whole numbers 0..100 and rounds to the nearest 1/1024; A:B takes whole
 * numbers 0..65535, not both 0 ("1:3" = 768), rounded to the nearest. -EINVAL for bad syntax,
 * -ERANGE for a value outside, *ret_share untouched then. */
int mpib_share_parse(const char *text, uint32_t *ret_share);

/* "25.0%" for people; @buf holds at least MPIB_SHARE_TEXT_MAX bytes. Returns @buf. */
char *mpib_share_format(uint32_t share, char *buf);

/* ---- what a rule says: a share, or one that finds itself within bounds ---- */

/* This bit is set, and 11 bits each have the least and the most. */
#define MPIB_SHARE_AUTO 0x80000000u

#define MPIB_SHARE_RULE_TEXT_MAX 24 /* "auto 1024..1024" and its NUL */

static inline uint32_t mpib_share_auto(uint32_t least, uint32_t most)
{
	return MPIB_SHARE_AUTO | least << 11 | most;
}

static inline bool mpib_share_is_auto(uint32_t rule)
{
	return rule & MPIB_SHARE_AUTO;
}

/* Both ends of an auto share's bounds. */
static inline uint32_t mpib_share_least(uint32_t rule)
{
	return rule >> 11 & 0x7FF;
}

static inline uint32_t mpib_share_most(uint32_t rule)
{
	return rule & 0x7FF;
}

/* False for what no rule can say. */
bool mpib_share_rule_is_valid(uint32_t rule);

/* Reads a share, "auto", or "auto LEAST..MOST" with two shares. Errors as mpib_share_parse(), also
 * -ERANGE for a least above the most. */
int mpib_share_rule_parse(const char *text, uint32_t *ret_rule);

/* "256", "auto", "auto 102..922": as a policy file has it. @buf holds at least
 * MPIB_SHARE_RULE_TEXT_MAX bytes. Returns @buf. */
char *mpib_share_rule_format(uint32_t rule, char *buf);

#endif
