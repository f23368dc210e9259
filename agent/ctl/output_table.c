/* SPDX-License-Identifier: Apache-2.0 */
/* Tables for people. Where the width is bounded, columns of a high rank are left out, and then a
 * last column of text is broken at blanks. */
#include <string.h>

#include "agent/ctl/output_impl.h"

#define COLUMNS_MAX 32
#define GAP	    2u
/* Narrower than this, a broken text is worse than a line that the terminal breaks. */
#define WRAP_MIN 12u

struct column {
	const char *title;
	bool right; /* numbers */
	bool hidden;
	unsigned int rank;
	size_t width;
};

struct table {
	struct column columns[COLUMNS_MAX];
	size_t n_columns;
	size_t last;   /* shown column */
	size_t wrap;   /* width of the last column where its text is broken, or 0 */
	bool narrowed; /* something is hidden */
};

static const char *shown(const struct mpib_output_field *field)
{
	return field->shown ? field->shown : field->text;
}

static size_t longer(size_t a, const char *text)
{
	size_t b = strlen(text);

	return a > b ? a : b;
}

/* Prints @text in lines of @width bytes, broken at blanks (in a word that is longer than a line),
 * the further ones behind @indent blanks. A @width of 0 is any. */
static void print_wrapped(const char *text, size_t indent, size_t width, FILE *file)
{
	size_t len = strlen(text);

	while (width && len > width) {
		size_t cut = width;

		while (cut > 0 && text[cut] != ' ')
			cut--;
		if (cut == 0)
			cut = width;
		(void)fprintf(file, "%.*s\n%*s", (int)cut, text, (int)indent, "");
		text += cut + (text[cut] == ' ');
		len = strlen(text);
	}
	(void)fprintf(file, "%s\n", text);
}

/* ---- single values -------------------------------------------------------------------------- */

static void print_values(const struct mpib_output *output, FILE *file)
{
	size_t width = 0;
	size_t left;

	for (size_t n = 0; n < output->n_fields && output->fields[n].row == 0; n++) {
		if (output->fields[n].title)
			width = longer(width, output->fields[n].title);
	}
	left = output->columns > width + GAP + WRAP_MIN ? output->columns - width - GAP : 0;
	for (size_t n = 0; n < output->n_fields && output->fields[n].row == 0; n++) {
		const struct mpib_output_field *field = &output->fields[n];

		if (field->title) {
			(void)fprintf(file, "%*s: ", (int)width, field->title);
			print_wrapped(shown(field), width + GAP, left, file);
		} else if (field->kind == MPIB_OUTPUT_WHOLE) {
			(void)fputs(field->text, file);
		}
	}
}

/* ---- rows ----------------------------------------------------------------------------------- */

static unsigned int rank_of(const struct mpib_output *output, const char *title)
{
	for (size_t n = 0; n < output->n_ranks; n++) {
		if (strcmp(output->ranks[n].title, title) == 0)
			return output->ranks[n].rank;
	}
	return 0;
}

/* The field of @row for a column that comes at or behind *at, or NULL. Rows have their fields in
 * the order of the columns. */
static const struct mpib_output_field *next_field(const struct mpib_output *output, size_t row,
						  const char *title, size_t *at)
{
	for (size_t n = *at; n < output->n_fields && output->fields[n].row == row; n++) {
		if (output->fields[n].title && strcmp(output->fields[n].title, title) == 0) {
			*at = n + 1;
			return &output->fields[n];
		}
	}
	return NULL;
}

static size_t first_of_row(const struct mpib_output *output, size_t row, size_t from)
{
	while (from < output->n_fields && output->fields[from].row != row)
		from++;
	return from;
}

static void find_columns(const struct mpib_output *output, struct table *table)
{
	for (size_t n = first_of_row(output, 1, 0);
	     n < output->n_fields && output->fields[n].row == 1; n++) {
		const struct mpib_output_field *field = &output->fields[n];

		if (!field->title || table->n_columns == COLUMNS_MAX)
			continue;
		table->columns[table->n_columns++] = (struct column){
			.title = field->title,
			.right = field->kind == MPIB_OUTPUT_NUMBER,
			.rank = rank_of(output, field->title),
			.width = strlen(field->title),
		};
	}
}

static void measure(const struct mpib_output *output, struct table *table, size_t row, size_t at)
{
	for (size_t n = 0; n < table->n_columns; n++) {
		struct column *column = &table->columns[n];
		const struct mpib_output_field *field = next_field(output, row, column->title, &at);

		if (field)
			column->width = longer(column->width, shown(field));
	}
}

