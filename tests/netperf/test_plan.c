/* SPDX-License-Identifier: Apache-2.0 */
/* What both ends must agree on without talking: plan, pattern, and the options in text form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/netperf/options.h"
#include "tests/netperf/pattern.h"
#include "tests/netperf/plan.h"

#define GROUPS 2000

static const char *verify_args[] = {
	"mpib-netperf", "--plugin", "x", "--connect", "h:1", "verify"
};
#define VERIFY_COUNT 6

/* Only the array is permuted, the words are not. */
static int parse(struct np_options *opts, int count, const char **words)
{
	return np_options_parse(opts, count, (char **)(uintptr_t)words);
}

static void groups_cover_every_message_once(void **state)
{
	struct np_stage stage = { .max_size = 5000, .shorter = true, .group_max = 8 };
	uint64_t first = 0;

	(void)state;
	for (uint64_t number = 0; number < GROUPS; number++) {
		struct np_group group;
		unsigned int seen = 0;

		np_plan_group(&stage, 7, 1, number, first, 1000000, &group);
		assert_in_range(group.n, 1, 8);
		for (unsigned int k = 0; k < group.n; k++) {
			const struct np_message *message = &group.recv[k];

			assert_in_range(message->number, first, first + group.n - 1);
			assert_in_range(message->room, 0, 5000);
			assert_in_range(message->size, 0, message->room);
			seen |= 1u << (message->number - first);
			assert_int_equal(group.recv[group.send_order[k]].number, first + k);
		}
		assert_int_equal(seen, (1u << group.n) - 1);
		first += group.n;
	}
}

static void equal_tags_of_a_group_meet_in_order(void **state)
{
	struct np_stage stage = { .max_size = 100, .group_max = 8 };
	unsigned int repeats = 0, turned = 0;

	(void)state;
	for (uint64_t number = 0; number < GROUPS; number++) {
		struct np_group group;

		np_plan_group(&stage, 3, 0, number, 0, 1000, &group);
		for (unsigned int a = 0; a < group.n; a++) {
			for (unsigned int b = a + 1; b < group.n; b++) {
				if (group.recv[a].tag == group.recv[b].tag) {
					assert_true(group.recv[a].number < group.recv[b].number);
					repeats++;
				} else {
					turned += group.recv[a].number > group.recv[b].number;
				}
			}
		}
	}
	/* both happen, or this test and the driver's would prove nothing */
	assert_true(repeats > 100);
	assert_true(turned > 100);
}

static void the_last_group_is_cut(void **state)
{
	struct np_stage stage = { .max_size = 100, .group_max = 8 };

	(void)state;
	for (uint64_t number = 0; number < 100; number++) {
		struct np_group group;

		np_plan_group(&stage, 3, 0, number, 50, 1, &group);
		assert_int_equal(group.n, 1);
		assert_int_equal(group.recv[0].number, 50);
	}
}

static void the_default_plan_has_all_sizes_and_groups(void **state)
{
	static const size_t sizes[] = { 0,    1,    127,   128,	    129,     4095,
					4096, 4097, 65536, 1 << 20, 16 << 20 };
	struct np_stage stages[NP_STAGES_MAX];
	struct np_options opts;
	unsigned int count, groups = 0, shorter = 0, full = 0;

	(void)state;
	assert_int_equal(parse(&opts, VERIFY_COUNT, verify_args), 0);
	count = np_plan_stages(&opts, 11, 8, 4, 0, stages);
	assert_true(count > 11);
	for (unsigned int n = 0; n < 11; n++) {
		assert_int_equal(stages[n].min_size, sizes[n]);
		assert_int_equal(stages[n].max_size, sizes[n]);
		full += stages[n].requests == 32 && stages[n].messages >= 64;
	}
	assert_in_range(full, 8, 11);
	for (unsigned int n = 11; n < count; n++) {
		groups += stages[n].group_max == 8;
		shorter += stages[n].shorter;
	}
	assert_int_equal(groups, 2);
	assert_int_equal(shorter, 2);

	/* nothing is grouped where the plugin takes one receive a call */
	count = np_plan_stages(&opts, 11, 1, 4, 0, stages);
	for (unsigned int n = 0; n < count; n++)
		assert_int_equal(stages[n].group_max, 1);
}

static void table_v6_has_eight_requests(void **state)
{
	struct np_stage stages[NP_STAGES_MAX];
	struct np_options opts;
	unsigned int count;

	(void)state;
	assert_int_equal(parse(&opts, VERIFY_COUNT, verify_args), 0);
	count = np_plan_stages(&opts, 6, 8, 4, 0, stages);
	for (unsigned int n = 0; n < count; n++)
		assert_in_range(stages[n].requests, 1, 8);
}

