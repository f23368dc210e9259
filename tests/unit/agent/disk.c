/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/state/hints.h"
#include "common/hint.h"
#include "tests/unit/agent/test.h"

#define PAGE	  4096
#define TABLE_MAX (64u * 1024u)

/* The linker gives these names to the call of the C library, and to the one that stands before it.
 */
#define REAL(type, name, ...)                                                                      \
	type __real_##name(__VA_ARGS__);                                                           \
	type __wrap_##name(__VA_ARGS__)

REAL(int, openat64, int dir_fd, const char *name, int flags, ...);
REAL(ssize_t, pwrite64, int fd, const void *buf, size_t len, off_t at);
REAL(ssize_t, write, int fd, const void *buf, size_t len);
REAL(ssize_t, read, int fd, void *buf, size_t len);
REAL(int, posix_fallocate64, int fd, off_t at, off_t len);
REAL(int, unlinkat, int dir_fd, const char *name, int flags);
REAL(int, renameat, int from_fd, const char *from, int to_fd, const char *to);
REAL(void, mpib_hints_set, struct mpib_hints *hints, uint32_t index, uint32_t share,
     uint32_t src_be, uint32_t dst_be);

struct disk disk = { .dir_fd = -1 };

static struct {
	bool armed;
	unsigned int skip;
	enum disk_fault fault;
	int error;
	unsigned int amount;
} plan;

static struct {
	char bytes[TABLE_MAX];
	ssize_t size; /* 0: there was no table */
} kept;

void disk_arm(unsigned int skip, enum disk_fault fault, int error, unsigned int amount)
{
	plan.armed = true;
	plan.skip = skip;
	plan.fault = fault;
	plan.error = error;
	plan.amount = amount;
	disk.calls = 0;
	disk.hit = disk.torn = false;
	disk.failing = fault < DISK_KILLS;
}

void disk_disarm(void)
{
	disk.failing = false;
	plan.armed = false;
}

/* ---- the table ------------------------------------------------------------------------------ */

static int open_table(int flags)
{
	return __real_openat64(disk.dir_fd, MPIB_HINTS_NAME, flags | O_CLOEXEC);
}

uint32_t disk_read_table(struct mpib_hint_entry *ret, uint32_t max)
{
	struct mpib_hint_header header = { 0 };
	int fd = open_table(O_RDONLY);
	ssize_t n = 0;

	if (fd < 0)
		return 0;
	if (pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
	    header.magic == MPIB_HINT_MAGIC)
		n = pread(fd, ret, max * sizeof(*ret), sizeof(header));
	(void)close(fd);
	if (n < 0)
		return 0;
	max = (uint32_t)((size_t)n / sizeof(*ret));
	return max < header.max_entries ? max : header.max_entries;
}

static void freeze(void)
{
	int before = errno;
	int fd = open_table(O_RDONLY);

	disk.frozen = true;
	kept.size = 0;
	if (fd >= 0) {
		kept.size = pread(fd, kept.bytes, sizeof(kept.bytes), 0);
		assert_int_equal(close(fd), 0);
	}
	assert_true(kept.size >= 0 && kept.size < (ssize_t)sizeof(kept.bytes));
	errno = before;
}

void disk_thaw(void)
{
	int fd;

	assert_true(disk.frozen);
	disk.frozen = false;
	if (!kept.size)
		return;
	fd = open_table(O_WRONLY);
	assert_true(fd >= 0);
	assert_int_equal(__real_pwrite64(fd, kept.bytes, (size_t)kept.size, 0), kept.size);
	assert_int_equal(close(fd), 0);
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* The stores of mpib_hint_write() up to the @n-th. */
static void store_a_part(uint32_t index, uint32_t share, uint32_t src_be, uint32_t dst_be,
			 unsigned int n)
{
	off_t at =
		(off_t)(sizeof(struct mpib_hint_header) + index * sizeof(struct mpib_hint_entry));
	struct mpib_hint_entry entry;
	int fd = open_table(O_RDWR);

	if (fd < 0)
		return; /* deleted under the agent */
	assert_int_equal(pread(fd, &entry, sizeof(entry), at), sizeof(entry));
	entry.seq |= 1;
	if (n > 0)
		entry.sup_bw = share;
	if (n > 1)
		entry.src_ip = src_be;
	if (n > 2)
		entry.dst_ip = dst_be;
	assert_int_equal(__real_pwrite64(fd, &entry, sizeof(entry), at), sizeof(entry));
	assert_int_equal(close(fd), 0);
}

enum verdict {
	GOES,	  /* happens */
	DOES_NOT, /* fails with errno */
	GOES_AND_FAILS,
	GOES_AND_DIES,
	IN_PART, /* plan.amount of it, and is short */
	IN_PART_AND_DIES,
};

static enum verdict judge(bool write)
{
	static const enum verdict verdicts[] = {
		[DISK_FAILS] = DOES_NOT,
		[DISK_FAILS_LATE] = GOES_AND_FAILS,
		[DISK_SHORT] = IN_PART,
		[DISK_KILLS] = DOES_NOT,
		[DISK_KILLS_LATE] = GOES_AND_DIES,
		[DISK_KILLS_AMIDST] = IN_PART_AND_DIES,
	};

	if (disk.frozen) {
		errno = EIO;
		return DOES_NOT;
	}
	if (plan.armed && disk.calls++ == plan.skip) {
		plan.armed = false;
		disk.hit = true;
		if (plan.fault == DISK_KILLS)
			freeze();
		errno = plan.error;
		return verdicts[plan.fault];
	}
	if (disk.broken && write) {
		errno = EIO;
		return DOES_NOT;
	}
	return GOES;
}

/* After the call: its result, or the fault's. */
static long end(enum verdict verdict, long result)
{
	if (verdict == GOES_AND_DIES || verdict == IN_PART_AND_DIES)
		freeze();
	if (verdict != GOES_AND_FAILS)
		return result;
	errno = plan.error;
	return -1;
}

/* True where the call doesn't happen, with errno: one that has no parts doesn't happen in part. */
static bool skips(enum verdict verdict)
{
	if (verdict == IN_PART_AND_DIES)
		freeze();
	return verdict == DOES_NOT || verdict == IN_PART || verdict == IN_PART_AND_DIES;
}

int __wrap_openat64(int dir_fd, const char *name, int flags, ...)
{
	enum verdict verdict = judge(flags & O_CREAT);
	int fd;

	if (skips(verdict))
		return -1;
	if (disk.full && flags & O_CREAT && faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW)) {
		errno = ENOSPC;
		return -1;
	}
	fd = __real_openat64(dir_fd, name, flags, 0600);
	if (fd >= 0 && verdict == GOES_AND_FAILS)
		(void)close(fd);
	return (int)end(verdict, fd);
}

