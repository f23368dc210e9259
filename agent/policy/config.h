/* SPDX-License-Identifier: Apache-2.0 */
/* An INI file becomes a whole new policy, or an error that says "file:line: what and why"; never
 * half. The one code path behind start, reload and --check. */
#ifndef MPIB_AGENT_CONFIG_H
#define MPIB_AGENT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "agent/base/cause.h"
#include "agent/policy/policy.h"

/* Where meson's sysconfdir puts it; the build defines it. */
#ifndef MPIB_CONFIG_PATH
#define MPIB_CONFIG_PATH "/etc/mpib/agent.ini"
#endif

/* Parses a text that came from @path. 0, -EBADMSG (the text is wrong) or -ENOMEM. */
int mpib_config_parse(const char *path, const char *text, size_t len, struct mpib_policy **ret,
		      struct mpib_cause *cause);

/* Reads @path. Errors beside those of a parse: the errno of the file, -EFBIG for one over 16 MiB,
 * -EINVAL for what is not a regular file. */
int mpib_config_load(const char *path, struct mpib_policy **ret, struct mpib_cause *cause);

/* The same in slices, for a loop that others wait for. The file is read at once, and the policy is
 * that of then. @path lives as long. */
struct mpib_config_loading;
int mpib_config_open(const char *path, struct mpib_config_loading **ret, struct mpib_cause *cause);
/* 1 where more is to be done, 0 with the policy, or a negative errno. */
int mpib_config_step(struct mpib_config_loading *loading, struct mpib_policy **ret,
		     struct mpib_cause *cause);
struct mpib_config_loading *mpib_config_loading_free(struct mpib_config_loading *loading);

/* What a policy file is by now, beside what was loaded from it. Numbers as in the admin protocol.
 */
enum mpib_config_file {
	MPIB_CONFIG_FILE_SAME = 0, /* also: there was none, and is none */
	MPIB_CONFIG_FILE_CHANGED = 1,
	MPIB_CONFIG_FILE_GONE = 2,
	MPIB_CONFIG_FILE_UNREADABLE = 3,
};

/* "same", "changed", "gone", "unreadable". */
const char *mpib_config_file_name(enum mpib_config_file state);

/* Compares by contents, but reads them only in a state of the file that it hasn't seen (kept in
 * @source). *ret_usec: when the file was last written, since the epoch; 0 where there is none. */
enum mpib_config_file mpib_config_compare(const char *path, struct mpib_policy_source *source,
					  uint64_t *ret_usec);

/* A place in the text of a policy; all 0: its beginning. */
struct mpib_config_place {
	unsigned int part;
	size_t at;
	size_t subnet;
};

/* The least room for a piece: an item of the text fits, whatever it is. */
#define MPIB_CONFIG_PIECE_MIN 256u

/* The effective policy as an INI file that says the same, defaults included: the next piece of it,
 * from @place on, which moves on. Returns its bytes, without a NUL; 0 at the end. @size:
 * MPIB_CONFIG_PIECE_MIN at least. */
size_t mpib_config_print_some(const struct mpib_policy *policy, struct mpib_config_place *place,
			      char *buf, size_t size);
/* All of it. */
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
