/* SPDX-License-Identifier: Apache-2.0 */
/* For cmocka: an environment without any setting. */
#ifndef MPIB_TESTS_UNIT_PLUGIN_CLEAN_ENV_H
#define MPIB_TESTS_UNIT_PLUGIN_CLEAN_ENV_H

#include <stdlib.h>

#include "plugin/base/env.h"
#include "tests/unit/plugin/test.h"

static inline int clean(void **state)
{
	(void)state;
	for (size_t k = 0; k < mpib_env_row_count; k++) {
		(void)unsetenv(mpib_env_rows[k].name);
		if (mpib_env_rows[k].nccl)
			(void)unsetenv(mpib_env_rows[k].nccl);
	}
	test_log_clear();
	return 0;
}

#endif
