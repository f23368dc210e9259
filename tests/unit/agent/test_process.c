/* SPDX-License-Identifier: Apache-2.0 */
/* Telling processes apart. */
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/clients/process.h"
#include "tests/unit/agent/test.h"

static void the_start_time_is_found_behind_any_name(void **state)
{
	static const struct {
		const char *text;
		int result;
		uint64_t start;
	} cases[] = {
		{ "1 (init) S 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4711 100 200 30\n", 0,
		  4711 },
		{ "1 (a b) c) (d) S 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 5 1 2\n", 0, 5 },
		{ "1 (x\ny) R 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 "
		  "18446744073709551615 1\n",
		  0, UINT64_MAX },
		{ "1 (cut) S 0 1 1 0", -EBADMSG, 0 },
		{ "no name", -EBADMSG, 0 },
		{ "", -EBADMSG, 0 },
		{ "1 (word) S 0 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 abc 1\n", -EBADMSG, 0 },
	};

	(void)state;
	for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
		uint64_t start = 0;

		if (mpib_process_parse_stat(cases[n].text, &start) != cases[n].result ||
		    (cases[n].result == 0 && start != cases[n].start))
			fail_msg("case %zu", n);
	}
}

static void a_living_process_is_opened_and_its_end_is_seen(void **state)
{
	uint64_t start = 0;
	uint64_t mine = 0;
	int own = -1;
	int fd = -1;
	pid_t child = fork();

	(void)state;
	assert_true(child >= 0);
	if (child == 0) {
		(void)pause();
		_exit(0);
	}

	assert_int_equal(mpib_process_open(child, getuid(), &fd, &start), 0);
	assert_int_equal(mpib_process_open(getpid(), MPIB_UID_ANY, &own, &mine), 0);
	assert_true(mine <= start);
	assert_true(mpib_process_alive(fd));
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)child, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	assert_false(mpib_process_alive(fd)); /* a zombie is not alive */
	assert_int_equal(mpib_process_open(child, getuid(), &own, &mine), -ESRCH);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(mpib_process_open(child, getuid(), &own, &mine), -ESRCH);
	assert_int_equal(close(fd), 0);
}

static void a_process_of_another_user_does_not_pass_for_this_one(void **state)
{
	uint64_t start = 0;
	int fd = -1;

	(void)state;
	assert_int_equal(mpib_process_open(getpid(), getuid() + 12345, &fd, &start), -EPERM);
	assert_int_equal(fd, -1);
}

/* Descriptors for the process and its stat file, and none for a look at its user ids. */
static void a_shortage_of_descriptors_is_not_taken_for_another_user(void **state)
{
	struct rlimit before;
	struct rlimit limit;
	uint64_t start = 0;
	int fd = -1;
	int lowest = dup(STDERR_FILENO);
	int r;

	(void)state;
	assert_true(lowest >= 0);
	assert_int_equal(close(lowest), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	for (unsigned int spare = 0; spare < 3; spare++) {
		limit.rlim_cur = (rlim_t)lowest + spare;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
		r = mpib_process_open(getpid(), getuid() + 12345, &fd, &start);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		assert_int_equal(r, -EMFILE);
	}
	assert_int_equal(mpib_process_open(getpid(), getuid() + 12345, &fd, &start), -EPERM);
	assert_int_equal(fd, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_start_time_is_found_behind_any_name),
		cmocka_unit_test(a_living_process_is_opened_and_its_end_is_seen),
		cmocka_unit_test(a_process_of_another_user_does_not_pass_for_this_one),
		cmocka_unit_test(a_shortage_of_descriptors_is_not_taken_for_another_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
