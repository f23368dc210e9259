/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum kind {
	KIND_TEXT,
	KIND_NUMBER,
	KIND_BOOL,
	KIND_WHOLE,
	KIND_NOTE, /* never in JSON */
};

struct field {
	enum kind kind;
	const char *key;
	const char *title; /* NULL: JSON only */
	char *text;
	size_t row; /* 0: a single value, otherwise the number of the row from 1 on */
};

struct mpib_output {
	struct field *fields;
	size_t n_fields;
	size_t room;
	size_t n_rows;
	const char *list; /* NULL: single values only */
	const char *empty;
	bool broken; /* memory was out */
};

int mpib_output_new(struct mpib_output **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

struct mpib_output *mpib_output_free(struct mpib_output *output)
{
	if (!output)
		return NULL;

	for (size_t n = 0; n < output->n_fields; n++)
		free(output->fields[n].text);
	free(output->fields);
	free(output);
	return NULL;
}

void mpib_output_list(struct mpib_output *output, const char *name, const char *empty)
{
	output->list = name;
	output->empty = empty;
}

void mpib_output_row(struct mpib_output *output)
{
	output->n_rows++;
}

static void add(struct mpib_output *output, enum kind kind, const char *key, const char *title,
		const char *value)
{
	char *text = strdup(value);

	if (output->n_fields == output->room) {
		size_t room = output->room ? output->room * 2 : 64;
		struct field *grown = reallocarray(output->fields, room, sizeof(*grown));

		if (grown) {
			output->fields = grown;
			output->room = room;
		}
	}
	if (!text || output->n_fields == output->room) {
		output->broken = true;
		free(text);
		return;
	}

	output->fields[output->n_fields++] = (struct field){
		.kind = kind,
		.key = key,
		.title = title,
		.text = text,
		.row = output->n_rows,
	};
}

void mpib_output_text(struct mpib_output *output, const char *key, const char *title,
		      const char *value)
{
	add(output, KIND_TEXT, key, title, value);
}

void mpib_output_number(struct mpib_output *output, const char *key, const char *title,
			uint64_t value)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, value);
	add(output, KIND_NUMBER, key, title, text);
}

void mpib_output_bool(struct mpib_output *output, const char *key, const char *title, bool value)
{
	add(output, KIND_BOOL, key, title, value ? "true" : "false");
}

void mpib_output_note(struct mpib_output *output, const char *title, const char *value)
{
	add(output, KIND_NOTE, "", title, value);
}

