/* SPDX-License-Identifier: Apache-2.0 */
/* The hint table as the plugin maps it: the input is the file. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/hint.h"
#include "plugin/agent/hint_table.h"
#include "tests/fuzz/fuzz.h"

static char dir[64], path[128];

static void remove_dir(void)
{
	(void)unlink(path);
	(void)rmdir(dir);
}

static void make_dir(void)
{
	if (dir[0])
		return;
	(void)snprintf(dir, sizeof(dir), "/tmp/mpib-fuzz-XXXXXX");
	FUZZ_CHECK(mkdtemp(dir) != NULL);
	(void)snprintf(path, sizeof(path), "%s/%s", dir, MPIB_HINTS_NAME);
	(void)atexit(remove_dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mpib_hint_table table;
	int fd, r;

	make_dir();
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	FUZZ_CHECK(fd >= 0);
	FUZZ_CHECK(write(fd, data, size) == (ssize_t)size);
	(void)close(fd);

	memset(&table, 0, sizeof(table));
	r = mpib_hint_table_map(dir, &table);
	FUZZ_CHECK(r == 0 || r == -EBADMSG);
	if (r < 0) {
		FUZZ_CHECK(!table.header);
		return 0;
	}
	FUZZ_CHECK(table.entries >= 1 && MPIB_HINTS_SIZE(table.entries) <= size);
	for (uint32_t slot = 0; slot < table.entries; slot++) {
		const struct mpib_hint_entry *entry = mpib_hint_table_slot(&table, slot);
		struct mpib_hint_entry copy;
		uint32_t share = 7777;
		bool stable;

		FUZZ_CHECK(entry);
		stable = mpib_hint_read(entry, &share);
		FUZZ_CHECK(stable ? share <= MPIB_SHARE_MAX : share == 7777);
		FUZZ_CHECK(mpib_hint_read_entry(entry, &copy) == stable);
	}
	FUZZ_CHECK(!mpib_hint_table_slot(&table, table.entries));
	mpib_hint_table_unmap(&table);
	return 0;
}
