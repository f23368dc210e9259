/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of the plugin's counters, on a memfd made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/netperf/counters.h"

#define ENTRIES 4u

struct area {
	struct mpib_counters_header header;
	struct mpib_counter_entry entry[ENTRIES];
};

static struct area *publish(int *ret_fd)
{
	struct area *area;
	int fd = memfd_create(MPIB_COUNTERS_NAME, MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, sizeof(*area)), 0);
	area = mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(area != MAP_FAILED);
	area->header = (struct mpib_counters_header){
		.version = MPIB_COUNTERS_VERSION,
		.entries = ENTRIES,
		.entry_size = sizeof(struct mpib_counter_entry),
		.magic = MPIB_COUNTERS_MAGIC,
	};
	area->entry[2] = (struct mpib_counter_entry){
		.kind = MPIB_COUNTER_SEND,
		.conn_id = 77,
		.mode = 1,
		.path = 1,
		.sout_local = htole32(0x0100000a),
		.sout_remote = htole32(0x0200000a),
		.qps = { 2, 4 },
		.share = 256,
		.rail = { { 1000, 3, 4, 5 }, { 2000, 6, 7, 8 } },
		.messages = 9,
		.stalls = 10,
		.flushes = 11,
		.rails_up = 1,
		.losses = { 12, 13 },
		.returns = { 14, 15 },
		.parts_again = { 16, 17 },
		.state = MPIB_COUNTER_LIVE,
	};
	area->entry[3] = area->entry[2];
	area->entry[3].state = MPIB_COUNTER_FREE;
	*ret_fd = fd;
	return area;
}

static void live_entries_are_told_whole(void **state)
{
	static const char want[] =
		"{\"kind\":\"send\",\"conn_id\":77,\"mode\":\"advanced\",\"path\":\"inter\","
		"\"sout_local\":\"10.0.0.1\",\"sout_remote\":\"10.0.0.2\",\"qps\":[2,4],"
		"\"share\":256,\"messages\":9,\"stalls\":10,"
		"\"flushes\":11,\"rails\":["
		"{\"bytes\":1000,\"requests\":3,\"completions\":4,\"cts\":5},"
		"{\"bytes\":2000,\"requests\":6,\"completions\":7,\"cts\":8}]}";
	struct np_counters counters;
	struct np_failover failover;
	uint64_t rails[2];
	struct area *area;
	char *text;
	int fd;

	(void)state;
	area = publish(&fd);
	assert_true(np_counters_open(&counters));
	text = np_counters_text(&counters);
	assert_string_equal(text, want);
	free(text);
	np_counters_rails(&counters, rails);
	assert_int_equal(rails[0], 1000);
	assert_int_equal(rails[1], 2000);
	assert_false(np_counters_failover(&counters, &failover)); /* an older plugin's padding */
	np_counters_close(&counters);
	(void)munmap(area, sizeof(*area));
	(void)close(fd);
}

static void losses_are_told_where_they_are_counted(void **state)
{
	static const char want[] = "],\"rails_up\":1,\"losses\":[12,13],\"returns\":[14,15],"
				   "\"parts_again\":[16,17]}";
	struct np_counters counters;
	struct np_failover failover;
	struct area *area;
	char *text;
	int fd;

	(void)state;
	area = publish(&fd);
	area->header.features = MPIB_COUNTERS_HAVE_FAILOVER;
	area->entry[1] = area->entry[2];
	assert_true(np_counters_open(&counters));
	text = np_counters_text(&counters);
	assert_non_null(strstr(text, want));
	free(text);
	assert_true(np_counters_failover(&counters, &failover));
	for (int rail = 0; rail < 2; rail++) {
		assert_int_equal(failover.losses[rail], 2 * (12 + rail));
		assert_int_equal(failover.returns[rail], 2 * (14 + rail));
		assert_int_equal(failover.again[rail], 2 * (16 + rail));
	}
	np_counters_close(&counters);
	(void)munmap(area, sizeof(*area));
	(void)close(fd);
}

static void other_forms_are_not_read(void **state)
{
	struct np_counters counters;
	struct area *area;
	int fd;

	(void)state;
	area = publish(&fd);
	area->header.entries = ENTRIES + 1; /* more than the file holds */
	assert_false(np_counters_open(&counters));
	area->header.entries = ENTRIES;
	area->header.entry_size = 8;
	assert_false(np_counters_open(&counters));
	area->header.entry_size = sizeof(struct mpib_counter_entry);
	area->header.version++;
	assert_false(np_counters_open(&counters));
	area->header.version--;
	area->header.magic = 0;
	assert_false(np_counters_open(&counters));
	area->header.magic = MPIB_COUNTERS_MAGIC;
	assert_true(np_counters_open(&counters));
	np_counters_close(&counters);
	(void)munmap(area, sizeof(*area));
	(void)close(fd);
}

static void without_a_memfd_there_are_none(void **state)
{
	struct np_counters counters;

	(void)state;
	assert_false(np_counters_open(&counters));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(live_entries_are_told_whole),
		cmocka_unit_test(losses_are_told_where_they_are_counted),
		cmocka_unit_test(other_forms_are_not_read),
		cmocka_unit_test(without_a_memfd_there_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
