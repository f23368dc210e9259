/* SPDX-License-Identifier: Apache-2.0 */
/* The line source under inih. inih cuts long lines and section names, glues an indented key to the
 * value before it, skips sections without keys and tells its handler no line number; this source
 * counts the lines, refuses what inih would bend, and reports sections and whole values itself. */
#ifndef MPIB_AGENT_INI_SOURCE_H
#define MPIB_AGENT_INI_SOURCE_H

#include <stddef.h>

#include "agent/base/cause.h"

/* Bytes of the longest line that is read, its newline, comment and the blanks before it apart. */
#define MPIB_INI_LINE_MAX 4096u
/* Bytes of the longest key, and of the longest value that is no list. */
#define MPIB_INI_WORD_MAX 100u

/* Both are called in file order, return 0 or a negative errno (with @cause filled, which stops
 * the parse) and may not keep the strings. */
struct mpib_ini_ops {
	int (*section)(void *user, unsigned int line, const char *name, struct mpib_cause *cause);
	int (*pair)(void *user, unsigned int line, const char *key, const char *value,
		    struct mpib_cause *cause);
};

/* Parses @text of @len bytes. 0, or a negative errno with *ret_line and @cause for the first line
 * that can't stand. */
int mpib_ini_parse(const char *text, size_t len, const struct mpib_ini_ops *ops, void *user,
		   unsigned int *ret_line, struct mpib_cause *cause);

#endif
