/* SPDX-License-Identifier: Apache-2.0 */
/* The table file: made whole or not at all, kept for ever. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "agent/state/hints.h"
#include "common/hint.h"
#include "common/share.h"
#include "tests/unit/agent/tempdir.h"

static char dir[TEMPDIR_MAX];
static int dir_fd;

static int set_up(void **state)
{
	(void)state;
	tempdir_make(dir);
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir_fd < 0;
}

static int tear_down(void **state)
{
	(void)state;
	(void)close(dir_fd);
	tempdir_remove(dir);
	return 0;
}

static struct mpib_hints *open_hints(uint32_t entries)
{
	struct mpib_hints *hints = NULL;
	struct mpib_cause cause;

	if (mpib_hints_open(dir_fd, dir, entries, &hints, &cause) < 0)
		fail_msg("%s", cause.text);
	return hints;
}

static struct stat stat_hints(void)
{
	struct stat st;

	assert_int_equal(fstatat(dir_fd, "hints", &st, AT_SYMLINK_NOFOLLOW), 0);
	return st;
}

/* A plugin's view: the file mapped for reading. */
static const struct mpib_hint_header *map_reader(void)
{
	int fd = openat(dir_fd, "hints", O_RDONLY);
	void *map;

	assert_true(fd >= 0);
	map = mmap(NULL, (size_t)stat_hints().st_size, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	assert_int_equal(close(fd), 0);
	return map;
}

static const struct mpib_hint_entry *entries_of(const struct mpib_hint_header *header)
{
	return (const struct mpib_hint_entry *)(const void *)(header + 1);
}

static void a_new_table_has_the_contracts_shape(void **state)
{
	struct mpib_hints *hints;
	const struct mpib_hint_header *header;
	struct stat st;

	(void)state;
	(void)umask(0077);
	hints = open_hints(256);
	(void)umask(0022);
	st = stat_hints();
	assert_int_equal(st.st_size, 4112);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_true(st.st_blocks * 512 >= 4112); /* not sparse */

	header = map_reader();
	assert_int_equal(header->magic, 0x4D504948);
	assert_int_equal(header->max_entries, 256);
	assert_int_not_equal(header->generation, 0);
	for (unsigned int n = 0; n < 256; n++) {
		assert_int_equal(entries_of(header)[n].sup_bw, 0);
		assert_int_equal(entries_of(header)[n].src_ip, 0);
	}
	assert_null(mpib_hints_free(hints));
}

static void a_restart_keeps_inode_shares_and_slots_and_changes_generation(void **state)
{
	struct mpib_hints *hints = open_hints(256);
	const struct mpib_hint_header *header = map_reader();
	ino_t inode = stat_hints().st_ino;
	uint32_t generation = mpib_hints_generation(hints);
	uint32_t share = 0;

	(void)state;
	mpib_hints_set(hints, 5, 300, 11, 12);
	assert_null(mpib_hints_free(hints));

	hints = open_hints(256);
	assert_int_equal(stat_hints().st_ino, inode);
	assert_int_not_equal(mpib_hints_generation(hints), generation);
	assert_int_equal(header->generation, mpib_hints_generation(hints)); /* seen by the reader */
	assert_true(mpib_hint_read(&entries_of(header)[5], &share));
	assert_int_equal(share, 300);
	assert_int_equal(mpib_hints_share(hints, 5), 300);
	assert_null(mpib_hints_free(hints));
}

static void an_odd_count_of_a_dead_writer_is_mended(void **state)
{
	struct mpib_hints *hints = open_hints(256);
	const struct mpib_hint_header *header = map_reader();
	uint32_t seq = 0x13; /* odd: the writer died half way */
	uint32_t share = 0;
	int fd;

	(void)state;
	mpib_hints_set(hints, 7, 512, 21, 22);
	assert_null(mpib_hints_free(hints));

	fd = openat(dir_fd, "hints", O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, &seq, sizeof(seq), 16 + 7 * 16 + 4), sizeof(seq));
	assert_int_equal(close(fd), 0);
	assert_false(mpib_hint_read(&entries_of(header)[7], &share));

	hints = open_hints(256);
	assert_true(mpib_hint_read(&entries_of(header)[7], &share));
	assert_int_equal(share, 512);
	assert_int_equal(entries_of(header)[7].seq % 2, 0);
	assert_null(mpib_hints_free(hints));
}

