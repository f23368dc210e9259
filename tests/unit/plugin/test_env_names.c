/* SPDX-License-Identifier: Apache-2.0 */
/* Names that are no setting: warned of with what was meant, and those of NCCL that say nothing
 * here. */
#include "tests/unit/plugin/test.h"

#include <stdlib.h>

#include "tests/unit/plugin/clean_env.h"

static void test_unknown_names(void **state)
{
	static const struct {
		const char *name, *meant; /* NULL: not warned of */
	} rows[] = {
		{ "MPIB_MOED", "MPIB_MODE" },
		{ "MPIB_MODE_", "MPIB_MODE" },
		{ "MPIB_mode", "MPIB_MODE" },
		{ "MPIB_HCA_SOUTH", "MPIB_HCA_SOUT" },
		{ "MPIB_HCA_UP", "MPIB_HCA_SUP" },
		{ "MPIB_GPU_DIRECT", "MPIB_GPUDIRECT" },
		{ "MPIB_TC", "MPIB_IB_TC" },
		{ "MPIB_TIMEOUT", "MPIB_IB_TIMEOUT" },
		{ "MPIB_SPLITMIN", "MPIB_SPLIT_MIN" },
		{ "MPIB_IB_QPS_PER_CONNECTION", "MPIB_SOUT_QP" }, /* by NCCL's name */
		{ "MPIB_IB_HCA", "MPIB_HCA_SOUT" },
		{ "MPIB_", "MPIB_" },
		{ "MPIB_TEST_SEED", NULL },
		{ "MPIB_FABRIC", NULL },
		{ "MPIB_FABRIC_NODE", NULL },
		{ "MPIB_LAB_NAME", NULL },
		{ "MPIBX", NULL },
		{ "XMPIB_MODE", NULL },
		{ "MPIB_AGENT_DIR", NULL },
	};
	struct mpib_env env;

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		char line[160];

		test_log_clear();
		(void)setenv(rows[k].name, rows[k].meant ? "1" : "/tmp", 1);
		assert_int_equal(mpib_env_read(&env), 0);
		if (test_log_warnings() != (rows[k].meant != NULL))
			fail_msg("%s: %d warnings", rows[k].name, test_log_warnings());
		(void)snprintf(line, sizeof(line),
			       "%s is no setting of MPIB and has no effect; did "
			       "you mean %s",
			       rows[k].name, rows[k].meant ? rows[k].meant : "");
		if (rows[k].meant)
			assert_logged(line);
		(void)unsetenv(rows[k].name);
	}
}

/* Names from outside are cut and made printable, and there is an end to them. */
static void test_unknown_names_are_bounded(void **state)
{
	char name[5000];
	struct mpib_env env;

	(void)state;
	memset(name, 'A', sizeof(name));
	memcpy(name, "MPIB_\033\xff", 7);
	name[sizeof(name) - 1] = '\0';
	(void)setenv(name, "1", 1);
	assert_int_equal(mpib_env_read(&env), 0);
	assert_int_equal(test_log_warnings(), 1);
	assert_logged("MPIB_\\x1b\\xffAAA");
	assert_logged("... is no setting");
	(void)unsetenv(name);

	test_log_clear();
	for (unsigned int k = 0; k < 50; k++) {
		(void)snprintf(name, sizeof(name), "MPIB_X%u", k);
		(void)setenv(name, "1", 1);
	}
	assert_int_equal(mpib_env_read(&env), 0);
	assert_int_equal(test_log_warnings(), 9);
	assert_logged("42 more variables begin with MPIB_");
	for (unsigned int k = 0; k < 50; k++) {
		(void)snprintf(name, sizeof(name), "MPIB_X%u", k);
		(void)unsetenv(name);
	}
}

static void test_unused_of_nccl(void **state)
{
	char list[256];

	(void)state;
	assert_string_equal(mpib_env_list_unused(list, sizeof(list)), "");
	(void)setenv("NCCL_IB_HCA", "mlx5", 1);
	(void)setenv("NCCL_IB_PKEY", "0", 1);
	(void)setenv("NCCL_IB_ROCE_VERSION_NUM", "1", 1);
	(void)mpib_env_list_unused(list, sizeof(list));
	assert_non_null(strstr(list, " NCCL_IB_HCA"));
	assert_non_null(strstr(list, " NCCL_IB_ROCE_VERSION_NUM"));
	assert_null(strstr(list, "PKEY"));
	(void)unsetenv("NCCL_IB_HCA");
	(void)unsetenv("NCCL_IB_PKEY");
	(void)unsetenv("NCCL_IB_ROCE_VERSION_NUM");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_unknown_names, clean),
		cmocka_unit_test_setup(test_unknown_names_are_bounded, clean),
		cmocka_unit_test_setup(test_unused_of_nccl, clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
