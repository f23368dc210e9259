/* SPDX-License-Identifier: Apache-2.0 */
/* The manual page's section ENVIRONMENT against the table in common/env_table.c: every variable
 * once, with the default, the range and the meaning that the table has, and none that it hasn't. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/macros.h"
#include "common/env.h"
#include "tests/unit/common/cmocka_all.h"

#define HEADING "\n.TP\n.B MPIB_"
#define VALUE	64 /* bytes of a name or a value with NUL */

static char *read_page(void)
{
	mpib_cleanup(mpib_fclosep) FILE *file = fopen(MPIB_TEST_MAN_PAGE, "re");
	char *text = calloc(1, 1 << 20);

	if (!file || !text || fread(text, 1, (1 << 20) - 1, file) == 0 || !feof(file)) {
		free(text);
		fail_msg("%s can't be read", MPIB_TEST_MAN_PAGE);
		return NULL;
	}
	return text;
}

/* The text of an entry as a reader sees it: macros and escapes gone, single blanks. */
static char *plain(const char *entry, size_t len)
{
	char *text = calloc(1, len + 2), *out = text;
	bool line_start = true;

	assert_non_null(text);
	for (size_t k = 0; k < len; k++) {
		char c = entry[k];

		if (line_start && c == '.') {
			while (k + 1 < len && entry[k + 1] != ' ' && entry[k + 1] != '\n')
				k++;
			line_start = false;
			continue;
		}
		line_start = c == '\n';
		if (c == '\\' && k + 2 < len && entry[k + 1] == 'f') {
			k += 2;
			continue;
		}
		if (c == '\\')
			continue;
		if (c == '\n')
			c = ' ';
		if (c != ' ' || (out > text && out[-1] != ' '))
			*out++ = c;
	}
	*out = '\0';
	return text;
}

/* The entry of @name: from behind its heading to the next entry or section; NULL where there is
 * none. */
static const char *find_entry(const char *page, const char *name, size_t *ret_len)
{
	char heading[VALUE + 16];
	const char *at, *entry_end, *section_end;

	(void)snprintf(heading, sizeof(heading), "\n.TP\n.B %s\n", name);
	at = strstr(page, heading);
	if (!at)
		return NULL;
	at += strlen(heading) - 1;
	entry_end = strstr(at, "\n.TP");
	section_end = strstr(at, "\n.SH");
	if (!entry_end || (section_end && section_end < entry_end))
		entry_end = section_end ? section_end : at + strlen(at);
	*ret_len = (size_t)(entry_end - at);
	return at;
}

static bool row_matches(const struct mpib_env_row *row, const char *page)
{
	char value[VALUE], range[VALUE], nccl[VALUE] = "";
	const char *entry, *lack = NULL;
	char *text;
	size_t len;

	entry = find_entry(page, row->name, &len);
	if (!entry) {
		print_message("%s: no entry\n", row->name);
		return false;
	}

	text = plain(entry, len);
	(void)snprintf(value, sizeof(value), "Default: %s. ",
		       row->default_text[0] ? row->default_text : "empty");
	if (row->nccl)
		(void)snprintf(nccl, sizeof(nccl), "Unset: %s. ", row->nccl);
	if (row->size)
		(void)snprintf(range, sizeof(range), "Text of at most %zu bytes. ", row->size - 1);
	else if (row->kind == MPIB_ENV_KEY)
		(void)snprintf(range, sizeof(range), "Range: %ld to 0x%lx. ", row->min,
			       (unsigned long)row->max);
	else
		(void)snprintf(range, sizeof(range), "Range: %ld to %ld. ", row->min, row->max);

	if (!strstr(text, value))
		lack = value;
	else if (!strstr(text, range))
		lack = range;
	else if (!strstr(text, row->help))
		lack = row->help;
	else if (!strstr(text, nccl))
		lack = nccl;
	if (!lack && !row->nccl && strstr(text, "Unset: ")) {
		print_message("%s: the page has a variable of NCCL that isn't used\n", row->name);
		lack = "no \"Unset:\"";
	}
	if (lack)
		print_message("%s: the page lacks \"%s\" in: %s\n", row->name, lack, text);
	free(text);
	return !lack;
}

static bool is_in_table(const char *name, size_t len)
{
	for (size_t k = 0; k < mpib_env_row_count; k++)
		if (strlen(mpib_env_rows[k].name) == len &&
		    strncmp(mpib_env_rows[k].name, name, len) == 0)
			return true;
	return false;
}

/* Settings of NCCL that are none of MPIB's: each with its reason, in the order of the table. */
static bool unused_match(const char *page)
{
	static const char heading[] = "\n.TP\n.I NCCL_";
	const char *at = strstr(page, heading);
	size_t count = 0;
	bool good = true;

	for (; at; at = strstr(at + 1, heading), count++) {
		const struct mpib_env_unused *row = &mpib_env_unused_rows[count];
		const char *end = strstr(at + 1, "\n.TP"), *section = strstr(at + 1, "\n.SH");
		char wanted[1024];
		char *text;

		if (count >= mpib_env_unused_count)
			break;
		text = plain(at, (size_t)((end && end < section ? end : section) - at));
		(void)snprintf(wanted, sizeof(wanted), "%s %s.%s%s%s", row->name, row->why,
			       row->harmless ? " Harmless: " : "",
			       row->harmless ? row->harmless : "", row->harmless ? "." : "");
		if (!strstr(text, wanted)) {
			print_message("the page lacks \"%s\" in: %s\n", wanted, text);
			good = false;
		}
		free(text);
	}
	if (at || count != mpib_env_unused_count) {
		print_message("other settings of NCCL than the table's\n");
		good = false;
	}
	return good;
}

