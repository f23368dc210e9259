/* SPDX-License-Identifier: Apache-2.0 */
/* Every setting: its default, its borders, what lies outside, and junk. The rows of the table drive
 * the test, so a new setting is tested the day it is added. */
#include "tests/unit/plugin/test.h"

#include <limits.h>
#include <stdlib.h>

#include "plugin/base/result.h"
#include "tests/unit/plugin/clean_env.h"

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

/* What is no value of any setting, and how the line quotes it. */
static const struct {
	const char *text, *quoted;
} junk[] = {
	{ " 1", " 1" },
	{ "1 ", "1 " },
	{ "1\n", "1\\x0a" },
	{ "\xc3\xa9", "\\xc3\\xa9" },
	{ "\xef\xbc\x91", "\\xef\\xbc\\x91" }, /* a wide digit */
	{ "\033[31m1", "\\x1b[31m1" },
};

static const char *const no_numbers[] = {
	"x",
	"+1",
	"1x",
	"0x1",
	"1.5",
	"--1",
	"99999999999999999999",
	" ",
	"01",
	"-0",
	"1e0",
	"-18446744073709551615",
	"1,",
	"18446744073709551616",
	"-",
	"0x",
	"1 1",
};

static void expect_junk_refused(const struct mpib_env_row *row, const char *variable,
				const char *text, const char *quoted)
{
	char line[160], allowed[128];

	(void)setenv(variable, text, 1);
	expect_refused(row);
	(void)snprintf(line, sizeof(line), "%s=%s: ", variable, quoted);
	assert_logged(line);
	if (row->kind != MPIB_ENV_HCAS)
		assert_logged(mpib_env_allowed(row, allowed, sizeof(allowed)));
	(void)unsetenv(variable);
}

/* P05: one strict syntax in every setting, whether the value is from MPIB's variable or NCCL's. */
static void test_junk_in_every_setting(void **state)
{
	(void)state;
	for (size_t k = 0; k < mpib_env_row_count; k++) {
		const struct mpib_env_row *row = &mpib_env_rows[k];
		const char *variables[] = { row->name, row->nccl };

		for (size_t v = 0; v < 2 && variables[v]; v++) {
			/* Two settings that share NCCL's variable would both complain. */
			if (v == 1 && strstr(row->nccl, "QPS_PER_CONNECTION"))
				continue;
			for (size_t j = 0; j < sizeof(junk) / sizeof(junk[0]); j++)
				expect_junk_refused(row, variables[v], junk[j].text,
						    junk[j].quoted);
			for (size_t j = 0; j < sizeof(no_numbers) / sizeof(no_numbers[0]); j++)
				if (!row->size && !(row->kind == MPIB_ENV_KEY &&
						    strcmp(no_numbers[j], "0x1") == 0))
					expect_junk_refused(row, variables[v], no_numbers[j],
							    no_numbers[j]);
		}
	}
}

static void test_numbers(void **state)
{
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
		set_number(row, LONG_MIN);
		expect_refused(row);
		(void)unsetenv(row->name);
	}
}