/* True where @len bytes at @at need a block that the file doesn't have. */
static bool needs_block(int fd, size_t len, off_t at)
{
	struct stat st;

	return fstat(fd, &st) == 0 && at + (off_t)len > (st.st_size + PAGE - 1) / PAGE * PAGE;
}

static size_t part_of(enum verdict verdict, size_t len)
{
	disk.torn = verdict == IN_PART_AND_DIES;
	return plan.amount % len;
}

ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t at)
{
	enum verdict verdict = judge(true);

	if (verdict == DOES_NOT)
		return -1;
	if (disk.full && needs_block(fd, len, at)) {
		errno = ENOSPC;
		return -1;
	}
	if (verdict == IN_PART || verdict == IN_PART_AND_DIES)
		len = part_of(verdict, len);
	return end(verdict, __real_pwrite64(fd, buf, len, at));
}

ssize_t __wrap_write(int fd, const void *buf, size_t len)
{
	enum verdict verdict = judge(true);

	if (verdict == DOES_NOT)
		return -1;
	if (disk.full) {
		errno = ENOSPC;
		return -1;
	}
	if (verdict == IN_PART || verdict == IN_PART_AND_DIES)
		len = part_of(verdict, len);
	return end(verdict, __real_write(fd, buf, len));
}

ssize_t __wrap_read(int fd, void *buf, size_t len)
{
	enum verdict verdict = judge(false);

	if (verdict == DOES_NOT)
		return -1;
	if (verdict == IN_PART || verdict == IN_PART_AND_DIES)
		len = len > 1 ? 1 + part_of(verdict, len - 1) : len;
	return end(verdict, __real_read(fd, buf, len));
}

int __wrap_posix_fallocate64(int fd, off_t at, off_t len)
{
	enum verdict verdict = judge(true);
	int r;

	if (skips(verdict))
		return errno;
	if (disk.full && needs_block(fd, (size_t)len, at))
		return ENOSPC;
	r = __real_posix_fallocate64(fd, at, len);
	return end(verdict, 0) < 0 ? plan.error : r;
}

int __wrap_unlinkat(int dir_fd, const char *name, int flags)
{
	enum verdict verdict = judge(true);

	if (skips(verdict))
		return -1;
	return (int)end(verdict, __real_unlinkat(dir_fd, name, flags));
}

int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	enum verdict verdict = judge(true);

	if (skips(verdict))
		return -1;
	return (int)end(verdict, __real_renameat(from_fd, from, to_fd, to));
}

void __wrap_mpib_hints_set(struct mpib_hints *hints, uint32_t index, uint32_t share,
			   uint32_t src_be, uint32_t dst_be)
{
	/* Stores can't fail; between them the agent can die. */
	bool dies =
		plan.armed && disk.calls == plan.skip && !disk.frozen && plan.fault >= DISK_KILLS;

	if (dies) {
		disk.hit = true;
		plan.armed = false;
		if (plan.fault == DISK_KILLS_AMIDST)
			store_a_part(index, share, src_be, dst_be, plan.amount % 4);
		if (plan.fault == DISK_KILLS_LATE)
			__real_mpib_hints_set(hints, index, share, src_be, dst_be);
		freeze();
	}
	if (plan.armed)
		disk.calls++;
	__real_mpib_hints_set(hints, index, share, src_be, dst_be);
}
