/* SPDX-License-Identifier: Apache-2.0 */
/* The state file: what was put comes back, what was damaged doesn't. */
#include <errno.h>
#include <stddef.h>

#include "agent/base/crc32.h"
#include "agent/state/adopt.h"
#include "tests/unit/agent/tempdir.h"

static char dir[TEMPDIR_MAX];
static int dir_fd;
static struct mpib_adopt_record visited[64];
static unsigned int n_visited;

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

static enum mpib_adopt_visit visit(const struct mpib_adopt_record *record, uint32_t index,
				   void *user)
{
	assert_ptr_equal(user, &n_visited);
	assert_true(n_visited < 64);
	(void)index;
	visited[n_visited++] = *record;
	return MPIB_ADOPT_STAYS;
}

static struct mpib_adopt *open_state(struct mpib_adopt_result *ret)
{
	struct mpib_adopt *adopt = NULL;

	n_visited = 0;
	assert_int_equal(mpib_adopt_open(dir_fd, dir, &adopt, ret), 0);
	mpib_adopt_each(adopt, true, visit, &n_visited);
	assert_int_equal(ret->n_records, n_visited);
	return adopt;
}

/* As a start that dies before it wrote anything. */
static struct mpib_adopt_result load(void)
{
	struct mpib_adopt_result result;

	assert_null(mpib_adopt_free(open_state(&result)));
	return result;
}

static void save(struct mpib_adopt *adopt)
{
	struct mpib_cause cause;
	bool made;

	if (mpib_adopt_save(adopt, false, &made, &cause) < 0)
		fail_msg("%s", cause.text);
	/* A new file says that it is incomplete until it isn't. */
	assert_int_equal(mpib_adopt_mark(adopt, false), 0);
}

static struct mpib_adopt *new_file(void)
{
	struct mpib_adopt_result result;
	struct mpib_adopt *adopt;

	(void)unlinkat(dir_fd, "state", 0);
	adopt = open_state(&result);
	save(adopt);
	return adopt;
}

static uint32_t put(struct mpib_adopt *adopt, uint32_t slot)
{
	struct mpib_adopt_record record = {
		.slot = slot,
		.pid = 77,
		.start_time = 1u + ((uint64_t)1 << 40),
		.uid = 5,
		.conn_id = 0x4D0001 + slot,
		.sout_src_be = 1,
		.sout_dst_be = 2,
	};
	uint32_t index = UINT32_MAX;

	assert_int_equal(mpib_adopt_put(adopt, &record, &index), 0);
	return index;
}

/* Slots 0..9. */
static void make_ten(void)
{
	struct mpib_adopt *adopt = new_file();

	for (uint32_t n = 0; n < 10; n++)
		(void)put(adopt, n);
	assert_null(mpib_adopt_free(adopt));
}

static void damage(off_t at, uint8_t mask)
{
	int fd = openat(dir_fd, "state", O_RDWR);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= mask;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	assert_int_equal(close(fd), 0);
}

static void no_file_is_no_error(void **state)
{
	(void)state;
	assert_true(load().missing);
}

static void records_come_back_the_newest_first_and_cleared_ones_do_not(void **state)
{
	struct mpib_adopt *adopt = new_file();
	uint32_t index[4];

	(void)state;
	for (uint32_t n = 0; n < 4; n++)
		index[n] = put(adopt, n);
	assert_int_equal(mpib_adopt_clear(adopt, index[1]), 0);
	(void)load();
	assert_int_equal(n_visited, 3);
	assert_int_equal(visited[0].conn_id, 0x4D0004);
	assert_int_equal(visited[1].slot, 2);
	assert_int_equal(visited[2].slot, 0);
	assert_true(visited[2].start_time == 1u + ((uint64_t)1 << 40));

	/* the place is used again: the file doesn't grow for ever */
	assert_int_equal(put(adopt, 9), index[1]);
	(void)load();
	assert_int_equal(n_visited, 4);
	assert_int_equal(visited[0].slot, 9);
	assert_null(mpib_adopt_free(adopt));
}

static void each_damaged_byte_of_a_record_costs_that_record_alone(void **state)
{
	(void)state;
	make_ten();
	for (off_t byte = 0; byte < 64; byte++) {
		struct mpib_adopt_result result;

		damage(64 + 4 * 64 + byte, 0x20);
		result = load();
		assert_int_equal(result.n_damaged, 1);
		assert_int_equal(n_visited, 9);
		assert_int_equal(visited[5].slot, 4);
		assert_int_equal(visited[6].slot, 2);
		damage(64 + 4 * 64 + byte, 0x20);
	}
	(void)load();
	assert_int_equal(n_visited, 10);
}

