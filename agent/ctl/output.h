/* SPDX-License-Identifier: Apache-2.0 */
/* The same answer as a table for people or as JSON for programs: a few named values, and at most
 * one list of rows with their total. Collected first, printed whole: a command that fails prints
 * nothing. A table fits the width that it's given: what matters least is left out, and said. */
#ifndef MPIB_AGENT_OUTPUT_H
#define MPIB_AGENT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct mpib_output;

/* How soon a column is left out in a narrow table: the highest rank first, columns of one rank
 * together; columns without one never. */
struct mpib_output_rank {
	const char *title;
	unsigned int rank;
};

/* -ENOMEM. */
int mpib_output_new(struct mpib_output **ret);
struct mpib_output *mpib_output_free(struct mpib_output *output);

/* Starts the list of rows, called @name in JSON; what comes before it are single values. People
 * read @empty where there are no rows. */
void mpib_output_list(struct mpib_output *output, const char *name, const char *empty);
/* Ranks of its columns, borrowed. */
void mpib_output_ranks(struct mpib_output *output, const struct mpib_output_rank *ranks,
		       size_t n_ranks);
/* Starts a row. All rows have the same fields in the same order. */
void mpib_output_row(struct mpib_output *output);
/* Starts the total, the last row; its fields stand in the columns of their titles. */
void mpib_output_total(struct mpib_output *output);

/* A value: @key is its name in JSON, @title the one for people (NULL: JSON only). */
void mpib_output_text(struct mpib_output *output, const char *key, const char *title,
		      const char *value);
void mpib_output_number(struct mpib_output *output, const char *key, const char *title,
			uint64_t value);
/* A number that people read as @shown. */
void mpib_output_shown(struct mpib_output *output, const char *key, const char *title,
		       uint64_t value, const char *shown);
void mpib_output_bool(struct mpib_output *output, const char *key, const char *title, bool value);
/* A text of many lines: a string in JSON, and nothing but itself for people. */
void mpib_output_whole(struct mpib_output *output, const char *key, const char *value);
/* For people only: JSON has it in other fields. */
void mpib_output_note(struct mpib_output *output, const char *title, const char *value);

/* Orders the rows by a column, named by its key or its title in any case; with "-" before it the
 * greatest first. Numbers by size, texts so that 10.0.1.9 comes before 10.0.1.10; equal ones keep
 * their order. -ENOENT where rows have no such column. */
int mpib_output_sort(struct mpib_output *output, const char *column);
/* The keys of the columns, separated by blanks, cut at @size. */
void mpib_output_columns(const struct mpib_output *output, char *buf, size_t size);

/* How wide tables may be, and how many lines of rows may be printed; 0 (as at first): any. */
void mpib_output_fit(struct mpib_output *output, unsigned int columns, unsigned int lines);
/* JSON as one line. */
void mpib_output_one_line(struct mpib_output *output);

/* Prints everything. 0; -ENOMEM where something was lost on the way, or the errno of @file, which
 * is flushed. */
int mpib_output_print(const struct mpib_output *output, bool json, FILE *file);

/* Writes @text as a JSON string, quotes included. Bytes that are no UTF-8 become U+FFFD. */
void mpib_output_json_string(const char *text, FILE *file);

#endif
