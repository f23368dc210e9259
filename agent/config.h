/* SPDX-License-Identifier: Apache-2.0 */
/* An INI file becomes a whole new policy, or an error that says "file:line: what and why"; never
 * half. The one code path behind start, reload and --check. */
#ifndef MPIB_AGENT_CONFIG_H
#define MPIB_AGENT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "agent/cause.h"
#include "agent/policy.h"

/* Where meson's sysconfdir puts it; the build defines it. */
#ifndef MPIB_CONFIG_PATH
#define MPIB_CONFIG_PATH "/etc/mpib/agent.ini"
#endif

/* Parses a text that came from @path. 0, -EBADMSG (the text is wrong) or -ENOMEM. */
int mpib_config_parse(const char *path, const char *text, size_t len, struct mpib_policy **ret,
		      struct mpib_cause *cause);

/* Reads @path. A missing file gives the defaults unless @must_exist. Other errors: the errno of
 * the file, -EFBIG for one over 16 MiB, -EINVAL for what is not a regular file. */
int mpib_config_load(const char *path, bool must_exist, struct mpib_policy **ret,
		     struct mpib_cause *cause);

/* Writes the effective policy as an INI file that says the same, defaults included. */
void mpib_config_print(const struct mpib_policy *policy, FILE *out);

/* The plain keys, for documents and tests: NULL past the last one. */
struct mpib_config_key {
	const char *section;
	const char *key;
	const char *range;
	const char *help;
};
const struct mpib_config_key *mpib_config_key_at(size_t n);

#endif
