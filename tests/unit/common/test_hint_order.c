/* SPDX-License-Identifier: Apache-2.0 */
/* Case C19: what ThreadSanitizer says about the orders of a hint's writer and reader, and about
 * those of others that leave one out. */
#include "common/hint.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/common/cmocka_all.h"
#include "tests/unit/common/hint_pairs.h"

#define TSAN_EXITCODE 66

/* Plain data handed from one thread to another by nothing but a write and a read of the hint. */
struct handover {
	struct mpib_hint_entry entry;
	hint_writer write;
	hint_reader read;
	uint64_t data;
};

static void *handover_write(void *arg)
{
	struct handover *handover = arg;

	handover->data = 4711;
	handover->write(&handover->entry, hint_pairs[1].share, hint_pairs[1].src,
			hint_pairs[1].dst);
	return NULL;
}

/* 0 where the data came over; ThreadSanitizer turns that into its own exit code if it saw a race.
 */
static int handover_run(hint_writer write, hint_reader read)
{
	static struct handover handover;
	struct mpib_hint_entry seen = { 0 };
	uint64_t data;
	pthread_t thread;

	handover.write = write;
	handover.read = read;
	if (pthread_create(&thread, NULL, handover_write, &handover))
		return 1;
	while (!read(&handover.entry, &seen) || seen.sup_bw != hint_pairs[1].share)
		(void)sched_yield();
	data = handover.data;
	if (pthread_join(thread, NULL))
		return 1;
	return data != 4711;
}

/* What this program does as a child of the test below. */
static int handover_main(const char *variant)
{
	switch (*variant) {
	case 'w':
		return handover_run(hint_write_relaxed, mpib_hint_read_entry);
	case 'r':
		return handover_run(mpib_hint_write, hint_read_looks_first);
	default:
		return handover_run(mpib_hint_write, mpib_hint_read_entry);
	}
}

static int handover_exit_code(char *variant)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		char name[] = "test_hint_order";
		char *const argv[] = { name, variant, NULL };
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		(void)dup2(null, STDERR_FILENO);
		(void)setenv("TSAN_OPTIONS", "exitcode=66", 1);
		(void)execv("/proc/self/exe", argv);
		_exit(127);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The release of the writer and the acquire of the reader make a happens-before; without either of
 * them ThreadSanitizer reports the plain data as a race. */
static void c19_tsan_reports_a_removed_order(void **state)
{
	char right[] = "both";
	char no_release[] = "writer relaxed";
	char no_acquire[] = "reader relaxed";

	assert_int_equal(handover_exit_code(right), 0);
	if (!MPIB_TEST_TSAN) {
		print_message("skipped: the relaxed variants need ThreadSanitizer to be told\n");
		skip();
	}
	assert_int_equal(handover_exit_code(no_release), TSAN_EXITCODE);
	assert_int_equal(handover_exit_code(no_acquire), TSAN_EXITCODE);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(c19_tsan_reports_a_removed_order),
	};

	if (argc > 1)
		return handover_main(argv[1]);
	return cmocka_run_group_tests_name("hint_order", tests, NULL, NULL);
}