/* Each kind of text, taken and refused. */
static void test_texts(void **state)
{
	static const struct {
		const char *name, *text;
		bool taken;
	} rows[] = {
		{ "MPIB_HCA_SOUT", "mlx5_0", true },
		{ "MPIB_HCA_SOUT", "mlx5_0:1,mlx5_1:255", true },
		{ "MPIB_HCA_SOUT", "mlx5_0:", false },
		{ "MPIB_HCA_SOUT", "mlx5_0:0", false },
		{ "MPIB_HCA_SOUT", "mlx5_0:256", false },
		{ "MPIB_HCA_SOUT", "mlx5_0: 1", false },
		{ "MPIB_HCA_SOUT", "mlx5_0:+1", false },
		{ "MPIB_HCA_SOUT", "mlx5_0:-18446744073709551615", false },
		{ "MPIB_HCA_SOUT", "mlx5_0:1x", false },
		{ "MPIB_HCA_SOUT", "mlx5_0:0x1", false },
		{ "MPIB_HCA_SOUT", "mlx5_0:00000000000000000001", false },
		{ "MPIB_HCA_SOUT", "mlx5_0:99999999999999999999", false },
		{ "MPIB_HCA_SOUT", "mlx5_0:1:1", false },
		{ "MPIB_HCA_SOUT", "mlx5_0, mlx5_1", false },
		{ "MPIB_HCA_SOUT", ",", false },
		{ "MPIB_HCA_SOUT", "a,,b", false },
		{ "MPIB_HCA_SUP", "../../etc", false },
		{ "MPIB_OOB_IF", "eno1.17:2", true },
		{ "MPIB_OOB_IF", "a/b", false },
		{ "MPIB_OOB_IF", "^docker,lo", true },
		{ "MPIB_OOB_IF", "=eth0,ib0", true },
		{ "MPIB_OOB_IF", "eth0,", false },
		{ "MPIB_OOB_IF", "^", false },
		{ "MPIB_OOB_FAMILY", "AF_INET", true },
		{ "MPIB_OOB_FAMILY", "AF_INET6", true },
		{ "MPIB_OOB_FAMILY", "AF_UNIX", false },
		{ "MPIB_OOB_FAMILY", "inet", false },
		{ "MPIB_NODE_ADDR", "10.0.0.1", true },
		{ "MPIB_NODE_ADDR", "10.0.0.1/24", false },
		{ "MPIB_NODE_ADDR", "10.0.0.01", false },
		{ "MPIB_NODE_ADDR", "0.0.0.0", false },
		{ "MPIB_NODE_ADDR", "127.0.0.1", false },
		{ "MPIB_NODE_ADDR", "224.0.0.1", false },
		{ "MPIB_NODE_ADDR", "node7", false },
		{ "MPIB_AGENT_DIR", "/run/mpib of mine", true },
		{ "MPIB_AGENT_DIR", "run/mpib", false },
	};
	struct mpib_env env;

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		char line[80];

		test_log_clear();
		(void)setenv(rows[k].name, rows[k].text, 1);
		if ((mpib_env_read(&env) == 0) != rows[k].taken)
			fail_msg("%s=%s", rows[k].name, rows[k].text);
		assert_int_equal(test_log_warnings(), !rows[k].taken);
		(void)snprintf(line, sizeof(line), "%s=%s: ", rows[k].name, rows[k].text);
		if (!rows[k].taken)
			assert_logged(line);
		(void)unsetenv(rows[k].name);
	}
}

/* As long as the buffer allows, and one byte more. */
static void test_long_texts(void **state)
{
	struct mpib_env env;

	(void)state;
	for (size_t k = 0; k < mpib_env_row_count; k++) {
		const struct mpib_env_row *row = &mpib_env_rows[k];
		size_t step;
		char *text;

		if (!row->size)
			continue;
		text = malloc(row->size + 1);
		assert_non_null(text);
		memset(text, 'a', row->size);
		for (size_t at = 0; at < row->size; at += 50)
			text[at] = row->kind == MPIB_ENV_DIRECTORY ? '/' : 'a';
		step = row->kind == MPIB_ENV_HCAS ? 50 : row->kind == MPIB_ENV_INTERFACES ? 10 : 0;
		for (size_t at = step; step && at < row->size - 2; at += step)
			text[at] = ',';
		text[row->size - 1] = '\0';
		(void)setenv(row->name, text, 1);
		if (row->kind != MPIB_ENV_IPV4 && row->kind != MPIB_ENV_FAMILY) {
			assert_int_equal(mpib_env_read(&env), 0);
			assert_string_equal((const char *)&env + row->offset, text);
		}
		text[row->size - 1] = 'a';
		text[row->size] = '\0';
		(void)setenv(row->name, text, 1);
		expect_refused(row);
		if (row->size > 128)
			assert_logged("...: ");
		(void)unsetenv(row->name);
		free(text);
	}
}