static size_t table_width(struct table *table)
{
	size_t width = 0;

	for (size_t n = 0; n < table->n_columns; n++) {
		if (table->columns[n].hidden)
			continue;
		width += table->columns[n].width + (width ? GAP : 0);
		table->last = n;
	}
	return width;
}

/* Hides columns until the rest fits; breaks the last one where that isn't enough. */
static void narrow(const struct mpib_output *output, struct table *table)
{
	size_t width = table_width(table);
	size_t before;

	while (output->columns && width > output->columns) {
		unsigned int rank = 0;

		for (size_t n = 0; n < table->n_columns; n++) {
			if (!table->columns[n].hidden && table->columns[n].rank > rank)
				rank = table->columns[n].rank;
		}
		if (!rank)
			break;
		for (size_t n = 0; n < table->n_columns; n++)
			table->columns[n].hidden |= table->columns[n].rank == rank;
		table->narrowed = true;
		width = table_width(table);
	}

	before = width - table->columns[table->last].width;
	if (output->columns && width > output->columns && !table->columns[table->last].right &&
	    output->columns >= before + WRAP_MIN)
		table->wrap = output->columns - before;
}

/* Numbers to the right, and no blanks at the end of a line. @row 0: the titles. */
static void print_line(const struct mpib_output *output, const struct table *table, size_t row,
		       size_t at, FILE *file)
{
	size_t column_at = 0;
	size_t printed = 0;

	for (size_t n = 0; n < table->n_columns; n++) {
		const struct column *column = &table->columns[n];
		const struct mpib_output_field *field =
			row ? next_field(output, row, column->title, &at) : NULL;
		const char *text = row ? (field ? shown(field) : "") : column->title;
		size_t start = column_at;

		if (column->hidden)
			continue;
		if (column->right)
			start += column->width - strlen(text);
		if (*text) {
			(void)fprintf(file, "%*s", (int)(start - printed), "");
			if (n == table->last && table->wrap) {
				print_wrapped(text, start, table->wrap, file);
				return;
			}
			(void)fputs(text, file);
			printed = start + strlen(text);
		}
		column_at += column->width + GAP;
	}
	(void)fputc('\n', file);
}

/* "(80 columns: without UID, PID; ...)" */
static void tell_hidden(const struct mpib_output *output, const struct table *table, FILE *file)
{
	char text[512];
	size_t used = (size_t)snprintf(text, sizeof(text), "(%u columns: without", output->columns);
	bool first = true;

	for (size_t n = 0; n < table->n_columns; n++) {
		if (!table->columns[n].hidden || used >= sizeof(text))
			continue;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s %s",
					 first ? "" : ",", table->columns[n].title);
		first = false;
	}
	if (used < sizeof(text))
		(void)snprintf(text + used, sizeof(text) - used,
			       "; all: a wider terminal, COLUMNS, --json)");
	print_wrapped(text, 1, output->columns > WRAP_MIN ? output->columns - 1 : 0, file);
}

static void print_rows(const struct mpib_output *output, FILE *file)
{
	struct table table = { 0 };
	size_t total = first_of_row(output, MPIB_OUTPUT_TOTAL_ROW, 0);
	size_t shown_rows = output->n_rows;
	size_t at = 0;

	if (output->lines && shown_rows > output->lines)
		shown_rows = output->lines;
	find_columns(output, &table);
	for (size_t row = 1; row <= shown_rows; row++) {
		at = first_of_row(output, row, at);
		measure(output, &table, row, at);
	}
	measure(output, &table, MPIB_OUTPUT_TOTAL_ROW, total);
	narrow(output, &table);

	print_line(output, &table, 0, 0, file);
	at = 0;
	for (size_t row = 1; row <= shown_rows; row++) {
		at = first_of_row(output, row, at);
		print_line(output, &table, row, at, file);
	}
	if (shown_rows < output->n_rows)
		(void)fprintf(file, "(%zu more)\n", output->n_rows - shown_rows);
	if (total < output->n_fields)
		print_line(output, &table, MPIB_OUTPUT_TOTAL_ROW, total, file);
	if (table.narrowed)
		tell_hidden(output, &table, file);
}

void mpib_output_print_table(const struct mpib_output *output, FILE *file)
{
	print_values(output, file);
	if (output->n_rows)
		print_rows(output, file);
	else if (output->list)
		(void)fprintf(file, "%s\n", output->empty);
}
