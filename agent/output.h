/* SPDX-License-Identifier: Apache-2.0 */
/* The same answer as a table for people or as JSON for programs: a few named values, and at most
 * one list of rows. Collected first, printed whole: a command that fails prints nothing. */
#ifndef MPIB_AGENT_OUTPUT_H
#define MPIB_AGENT_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct mpib_output;

/* -ENOMEM. */
int mpib_output_new(struct mpib_output **ret);
struct mpib_output *mpib_output_free(struct mpib_output *output);

/* Starts the list of rows, called @name in JSON; what comes before it are single values. People
 * read @empty where there are no rows. */
void mpib_output_list(struct mpib_output *output, const char *name, const char *empty);
/* Starts a row. All rows have the same fields in the same order. */
void mpib_output_row(struct mpib_output *output);

/* A value: @key is its name in JSON, @title the one for people (NULL: JSON only). */
void mpib_output_text(struct mpib_output *output, const char *key, const char *title,
		      const char *value);
void mpib_output_number(struct mpib_output *output, const char *key, const char *title,
			uint64_t value);
void mpib_output_bool(struct mpib_output *output, const char *key, const char *title, bool value);
/* A text of many lines: a string in JSON, and nothing but itself for people. */
void mpib_output_whole(struct mpib_output *output, const char *key, const char *value);
/* For people only: JSON has it in other fields. */
void mpib_output_note(struct mpib_output *output, const char *title, const char *value);

/* Prints everything. 0; -ENOMEM where something was lost on the way, -EIO where @file is full. */
int mpib_output_print(const struct mpib_output *output, bool json, FILE *file);

/* Writes @text as a JSON string, quotes included. Bytes that are no UTF-8 become U+FFFD. */
void mpib_output_json_string(const char *text, FILE *file);

#endif
