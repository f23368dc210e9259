/* SPDX-License-Identifier: Apache-2.0 */
/* Gives inih only lines that it can't misread: "", "[name]" and "key = value", without comments. */
#include "agent/policy/ini_source.h"

#include <errno.h>
#include <ini.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static int refuse(struct mpib_ini *source, int error)
{
	source->error = error;
	return error;
}

/* The next line of the text; its end excludes "\n" and a "\r" before it. */
static bool next_line(struct mpib_ini *source, const char **ret_start, const char **ret_end)
{
	const char *newline;
	const char *end;

	if (source->next >= source->end)
		return false;

	newline = memchr(source->next, '\n', (size_t)(source->end - source->next));
	end = newline ? newline : source->end;
	*ret_start = source->next;
	source->next = newline ? newline + 1 : source->end;
	source->line++;

	if (end > *ret_start && end[-1] == '\r')
		end--;
	*ret_end = end;
	return true;
}

/* Cuts a comment (";" at the start or after a blank) and the blanks before it. */
static const char *cut_tail(const char *start, const char *end)
{
	for (const char *p = start; p < end; p++) {
		if (*p == ';' && (p == start || is_blank(p[-1]))) {
			end = p;
			break;
		}
	}

	while (end > start && is_blank(end[-1]))
		end--;
	return end;
}

static int check_bytes(struct mpib_ini *source, const char *start, const char *end)
{
	for (const char *p = start; p < end; p++) {
		unsigned char c = (unsigned char)*p;

		if (c == 0)
			return refuse(source, mpib_cause_set(source->cause, -EBADMSG,
							     "NUL byte in the line"));
		if (c < ' ' && c != '\t')
			return refuse(source,
				      mpib_cause_set(source->cause, -EBADMSG,
						     "control character 0x%02x in the line", c));
	}

	return 0;
}

/* "[name]", @end without blanks and comment. */
static int read_section(struct mpib_ini *source, char *line)
{
	char *close = strchr(line, ']');
	char *name = line + 1;
	int r;

	if (!close)
		return refuse(source, mpib_cause_set(source->cause, -EBADMSG,
						     "no ] ends the section name that [ starts"));
	if (close[1])
		return refuse(source, mpib_cause_set(source->cause, -EBADMSG,
						     "\"%s\" after the section's ]", close + 1));

	*close = '\0';
	while (is_blank(*name))
		name++;
	r = source->ops->section(source->user, source->line, name, source->cause);
	*close = ']';
	return r < 0 ? refuse(source, r) : 0;
}

static int check_pair(struct mpib_ini *source, const char *line)
{
	const char *equals = strchr(line, '=');
	const char *colon = strchr(line, ':');
	const char *end;

	if (!equals && !colon)
		return refuse(source,
			      mpib_cause_set(source->cause, -EBADMSG,
					     "\"%.*s\" is neither [section] nor key = value",
					     (int)MPIB_INI_WORD_MAX, line));
	if (!equals || (colon && colon < equals))
		return refuse(source, mpib_cause_set(source->cause, -EBADMSG,
						     "\"=\" stands between key and value, not "
						     "\":\""));
	if (equals == line)
		return refuse(source,
			      mpib_cause_set(source->cause, -EBADMSG, "no key before \"=\""));

	end = equals;
	while (end > line && is_blank(end[-1]))
		end--;
	source->key_len = (size_t)(end - line);
	if (source->key_len > MPIB_INI_WORD_MAX)
		return refuse(source,
			      mpib_cause_set(source->cause, -EBADMSG,
					     "the key is longer than %u bytes", MPIB_INI_WORD_MAX));

	source->value = equals + 1;
	while (is_blank(*source->value))
		source->value++;
	return 0;
}

