/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/ctl/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "agent/ctl/output_impl.h"

int mpib_output_new(struct mpib_output **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

struct mpib_output *mpib_output_free(struct mpib_output *output)
{
	if (!output)
		return NULL;

	for (size_t n = 0; n < output->n_fields; n++) {
		free(output->fields[n].text);
		free(output->fields[n].shown);
	}
	free(output->fields);
	free(output);
	return NULL;
}

void mpib_output_list(struct mpib_output *output, const char *name, const char *empty)
{
	output->list = name;
	output->empty = empty;
}

void mpib_output_ranks(struct mpib_output *output, const struct mpib_output_rank *ranks,
		       size_t n_ranks)
{
	output->ranks = ranks;
	output->n_ranks = n_ranks;
}

void mpib_output_row(struct mpib_output *output)
{
	output->row = ++output->n_rows;
}

void mpib_output_total(struct mpib_output *output)
{
	output->row = MPIB_OUTPUT_TOTAL_ROW;
}

void mpib_output_fit(struct mpib_output *output, unsigned int columns, unsigned int lines)
{
	output->columns = columns;
	output->lines = lines;
}

void mpib_output_one_line(struct mpib_output *output)
{
	output->one_line = true;
}

/* Fields that an output has room for at first. */
#define FIELDS_FIRST 64u

static void add(struct mpib_output *output, enum mpib_output_kind kind, const char *key,
		const char *title, const char *value, const char *shown)
{
	char *text = strdup(value);
	char *people = shown ? strdup(shown) : NULL;

	if (output->n_fields == output->room) {
		size_t room = output->room ? output->room * 2 : FIELDS_FIRST;
		struct mpib_output_field *grown =
			reallocarray(output->fields, room, sizeof(*grown));

		if (grown) {
			output->fields = grown;
			output->room = room;
		}
	}
	if (!text || (shown && !people) || output->n_fields == output->room) {
		output->broken = true;
		free(text);
		free(people);
		return;
	}

	output->fields[output->n_fields++] = (struct mpib_output_field){
		.kind = kind,
		.key = key,
		.title = title,
		.text = text,
		.shown = people,
		.row = output->row,
	};
}

void mpib_output_text(struct mpib_output *output, const char *key, const char *title,
		      const char *value)
{
	add(output, MPIB_OUTPUT_TEXT, key, title, value, NULL);
}

void mpib_output_shown(struct mpib_output *output, const char *key, const char *title,
		       uint64_t value, const char *shown)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, value);
	add(output, MPIB_OUTPUT_NUMBER, key, title, text, shown);
}

void mpib_output_number(struct mpib_output *output, const char *key, const char *title,
			uint64_t value)
{
	mpib_output_shown(output, key, title, value, NULL);
}

void mpib_output_bool(struct mpib_output *output, const char *key, const char *title, bool value)
{
	add(output, MPIB_OUTPUT_BOOL, key, title, value ? "true" : "false", NULL);
}

void mpib_output_note(struct mpib_output *output, const char *title, const char *value)
{
	add(output, MPIB_OUTPUT_NOTE, "", title, value, NULL);
}

void mpib_output_whole(struct mpib_output *output, const char *key, const char *value)
{
	add(output, MPIB_OUTPUT_WHOLE, key, NULL, value, NULL);
}

/* ---- sorting -------------------------------------------------------------------------------- */

/* A row while rows are sorted: its fields stand together. */
struct row {
	size_t first;
	size_t place; /* before */
	const struct mpib_output_field *by;
	bool descending;
};

static int compare_values(const struct mpib_output_field *a, const struct mpib_output_field *b)
{
	uint64_t x;
	uint64_t y;

	if (a->kind != MPIB_OUTPUT_NUMBER)
		return strverscmp(a->text, b->text);
	x = strtoull(a->text, NULL, 10);
	y = strtoull(b->text, NULL, 10);
	return (x > y) - (x < y);
}

static int compare_rows(const void *left, const void *right)
{
	const struct row *a = left;
	const struct row *b = right;
	int order = compare_values(a->by, b->by);

	if (order)
		return a->descending ? -order : order;
	return (a->place > b->place) - (a->place < b->place);
}

static bool is_column(const struct mpib_output_field *field, const char *name)
{
	return (field->kind != MPIB_OUTPUT_NOTE && strcasecmp(field->key, name) == 0) ||
	       (field->title && strcasecmp(field->title, name) == 0);
}

/* Rows and what orders them; false where one has no such column. */
static bool find_rows(const struct mpib_output *output, const char *name, struct row *rows)
{
	bool descending = *name == '-';
	size_t found = 0;

	name += descending;
	for (size_t n = 0; n < output->n_fields; n++) {
		const struct mpib_output_field *field = &output->fields[n];
		struct row *row;

		if (field->row == 0 || field->row == MPIB_OUTPUT_TOTAL_ROW)
			continue;
		row = &rows[field->row - 1];
		if (n == 0 || field->row != field[-1].row)
			*row = (struct row){ n, field->row, NULL, descending };
		if (!row->by && is_column(field, name)) {
			row->by = field;
			found++;
		}
	}
	return found == output->n_rows;
}

int mpib_output_sort(struct mpib_output *output, const char *column)
{
	struct mpib_output_field *sorted;
	struct row *rows;
	size_t at = 0;
	size_t n = 0;

	if (output->n_rows == 0 || output->broken)
		return 0;
	rows = calloc(output->n_rows, sizeof(*rows));
	sorted = reallocarray(NULL, output->room, sizeof(*sorted));
	if (!rows || !sorted || !find_rows(output, column, rows)) {
		output->broken = !rows || !sorted;
		free(rows);
		free(sorted);
		return output->broken ? -ENOMEM : -ENOENT;
	}

	qsort(rows, output->n_rows, sizeof(*rows), compare_rows);
	for (; n < output->n_fields && output->fields[n].row == 0; n++)
		sorted[at++] = output->fields[n];
	for (size_t place = 0; place < output->n_rows; place++) {
		for (n = rows[place].first;
		     n < output->n_fields && output->fields[n].row == rows[place].place; n++) {
			sorted[at] = output->fields[n];
			sorted[at++].row = place + 1;
		}
	}
	for (n = at; n < output->n_fields; n++)
		sorted[n] = output->fields[n]; /* the total */

	free(rows);
	free(output->fields);
	output->fields = sorted;
	return 0;
}

void mpib_output_columns(const struct mpib_output *output, char *buf, size_t size)
{
	size_t used = 0;

	*buf = '\0';
	for (size_t n = 0; n < output->n_fields && used < size; n++) {
		const struct mpib_output_field *field = &output->fields[n];

		if (field->row == 1 && field->kind != MPIB_OUTPUT_NOTE)
			used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? " " : "",
						 field->key);
	}
}

int mpib_output_print(const struct mpib_output *output, bool json, FILE *file)
{
	if (output->broken)
		return -ENOMEM;

	errno = 0;
	if (json)
		mpib_output_print_json(output, file);
	else
		mpib_output_print_table(output, file);
	if (fflush(file) || ferror(file))
		return errno ? -errno : -EIO;
	return 0;
}