static void a_table_grows_in_place_and_never_shrinks(void **state)
{
	struct mpib_hints *hints = open_hints(256);
	struct mpib_cause cause;
	ino_t inode = stat_hints().st_ino;
	uint32_t src;
	uint32_t dst;

	(void)state;
	mpib_hints_set(hints, 255, 9, 31, 32);
	assert_int_equal(mpib_hints_grow(hints, 4096, &cause), 0);
	assert_int_equal(mpib_hints_entries(hints), 4096);
	mpib_hints_set(hints, 4095, 10, 41, 42);
	assert_true(mpib_hints_flow(hints, 255, &src, &dst));
	assert_int_equal(src, 31);
	assert_int_equal(mpib_hints_grow(hints, 16, &cause), 0);
	assert_int_equal(mpib_hints_entries(hints), 4096);
	assert_null(mpib_hints_free(hints));

	hints = open_hints(1);
	assert_int_equal(mpib_hints_entries(hints), 4096);
	assert_int_equal(stat_hints().st_ino, inode);
	assert_int_equal(stat_hints().st_size, 16 + 4096 * 16);
	assert_int_equal(map_reader()->max_entries, 4096);
	assert_null(mpib_hints_free(hints));
}

static void the_smallest_and_the_largest_table_work(void **state)
{
	struct mpib_hints *hints = open_hints(1);

	(void)state;
	assert_int_equal(stat_hints().st_size, 32);
	assert_null(mpib_hints_free(hints));
	hints = open_hints(65536);
	mpib_hints_set(hints, 65535, 1024, 1, 2);
	assert_int_equal(mpib_hints_share(hints, 65535), 1024);
	assert_null(mpib_hints_free(hints));
}

static void refused(int error)
{
	struct mpib_hints *hints = NULL;
	struct mpib_cause cause = { "" };

	assert_int_equal(mpib_hints_open(dir_fd, dir, 256, &hints, &cause), error);
	assert_null(hints);
	assert_non_null(strstr(cause.text, "/hints"));
}