/* The own variable wins, an empty one counts as unset, and each is told with its name. */
static void test_nccl_where_unset(void **state)
{
	struct mpib_env env;
	char list[1024], wanted[128];

	(void)state;
	for (size_t k = 0; k < mpib_env_row_count; k++) {
		const struct mpib_env_row *row = &mpib_env_rows[k];
		long least = row->min > 0 ? row->min : 0;
		char text[32];

		if (!row->nccl || row->size)
			continue;
		(void)snprintf(text, sizeof(text), "%ld", row->max);
		(void)setenv(row->nccl, text, 1);
		(void)setenv(row->name, "", 1);
		assert_int_equal(mpib_env_read(&env), 0);
		assert_int_equal(number_of(&env, row), row->max);
		assert_string_equal(mpib_env_variable(&env, (char *)&env + row->offset), row->nccl);
		(void)snprintf(wanted, sizeof(wanted), " %s=%ld (%s)", row->nccl, row->max,
			       row->name);
		(void)mpib_env_list(&env, MPIB_ENV_NCCL, list, sizeof(list));
		if (!strstr(list, wanted))
			fail_msg("no '%s' in '%s'", wanted, list);

		set_number(row, least);
		assert_int_equal(mpib_env_read(&env), 0);
		assert_int_equal(number_of(&env, row), least);
		assert_string_equal(mpib_env_variable(&env, (char *)&env + row->offset), row->name);
		(void)unsetenv(row->name);
		(void)setenv(row->nccl, "", 1);
		assert_int_equal(mpib_env_read(&env), 0);
		assert_int_equal(mpib_env_origin_of(&env, row), MPIB_ENV_DEFAULT);
		if (row->nccl_unset) {
			(void)setenv(row->nccl, row->nccl_unset, 1);
			assert_int_equal(mpib_env_read(&env), 0);
			assert_int_equal(mpib_env_origin_of(&env, row), MPIB_ENV_DEFAULT);
		}
		assert_int_equal(test_log_warnings(), 0);
		(void)unsetenv(row->nccl);
	}
}

/* A wrong value of NCCL's is refused with its own name and the way around it. */
static void test_nccl_value_refused(void **state)
{
	struct mpib_env env;

	(void)state;
	(void)setenv("NCCL_IB_TIMEOUT", "40", 1);
	assert_int_equal(mpib_env_read(&env), -MPIB_EUSAGE);
	assert_logged("NCCL_IB_TIMEOUT=40: must be a number from 1 to 31");
	assert_logged("set MPIB_IB_TIMEOUT, which wins over it");
	(void)setenv("MPIB_IB_TIMEOUT", "20", 1);
	assert_int_equal(mpib_env_read(&env), 0);
	assert_int_equal(env.timeout, 20);
}

/* All that is wrong in one go: a user corrects it once. */
static void test_every_mistake_is_named(void **state)
{
	struct mpib_env env;

	(void)state;
	(void)setenv("MPIB_MODE", "2", 1);
	(void)setenv("MPIB_IB_SL", "x", 1);
	assert_int_equal(mpib_env_read(&env), -MPIB_EUSAGE);
	assert_int_equal(test_log_warnings(), 2);
	assert_logged("MPIB_MODE=2: ");
	assert_logged("MPIB_IB_SL=x: ");
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
		cmocka_unit_test_setup(test_junk_in_every_setting, clean),
		cmocka_unit_test_setup(test_texts, clean),
		cmocka_unit_test_setup(test_long_texts, clean),
		cmocka_unit_test_setup(test_nccl_where_unset, clean),
		cmocka_unit_test_setup(test_nccl_value_refused, clean),
		cmocka_unit_test_setup(test_every_mistake_is_named, clean),
		cmocka_unit_test_setup(test_refused_writes_nothing, clean),
		cmocka_unit_test_setup(test_ranges_fit_verbs, clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
