/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/state/hints.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/state/dir.h"
#include "common/cleanup.h"
#include "common/hint.h"
#include "common/share.h"

#define NEW_NAME MPIB_HINTS_NAME ".new"

struct mpib_hints {
	int fd;
	char *dir; /* for messages */
	uint32_t entries;
	struct mpib_hint_header *header; /* the map; the entries follow it */
};

MPIB_DEFINE_CLEANUP(struct mpib_hints *, mpib_hints_free);

static struct mpib_hint_entry *entry_at(const struct mpib_hints *hints, uint32_t index)
{
	assert(index < hints->entries);
	return (struct mpib_hint_entry *)(void *)(hints->header + 1) + index;
}

struct mpib_hints *mpib_hints_free(struct mpib_hints *hints)
{
	if (!hints)
		return NULL;

	if (hints->header)
		(void)munmap(hints->header, MPIB_HINTS_SIZE(hints->entries));
	if (hints->fd >= 0)
		(void)close(hints->fd);
	free(hints->dir);
	free(hints);
	return NULL;
}

static int open_file(int dir_fd, struct mpib_hints *hints, off_t *ret_size,
		     struct mpib_cause *cause)
{
	struct stat st;
	int r;

	hints->fd = openat(dir_fd, MPIB_HINTS_NAME,
			   O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
	if (hints->fd < 0 || fstat(hints->fd, &st) < 0)
		return mpib_cause_set(cause, -errno, "can't open %s/" MPIB_HINTS_NAME ": %s",
				      hints->dir, strerror(errno));

	r = mpib_dir_check_file(&st, hints->dir, MPIB_HINTS_NAME, cause);
	if (r < 0)
		return r;

	if (fchmod(hints->fd, 0644) < 0)
		return mpib_cause_set(cause, -errno,
				      "can't set the mode of %s/" MPIB_HINTS_NAME ": %s",
				      hints->dir, strerror(errno));

	*ret_size = st.st_size;
	return 0;
}

/* How many slots the file has already; 0 for a new one, or one that its maker died over. */
static int read_entries(const struct mpib_hints *hints, off_t size, uint32_t *ret,
			struct mpib_cause *cause)
{
	struct mpib_hint_header header = { 0 };
	ssize_t n = pread(hints->fd, &header, sizeof(header), 0);

	if (n < 0)
		return mpib_cause_set(cause, -errno, "can't read %s/" MPIB_HINTS_NAME ": %s",
				      hints->dir, strerror(errno));
	if (header.magic == 0) {
		*ret = 0;
		return 0;
	}

	if (header.magic != MPIB_HINT_MAGIC || header.max_entries < 1 ||
	    header.max_entries > MPIB_HINT_ENTRIES_MAX ||
	    (uint64_t)size < MPIB_HINTS_SIZE(header.max_entries))
		return mpib_cause_set(cause, -EBADMSG,
				      "%s/" MPIB_HINTS_NAME " is not a hint table of this version; "
				      "when no job runs, remove it and start again",
				      hints->dir);

	*ret = header.max_entries;
	return 0;
}

/* Allocates and maps a table of @entries slots. A file system that is full says so here, and not
 * later to a job by SIGBUS. */
static int map_file(struct mpib_hints *hints, uint32_t entries, struct mpib_cause *cause)
{
	size_t size = MPIB_HINTS_SIZE(entries);
	void *map;
	int r;

	r = -posix_fallocate(hints->fd, 0, (off_t)size);
	if (r < 0)
		return mpib_cause_set(cause, r,
				      "can't allocate %zu bytes for %s/" MPIB_HINTS_NAME ": %s",
				      size, hints->dir, strerror(-r));

	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, hints->fd, 0);
	if (map == MAP_FAILED)
		return mpib_cause_set(cause, -errno, "can't map %s/" MPIB_HINTS_NAME ": %s",
				      hints->dir, strerror(errno));

	if (hints->header)
		(void)munmap(hints->header, MPIB_HINTS_SIZE(hints->entries));
	hints->header = map;
	hints->entries = entries;
	return 0;
}

/* A writer that died half way left a count odd: what it wrote may be mixed, so the slot keeps its
 * addresses (the state file knows better) and gets a share anew from whoever owns it. */
static void mend(struct mpib_hints *hints)
{
	for (uint32_t index = 0; index < hints->entries; index++) {
		struct mpib_hint_entry *entry = entry_at(hints, index);

		if (mpib_hint_load(&entry->seq) & 1)
			mpib_hint_write_timed(entry, mpib_hint_load(&entry->sup_bw),
					      mpib_hint_load(&entry->src_ip),
					      mpib_hint_load(&entry->dst_ip),
					      mpib_hint_load(&entry->seq) & MPIB_HINT_TIMED);
	}
}

/* Header of this incarnation; the magic comes last, so that no reader takes a half-made table. */
static void announce(struct mpib_hints *hints)
{
	uint32_t generation = mpib_hint_load(&hints->header->generation) + 1;

	mpib_hint_store(&hints->header->max_entries, hints->entries);
	mpib_hint_store(&hints->header->generation, generation ? generation : 1);
	mpib_hint_beat(hints->header);
	mpib_hint_store(&hints->header->magic, MPIB_HINT_MAGIC);
}

int mpib_hints_open(int dir_fd, const char *dir, uint32_t entries, struct mpib_hints **ret,
		    struct mpib_cause *cause)
{
	mpib_cleanup(mpib_hints_freep) struct mpib_hints *hints = calloc(1, sizeof(*hints));
	uint32_t present = 0;
	off_t size = 0;
	int r;