static void under_a_damaged_header_no_record_names_a_process(void **state)
{
	(void)state;
	make_ten();
	for (off_t byte = 0; byte < 64; byte++) {
		struct mpib_adopt_result result;

		damage(byte, 0x01);
		result = load();
		assert_true(result.damaged);
		assert_false(mpib_adopt_names_processes(&result));
		assert_int_equal(n_visited, 10);
		damage(byte, 0x01);
	}
}

static void a_file_cut_anywhere_gives_the_records_before_the_cut(void **state)
{
	(void)state;
	make_ten();
	for (off_t len = 64 + 11 * 64; len >= 0; len -= 7) {
		struct mpib_adopt_result result;
		char path[TEMPDIR_MAX + 8];

		(void)snprintf(path, sizeof(path), "%s/state", dir);
		assert_int_equal(truncate(path, len), 0);
		result = load();
		assert_int_equal(n_visited, len < 128 ? 0 : (len - 128) / 64);
		assert_int_equal(result.damaged, len > 0 && len < 64);
		assert_int_equal(result.missing, len == 0);
		assert_int_equal(result.n_damaged, len >= 64 && (len - 64) % 64 != 0);
	}
}

static void random_bytes_never_become_a_record(void **state)
{
	unsigned int seed = 3;

	(void)state;
	for (unsigned int round = 0; round < 200; round++) {
		char bytes[64 * 9];
		int fd;

		make_ten();
		for (size_t n = 0; n < sizeof(bytes); n++)
			bytes[n] = (char)rand_r(&seed);
		fd = openat(dir_fd, "state", O_RDWR);
		assert_int_equal(pwrite(fd, bytes, sizeof(bytes), 64), sizeof(bytes));
		assert_int_equal(close(fd), 0);
		assert_int_equal(load().n_damaged, 9);
		assert_int_equal(n_visited, 2);
	}
}

static void another_version_is_not_read_and_replaced(void **state)
{
	struct mpib_adopt_header header;
	struct mpib_adopt_result result;
	struct mpib_adopt *adopt;
	int fd;

	(void)state;
	make_ten();
	fd = openat(dir_fd, "state", O_RDWR);
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	header.version = 2;
	header.checksum = mpib_crc32(&header, offsetof(struct mpib_adopt_header, checksum));
	assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	assert_int_equal(close(fd), 0);

	adopt = open_state(&result);
	assert_true(result.unknown);
	assert_int_equal(n_visited, 0);
	save(adopt);
	(void)put(adopt, 5);
	assert_null(mpib_adopt_free(adopt));
	result = load();
	assert_true(mpib_adopt_names_processes(&result));
	assert_int_equal(n_visited, 1);
}

static void a_marked_file_is_incomplete_until_the_mark_is_gone(void **state)
{
	struct mpib_adopt *adopt = new_file();
	struct mpib_adopt_result result;

	(void)state;
	(void)put(adopt, 1);
	assert_int_equal(mpib_adopt_mark(adopt, true), 0);
	assert_null(mpib_adopt_free(adopt));
	adopt = open_state(&result);
	assert_true(result.incomplete);
	assert_int_equal(n_visited, 1);
	assert_true(load().incomplete); /* a start that died */
	n_visited = 0;
	save(adopt);
	assert_null(mpib_adopt_free(adopt));
	assert_false(load().incomplete);
	assert_int_equal(n_visited, 1);
}

static void a_planted_file_is_not_read(void **state)
{
	(void)state;
	assert_int_equal(symlinkat("/etc/passwd", dir_fd, "state"), 0);
	assert_int_equal(load().error, -ELOOP);
	assert_int_equal(unlinkat(dir_fd, "state", 0), 0);
	make_ten();
	assert_int_equal(fchmodat(dir_fd, "state", 0666, 0), 0);
	assert_int_equal(load().error, -EPERM);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(no_file_is_no_error),
		T(records_come_back_the_newest_first_and_cleared_ones_do_not),
		T(each_damaged_byte_of_a_record_costs_that_record_alone),
		T(under_a_damaged_header_no_record_names_a_process),
		T(a_file_cut_anywhere_gives_the_records_before_the_cut),
		T(random_bytes_never_become_a_record),
		T(another_version_is_not_read_and_replaced),
		T(a_marked_file_is_incomplete_until_the_mark_is_gone),
		T(a_planted_file_is_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
