/* SPDX-License-Identifier: Apache-2.0 */
/* Shares set by a person: what was set comes back whole, what was damaged doesn't at all. */
#include <errno.h>

#include "agent/state/overrides.h"
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

static struct mpib_overrides *open_set(int wanted)
{
	struct mpib_overrides *overrides = NULL;
	struct mpib_cause cause = { "" };
	int r = mpib_overrides_open(dir_fd, dir, &overrides, &cause);

	if (r != wanted)
		fail_msg("%d, not %d: %s", r, wanted, cause.text);
	assert_non_null(overrides);
	return overrides;
}

static int set(struct mpib_overrides *overrides, uint32_t src_be, uint32_t dst_be, uint32_t share,
	       uint64_t until)
{
	struct mpib_override override = { src_be, dst_be, share, 7, until };
	struct mpib_cause cause;

	return mpib_overrides_set(overrides, &override, &cause);
}

static int unset(struct mpib_overrides *overrides, uint32_t src_be, uint32_t dst_be)
{
	struct mpib_cause cause;

	return mpib_overrides_unset(overrides, src_be, dst_be, &cause);
}

static void what_was_set_comes_back(void **state)
{
	struct mpib_overrides *overrides = open_set(0);
	const struct mpib_override *found;

	(void)state;
	for (uint32_t n = 200; n > 0; n--)
		assert_int_equal(set(overrides, n, n + 1, n, n * 10), 0);
	assert_int_equal(set(overrides, 5, 6, 1000, 0), 0); /* takes the place */
	assert_int_equal(unset(overrides, 9, 10), 0);
	assert_int_equal(unset(overrides, 9, 10), -ENOENT);
	assert_null(mpib_overrides_free(overrides));

	overrides = open_set(0);
	assert_int_equal(mpib_overrides_count(overrides), 199);
	for (uint32_t n = 1; n <= 200; n++) {
		found = mpib_overrides_find(overrides, n, n + 1);
		assert_int_equal(found != NULL, n != 9);
		if (found && n != 5)
			assert_int_equal(found->share, n);
	}
	found = mpib_overrides_find(overrides, 5, 6);
	assert_int_equal(found->share, 1000);
	assert_int_equal(found->uid, 7);
	assert_null(mpib_overrides_find(overrides, 6, 5));
	assert_null(mpib_overrides_free(overrides));
}

static void time_ends_them(void **state)
{
	struct mpib_overrides *overrides = open_set(0);

	(void)state;
	assert_int_equal(set(overrides, 1, 2, 3, 100), 0);
	assert_int_equal(set(overrides, 1, 3, 3, 0), 0);
	assert_null(mpib_overrides_expired(overrides, 99));
	assert_int_equal(mpib_overrides_expired(overrides, 100)->dst_be, 2);
	assert_int_equal(unset(overrides, 1, 2), 0);
	assert_null(mpib_overrides_expired(overrides, UINT64_MAX));
	assert_null(mpib_overrides_free(overrides));
}

static void there_is_a_most(void **state)
{
	struct mpib_overrides *overrides = open_set(0);

	(void)state;
	for (uint32_t n = 1; n <= MPIB_OVERRIDES_MAX; n++)
		assert_int_equal(set(overrides, n, 1, 1, 0), 0);
	assert_int_equal(set(overrides, MPIB_OVERRIDES_MAX + 1, 1, 1, 0), -ENOSPC);
	assert_int_equal(set(overrides, 3, 1, 9, 0), 0);
	assert_null(mpib_overrides_free(overrides));
	overrides = open_set(0);
	assert_int_equal(mpib_overrides_count(overrides), MPIB_OVERRIDES_MAX);
	assert_int_equal(mpib_overrides_find(overrides, 3, 1)->share, 9);
	assert_null(mpib_overrides_free(overrides));
}