void mpib_output_whole(struct mpib_output *output, const char *key, const char *value)
{
	add(output, KIND_WHOLE, key, NULL, value);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* Length of the UTF-8 sequence at @p, or 0 where there is none. */
static size_t utf8_len(const unsigned char *p)
{
	size_t len = *p < 0x80 ? 1 : *p >= 0xC2 && *p < 0xE0 ? 2 : *p >= 0xE0 && *p < 0xF0 ? 3 : 0;

	if (*p >= 0xF0 && *p < 0xF5)
		len = 4;
	for (size_t n = 1; n < len; n++) {
		if ((p[n] & 0xC0) != 0x80)
			return 0;
	}
	if ((*p == 0xE0 && p[1] < 0xA0) || (*p == 0xED && p[1] > 0x9F) ||
	    (*p == 0xF0 && p[1] < 0x90) || (*p == 0xF4 && p[1] > 0x8F))
		return 0;
	return len;
}

void mpib_output_json_string(const char *text, FILE *file)
{
	const unsigned char *p = (const unsigned char *)text;

	(void)fputc('"', file);
	while (*p) {
		size_t len = utf8_len(p);

		if (!len)
			(void)fputs("\\ufffd", file);
		else if (*p == '"' || *p == '\\')
			(void)fprintf(file, "\\%c", *p);
		else if (*p < ' ' || *p == 0x7F)
			(void)fprintf(file, "\\u%04x", *p);
		else
			(void)fwrite(p, 1, len, file);
		p += len ? len : 1;
	}
	(void)fputc('"', file);
}

static void print_json_field(const struct field *field, bool first, FILE *file)
{
	if (!first)
		(void)fputs(", ", file);
	mpib_output_json_string(field->key, file);
	(void)fputs(": ", file);
	if (field->kind == KIND_TEXT || field->kind == KIND_WHOLE)
		mpib_output_json_string(field->text, file);
	else
		(void)fputs(field->text, file);
}

static void print_json(const struct mpib_output *output, FILE *file)
{
	bool first = true;
	size_t n;

	(void)fputc('{', file);
	for (n = 0; n < output->n_fields && output->fields[n].row == 0; n++) {
		if (output->fields[n].kind == KIND_NOTE)
			continue;
		print_json_field(&output->fields[n], first, file);
		first = false;
	}

	if (output->list) {
		(void)fprintf(file, "%s\"%s\": [", first ? "" : ", ", output->list);
		for (size_t row = 1; row <= output->n_rows; row++) {
			(void)fprintf(file, "%s\n  {", row > 1 ? "," : "");
			first = true;
			for (; n < output->n_fields && output->fields[n].row == row; n++) {
				if (output->fields[n].kind == KIND_NOTE)
					continue;
				print_json_field(&output->fields[n], first, file);
				first = false;
			}
			(void)fputc('}', file);
		}
		(void)fputs(output->n_rows ? "\n]" : "]", file);
	}
	(void)fputs("}\n", file);
}

/* ---- table ---------------------------------------------------------------------------------- */

#define COLUMNS_MAX 24

static size_t longer(size_t a, const char *text)
{
	size_t b = strlen(text);

	return a > b ? a : b;
}

static void print_values(const struct mpib_output *output, FILE *file)
{
	size_t width = 0;

	for (size_t n = 0; n < output->n_fields && output->fields[n].row == 0; n++) {
		if (output->fields[n].title)
			width = longer(width, output->fields[n].title);
	}
	for (size_t n = 0; n < output->n_fields && output->fields[n].row == 0; n++) {
		const struct field *field = &output->fields[n];

		if (field->title)
			(void)fprintf(file, "%*s: %s\n", (int)width, field->title, field->text);
		else if (field->kind == KIND_WHOLE)
			(void)fputs(field->text, file);
	}
}

static void print_cell(const struct field *field, const char *text, size_t width, bool last,
		       FILE *file)
{
	/* Numbers to the right, and no blanks at the end of a line. */
	if (field->kind == KIND_NUMBER)
		(void)fprintf(file, "%*s%s", (int)width, text, last ? "\n" : "  ");
	else if (last)
		(void)fprintf(file, "%s\n", text);
	else
		(void)fprintf(file, "%-*s  ", (int)width, text);
}

static void print_rows(const struct mpib_output *output, FILE *file)
{
	const struct field *columns[COLUMNS_MAX] = { 0 };
	size_t widths[COLUMNS_MAX] = { 0 };
	size_t n_columns = 0;
	size_t column = 0;
	size_t row = 0;

	for (size_t n = 0; n < output->n_fields; n++) {
		const struct field *field = &output->fields[n];

		if (field->row == 0 || !field->title)
			continue;
		column = field->row == row ? column + 1 : 0;
		row = field->row;
		if (column >= COLUMNS_MAX)
			continue;
		if (row == 1) {
			columns[column] = field;
			widths[column] = strlen(field->title);
			n_columns = column + 1;
		}
		widths[column] = longer(widths[column], field->text);
	}

	for (size_t n = 0; n < n_columns; n++)
		print_cell(columns[n], columns[n]->title, widths[n], n + 1 == n_columns, file);

	row = 0;
	for (size_t n = 0; n < output->n_fields; n++) {
		const struct field *field = &output->fields[n];

		if (field->row == 0 || !field->title)
			continue;
		column = field->row == row ? column + 1 : 0;
		row = field->row;
		if (column < n_columns)
			print_cell(field, field->text, widths[column], column + 1 == n_columns,
				   file);
	}
}

int mpib_output_print(const struct mpib_output *output, bool json, FILE *file)
{
	if (output->broken)
		return -ENOMEM;

	if (json) {
		print_json(output, file);
	} else {
		print_values(output, file);
		print_rows(output, file);
		if (output->list && output->n_rows == 0)
			(void)fprintf(file, "%s\n", output->empty);
	}

	return fflush(file) || ferror(file) ? -EIO : 0;
}
