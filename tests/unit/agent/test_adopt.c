/* SPDX-License-Identifier: Apache-2.0 */
/* The state file: what was put comes back, what was damaged doesn't. */
#include <errno.h>

#include "agent/adopt.h"
#include "tests/unit/agent/tempdir.h"

static char dir[TEMPDIR_MAX];
static int dir_fd;
static struct mpib_adopt_record taken[64];
static unsigned int n_taken;

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

static void take(const struct mpib_adopt_record *record, void *user)
{
	assert_ptr_equal(user, &n_taken);
	assert_true(n_taken < 64);
	taken[n_taken++] = *record;
}

static struct mpib_adopt_result load(void)
{
	struct mpib_adopt_result result;

	n_taken = 0;
	assert_int_equal(mpib_adopt_load(dir_fd, take, &n_taken, &result), 0);
	assert_int_equal(result.n_records, n_taken);
	return result;
}

static struct mpib_adopt *new_file(void)
{
	struct mpib_adopt *adopt = NULL;
	struct mpib_cause cause;

	if (mpib_adopt_new(dir_fd, dir, &adopt, &cause) < 0)
		fail_msg("%s", cause.text);
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

static void commit(struct mpib_adopt *adopt)
{
	struct mpib_cause cause;

	assert_int_equal(mpib_adopt_commit(adopt, &cause), 0);
}

/* Slots 0..9. */
static void make_ten(void)
{
	struct mpib_adopt *adopt = new_file();

	for (uint32_t n = 0; n < 10; n++)
		(void)put(adopt, n);
	commit(adopt);
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

static void records_come_back_in_order_and_cleared_ones_do_not(void **state)
{
	struct mpib_adopt *adopt = new_file();
	uint32_t index[4];

	(void)state;
	for (uint32_t n = 0; n < 4; n++)
		index[n] = put(adopt, n);
	commit(adopt);
	assert_int_equal(mpib_adopt_clear(adopt, index[1]), 0);
	(void)load();
	assert_int_equal(n_taken, 3);
	assert_int_equal(taken[0].slot, 0);
	assert_int_equal(taken[1].slot, 2);
	assert_int_equal(taken[2].conn_id, 0x4D0004);
	assert_true(taken[2].start_time == 1u + ((uint64_t)1 << 40));

	/* the place is used again: the file doesn't grow for ever */
	assert_int_equal(put(adopt, 9), index[1]);
	(void)load();
	assert_int_equal(n_taken, 4);
	assert_int_equal(taken[1].slot, 9);
	assert_null(mpib_adopt_free(adopt));
}

static void an_old_file_stays_until_the_new_one_is_committed(void **state)
{
	struct mpib_adopt *adopt;

	(void)state;
	make_ten();
	adopt = new_file();
	(void)put(adopt, 40);
	(void)load();
	assert_int_equal(n_taken, 10);
	assert_null(mpib_adopt_free(adopt)); /* as if killed here */
	adopt = new_file();
	(void)put(adopt, 41);
	commit(adopt);
	(void)load();
	assert_int_equal(n_taken, 1);
	assert_int_equal(taken[0].slot, 41);
	assert_null(mpib_adopt_free(adopt));
}

static void each_damaged_byte_of_a_record_costs_that_record_alone(void **state)
{
	(void)state;
	make_ten();
	for (off_t byte = 0; byte < 64; byte++) {
		struct mpib_adopt_result result;

		damage(64 + 3 * 64 + byte, 0x20);
		result = load();
		assert_int_equal(result.n_damaged, 1);
		assert_int_equal(n_taken, 9);
		assert_int_equal(taken[3].slot, 4);
		damage(64 + 3 * 64 + byte, 0x20);
	}
	(void)load();
	assert_int_equal(n_taken, 10);
}

static void a_damaged_header_makes_the_file_worthless(void **state)
{
	(void)state;
	make_ten();
	for (off_t byte = 0; byte < 64; byte++) {
		damage(byte, 0x01);
		assert_true(load().damaged);
		assert_int_equal(n_taken, 0);
		damage(byte, 0x01);
	}
}

static void a_file_cut_anywhere_gives_the_records_before_the_cut(void **state)
{
	(void)state;
	make_ten();
	for (off_t len = 64 + 10 * 64; len >= 0; len -= 7) {
		struct mpib_adopt_result result;
		char path[TEMPDIR_MAX + 8];

		(void)snprintf(path, sizeof(path), "%s/state", dir);
		assert_int_equal(truncate(path, len), 0);
		result = load();
		assert_int_equal(n_taken, len < 64 ? 0 : (len - 64) / 64);
		assert_int_equal(result.damaged, len < 64 || (len - 64) % 64 != 0);
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
		assert_int_equal(n_taken, 1);
	}
}

static void a_planted_file_is_not_read(void **state)
{
	struct mpib_adopt_result result;

	(void)state;
	assert_int_equal(symlinkat("/etc/passwd", dir_fd, "state"), 0);
	assert_int_equal(mpib_adopt_load(dir_fd, take, &n_taken, &result), -ELOOP);
	assert_int_equal(unlinkat(dir_fd, "state", 0), 0);
	make_ten();
	assert_int_equal(fchmodat(dir_fd, "state", 0666, 0), 0);
	assert_int_equal(mpib_adopt_load(dir_fd, take, &n_taken, &result), -EPERM);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(no_file_is_no_error),
		T(records_come_back_in_order_and_cleared_ones_do_not),
		T(an_old_file_stays_until_the_new_one_is_committed),
		T(each_damaged_byte_of_a_record_costs_that_record_alone),
		T(a_damaged_header_makes_the_file_worthless),
		T(a_file_cut_anywhere_gives_the_records_before_the_cut),
		T(random_bytes_never_become_a_record),
		T(a_planted_file_is_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