static void each_damaged_byte_makes_the_file_worthless(void **state)
{
	struct mpib_overrides *overrides = open_set(0);
	uint8_t byte;
	int fd;

	(void)state;
	assert_int_equal(set(overrides, 1, 2, 3, 0), 0);
	assert_int_equal(set(overrides, 1, 3, 3, 0), 0);
	assert_null(mpib_overrides_free(overrides));
	fd = openat(dir_fd, MPIB_OVERRIDES_NAME, O_RDWR);
	assert_true(fd >= 0);
	for (off_t at = 0; at < 64 + 2 * 24; at++) {
		if (at == 4)
			at += 4; /* another version is no damage */
		assert_int_equal(pread(fd, &byte, 1, at), 1);
		byte ^= 0x10;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		overrides = open_set(-EBADMSG);
		assert_int_equal(mpib_overrides_count(overrides), 0);
		/* and can be written anew */
		assert_null(mpib_overrides_free(overrides));
		byte ^= 0x10;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	for (off_t len = 64 + 2 * 24 - 1; len >= 0; len--) {
		assert_int_equal(ftruncate(fd, len), 0);
		overrides = open_set(-EBADMSG);
		assert_int_equal(mpib_overrides_count(overrides), 0);
		assert_null(mpib_overrides_free(overrides));
	}
	assert_int_equal(close(fd), 0);

	overrides = open_set(-EBADMSG);
	assert_int_equal(set(overrides, 1, 2, 3, 0), 0);
	assert_null(mpib_overrides_free(overrides));
	overrides = open_set(0);
	assert_int_equal(mpib_overrides_count(overrides), 1);
	assert_null(mpib_overrides_free(overrides));
}

static void write_later_version(char ret[256])
{
	struct mpib_overrides_header header = {
		.magic = MPIB_OVERRIDES_MAGIC,
		.version = MPIB_OVERRIDES_VERSION + 1,
		.record_size = 48,
		.count = 3,
	};
	int fd = openat(dir_fd, MPIB_OVERRIDES_NAME, O_WRONLY | O_CREAT | O_EXCL, 0600);

	memset(ret, 0x5A, 256);
	memcpy(ret, &header, sizeof(header));
	assert_true(fd >= 0);
	assert_int_equal(write(fd, ret, 256), 256);
	assert_int_equal(close(fd), 0);
}

static void expect_bytes(const char *name, const char bytes[256])
{
	char found[257];
	int fd = openat(dir_fd, name, O_RDONLY);

	if (fd < 0)
		fail_msg("no file %s", name);
	assert_int_equal(read(fd, found, sizeof(found)), 256);
	assert_memory_equal(found, bytes, 256);
	assert_int_equal(close(fd), 0);
}

/* An upgrade and the way back, and then the way there again: nobody's shares are lost. */
static void each_version_finds_its_own_again(void **state)
{
	struct mpib_overrides *overrides = open_set(0);
	struct mpib_cause cause;
	char later[256];

	(void)state;
	assert_int_equal(set(overrides, 1, 2, 3, 0), 0);
	assert_null(mpib_overrides_free(overrides));
	/* what a later one does that is made like this one */
	assert_int_equal(renameat(dir_fd, "overrides", dir_fd, "overrides.v1"), 0);
	write_later_version(later);

	overrides = open_set(-EPROTONOSUPPORT);
	expect_bytes("overrides.v2", later);
	assert_int_equal(mpib_overrides_count(overrides), 1);
	assert_int_equal(mpib_overrides_find(overrides, 1, 2)->share, 3);
	assert_int_equal(mpib_overrides_check(overrides, &cause), 0);
	assert_int_equal(set(overrides, 5, 6, 7, 0), 0);
	assert_null(mpib_overrides_free(overrides));
	expect_bytes("overrides.v2", later);

	overrides = open_set(0);
	assert_int_equal(mpib_overrides_count(overrides), 2);
	assert_null(mpib_overrides_free(overrides));
	assert_int_equal(faccessat(dir_fd, "overrides.v1", F_OK, 0), -1);
}

/* Also where there is nothing of ours to come back to. */
static void a_later_version_is_kept_though_shares_are_set(void **state)
{
	struct mpib_overrides *overrides;
	struct mpib_cause cause;
	char later[256];

	(void)state;
	write_later_version(later);
	overrides = open_set(-EPROTONOSUPPORT);
	assert_int_equal(mpib_overrides_count(overrides), 0);
	assert_int_equal(mpib_overrides_check(overrides, &cause), 0);
	assert_int_equal(set(overrides, 5, 6, 7, 0), 0);
	assert_null(mpib_overrides_free(overrides));
	expect_bytes("overrides.v2", later);
}

static void what_cannot_be_put_aside_is_not_overwritten(void **state)
{
	struct mpib_overrides *overrides;
	struct mpib_cause cause;
	char later[256];

	(void)state;
	write_later_version(later);
	assert_int_equal(mkdirat(dir_fd, "overrides.v2", 0700), 0);
	overrides = open_set(-EPROTONOSUPPORT);
	assert_int_equal(mpib_overrides_check(overrides, &cause), 0);
	assert_int_equal(set(overrides, 5, 6, 7, 0), -EISDIR);
	expect_bytes("overrides", later);
	assert_int_equal(unlinkat(dir_fd, "overrides.v2", AT_REMOVEDIR), 0);
	assert_int_equal(set(overrides, 5, 6, 7, 0), 0);
	expect_bytes("overrides.v2", later);
	assert_null(mpib_overrides_free(overrides));
}

static void a_planted_file_is_not_read(void **state)
{
	struct mpib_overrides *overrides;

	(void)state;
	assert_int_equal(symlinkat("/etc/passwd", dir_fd, MPIB_OVERRIDES_NAME), 0);
	overrides = open_set(-ELOOP);
	assert_int_equal(set(overrides, 1, 2, 3, 0), 0); /* replaces the link */
	assert_null(mpib_overrides_free(overrides));
	assert_int_equal(fchmodat(dir_fd, MPIB_OVERRIDES_NAME, 0666, 0), 0);
	overrides = open_set(-EPERM);
	assert_int_equal(mpib_overrides_count(overrides), 0);
	assert_null(mpib_overrides_free(overrides));
}

static void what_cannot_be_kept_is_not_in_force(void **state)
{
	struct mpib_overrides *overrides = open_set(0);

	(void)state;
	assert_int_equal(set(overrides, 1, 2, 3, 0), 0);
	/* a directory at the name of the new file: it can't be made, by root neither */
	assert_int_equal(mkdirat(dir_fd, MPIB_OVERRIDES_NAME ".new", 0700), 0);
	assert_int_equal(set(overrides, 1, 2, 4, 0), -EISDIR);
	assert_int_equal(set(overrides, 1, 9, 4, 0), -EISDIR);
	assert_int_equal(mpib_overrides_count(overrides), 1);
	assert_int_equal(mpib_overrides_find(overrides, 1, 2)->share, 3);
	assert_null(mpib_overrides_free(overrides));
}

static void what_was_unset_does_not_come_back_once_it_can_be_written(void **state)
{
	struct mpib_overrides *overrides = open_set(0);
	struct mpib_cause cause;

	(void)state;
	assert_int_equal(set(overrides, 1, 2, 300, 0), 0);
	assert_int_equal(mkdirat(dir_fd, "overrides.new", 0700), 0);
	assert_true(unset(overrides, 1, 2) < 0);
	assert_true(mpib_overrides_check(overrides, &cause) < 0);
	assert_int_equal(unlinkat(dir_fd, "overrides.new", AT_REMOVEDIR), 0);
	assert_int_equal(mpib_overrides_check(overrides, &cause), 0);
	assert_null(mpib_overrides_free(overrides));

	overrides = open_set(0);
	assert_null(mpib_overrides_find(overrides, 1, 2));
	assert_null(mpib_overrides_free(overrides));
}

/* ---- shares that find themselves ------------------------------------------------------------ */

#define AUTO mpib_share_auto(100, 900)

/* What an agent that knows no such shares believes: whether its file is good, and what a flow has.
 */
static uint32_t as_an_older_one_reads(uint32_t src_be, uint32_t dst_be)
{
	struct mpib_overrides_header header;
	struct mpib_override o;
	uint32_t share = 0;
	int fd = openat(dir_fd, "overrides", O_RDONLY);

	if (fd < 0)
		return 0;
	assert_int_equal(read(fd, &header, sizeof(header)), sizeof(header));
	assert_int_equal(header.magic, MPIB_OVERRIDES_MAGIC);
	assert_int_equal(header.version, 1);
	assert_int_equal(header.record_size, 24);
	for (uint32_t n = 0; n < header.count; n++) {
		assert_int_equal(read(fd, &o, sizeof(o)), sizeof(o));
		if (o.share > 1024)
			fail_msg("share %u: an older agent believes the file damaged", o.share);
		if (o.src_be == src_be && o.dst_be == dst_be)
			share = o.share;
	}
	assert_int_equal(read(fd, &o, 1), 0);
	assert_int_equal(close(fd), 0);
	return share;
}

static bool is_there(const char *name)
{
	return faccessat(dir_fd, name, F_OK, 0) == 0;
}

static uint32_t share_of(const struct mpib_overrides *overrides, uint32_t src_be, uint32_t dst_be)
{
	const struct mpib_override *o = mpib_overrides_find(overrides, src_be, dst_be);

	return o ? o->share : 0;
}

static void an_older_agent_keeps_what_was_given_beside_them(void **state)
{
	struct mpib_overrides *overrides = open_set(0);

	(void)state;
	assert_int_equal(set(overrides, 1, 2, 3, 0), 0);
	assert_int_equal(set(overrides, 1, 3, AUTO, 0), 0);
	assert_int_equal(set(overrides, 1, 4, 5, 0), 0);
	assert_int_equal(as_an_older_one_reads(1, 2), 3);
	assert_int_equal(as_an_older_one_reads(1, 3), 0);
	assert_null(mpib_overrides_free(overrides));

	overrides = open_set(0);
	assert_int_equal(mpib_overrides_count(overrides), 3);
	assert_int_equal(share_of(overrides, 1, 2), 3);
	assert_int_equal(share_of(overrides, 1, 3), AUTO);
	/* To and fro between the files. */
	assert_int_equal(set(overrides, 1, 2, AUTO, 0), 0);
	assert_int_equal(set(overrides, 1, 3, 7, 0), 0);
	assert_int_equal(as_an_older_one_reads(1, 2), 0);
	assert_int_equal(as_an_older_one_reads(1, 3), 7);
	assert_null(mpib_overrides_free(overrides));

	overrides = open_set(0);
	assert_int_equal(mpib_overrides_count(overrides), 3);
	assert_int_equal(share_of(overrides, 1, 2), AUTO);
	assert_int_equal(share_of(overrides, 1, 3), 7);
	assert_int_equal(unset(overrides, 1, 2), 0);
	assert_false(is_there("overrides.auto"));
	assert_int_equal(unset(overrides, 1, 3), 0);
	assert_null(mpib_overrides_free(overrides));
	overrides = open_set(0);
	assert_int_equal(mpib_overrides_count(overrides), 1);
	assert_null(mpib_overrides_free(overrides));
}

/* The older one was told another share meanwhile, or this one was killed between its files. */
static void of_both_files_what_was_given_holds(void **state)
{
	struct mpib_overrides *overrides = open_set(0);
	struct mpib_cause cause;

	(void)state;
	assert_int_equal(set(overrides, 1, 2, AUTO, 0), 0);
	assert_int_equal(renameat(dir_fd, "overrides.auto", dir_fd, "kept"), 0);
	assert_int_equal(set(overrides, 1, 2, 3, 0), 0);
	assert_null(mpib_overrides_free(overrides));
	assert_int_equal(renameat(dir_fd, "kept", dir_fd, "overrides.auto"), 0);

	overrides = open_set(0);
	assert_int_equal(mpib_overrides_count(overrides), 1);
	assert_int_equal(share_of(overrides, 1, 2), 3);
	assert_int_equal(mpib_overrides_check(overrides, &cause), 0);
	assert_false(is_there("overrides.auto"));
	assert_null(mpib_overrides_free(overrides));
}

static void one_file_of_both_kinds_is_divided(void **state)
{
	struct mpib_overrides *overrides = open_set(0);
	struct mpib_cause cause;

	(void)state;
	assert_int_equal(set(overrides, 1, 2, AUTO, 0), 0);
	assert_null(mpib_overrides_free(overrides));
	assert_int_equal(renameat(dir_fd, "overrides.auto", dir_fd, "overrides"), 0);
	overrides = open_set(0);
	assert_int_equal(share_of(overrides, 1, 2), AUTO);
	assert_int_equal(mpib_overrides_check(overrides, &cause), 0);
	assert_int_equal(as_an_older_one_reads(1, 2), 0);
	assert_true(is_there("overrides.auto"));
	/* And it comes back where somebody takes it away. */
	assert_int_equal(unlinkat(dir_fd, "overrides.auto", 0), 0);
	assert_int_equal(mpib_overrides_check(overrides, &cause), 0);
	assert_true(is_there("overrides.auto"));
	assert_null(mpib_overrides_free(overrides));
}

static void a_second_file_that_cannot_be_written_changes_nothing(void **state)
{
	struct mpib_overrides *overrides = open_set(0);
	struct mpib_cause cause;

	(void)state;
	/* A directory in its place. */
	assert_int_equal(set(overrides, 1, 2, 3, 0), 0);
	assert_int_equal(renameat(dir_fd, "overrides", dir_fd, "kept"), 0);
	assert_int_equal(mkdirat(dir_fd, "overrides", 0700), 0);
	assert_int_equal(set(overrides, 1, 2, AUTO, 0), -EISDIR);
	assert_int_equal(share_of(overrides, 1, 2), 3);
	assert_int_equal(unlinkat(dir_fd, "overrides", AT_REMOVEDIR), 0);
	assert_int_equal(renameat(dir_fd, "kept", dir_fd, "overrides"), 0);
	assert_null(mpib_overrides_free(overrides));
	overrides = open_set(0);
	assert_int_equal(share_of(overrides, 1, 2), 3);

	/* The other way round it holds, and the rest is done later. */
	assert_int_equal(set(overrides, 1, 2, AUTO, 0), 0);
	assert_int_equal(renameat(dir_fd, "overrides.auto", dir_fd, "kept"), 0);
	assert_int_equal(mkdirat(dir_fd, "overrides.auto", 0700), 0);
	assert_int_equal(set(overrides, 1, 2, 4, 0), 0);
	assert_true(mpib_overrides_check(overrides, &cause) < 0);
	assert_int_equal(unlinkat(dir_fd, "overrides.auto", AT_REMOVEDIR), 0);
	assert_int_equal(renameat(dir_fd, "kept", dir_fd, "overrides.auto"), 0);
	assert_int_equal(mpib_overrides_check(overrides, &cause), 0);
	assert_false(is_there("overrides.auto"));
	assert_null(mpib_overrides_free(overrides));
	overrides = open_set(0);
	assert_int_equal(share_of(overrides, 1, 2), 4);
	assert_null(mpib_overrides_free(overrides));
}

static void a_damaged_second_file_costs_the_first_nothing(void **state)
{
	struct mpib_overrides *overrides = open_set(0);
	int fd;

	(void)state;
	assert_int_equal(set(overrides, 1, 2, 3, 0), 0);
	assert_int_equal(set(overrides, 1, 3, AUTO, 0), 0);
	assert_null(mpib_overrides_free(overrides));
	fd = openat(dir_fd, "overrides.auto", O_WRONLY);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "x", 1, 70), 1);
	assert_int_equal(close(fd), 0);
	overrides = open_set(-EBADMSG);
	assert_int_equal(mpib_overrides_count(overrides), 1);
	assert_int_equal(share_of(overrides, 1, 2), 3);
	assert_null(mpib_overrides_free(overrides));
}

