/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and JSON of the same values. */
#include "agent/output.h"
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
		cmocka_unit_test(json_strings_escape_what_they_must),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
