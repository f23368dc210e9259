/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and JSON of the same values. */
#include "agent/ctl/output.h"

#include <errno.h>

#include "tests/unit/agent/test.h"

static char *print(const struct mpib_output *output, bool json)
{
	char *text = NULL;
	size_t len = 0;
	FILE *memory = open_memstream(&text, &len);

	assert_non_null(memory);
	assert_int_equal(mpib_output_print(output, json, memory), 0);
	assert_int_equal(fclose(memory), 0);
	return text;
}

static void check(const struct mpib_output *output, bool json, const char *wanted)
{
	char *got = print(output, json);

	assert_string_equal(got, wanted);
	free(got);
}

static void values_and_rows_print_both_ways(void **state)
{
	struct mpib_output *output = NULL;

	(void)state;
	assert_int_equal(mpib_output_new(&output), 0);
	mpib_output_text(output, "name", "a longer name", "x \"y\"");
	mpib_output_number(output, "hidden", NULL, 5);
	mpib_output_list(output, "rows", "nothing");
	for (uint64_t n = 0; n < 2; n++) {
		mpib_output_row(output);
		mpib_output_number(output, "n", "N", n * 1000);
		mpib_output_note(output, "WORD", n ? "longer" : "w");
		mpib_output_bool(output, "odd", "ODD", n);
	}
	check(output, false,
	      "a longer name: x \"y\"\n"
	      "   N  WORD    ODD\n"
	      "   0  w       false\n"
	      "1000  longer  true\n");
	check(output, true,
	      "{\"name\": \"x \\\"y\\\"\", \"hidden\": 5, \"rows\": [\n"
	      "  {\"n\": 0, \"odd\": false},\n"
	      "  {\"n\": 1000, \"odd\": true}\n"
	      "]}\n");
	assert_null(mpib_output_free(output));
}

static void an_empty_list_is_an_array_and_a_word(void **state)
{
	struct mpib_output *output = NULL;

	(void)state;
	assert_int_equal(mpib_output_new(&output), 0);
	mpib_output_list(output, "rows", "nothing");
	check(output, true, "{\"rows\": []}\n");
	check(output, false, "nothing\n");
	assert_null(mpib_output_free(output));
}

static const struct mpib_output_rank ranks[] = { { "FROM", 2 }, { "TO", 2 }, { "ID", 1 } };

/* Rows with a share for people, and a total. */
static struct mpib_output *flows(unsigned int n_rows)
{
	struct mpib_output *output = NULL;

	assert_int_equal(mpib_output_new(&output), 0);
	mpib_output_list(output, "flows", "no flows");
	mpib_output_ranks(output, ranks, sizeof(ranks) / sizeof(ranks[0]));
	for (unsigned int n = 1; n <= n_rows; n++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "10.0.0.%u", n * 9 % 11);
		mpib_output_row(output);
		mpib_output_text(output, "flow", "FLOW", name);
		mpib_output_shown(output, "share", "SHARE", n * 100 % 7, n % 2 ? "odd" : "even");
		mpib_output_note(output, "FROM", "an-island-of-thirty-one-letters");
		mpib_output_text(output, "to", "TO", "B");
		mpib_output_number(output, "id", "ID", UINT64_MAX - n);
	}
	mpib_output_total(output);
	mpib_output_shown(output, "flows", "FLOW", n_rows, "total");
	mpib_output_number(output, "id", "ID", 7);
	return output;
}

static void a_total_is_a_row_and_an_object(void **state)
{
	struct mpib_output *output = flows(1);

	(void)state;
	check(output, false,
	      "FLOW      SHARE  FROM                             TO                    ID\n"
	      "10.0.0.9    odd  an-island-of-thirty-one-letters  B   18446744073709551614\n"
	      "total                                                                    7\n");
	mpib_output_one_line(output);
	check(output, true,
	      "{\"flows\": [{\"flow\": \"10.0.0.9\", \"share\": 2, \"to\": \"B\", \"id\": "
	      "18446744073709551614}], \"total\": {\"flows\": 1, \"id\": 7}}\n");
	assert_null(mpib_output_free(output));
	output = flows(0);
	check(output, false, "no flows\n");
	check(output, true, "{\"flows\": [], \"total\": {\"flows\": 0, \"id\": 7}}\n");
	assert_null(mpib_output_free(output));
}

static void what_matters_least_is_left_out_first(void **state)
{
	struct mpib_output *output = flows(1);
	char *text;

	(void)state;
	mpib_output_fit(output, 74, 0); /* as wide as it is */
	check(output, false,
	      "FLOW      SHARE  FROM                             TO                    ID\n"
	      "10.0.0.9    odd  an-island-of-thirty-one-letters  B   18446744073709551614\n"
	      "total                                                                    7\n");
	mpib_output_fit(output, 73, 0);
	check(output, false,
	      "FLOW      SHARE                    ID\n"
	      "10.0.0.9    odd  18446744073709551614\n"
	      "total                               7\n"
	      "(73 columns: without FROM, TO; all: a wider terminal, COLUMNS, --json)\n");
	mpib_output_fit(output, 20, 0);
	check(output, false,
	      "FLOW      SHARE\n"
	      "10.0.0.9    odd\n"
	      "total\n"
	      "(20 columns:\n"
	      " without FROM, TO,\n"
	      " ID; all: a wider\n"
	      " terminal, COLUMNS,\n"
	      " --json)\n");
	/* What has no rank stays, however narrow it gets. */
	mpib_output_fit(output, 3, 0);
	text = print(output, false);
	assert_non_null(strstr(text, "10.0.0.9    odd\n"));
	free(text);
	assert_null(mpib_output_free(output));
}