static void there_is_a_most_of_both(void **state)
{
	struct mpib_overrides *overrides = open_set(0);

	(void)state;
	for (uint32_t n = 1; n <= MPIB_OVERRIDES_MAX; n++)
		assert_int_equal(set(overrides, n, 1, n % 2 ? 1 : AUTO, 0), 0);
	assert_int_equal(set(overrides, MPIB_OVERRIDES_MAX + 1, 1, AUTO, 0), -ENOSPC);
	assert_null(mpib_overrides_free(overrides));
	overrides = open_set(0);
	assert_int_equal(mpib_overrides_count(overrides), MPIB_OVERRIDES_MAX);
	assert_int_equal(share_of(overrides, 8, 1), AUTO);
	assert_int_equal(share_of(overrides, 9, 1), 1);
	assert_null(mpib_overrides_free(overrides));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(what_was_set_comes_back),
		T(time_ends_them),
		T(there_is_a_most),
		T(each_damaged_byte_makes_the_file_worthless),
		T(each_version_finds_its_own_again),
		T(a_later_version_is_kept_though_shares_are_set),
		T(what_cannot_be_put_aside_is_not_overwritten),
		T(a_planted_file_is_not_read),
		T(what_cannot_be_kept_is_not_in_force),
		T(what_was_unset_does_not_come_back_once_it_can_be_written),
		T(an_older_agent_keeps_what_was_given_beside_them),
		T(of_both_files_what_was_given_holds),
		T(one_file_of_both_kinds_is_divided),
		T(a_second_file_that_cannot_be_written_changes_nothing),
		T(a_damaged_second_file_costs_the_first_nothing),
		T(there_is_a_most_of_both),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