static void write_hints(const void *data, size_t len)
{
	int fd = openat(dir_fd, "hints", O_RDWR | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	assert_int_equal(close(fd), 0);
}

static void strange_files_are_refused_and_stay(void **state)
{
	static const char garbage[64] = "this is somebody's file";
	uint32_t header[4] = { MPIB_HINT_MAGIC, 256, 1, 1 };
	uint32_t many[8] = { MPIB_HINT_MAGIC, UINT32_MAX, 1, 1 };
	char text[64] = { 0 };
	int fd;

	(void)state;
	write_hints(garbage, sizeof(garbage));
	refused(-EBADMSG);
	fd = openat(dir_fd, "hints", O_RDONLY);
	assert_int_equal(read(fd, text, sizeof(text)), sizeof(text));
	assert_memory_equal(text, garbage, sizeof(text));
	assert_int_equal(close(fd), 0);

	write_hints(header, sizeof(header)); /* says 256, holds none */
	refused(-EBADMSG);
	write_hints(many, sizeof(many));
	refused(-EBADMSG);

	assert_int_equal(linkat(dir_fd, "hints", dir_fd, "second", 0), 0);
	refused(-EPERM);
	assert_int_equal(unlinkat(dir_fd, "second", 0), 0);
	assert_int_equal(fchmodat(dir_fd, "hints", 0666, 0), 0);
	refused(-EPERM);
	assert_int_equal(unlinkat(dir_fd, "hints", 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", dir_fd, "hints"), 0);
	refused(-ELOOP);
	assert_int_equal(unlinkat(dir_fd, "hints", 0), 0);
	assert_int_equal(mkdirat(dir_fd, "hints", 0755), 0);
	refused(-EISDIR);
}

static void a_half_made_table_is_finished(void **state)
{
	static const char zeros[20];
	struct mpib_hints *hints;

	(void)state;
	write_hints(zeros, 0);
	hints = open_hints(256);
	assert_null(mpib_hints_free(hints));
	write_hints(zeros, sizeof(zeros));
	hints = open_hints(256);
	assert_int_equal(map_reader()->magic, MPIB_HINT_MAGIC);
	assert_null(mpib_hints_free(hints));
}

static void a_file_size_limit_fails_the_start_with_its_cause(void **state)
{
	struct rlimit old;
	struct rlimit tight;

	(void)state;
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	tight = old;
	tight.rlim_cur = 1024;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
	refused(-EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
}

/* X5: a tiny file system of its own, filled to the last block. */
static void a_full_file_system_fails_the_start_with_its_cause(void **state)
{
	char mounted[TEMPDIR_MAX + 8];
	char block[4096] = { 1 };
	struct mpib_hints *hints = NULL;
	struct mpib_cause cause = { "" };
	int fd;
	int r;

	(void)state;
	(void)snprintf(mounted, sizeof(mounted), "%s/full", dir);
	assert_int_equal(mkdir(mounted, 0755), 0);
	if (mount("tmpfs", mounted, "tmpfs", 0, "size=16k,mode=0755") < 0) {
		print_message("can't mount a tmpfs here: %s\n", strerror(errno));
		skip();
	}

	(void)close(dir_fd);
	dir_fd = open(mounted, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = openat(dir_fd, "filler", O_CREAT | O_WRONLY, 0600);
	assert_true(dir_fd >= 0 && fd >= 0);
	while (write(fd, block, sizeof(block)) > 0)
		;
	assert_int_equal(close(fd), 0);
	r = mpib_hints_open(dir_fd, mounted, 256, &hints, &cause);
	(void)close(dir_fd);
	dir_fd = -1;
	assert_int_equal(umount2(mounted, MNT_DETACH), 0);

	assert_int_equal(r, -ENOSPC);
	assert_null(hints);
	assert_non_null(strstr(cause.text, "No space left"));
}

static void what_is_the_same_already_is_not_written_again(void **state)
{
	struct mpib_hints *hints = open_hints(256);
	const struct mpib_hint_header *header = map_reader();
	uint32_t seq;

	(void)state;
	mpib_hints_set(hints, 3, 100, 1, 2);
	seq = entries_of(header)[3].seq;
	mpib_hints_set(hints, 3, 100, 1, 2);
	assert_int_equal(entries_of(header)[3].seq, seq);
	mpib_hints_set(hints, 3, 101, 1, 2);
	assert_int_equal(entries_of(header)[3].seq, seq + 4);
	assert_false(mpib_hints_is_auto(hints, 3));
	mpib_hints_set(hints, 3, 101 | MPIB_SHARE_AUTO, 1, 2);
	assert_int_equal(entries_of(header)[3].seq, seq + 6);
	assert_int_equal(entries_of(header)[3].sup_bw, 101);
	assert_true(mpib_hints_is_auto(hints, 3));
	mpib_hints_set(hints, 3, 101 | MPIB_SHARE_AUTO, 1, 2);
	assert_int_equal(entries_of(header)[3].seq, seq + 6);
	mpib_hints_set(hints, 3, 101, 1, 2);
	assert_false(mpib_hints_is_auto(hints, 3));
	mpib_hints_beat(hints);
	assert_int_equal(header->heartbeat, mpib_hints_heartbeat(hints));
	assert_null(mpib_hints_free(hints));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_new_table_has_the_contracts_shape),
		T(a_restart_keeps_inode_shares_and_slots_and_changes_generation),
		T(an_odd_count_of_a_dead_writer_is_mended),
		T(a_table_grows_in_place_and_never_shrinks),
		T(the_smallest_and_the_largest_table_work),
		T(strange_files_are_refused_and_stay),
		T(a_half_made_table_is_finished),
		T(a_file_size_limit_fails_the_start_with_its_cause),
		T(a_full_file_system_fails_the_start_with_its_cause),
		T(what_is_the_same_already_is_not_written_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
