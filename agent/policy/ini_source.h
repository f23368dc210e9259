/* SPDX-License-Identifier: Apache-2.0 */
/* The line source under inih. inih cuts long lines and section names, glues an indented key to the
 * value before it, skips sections without keys and tells its handler no line number; this source
 * counts the lines, refuses what inih would bend, and reports sections and whole values itself. */
#ifndef MPIB_AGENT_INI_SOURCE_H
#define MPIB_AGENT_INI_SOURCE_H

#include <stdbool.h>
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

/* A text of which a part is parsed. Fields are the source's own. */
struct mpib_ini {
	const char *next;
	const char *end;
	const char *slice_end; /* what starts here comes with the next slice */
	bool blank_first;      /* inih gets a blank line */
	unsigned int line;
	const struct mpib_ini_ops *ops;
	void *user;
	struct mpib_cause *cause;
	int error;			  /* of the first refusal; nothing is read after it */
	char text[MPIB_INI_LINE_MAX + 1]; /* the current line, without comment */
	const char *value;		  /* in it; inih may have seen its start only */
	size_t key_len;
};

/* @text of @len bytes lives until it is parsed, and so do @user and @cause. */
void mpib_ini_begin(struct mpib_ini *ini, const char *text, size_t len,
		    const struct mpib_ini_ops *ops, void *user, struct mpib_cause *cause);
/* Parses @size bytes or some more, to the end of a line. 1 where there is more; 0 at the end; a
 * negative errno with *ret_line and the cause for the first line that can't stand. */
int mpib_ini_step(struct mpib_ini *ini, size_t size, unsigned int *ret_line);

#endif