/* True where page and table say the same. */
static bool page_matches(const char *page)
{
	size_t headings = 0;
	bool good = unused_match(page);

	for (size_t k = 0; k < mpib_env_row_count; k++)
		good &= row_matches(&mpib_env_rows[k], page);

	for (const char *at = page; (at = strstr(at, HEADING)); at++) {
		const char *name = at + strlen("\n.TP\n.B ");
		size_t len = strcspn(name, "\n");

		headings++;
		if (!is_in_table(name, len)) {
			print_message("%.*s: not in the table\n", (int)len, name);
			good = false;
		}
	}
	if (headings != mpib_env_row_count) {
		print_message("%zu entries for %zu variables\n", headings, mpib_env_row_count);
		good = false;
	}
	return good;
}

/* The page with the first @from behind the heading of @name replaced. */
static char *altered(const char *name, const char *from, const char *to)
{
	mpib_cleanup(mpib_freep) char *page = read_page();
	char heading[VALUE + 16], *at, *text = NULL;

	(void)snprintf(heading, sizeof(heading), "\n.TP\n.B %s\n", name);
	at = strstr(page, heading);
	assert_non_null(at);
	at = strstr(at, from);
	if (!at) {
		fail_msg("no '%s' in the entry of %s: the test needs another example", from, name);
		return NULL;
	}

	*at = '\0';
	if (asprintf(&text, "%s%s%s", page, to, at + strlen(from)) < 0)
		fail_msg("out of memory");
	return text;
}

static void the_page_says_what_the_table_says(void **state)
{
	mpib_cleanup(mpib_freep) char *page = read_page();

	(void)state;
	assert_true(mpib_env_row_count > 0);
	assert_true(page_matches(page));
}

/* Each row in each of its parts, wrong on purpose: a check that lets it pass is no check. */
static void a_wrong_page_is_noticed_in_every_part(void **state)
{
	(void)state;
	for (size_t k = 0; k < mpib_env_row_count; k++) {
		const struct mpib_env_row *row = &mpib_env_rows[k];
		const char *first_word_end = strchr(row->help, ' ');
		char word[VALUE], max[VALUE];
		const struct {
			const char *what, *from, *to;
		} changes[] = {
			{ "name", row->name, "MPIB_OTHER" },
			{ "missing entry", ".B ", ".I " },
			{ "default", "Default: ", "Default: 7" },
			{ "range", row->size ? "at most " : "Range: ",
			  row->size ? "at most 1" : "Range: 9" },
			{ "end of the range", row->size ? " bytes" : max,
			  row->size ? "0 bytes" : "9" },
			{ "help", word, "" },
		};

		assert_non_null(first_word_end);
		(void)snprintf(max, sizeof(max),
			       row->kind == MPIB_ENV_KEY ? " to 0x%lx." : " to %ld.", row->max);
		(void)snprintf(word, sizeof(word), "%.*s ", (int)(first_word_end - row->help),
			       row->help);
		if (row->nccl) {
			mpib_cleanup(mpib_freep) char *page =
				altered(row->name, row->nccl, "NCCL_OTHER");

			if (page_matches(page))
				fail_msg("%s: another variable of NCCL passes", row->name);
		}
		for (size_t c = 0; c < MPIB_ARRAY_SIZE(changes); c++) {
			mpib_cleanup(mpib_freep) char *page =
				altered(row->name, changes[c].from, changes[c].to);

			if (page_matches(page))
				fail_msg("%s: a wrong %s passes", row->name, changes[c].what);
		}
	}
}

static void a_wrong_reason_is_noticed(void **state)
{
	(void)state;
	for (size_t k = 0; k < mpib_env_unused_count; k++) {
		mpib_cleanup(mpib_freep) char *page = read_page();
		char *at, heading[VALUE + 16];

		(void)snprintf(heading, sizeof(heading), "\n.TP\n.I %s\n",
			       mpib_env_unused_rows[k].name);
		at = strstr(page, heading);
		assert_non_null(at);
		at[strlen(heading)] = '#';
		assert_false(page_matches(page));
	}
}

static void an_entry_too_many_is_noticed(void **state)
{
	mpib_cleanup(mpib_freep) char *unknown =
		altered("MPIB_MODE", "\n.TP\n", "\n.TP\n.B MPIB_UNKNOWN\nDefault: 0.\n.TP\n");
	mpib_cleanup(mpib_freep) char *twice =
		altered("MPIB_MODE", "\n.TP\n", "\n.TP\n.B MPIB_MODE\nDefault: 0.\n.TP\n");

	(void)state;
	assert_false(page_matches(unknown));
	assert_false(page_matches(twice));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_page_says_what_the_table_says),
		cmocka_unit_test(a_wrong_page_is_noticed_in_every_part),
		cmocka_unit_test(a_wrong_reason_is_noticed),
		cmocka_unit_test(an_entry_too_many_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
