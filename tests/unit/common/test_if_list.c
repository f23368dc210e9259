/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of network interfaces: the syntax, what they match, and random lists against a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/if_list.h"
#include "tests/unit/common/cmocka_all.h"
#include "tests/unit/common/random.h"

static void the_syntax_is_strict(void **state)
{
	static const char *const good[] = { "",
					    "eth0",
					    "eth,ib",
					    "=eth0",
					    "=a,b",
					    "^lo",
					    "^=lo",
					    "^docker,lo",
					    "lo:1",
					    "fifteen.bytes_0",
					    "br-0.100,veth@if2" };
	static const char *const bad[] = { "^",	    "=",    "^=",  ",",	  "eth0,",
					   ",eth0", "a,,b", "a b", "a/b", "=^lo",
					   "a,=b",  "a,^b", "^^a", "==a", "sixteen.bytes_00",
					   "a, b",  " a",   "a " };

	(void)state;
	for (size_t k = 0; k < sizeof(good) / sizeof(good[0]); k++)
		if (!mpib_if_list_valid(good[k]))
			fail_msg("'%s' is refused", good[k]);
	for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++)
		if (mpib_if_list_valid(bad[k]))
			fail_msg("'%s' is taken", bad[k]);
}

static void elements_match(void **state)
{
	static const struct {
		const char *list, *name;
		enum mpib_if_match match;
	} rows[] = {
		{ "", "eth0", MPIB_IF_NOT_EXCLUDED },	 { "eth0", "eth0", MPIB_IF_NAMED },
		{ "eth0", "eth01", MPIB_IF_BEGINS },	 { "eth0", "eth", MPIB_IF_NO },
		{ "eth,ib", "ib0", MPIB_IF_BEGINS },	 { "eth,ib", "lo", MPIB_IF_NO },
		{ "eth,eth1", "eth1", MPIB_IF_NAMED },	 { "eth1,eth", "eth1", MPIB_IF_NAMED },
		{ "=eth0", "eth0", MPIB_IF_NAMED },	 { "=eth0", "eth01", MPIB_IF_NO },
		{ "=eth,ib0", "eth0", MPIB_IF_NO },	 { "^lo,docker", "lo", MPIB_IF_NO },
		{ "^lo,docker", "docker0", MPIB_IF_NO }, { "^lo", "eth0", MPIB_IF_NOT_EXCLUDED },
		{ "^=lo", "lo0", MPIB_IF_NOT_EXCLUDED }, { "^=lo", "lo", MPIB_IF_NO },
		{ "lo", "lo:1", MPIB_IF_BEGINS },	 { "lo:1", "lo", MPIB_IF_NO },
		{ "ETH0", "eth0", MPIB_IF_NO },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
		if (mpib_if_list_match(rows[k].list, rows[k].name) != rows[k].match)
			fail_msg("'%s' and %s: %d, not %d", rows[k].list, rows[k].name,
				 (int)mpib_if_list_match(rows[k].list, rows[k].name),
				 (int)rows[k].match);
}

/* Few letters, so that beginnings and whole names meet often. */
static void random_name(struct mpib_test_random *random, char *buf)
{
	size_t len = 1 + mpib_test_random_below(random, 4);

	for (size_t k = 0; k < len; k++)
		buf[k] = "ab"[mpib_test_random_below(random, 2)];
	buf[len] = '\0';
}

static void random_lists_match_as_the_model_says(void **state)
{
	struct mpib_test_random random = mpib_test_random_init(1);

	(void)state;
	for (unsigned int round = 0; round < 20000; round++) {
		bool except = mpib_test_random_below(&random, 2),
		     whole = mpib_test_random_below(&random, 2);
		size_t count = 1 + mpib_test_random_below(&random, 4);
		bool begins = false, named = false;
		enum mpib_if_match wanted;
		char list[64], name[8], element[8];
		size_t used = (size_t)snprintf(list, sizeof(list), "%s%s", except ? "^" : "",
					       whole ? "=" : "");

		random_name(&random, name);
		for (size_t k = 0; k < count; k++) {
			random_name(&random, element);
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 k ? "," : "", element);
			named |= strcmp(element, name) == 0;
			begins |= !whole && strstr(name, element) == name;
		}
		if (except)
			wanted = named || begins ? MPIB_IF_NO : MPIB_IF_NOT_EXCLUDED;
		else
			wanted = named ? MPIB_IF_NAMED : begins ? MPIB_IF_BEGINS : MPIB_IF_NO;
		if (!mpib_if_list_valid(list) || mpib_if_list_match(list, name) != wanted)
			fail_msg("'%s' and %s: %d, not %d", list, name,
				 (int)mpib_if_list_match(list, name), (int)wanted);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_syntax_is_strict),
		cmocka_unit_test(elements_match),
		cmocka_unit_test(random_lists_match_as_the_model_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
