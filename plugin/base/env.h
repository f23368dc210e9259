/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of this process, read once, at its first init. The table is common/env.h's. */
#ifndef MPIB_PLUGIN_BASE_ENV_H
#define MPIB_PLUGIN_BASE_ENV_H

#include "common/env.h"

/* Fills @ret from the environment. -MPIB_EUSAGE for a value that isn't allowed: one warning each
 * quotes variable and value, and says what is; @ret is as before then. Variables that are named as
 * settings and are none are warned of. */
int mpib_env_read(struct mpib_env *ret);

/* " NAME=value" for each setting whose value in @env has that origin and isn't empty; " NAME=value
 * (MPIB_NAME)" for NCCL's. In @buf, cut where it doesn't fit. Returns @buf. */
char *mpib_env_list(const struct mpib_env *env, enum mpib_env_origin origin, char *buf,
		    size_t size);

/* " NAME" for each variable of NCCL's transport that is set and means nothing here. */
char *mpib_env_list_unused(char *buf, size_t size);

#endif
