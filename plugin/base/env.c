/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/base/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/base/log.h"
#include "plugin/base/result.h"

#define UNKNOWN_MAX 8 /* warnings of names that are no settings */

static const char *get(const void *environment, const char *name)
{
	(void)environment;
	return getenv(name);
}

static void warn_unknown(void)
{
	unsigned int count = 0;
	char why[MPIB_ENV_WHY_MAX];

	for (char *const *entry = environ; entry && *entry; entry++) {
		if (!mpib_env_is_unknown(*entry, why))
			continue;
		if (count++ < UNKNOWN_MAX)
			MPIB_WARN("%s", why);
	}
	if (count > UNKNOWN_MAX)
		MPIB_WARN("%u more variables begin with MPIB_ and are no settings",
			  count - UNKNOWN_MAX);
}

int mpib_env_read(struct mpib_env *ret)
{
	char why[MPIB_ENV_WHY_MAX];
	struct mpib_env env;
	int r = 0;

	memset(&env, 0, sizeof(env));
	warn_unknown();
	for (size_t k = 0; k < mpib_env_row_count; k++) {
		if (mpib_env_read_row(&mpib_env_rows[k], get, NULL, &env, why) == 0)
			continue;
		MPIB_WARN("%s", why);
		r = -MPIB_EUSAGE;
	}

	if (r == 0)
		*ret = env;
	return r;
}

char *mpib_env_list(const struct mpib_env *env, enum mpib_env_origin origin, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (size_t k = 0; k < mpib_env_row_count && used < size; k++) {
		const struct mpib_env_row *row = &mpib_env_rows[k];
		bool nccl = origin == MPIB_ENV_NCCL;
		char value[PATH_MAX];

		if (mpib_env_origin_of(env, row) != origin ||
		    !*mpib_env_format(row, env, value, sizeof(value)))
			continue;
		used += (size_t)snprintf(buf + used, size - used, " %s=%s%s%s%s",
					 nccl ? row->nccl : row->name, value, nccl ? " (" : "",
					 nccl ? row->name : "", nccl ? ")" : "");
	}
	return buf;
}

char *mpib_env_list_unused(char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (char *const *entry = environ; entry && *entry && used < size; entry++) {
		const struct mpib_env_unused *row = mpib_env_find_unused(*entry);

		if (row)
			used += (size_t)snprintf(buf + used, size - used, " %.*s",
						 (int)strcspn(*entry, "="), *entry);
	}
	return buf;
}