static void patterns_of_neighbours_differ(void **state)
{
	unsigned char one[64], other[64];

	(void)state;
	for (unsigned int k = 0; k < 4; k++) {
		unsigned int same = 0;

		np_pattern_fill(np_pattern_make(1, 1, 1), one, 0, 64);
		np_pattern_fill(np_pattern_make(1 + (k == 0), 1 + (k == 1), 1 + (k == 2)), other,
				k == 3 ? 8 : 0, 64);
		for (unsigned int n = 0; n < 64; n++)
			same += one[n] == other[n];
		assert_in_range(same, 0, 8);
	}
}

static void every_wrong_byte_is_found(void **state)
{
	struct np_pattern pattern = np_pattern_make(5, 6, 7);
	unsigned char data[2133]; /* several blocks of words, and a rest */

	(void)state;
	for (size_t offset = 0; offset < 9; offset++) {
		np_pattern_fill(pattern, data, offset, sizeof(data));
		assert_int_equal(np_pattern_check(pattern, data, offset, sizeof(data)),
				 sizeof(data));
		for (size_t n = 0; n < sizeof(data); n++) {
			assert_int_equal(data[n], np_pattern_byte(pattern, offset + n));
			data[n] ^= 1;
			assert_int_equal(np_pattern_check(pattern, data, offset, sizeof(data)), n);
			data[n] ^= 1;
		}
	}
}

static void guards_show_any_write(void **state)
{
	unsigned char *area = malloc(3 * NP_PAGE);

	(void)state;
	assert_non_null(area);
	np_guard_fill(area + 5, 2 * NP_PAGE);
	assert_int_equal(np_guard_check(area + 5, 2 * NP_PAGE), 2 * NP_PAGE);
	for (size_t n = 0; n < 2 * NP_PAGE; n += 61) {
		area[5 + n] ^= 0x80;
		assert_int_equal(np_guard_check(area + 5, 2 * NP_PAGE), n);
		area[5 + n] ^= 0x80;
	}
	free(area);
}

static void options_survive_the_wire(void **state)
{
	static const char *args[] = { "x",	"--plugin", "p",  "--connect", "h:1",
				      "bw",	"--size",   "3k", "--seconds", "2.5",
				      "--both", "--window", "7",  "--seed",    "99" };
	static const char *plain[] = { "x", "--plugin", "q", "--listen", "0" };
	struct np_options sent, got;
	char *text;

	(void)state;
	assert_int_equal(parse(&sent, 15, args), 0);
	assert_int_equal(parse(&got, 5, plain), 0);
	text = np_options_encode(&sent);
	assert_non_null(text);
	assert_int_equal(np_options_decode(&got, text), 0);
	free(text);
	assert_int_equal(got.mode, NP_MODE_BW);
	assert_int_equal(got.size, 3072);
	assert_int_equal(got.window, 7);
	assert_int_equal(got.seed, 99);
	assert_true(got.both);
	assert_true(got.seconds == 2.5);
	assert_string_equal(got.plugin, "q");
	assert_int_equal(got.size_count, sent.size_count);
	assert_memory_equal(got.sizes, sent.sizes, sent.size_count * sizeof(sent.sizes[0]));
}

static void foreign_options_are_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"mode=fly\n",
		"mode=bw\n",
		"mode=bw\ncomms=0\n",
		"mode=bw\ncomms=1\nwindow=99\n",
		"mode=bw\ncomms=1\nplugin=/tmp/x\n",
		"mode=bw\ncomms=1\nseconds=nan\n",
		"mode=bw\ncomms=1\nsizes=1,2,-3\n",
		"mode=bw\ncomms\n",
		"nonsense",
		"mode=verify\ncomms=1\nsize=9999999999999999999999\n",
	};
	static const char *plain[] = { "x", "--plugin", "q", "--listen", "0" };

	(void)state;
	for (size_t n = 0; n < sizeof(texts) / sizeof(texts[0]); n++) {
		struct np_options opts;
		char text[128];

		assert_int_equal(parse(&opts, 5, plain), 0);
		(void)snprintf(text, sizeof(text), "%s", texts[n]);
		if (np_options_decode(&opts, text) == 0)
			fail_msg("taken: %s", texts[n]);
		assert_int_equal(opts.mode, NP_MODE_NONE);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_cover_every_message_once),
		cmocka_unit_test(equal_tags_of_a_group_meet_in_order),
		cmocka_unit_test(the_last_group_is_cut),
		cmocka_unit_test(the_default_plan_has_all_sizes_and_groups),
		cmocka_unit_test(table_v6_has_eight_requests),
		cmocka_unit_test(patterns_of_neighbours_differ),
		cmocka_unit_test(every_wrong_byte_is_found),
		cmocka_unit_test(guards_show_any_write),
		cmocka_unit_test(options_survive_the_wire),
		cmocka_unit_test(foreign_options_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