/* Looks at one line and leaves what counts of it in the source's text. */
static int prepare_line(struct mpib_ini *source, const char *start, const char *end)
{
	char *buf = source->text;
	const char *text = start;
	size_t len;

	if (check_bytes(source, start, end) < 0)
		return source->error;

	while (text < end && is_blank(*text))
		text++;
	if (text < end && (*text == '#' || *text == ';')) {
		*buf = '\0';
		return 0;
	}

	end = cut_tail(text, end);
	len = (size_t)(end - text);
	if (len == 0) {
		*buf = '\0';
		return 0;
	}
	if (text > start)
		return refuse(source, mpib_cause_set(source->cause, -EBADMSG,
						     "the line is indented; keys and sections "
						     "start in the first column"));
	if (len > MPIB_INI_LINE_MAX)
		return refuse(source, mpib_cause_set(source->cause, -EBADMSG,
						     "the line is longer than %u bytes",
						     MPIB_INI_LINE_MAX));

	memcpy(buf, text, len);
	buf[len] = '\0';
	return *buf == '[' ? read_section(source, buf) : check_pair(source, buf);
}

/* inih has room for more than that. */
static char *put_line(char *str, const char *line)
{
	return memcpy(str, line, strlen(line) + 1);
}

/* "key=value" and a newline, as much of the value as fits. */
static void put_pair(char *str, size_t size, const struct mpib_ini *source)
{
	size_t room = size - source->key_len - sizeof("=\n");
	size_t len = strlen(source->value);

	memcpy(str, source->text, source->key_len);
	str += source->key_len;
	*str++ = '=';
	if (len > room)
		len = room;
	memcpy(str, source->value, len);
	memcpy(str + len, "\n", sizeof("\n"));
}

/* inih's fgets: NULL ends the parse, at the end of the text or at the first refusal. inih 55 as
 * Debian builds it has 200 bytes a line, newline and NUL included: it gets the whole key, and of
 * the value what fits. Of a section it gets the mark, which ends what an indented line would go on.
 */
static char *read_line(char *str, int num, void *stream)
{
	struct mpib_ini *source = stream;
	const char *start;
	const char *end;

	if (source->blank_first) {
		source->blank_first = false;
		return put_line(str, "\n");
	}
	if (source->error || source->next >= source->slice_end || !next_line(source, &start, &end))
		return NULL;
	if (prepare_line(source, start, end) < 0)
		return NULL;

	if (!source->text[0])
		(void)put_line(str, "\n");
	else if (source->text[0] == '[')
		(void)put_line(str, "[-]\n");
	else
		put_pair(str, (size_t)num, source);
	return str;
}

/* inih's handler: non-zero means success. */
static int on_pair(void *user, const char *section, const char *name, const char *value)
{
	struct mpib_ini *source = user;
	int r;

	(void)section; /* cut at 49 bytes by inih; the source reported the whole name */
	(void)value;   /* cut where it is long; the source has the whole one */
	if (source->error)
		return 0;

	if (!*source->value)
		r = mpib_cause_set(source->cause, -EBADMSG, "no value after \"%s =\"", name);
	else
		r = source->ops->pair(source->user, source->line, name, source->value,
				      source->cause);

	if (r < 0)
		(void)refuse(source, r);
	return r >= 0;
}

void mpib_ini_begin(struct mpib_ini *ini, const char *text, size_t len,
		    const struct mpib_ini_ops *ops, void *user, struct mpib_cause *cause)
{
	static const char bom[] = { '\xef', '\xbb', '\xbf' };

	*ini = (struct mpib_ini){
		.next = text,
		.end = text + len,
		.ops = ops,
		.user = user,
		.cause = cause,
	};
	if (len >= sizeof(bom) && memcmp(text, bom, sizeof(bom)) == 0)
		ini->next += sizeof(bom);
}

/* Each slice is a text of its own to inih: the only thing that it knows from line to line, the
 * section, is ours. It looks for a byte order mark in its first line, where a second one would be
 * part of a key: so that line is a blank one. */
int mpib_ini_step(struct mpib_ini *ini, size_t size, unsigned int *ret_line)
{
	int r;

	ini->slice_end = size < (size_t)(ini->end - ini->next) ? ini->next + size : ini->end;
	ini->blank_first = true;
	r = ini_parse_stream(read_line, ini, on_pair, ini);
	if (r != 0 && !ini->error)
		ini->error = mpib_cause_set(ini->cause, -EBADMSG, "the line can't be understood");

	*ret_line = r > 0 && !ini->line ? (unsigned int)r : ini->line;
	return ini->error ? ini->error : ini->next < ini->end;
}
