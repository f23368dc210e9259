/* SPDX-License-Identifier: Apache-2.0 */
/* What may lie at the agent's directory, and the lock in it. */
#include <errno.h>
#include <sys/wait.h>

#include "agent/state/dir.h"
#include "tests/unit/agent/tempdir.h"

static char base[TEMPDIR_MAX];
static char path[TEMPDIR_MAX + 8];

static int set_up(void **state)
{
	(void)state;
	tempdir_make(base);
	(void)snprintf(path, sizeof(path), "%s/mpib", base);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	(void)umask(0022);
	tempdir_remove(base);
	return 0;
}

static unsigned int mode_of(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(name, &st), 0);
	return st.st_mode & 07777;
}

static void a_missing_directory_is_made_with_its_mode_whatever_the_umask(void **state)
{
	static const mode_t masks[] = { 0000, 0022, 0077, 0777 };
	struct mpib_cause cause;

	(void)state;
	for (size_t n = 0; n < sizeof(masks) / sizeof(masks[0]); n++) {
		int fd = -1;

		(void)umask(masks[n]);
		if (masks[n] == 0777 && geteuid() != 0) /* only root opens what has no mode */
			continue;
		assert_int_equal(mpib_dir_open(path, &fd, &cause), 0);
		assert_int_equal(mode_of(path), 0755);
		assert_int_equal(close(fd), 0);
		assert_int_equal(rmdir(path), 0);
	}
}

static void refused(int error, const char *part)
{
	struct mpib_cause cause = { "" };
	int fd = -1;

	assert_int_equal(mpib_dir_open(path, &fd, &cause), error);
	assert_int_equal(fd, -1);
	if (!strstr(cause.text, part) || !strstr(cause.text, path))
		fail_msg("the message says \"%s\"", cause.text);
}

static void a_link_is_refused_and_not_followed(void **state)
{
	char target[TEMPDIR_MAX + 16];

	(void)state;
	(void)snprintf(target, sizeof(target), "%s/target", base);
	assert_int_equal(mkdir(target, 0755), 0);
	assert_int_equal(symlink(target, path), 0);
	refused(-ELOOP, "symbolic link");
	assert_int_equal(unlink(path), 0);

	/* nor is what a dangling one points to made */
	(void)snprintf(target, sizeof(target), "%s/nothing", base);
	assert_int_equal(symlink(target, path), 0);
	refused(-ELOOP, "symbolic link");
	assert_int_equal(access(target, F_OK), -1);
}

static void a_file_is_refused_and_stays(void **state)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0644);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "x", 1), 1);
	assert_int_equal(close(fd), 0);
	refused(-ENOTDIR, "can't open directory");
	assert_int_equal(mode_of(path), 0644);
}

static void a_directory_that_others_may_write_is_refused(void **state)
{
	static const mode_t modes[] = { 0777, 01777, 0775, 0757 };

	(void)state;
	for (size_t n = 0; n < sizeof(modes) / sizeof(modes[0]); n++) {
		assert_int_equal(mkdir(path, 0755), 0);
		assert_int_equal(chmod(path, modes[n]), 0);
		refused(-EPERM, "others may write it");
		assert_int_equal(mode_of(path), modes[n]); /* mended by a person, not by us */
		assert_int_equal(rmdir(path), 0);
	}
}

static void another_users_directory_is_refused(void **state)
{
	(void)state;
	if (geteuid() != 0) {
		print_message("needs root to make another user's directory\n");
		skip();
	}
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(chown(path, 65534, 65534), 0);
	refused(-EPERM, "belongs to uid 65534");
}

static void a_closed_directory_of_ours_is_opened_to_other_users(void **state)
{
	struct mpib_cause cause;
	int fd = -1;

	(void)state;
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(mpib_dir_open(path, &fd, &cause), 0);
	assert_int_equal(mode_of(path), 0755);
	assert_int_equal(close(fd), 0);
}

static void the_lock_is_one_processs(void **state)
{
	struct mpib_cause cause = { "" };
	int dir_fd = -1;
	int lock_fd = -1;
	int status = -1;
	pid_t child;

	(void)state;
	assert_int_equal(mpib_dir_open(path, &dir_fd, &cause), 0);
	assert_int_equal(mpib_dir_lock(dir_fd, path, &lock_fd, &cause), 0);

	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		char holder[32];
		int fd = -1;
		int r = mpib_dir_lock(dir_fd, path, &fd, &cause);

		(void)snprintf(holder, sizeof(holder), "pid %ld", (long)getppid());
		_exit(r == -EBUSY && fd == -1 && strstr(cause.text, holder) ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);

	/* free again when the holder closed it */
	assert_int_equal(close(lock_fd), 0);
	assert_int_equal(mpib_dir_lock(dir_fd, path, &lock_fd, &cause), 0);
	assert_int_equal(close(lock_fd), 0);
	assert_int_equal(close(dir_fd), 0);
}

static void a_lock_file_planted_as_a_link_is_refused(void **state)
{
	struct mpib_cause cause;
	int dir_fd = -1;
	int lock_fd = -1;

	(void)state;
	assert_int_equal(mpib_dir_open(path, &dir_fd, &cause), 0);
	assert_int_equal(symlinkat("/etc/passwd", dir_fd, "lock"), 0);
	assert_int_equal(mpib_dir_lock(dir_fd, path, &lock_fd, &cause), -ELOOP);
	assert_int_equal(unlinkat(dir_fd, "lock", 0), 0);
	assert_int_equal(mkfifoat(dir_fd, "lock", 0600), 0);
	assert_int_equal(mpib_dir_lock(dir_fd, path, &lock_fd, &cause), -EPERM);
	assert_int_equal(lock_fd, -1);
	assert_int_equal(close(dir_fd), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_missing_directory_is_made_with_its_mode_whatever_the_umask),
		T(a_link_is_refused_and_not_followed),
		T(a_file_is_refused_and_stays),
		T(a_directory_that_others_may_write_is_refused),
		T(another_users_directory_is_refused),
		T(a_closed_directory_of_ours_is_opened_to_other_users),
		T(the_lock_is_one_processs),
		T(a_lock_file_planted_as_a_link_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
