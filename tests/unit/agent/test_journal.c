/* SPDX-License-Identifier: Apache-2.0 */
/* The bound on entries, and the catalog against the table of events. */
#include <stdio.h>
#include <systemd/sd-id128.h>
#include <unistd.h>

#include "agent/journal/journal.h"
#include "tests/unit/agent/test.h"

static uint64_t now;

static uint64_t test_clock(void)
{
	return now;
}

/* stderr into a file, so that entries can be counted. */
static FILE *capture;
static int saved_stderr;

static int set_up(void **state)
{
	(void)state;
	now = 1000000;
	capture = tmpfile();
	saved_stderr = dup(STDERR_FILENO);
	(void)unsetenv("JOURNAL_STREAM");
	return !capture || saved_stderr < 0 || dup2(fileno(capture), STDERR_FILENO) < 0;
}

static int tear_down(void **state)
{
	(void)state;
	(void)dup2(saved_stderr, STDERR_FILENO);
	(void)close(saved_stderr);
	(void)fclose(capture);
	return 0;
}

static unsigned int count_lines(const char *part)
{
	unsigned int count = 0;
	char line[2048];

	(void)fseek(capture, 0, SEEK_SET);
	while (fgets(line, sizeof(line), capture))
		count += strstr(line, part) != NULL;
	(void)fseek(capture, 0, SEEK_END);
	return count;
}

/* A08: what fails with each registration is one line a cause and window, with the count. */
static void a_cause_that_repeats_is_one_line_a_window(void **state)
{
	struct mpib_journal *journal = NULL;
	char cause[32];

	(void)state;
	assert_int_equal(mpib_journal_new(test_clock, &journal), 0);
	for (unsigned int n = 0; n < 5000; n++) {
		mpib_journal_adopt(journal, true, "no space left");
		mpib_journal_adopt(journal, true, "input/output error");
	}
	assert_int_equal(count_lines("no space left"), 1);
	assert_int_equal(count_lines("input/output error"), 1);

	now += MPIB_JOURNAL_WINDOW_USEC;
	mpib_journal_tick(journal);
	assert_int_equal(count_lines("9998 more entries within 10 s were not written: 9998 adopt"),
			 1);
	mpib_journal_adopt(journal, true, "no space left");
	assert_int_equal(count_lines("no space left"), 2);

	/* causes that are never the same are bounded, too */
	for (unsigned int n = 0; n < 5000; n++) {
		(void)snprintf(cause, sizeof(cause), "cause %u", n);
		mpib_journal_adopt(journal, true, cause);
	}
	assert_true(count_lines("cause ") <= 16);
	assert_null(mpib_journal_free(journal));
}

static void a_flood_is_counted_and_said_once_a_window(void **state)
{
	struct mpib_journal *journal = NULL;

	(void)state;
	assert_int_equal(mpib_journal_new(test_clock, &journal), 0);
	for (unsigned int n = 0; n < 5000; n++)
		mpib_journal_client(journal, 7, 8, "garbage");
	assert_int_equal(count_lines("garbage"), MPIB_JOURNAL_BURST_CLIENT);
	assert_int_equal(count_lines("were not written"), 0);
	assert_int_equal(mpib_journal_suppressed(journal), 5000 - MPIB_JOURNAL_BURST_CLIENT);

	now += 9999999;
	mpib_journal_tick(journal);
	assert_int_equal(count_lines("were not written"), 0);
	now += 1;
	mpib_journal_tick(journal);
	assert_int_equal(count_lines("4950 more entries within 10 s were not written: 4950 client"),
			 1);

	/* a new window writes again, and a quiet one says nothing */
	mpib_journal_client(journal, 7, 8, "garbage");
	assert_int_equal(count_lines("garbage"), MPIB_JOURNAL_BURST_CLIENT + 1);
	now += 60000000;
	mpib_journal_tick(journal);
	assert_int_equal(count_lines("were not written"), 1);
	assert_null(mpib_journal_free(journal));
}

static void what_bad_clients_cause_leaves_room_for_what_matters(void **state)
{
	struct mpib_journal *journal = NULL;

	(void)state;
	assert_int_equal(mpib_journal_new(test_clock, &journal), 0);
	for (unsigned int n = 0; n < 1000; n++)
		mpib_journal_client(journal, 7, 8, "garbage");
	mpib_journal_reload_refused(journal, "agent.ini:3: because");
	assert_int_equal(count_lines("agent.ini:3: because"), 1);
	assert_null(mpib_journal_free(journal));
	assert_int_equal(count_lines("were not written"), 1); /* said at the end, too */
}

static void every_event_has_an_id_of_its_own_and_a_catalog_text(void **state)
{
	FILE *file = fopen(MPIB_TEST_CATALOG, "r");
	char catalog[32768];
	size_t len;
	unsigned int n_texts = 0;

	(void)state;
	assert_non_null(file);
	len = fread(catalog, 1, sizeof(catalog) - 1, file);
	assert_int_equal(fclose(file), 0);
	catalog[len] = '\0';

	for (unsigned int event = 0; event < MPIB_EVENT_MAX; event++) {
		const char *id = mpib_event_message_id(event);
		sd_id128_t parsed;
		char heading[64];

		assert_true(sd_id128_from_string(id, &parsed) >= 0);
		for (unsigned int other = 0; other < event; other++) {
			assert_string_not_equal(id, mpib_event_message_id(other));
			assert_string_not_equal(mpib_event_name(event), mpib_event_name(other));
		}
		(void)snprintf(heading, sizeof(heading), "\n-- %s\nSubject: ", id);
		if (!strstr(catalog, heading))
			fail_msg("no catalog text for %s", mpib_event_name(event));
	}

	for (const char *p = catalog; (p = strstr(p, "\n-- ")); p += 4)
		n_texts++;
	assert_int_equal(n_texts, MPIB_EVENT_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_cause_that_repeats_is_one_line_a_window, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_flood_is_counted_and_said_once_a_window, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(what_bad_clients_cause_leaves_room_for_what_matters,
						set_up, tear_down),
		cmocka_unit_test(every_event_has_an_id_of_its_own_and_a_catalog_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
