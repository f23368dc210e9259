/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/ctl/output_impl.h"

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

static void print_field(const struct mpib_output_field *field, bool first, FILE *file)
{
	if (!first)
		(void)fputs(", ", file);
	mpib_output_json_string(field->key, file);
	(void)fputs(": ", file);
	if (field->kind == MPIB_OUTPUT_TEXT || field->kind == MPIB_OUTPUT_WHOLE)
		mpib_output_json_string(field->text, file);
	else
		(void)fputs(field->text, file);
}

/* The fields of one row from @n on; the first one behind them. */
static size_t print_fields(const struct mpib_output *output, size_t n, size_t row, bool *first,
			   FILE *file)
{
	for (; n < output->n_fields && output->fields[n].row == row; n++) {
		if (output->fields[n].kind == MPIB_OUTPUT_NOTE)
			continue;
		print_field(&output->fields[n], *first, file);
		*first = false;
	}
	return n;
}

void mpib_output_print_json(const struct mpib_output *output, FILE *file)
{
	const char *line = output->one_line ? "" : "\n";
	bool first = true;
	size_t n;

	(void)fputc('{', file);
	n = print_fields(output, 0, 0, &first, file);

	if (output->list) {
		(void)fprintf(file, "%s\"%s\": [", first ? "" : ", ", output->list);
		for (size_t row = 1; row <= output->n_rows; row++) {
			(void)fprintf(file, "%s%s%s{", row > 1 ? "," : "", line,
				      output->one_line ? "" : "  ");
			first = true;
			n = print_fields(output, n, row, &first, file);
			(void)fputc('}', file);
		}
		(void)fprintf(file, "%s]", output->n_rows ? line : "");
	}
	if (n < output->n_fields) {
		(void)fputs(", \"total\": {", file);
		first = true;
		(void)print_fields(output, n, MPIB_OUTPUT_TOTAL_ROW, &first, file);
		(void)fputc('}', file);
	}
	(void)fputs("}\n", file);
}
