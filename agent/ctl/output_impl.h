/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an output: collected in output.c, printed as JSON in output_json.c and as a table
 * in output_table.c. */
#ifndef MPIB_AGENT_OUTPUT_IMPL_H
#define MPIB_AGENT_OUTPUT_IMPL_H

#include "agent/ctl/output.h"

enum mpib_output_kind {
	MPIB_OUTPUT_TEXT,
	MPIB_OUTPUT_NUMBER,
	MPIB_OUTPUT_BOOL,
	MPIB_OUTPUT_WHOLE,
	MPIB_OUTPUT_NOTE, /* never in JSON */
};

/* The row of the total. */
#define MPIB_OUTPUT_TOTAL_ROW SIZE_MAX

struct mpib_output_field {
	enum mpib_output_kind kind;
	const char *key;
	const char *title; /* NULL: JSON only */
	char *text;
	char *shown; /* what people read; NULL: the text */
	size_t row;  /* 0: a single value, otherwise the number of the row from 1 on */
};

struct mpib_output {
	struct mpib_output_field *fields;
	size_t n_fields;
	size_t room;
	size_t row; /* of what is being added */
	size_t n_rows;
	const char *list; /* NULL: single values only */
	const char *empty;
	const struct mpib_output_rank *ranks;
	size_t n_ranks;
	unsigned int columns; /* 0: any */
	unsigned int lines;   /* likewise */
	bool one_line;
	bool broken; /* memory was out */
};

void mpib_output_print_json(const struct mpib_output *output, FILE *file);
void mpib_output_print_table(const struct mpib_output *output, FILE *file);

#endif