	assert(entries >= 1 && entries <= MPIB_HINT_ENTRIES_MAX);
	if (!hints)
		return mpib_cause_set(cause, -ENOMEM, "out of memory");

	hints->fd = -1;
	hints->dir = strdup(dir);
	if (!hints->dir)
		return mpib_cause_set(cause, -ENOMEM, "out of memory");

	r = open_file(dir_fd, hints, &size, cause);
	if (r < 0)
		return r;

	r = read_entries(hints, size, &present, cause);
	if (r < 0)
		return r;

	r = map_file(hints, entries > present ? entries : present, cause);
	if (r < 0)
		return r;

	mend(hints);
	announce(hints);
	*ret = mpib_steal_ptr(hints);
	return 0;
}

int mpib_hints_grow(struct mpib_hints *hints, uint32_t entries, struct mpib_cause *cause)
{
	int r;

	assert(entries <= MPIB_HINT_ENTRIES_MAX);
	if (entries <= hints->entries)
		return 0;

	r = map_file(hints, entries, cause);
	if (r < 0)
		return r;

	mpib_hint_store(&hints->header->max_entries, entries);
	return 0;
}

bool mpib_hints_is_current(const struct mpib_hints *hints, int dir_fd)
{
	struct stat named;
	struct stat open;

	return fstatat(dir_fd, MPIB_HINTS_NAME, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstat(hints->fd, &open) == 0 && named.st_dev == open.st_dev &&
	       named.st_ino == open.st_ino;
}

/* An empty file under another name. */
static int open_new(int dir_fd, int *ret_fd)
{
	if (unlinkat(dir_fd, NEW_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	*ret_fd =
		openat(dir_fd, NEW_NAME, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (*ret_fd < 0)
		return -errno;
	return fchmod(*ret_fd, 0644) < 0 ? -errno : 0;
}

/* What jobs read of @from, into @to, whose magic comes last. */
static void copy_table(const struct mpib_hints *from, struct mpib_hints *to)
{
	assert(from->header && to->header);
	memcpy(to->header + 1, from->header + 1,
	       MPIB_HINTS_SIZE(from->entries) - sizeof(*from->header));
	to->header->generation = mpib_hints_generation(from);
	to->header->heartbeat = mpib_hints_heartbeat(from);
	announce(to);
}

int mpib_hints_remake(struct mpib_hints *hints, int dir_fd, struct mpib_cause *cause)
{
	struct mpib_hints fresh = { .fd = -1, .dir = hints->dir };
	int r = open_new(dir_fd, &fresh.fd);

	if (r < 0)
		(void)mpib_cause_set(cause, r, "can't make %s/" MPIB_HINTS_NAME " anew: %s",
				     hints->dir, strerror(-r));
	if (r == 0)
		r = map_file(&fresh, hints->entries, cause);
	if (r == 0) {
		copy_table(hints, &fresh);
		r = renameat(dir_fd, NEW_NAME, dir_fd, MPIB_HINTS_NAME) < 0 ? -errno : 0;
		if (r < 0)
			(void)mpib_cause_set(cause, r, "can't replace %s/" MPIB_HINTS_NAME ": %s",
					     hints->dir, strerror(-r));
	}

	if (r < 0) {
		if (fresh.header)
			(void)munmap(fresh.header, MPIB_HINTS_SIZE(fresh.entries));
		if (fresh.fd >= 0)
			(void)close(fresh.fd);
		(void)unlinkat(dir_fd, NEW_NAME, 0);
		return r;
	}

	(void)munmap(hints->header, MPIB_HINTS_SIZE(hints->entries));
	(void)close(hints->fd);
	*hints = fresh;
	return 0;
}

uint32_t mpib_hints_entries(const struct mpib_hints *hints)
{
	return hints->entries;
}

uint32_t mpib_hints_generation(const struct mpib_hints *hints)
{
	return mpib_hint_load(&hints->header->generation);
}

uint32_t mpib_hints_heartbeat(const struct mpib_hints *hints)
{
	return mpib_hint_load(&hints->header->heartbeat);
}

bool mpib_hints_flow(const struct mpib_hints *hints, uint32_t index, uint32_t *ret_src_be,
		     uint32_t *ret_dst_be)
{
	const struct mpib_hint_entry *entry = entry_at(hints, index);

	*ret_src_be = mpib_hint_load(&entry->src_ip);
	*ret_dst_be = mpib_hint_load(&entry->dst_ip);
	return *ret_src_be != 0 && *ret_dst_be != 0;
}

uint32_t mpib_hints_share(const struct mpib_hints *hints, uint32_t index)
{
	return mpib_hint_load(&entry_at(hints, index)->sup_bw);
}

bool mpib_hints_is_auto(const struct mpib_hints *hints, uint32_t index)
{
	return mpib_hint_load(&entry_at(hints, index)->seq) & MPIB_HINT_TIMED;
}

void mpib_hints_set(struct mpib_hints *hints, uint32_t index, uint32_t share, uint32_t src_be,
		    uint32_t dst_be)
{
	struct mpib_hint_entry *entry = entry_at(hints, index);
	uint32_t timed = mpib_share_is_auto(share) ? MPIB_HINT_TIMED : 0;

	share &= ~MPIB_SHARE_AUTO;
	if (mpib_hint_load(&entry->sup_bw) == share && mpib_hint_load(&entry->src_ip) == src_be &&
	    mpib_hint_load(&entry->dst_ip) == dst_be &&
	    (mpib_hint_load(&entry->seq) & MPIB_HINT_TIMED) == timed)
		return;
	mpib_hint_write_timed(entry, share, src_be, dst_be, timed);
}

void mpib_hints_beat(struct mpib_hints *hints)
{
	mpib_hint_beat(hints->header);
}