static void a_last_text_is_broken_at_blanks(void **state)
{
	struct mpib_output *output = NULL;

	(void)state;
	assert_int_equal(mpib_output_new(&output), 0);
	mpib_output_text(output, "why", "why", "one two three four five six");
	mpib_output_list(output, "rows", "none");
	mpib_output_row(output);
	mpib_output_number(output, "n", "N", 1);
	mpib_output_text(output, "text", "TEXT", "one two three four a_word_of_more_than_a_line");
	mpib_output_fit(output, 23, 0);
	check(output, false,
	      "why: one two three four\n"
	      "     five six\n"
	      "N  TEXT\n"
	      "1  one two three four\n"
	      "   a_word_of_more_than_\n"
	      "   a_line\n");
	assert_null(mpib_output_free(output));
}

static void rows_beyond_the_screen_are_counted(void **state)
{
	struct mpib_output *output = flows(4);

	(void)state;
	mpib_output_fit(output, 40, 2);
	assert_int_equal(mpib_output_sort(output, "flow"), 0);
	check(output, false,
	      "FLOW      SHARE                    ID\n"
	      "10.0.0.3   even  18446744073709551611\n"
	      "10.0.0.5    odd  18446744073709551612\n"
	      "(2 more)\n"
	      "total                               7\n"
	      "(40 columns: without FROM, TO; all: a\n"
	      " wider terminal, COLUMNS, --json)\n");
	assert_null(mpib_output_free(output));
}

/* The order of the rows: the last parts of their flows. */
static void expect_order(unsigned int n_rows, const char *column, const char *wanted)
{
	struct mpib_output *output = flows(n_rows);
	char got[64] = "";
	char *text;

	assert_int_equal(mpib_output_sort(output, column), 0);
	text = print(output, true);
	for (const char *p = text; (p = strstr(p, "10.0.0.")); p++) {
		(void)strncat(got, p + 7, strcspn(p + 7, "\""));
		(void)strncat(got, " ", sizeof(got) - strlen(got) - 1);
	}
	assert_string_equal(got, wanted);
	free(text);
	assert_null(mpib_output_free(output));
}

static void rows_sort_by_any_column_both_ways(void **state)
{
	struct mpib_output *output = flows(2);
	char columns[64];

	(void)state;
	expect_order(5, "flow", "1 3 5 7 9 "); /* by numbers, not letters */
	expect_order(5, "-FLOW", "9 7 5 3 1 ");
	expect_order(11, "flow", "0 1 2 3 4 5 6 7 8 9 10 ");
	expect_order(5, "share", "3 9 1 7 5 ");
	expect_order(5, "-id", "9 7 5 3 1 ");
	expect_order(5, "to", "9 7 5 3 1 "); /* all alike: as they came */
	expect_order(5, "-to", "9 7 5 3 1 ");
	assert_int_equal(mpib_output_sort(output, "nonsense"), -ENOENT);
	assert_int_equal(mpib_output_sort(output, ""), -ENOENT);
	assert_int_equal(mpib_output_sort(output, "-"), -ENOENT);
	mpib_output_columns(output, columns, sizeof(columns));
	assert_string_equal(columns, "flow share to id");
	assert_null(mpib_output_free(output));
	output = flows(0);
	assert_int_equal(mpib_output_sort(output, "flow"), 0);
	check(output, false, "no flows\n");
	assert_null(mpib_output_free(output));
}

static void a_full_file_is_an_error(void **state)
{
	struct mpib_output *output = flows(3);
	FILE *full = fopen("/dev/full", "we");

	(void)state;
	assert_non_null(full);
	assert_int_equal(mpib_output_print(output, false, full), -ENOSPC);
	(void)fclose(full);
	assert_null(mpib_output_free(output));
}

static void json_strings_escape_what_they_must(void **state)
{
	static const struct {
		const char *text;
		const char *wanted;
	} cases[] = {
		{ "", "\"\"" },
		{ "a\\b\"c", "\"a\\\\b\\\"c\"" },
		{ "\n\t\x01\x7f", "\"\\u000a\\u0009\\u0001\\u007f\"" },
		{ "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
		  "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"" },
		{ "\xff\xc3", "\"\\ufffd\\ufffd\"" },
		{ "\xc0\xaf", "\"\\ufffd\\ufffd\"" },		 /* overlong */
		{ "\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"" }, /* half a pair */
	};

	(void)state;
	for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
		char *text = NULL;
		size_t len = 0;
		FILE *memory = open_memstream(&text, &len);

		mpib_output_json_string(cases[n].text, memory);
		assert_int_equal(fclose(memory), 0);
		assert_string_equal(text, cases[n].wanted);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_and_rows_print_both_ways),
		cmocka_unit_test(an_empty_list_is_an_array_and_a_word),
		cmocka_unit_test(a_total_is_a_row_and_an_object),
		cmocka_unit_test(what_matters_least_is_left_out_first),
		cmocka_unit_test(a_last_text_is_broken_at_blanks),
		cmocka_unit_test(rows_beyond_the_screen_are_counted),
		cmocka_unit_test(rows_sort_by_any_column_both_ways),
		cmocka_unit_test(a_full_file_is_an_error),
		cmocka_unit_test(json_strings_escape_what_they_must),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
