/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's table as the plugin maps it: what is in the file is not trusted. */
#include "tests/unit/plugin/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/hint.h"
#include "plugin/agent/hint_table.h"

static char dir[64], path[128];

static int make_dir(void **state)
{
	(void)state;
	(void)snprintf(dir, sizeof(dir), "/tmp/mpib-hints-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/%s", dir, MPIB_HINTS_NAME);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	(void)unlink(path);
	(void)rmdir(path);
	return rmdir(dir);
}

/* A file of @size bytes whose header says @magic and @entries. */
static void make_file(uint32_t magic, uint32_t entries, size_t size)
{
	struct mpib_hint_header header = { .magic = magic, .max_entries = entries };
	size_t len = size < sizeof(header) ? size : sizeof(header);
	int fd;

	(void)unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, &header, len), len);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	(void)close(fd);
}

static int map(struct mpib_hint_table *table)
{
	memset(table, 0, sizeof(*table));
	return mpib_hint_table_map(dir, table);
}

static void test_good(void **state)
{
	struct mpib_hint_table table;

	(void)state;
	make_file(MPIB_HINT_MAGIC, 256, MPIB_HINTS_SIZE(256));
	assert_int_equal(map(&table), 0);
	assert_int_equal(table.entries, 256);
	assert_non_null(mpib_hint_table_slot(&table, 0));
	assert_ptr_equal(mpib_hint_table_slot(&table, 255), mpib_hint_table_slot(&table, 0) + 255);
	assert_null(mpib_hint_table_slot(&table, 256));
	assert_null(mpib_hint_table_slot(&table, UINT32_MAX));
	assert_true(mpib_hint_table_is_current(dir, &table));
	mpib_hint_table_unmap(&table);
	assert_null(mpib_hint_table_slot(&table, 0));
	mpib_hint_table_unmap(&table); /* twice is fine */
}

static void test_wrong(void **state)
{
	static const struct {
		uint32_t magic, entries;
		size_t size;
	} rows[] = {
		{ MPIB_HINT_MAGIC + 1, 256, MPIB_HINTS_SIZE(256) },
		{ 0, 256, MPIB_HINTS_SIZE(256) },
		{ MPIB_HINT_MAGIC, 0, MPIB_HINTS_SIZE(256) },
		{ MPIB_HINT_MAGIC, UINT32_MAX, MPIB_HINTS_SIZE(256) },
		{ MPIB_HINT_MAGIC, MPIB_HINT_ENTRIES_MAX + 1, MPIB_HINTS_SIZE(256) },
		{ MPIB_HINT_MAGIC, 256, 0 },
		{ MPIB_HINT_MAGIC, 256, 1 },
		{ MPIB_HINT_MAGIC, 256, sizeof(struct mpib_hint_header) },
		{ MPIB_HINT_MAGIC, 256, MPIB_HINTS_SIZE(1) - 1 },
		{ MPIB_HINT_MAGIC, 256, MPIB_HINTS_SIZE(MPIB_HINT_ENTRIES_MAX) + 1 },
		{ MPIB_HINT_MAGIC, 256, (size_t)1 << 40 },
	};
	struct mpib_hint_table table;

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		make_file(rows[k].magic, rows[k].entries, rows[k].size);
		if (map(&table) != -EBADMSG)
			fail_msg("row %zu is taken", k);
		assert_null(table.header);
	}
}

/* A header that promises more than the file holds: the file decides, to the last whole slot. */
static void test_promises_too_much(void **state)
{
	struct mpib_hint_table table;
	struct mpib_hint_entry entry;

	(void)state;
	for (size_t extra = 0; extra < 16; extra++) {
		make_file(MPIB_HINT_MAGIC, MPIB_HINT_ENTRIES_MAX, MPIB_HINTS_SIZE(3) + extra);
		assert_int_equal(map(&table), 0);
		assert_int_equal(table.entries, 3);
		assert_non_null(mpib_hint_table_slot(&table, 2));
		assert_true(mpib_hint_read_entry(mpib_hint_table_slot(&table, 2), &entry));
		assert_null(mpib_hint_table_slot(&table, 3));
		mpib_hint_table_unmap(&table);
	}
}

static void test_no_plain_file(void **state)
{
	struct mpib_hint_table table;

	(void)state;
	(void)unlink(path);
	assert_int_equal(map(&table), -ENOENT);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(map(&table), -EBADMSG);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(symlink("/dev/zero", path), 0);
	assert_int_equal(map(&table), -ELOOP);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0); /* opening it must not wait for a writer */
	assert_int_equal(map(&table), -EBADMSG);
}

static void test_replaced(void **state)
{
	struct mpib_hint_table table;

	(void)state;
	make_file(MPIB_HINT_MAGIC, 4, MPIB_HINTS_SIZE(4));
	assert_int_equal(map(&table), 0);
	assert_int_equal(truncate(path, (off_t)MPIB_HINTS_SIZE(8)), 0);
	assert_false(mpib_hint_table_is_current(dir, &table)); /* it has grown */
	(void)unlink(path);
	assert_true(mpib_hint_table_is_current(dir, &table)); /* nothing to change to */
	make_file(MPIB_HINT_MAGIC, 4, MPIB_HINTS_SIZE(4));
	assert_false(mpib_hint_table_is_current(dir, &table));
	mpib_hint_table_unmap(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_good, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_wrong, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_promises_too_much, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_no_plain_file, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_replaced, make_dir, remove_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
