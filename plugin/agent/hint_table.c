/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/agent/hint_table.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/hint.h"

#define SYSTEM_UID_END 1000  /* as in Debian's adduser.conf */
#define OVERFLOW_UID   65534 /* user namespaces: an owner without a mapping */
#define PATH_SIZE      (PATH_MAX + sizeof(MPIB_HINTS_NAME) + 1)

static void hints_path(const char *dir, char path[PATH_SIZE])
{
	(void)snprintf(path, PATH_SIZE, "%s/%s", dir, MPIB_HINTS_NAME);
}

/* Another user could make the directory first, and truncate a mapped table under a job. The agent's
 * own user is root or a system user; a job may run its own agent. In a container the owner can be
 * one that has no name there. */
static bool trusted(const struct stat *st)
{
	return st->st_uid < SYSTEM_UID_END || st->st_uid == geteuid() || st->st_uid == OVERFLOW_UID;
}

static int map_fd(int fd, struct mpib_hint_table *ret)
{
	const struct mpib_hint_header *header;
	struct stat st;
	uint32_t entries;
	size_t size;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!trusted(&st))
		return -EPERM;
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)MPIB_HINTS_SIZE(1) ||
	    st.st_size > (off_t)MPIB_HINTS_SIZE(MPIB_HINT_ENTRIES_MAX))
		return -EBADMSG;

	size = (size_t)st.st_size;
	header = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (header == MAP_FAILED)
		return -errno;
	entries = mpib_hint_load(&header->max_entries);
	if (mpib_hint_load(&header->magic) != MPIB_HINT_MAGIC || entries == 0 ||
	    entries > MPIB_HINT_ENTRIES_MAX) {
		(void)munmap((void *)(uintptr_t)header, size);
		return -EBADMSG;
	}
	if (MPIB_HINTS_SIZE(entries) > size)
		entries = (uint32_t)((size - sizeof(*header)) / sizeof(struct mpib_hint_entry));

	*ret = (struct mpib_hint_table){ .header = header,
					 .size = size,
					 .entries = entries,
					 .dev = st.st_dev,
					 .ino = st.st_ino };
	return 0;
}

int mpib_hint_table_map(const char *dir, struct mpib_hint_table *ret)
{
	int dir_fd, fd, r;
	struct stat st;

	dir_fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir_fd < 0)
		return -errno;
	if (fstat(dir_fd, &st) < 0) {
		r = -errno;
		goto close_dir;
	}
	if (!trusted(&st) || st.st_mode & (S_IWGRP | S_IWOTH)) {
		r = -EPERM;
		goto close_dir;
	}
	fd = openat(dir_fd, MPIB_HINTS_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) {
		r = -errno;
		goto close_dir;
	}
	r = map_fd(fd, ret);
	(void)close(fd);

close_dir:
	(void)close(dir_fd);
	return r;
}

void mpib_hint_table_unmap(struct mpib_hint_table *table)
{
	if (table->header)
		(void)munmap((void *)(uintptr_t)table->header, table->size);
	*table = (struct mpib_hint_table){ .header = NULL };
}

bool mpib_hint_table_is_current(const char *dir, const struct mpib_hint_table *table)
{
	char path[PATH_SIZE];
	struct stat st;

	hints_path(dir, path);
	if (lstat(path, &st) < 0)
		return true; /* nothing there to change to */
	return table->header && st.st_dev == table->dev && st.st_ino == table->ino &&
	       st.st_size == (off_t)table->size;
}

const struct mpib_hint_entry *mpib_hint_table_slot(const struct mpib_hint_table *table,
						   uint32_t slot)
{
	const struct mpib_hint_entry *entries = (const void *)(table->header + 1);

	return table->header && slot < table->entries ? &entries[slot] : NULL;
}
