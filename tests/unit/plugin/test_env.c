/* SPDX-License-Identifier: Apache-2.0 */
/* Every setting: its default, its borders, what lies outside, and junk. The rows of the table drive
 * the test, so a new setting is tested the day it is added. */
#include "tests/unit/plugin/test.h"

#include <limits.h>
#include <stdlib.h>

#include "plugin/env.h"
#include "plugin/result.h"

static int clean(void **state)
{
	(void)state;
	for (size_t k = 0; k < mpib_env_row_count; k++)
		(void)unsetenv(mpib_env_rows[k].name);
	test_log_clear();
	return 0;
}

static int number_of(const struct mpib_env *env, const struct mpib_env_row *row)
{
	return *(const int *)(const void *)((const char *)env + row->offset);
}

static void set_number(const struct mpib_env_row *row, long value)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%ld", value);
	(void)setenv(row->name, text, 1);
}

static void expect_refused(const struct mpib_env_row *row)
{
	struct mpib_env env;

	test_log_clear();
	if (mpib_env_read(&env) != -MPIB_EUSAGE)
		fail_msg("%s=%.60s is taken", row->name, getenv(row->name));
	assert_int_equal(test_log_warnings(), 1);
	assert_logged(row->name);
}

static void test_defaults(void **state)
{
	struct mpib_env env;

	(void)state;
	assert_int_equal(mpib_env_read(&env), 0);
	assert_string_equal(env.hca_sout, "");
	assert_string_equal(env.agent_dir, "/tmp/mpib");
	assert_int_equal(env.mode, 0);
	assert_int_equal(env.prefix_len, 24);
	assert_int_equal(env.qps[0], 2);
	assert_int_equal(env.qps[1], 4);
	assert_int_equal(env.gid_index, -1);
	assert_int_equal(env.timeout, 18);
	assert_int_equal(env.retry_cnt, 6);
	assert_int_equal(env.agent_stale_sec, 10);

	/* An empty variable means its default, too. */
	for (size_t k = 0; k < mpib_env_row_count; k++)
		(void)setenv(mpib_env_rows[k].name, "", 1);
	assert_int_equal(mpib_env_read(&env), 0);
	assert_int_equal(env.prefix_len, 24);
	assert_string_equal(env.agent_dir, "/tmp/mpib");
	assert_int_equal(test_log_warnings(), 0);
}

static void test_numbers(void **state)
{
	static const char *const junk[] = { "x", "1x", "0x10", "1.5", "--1", "99999999999999999999",
					    " ", "1 " };
	struct mpib_env env;

	(void)state;
	for (size_t k = 0; k < mpib_env_row_count; k++) {
		const struct mpib_env_row *row = &mpib_env_rows[k];

		if (row->size)
			continue;
		assert_true(row->min < row->max);
		set_number(row, row->min);
		assert_int_equal(mpib_env_read(&env), 0);
		assert_int_equal(number_of(&env, row), row->min);
		set_number(row, row->max);
		assert_int_equal(mpib_env_read(&env), 0);
		assert_int_equal(number_of(&env, row), row->max);
		set_number(row, row->min - 1);
		expect_refused(row);
		set_number(row, row->max + 1);
		expect_refused(row);
		set_number(row, LONG_MAX);
		expect_refused(row);
		for (size_t j = 0; j < sizeof(junk) / sizeof(junk[0]); j++) {
			(void)setenv(row->name, junk[j], 1);
			expect_refused(row);
		}
		(void)unsetenv(row->name);
	}
}

static void test_texts(void **state)
{
	struct mpib_env env;

	(void)state;
	for (size_t k = 0; k < mpib_env_row_count; k++) {
		const struct mpib_env_row *row = &mpib_env_rows[k];
		char *text;

		if (!row->size)
			continue;
		text = malloc(row->size + 1);
		assert_non_null(text);
		memset(text, 'a', row->size);
		text[row->size - 1] = '\0';
		(void)setenv(row->name, text, 1);
		assert_int_equal(mpib_env_read(&env), 0);
		assert_string_equal((const char *)&env + row->offset, text);
		text[row->size - 1] = 'a';
		text[row->size] = '\0';
		(void)setenv(row->name, text, 1);
		expect_refused(row);
		(void)unsetenv(row->name);
		free(text);
	}
}

/* What is refused leaves the caller's struct alone. */
static void test_refused_writes_nothing(void **state)
{
	struct mpib_env env, before;

	(void)state;
	memset(&env, 0x5a, sizeof(env));
	before = env;
	(void)setenv("MPIB_CONNECT_TIMEOUT_SEC", "never", 1);
	assert_int_equal(mpib_env_read(&env), -MPIB_EUSAGE);
	assert_memory_equal(&env, &before, sizeof(env));
	assert_logged("MPIB_CONNECT_TIMEOUT_SEC=never");
	assert_logged("1 to 86400");
}

/* Values that go into narrower fields of verbs must fit there. */
static void test_ranges_fit_verbs(void **state)
{
	static const struct {
		const char *name;
		long max;
	} rows[] = {
		{ "MPIB_IB_GID_INDEX", 255 }, { "MPIB_IB_TIMEOUT", 31 }, { "MPIB_IB_RETRY_CNT", 7 },
		{ "MPIB_IB_TC", 255 },	      { "MPIB_IB_SL", 15 },
	};

	(void)state;
	for (size_t j = 0; j < sizeof(rows) / sizeof(rows[0]); j++) {
		const struct mpib_env_row *found = NULL;

		for (size_t k = 0; k < mpib_env_row_count; k++)
			if (strcmp(mpib_env_rows[k].name, rows[j].name) == 0)
				found = &mpib_env_rows[k];
		assert_non_null(found);
		assert_true(found && found->max <= rows[j].max);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_defaults, clean),
		cmocka_unit_test_setup(test_numbers, clean),
		cmocka_unit_test_setup(test_texts, clean),
		cmocka_unit_test_setup(test_refused_writes_nothing, clean),
		cmocka_unit_test_setup(test_ranges_fit_verbs, clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
