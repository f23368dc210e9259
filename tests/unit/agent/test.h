/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent's unit tests share. cmocka needs its includes in this order. */
#ifndef MPIB_TESTS_UNIT_AGENT_TEST_H
#define MPIB_TESTS_UNIT_AGENT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/ipv4.h"

/* A copy without a NUL at its end, so that a sanitizer sees a read past it. */
static inline char *test_dup(const char *text, size_t len)
{
	char *copy = malloc(len ? len : 1);

	assert_non_null(copy);
	memcpy(copy, text, len);
	return copy;
}

static inline uint32_t test_ip(const char *text)
{
	uint32_t be = 0;

	if (mpib_ipv4_parse(text, &be) < 0)
		fail_msg("%s is no address", text);
	return be;
}

#endif
