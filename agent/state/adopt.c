/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/state/adopt.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/base/crc32.h"
#include "agent/state/adopt_impl.h"

/* Records that are allocated at a time, and when the next ones are. */
#define AHEAD	  4096u
#define AHEAD_LOW 1024u

static const struct mpib_adopt_record zeros;

/* ---- places --------------------------------------------------------------------------------- */

void mpib_adopt_set_place(struct mpib_adopt *adopt, uint32_t index, enum mpib_place_state state)
{
	adopt->n_stale -= adopt->places[index] == MPIB_PLACE_STALE;
	adopt->n_stale += state == MPIB_PLACE_STALE;
	adopt->places[index] = (uint8_t)state;
	if (state == MPIB_PLACE_FREE && index < adopt->lowest_free)
		adopt->lowest_free = index;
	if (state != MPIB_PLACE_FREE && index >= adopt->n_places)
		adopt->n_places = index + 1;
}

/* A free place, or MPIB_ADOPT_PLACES. */
static uint32_t find_place(struct mpib_adopt *adopt)
{
	while (adopt->lowest_free < MPIB_ADOPT_PLACES &&
	       (adopt->places[adopt->lowest_free] != MPIB_PLACE_FREE ||
		adopt->lowest_free == adopt->marker))
		adopt->lowest_free++;
	return adopt->lowest_free;
}

/* ---- write ---------------------------------------------------------------------------------- */

static int write_full(int fd, const void *buf, size_t len, off_t at)
{
	size_t done = 0;

	if (fd < 0)
		return -EBADF;
	while (done < len) {
		ssize_t n = pwrite(fd, (const char *)buf + done, len - done, at + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENOSPC;
		done += (size_t)n;
	}
	return 0;
}

static off_t place_offset(uint32_t index)
{
	return (off_t)(sizeof(struct mpib_adopt_header) +
		       (size_t)index * sizeof(struct mpib_adopt_record));
}

static int write_place(struct mpib_adopt *adopt, uint32_t index,
		       const struct mpib_adopt_record *record)
{
	return write_full(adopt->fd, record, sizeof(*record), place_offset(index));
}

static void seal_record(struct mpib_adopt *adopt, struct mpib_adopt_record *record)
{
	record->order = ++adopt->order;
	record->used = 1;
	record->checksum = mpib_crc32(record, offsetof(struct mpib_adopt_record, checksum));
}

int mpib_adopt_replace(struct mpib_adopt *adopt, struct mpib_adopt_record *record, uint32_t index)
{
	seal_record(adopt, record);
	return write_place(adopt, index, record);
}

int mpib_adopt_put(struct mpib_adopt *adopt, struct mpib_adopt_record *record, uint32_t *ret_index)
{
	uint32_t index = find_place(adopt);
	int r;

	if (index == MPIB_ADOPT_PLACES)
		return -ENOSPC;

	seal_record(adopt, record);
	r = write_place(adopt, index, record);
	/* A part of it may be there, or all: it is erased before the place is used again. Where
	 * there is no block for it, there is nothing to erase either. */
	if (r < 0 && r != -ENOSPC)
		mpib_adopt_set_place(adopt, index, MPIB_PLACE_STALE);
	if (r < 0)
		return r;

	mpib_adopt_set_place(adopt, index, MPIB_PLACE_USED);
	*ret_index = index;
	return 0;
}

int mpib_adopt_clear(struct mpib_adopt *adopt, uint32_t index)
{
	int r = write_place(adopt, index, &zeros);

	mpib_adopt_set_place(adopt, index, r < 0 ? MPIB_PLACE_STALE : MPIB_PLACE_FREE);
	return r;
}

int mpib_adopt_mark(struct mpib_adopt *adopt, bool incomplete)
{
	struct mpib_adopt_record record = { .slot = MPIB_ADOPT_MARKER, .used = 1 };
	int r = -EBADF;

	if (adopt->marked == incomplete)
		return 0;

	record.checksum = mpib_crc32(&record, offsetof(struct mpib_adopt_record, checksum));
	if (adopt->fd >= 0 && adopt->marker < MPIB_ADOPT_PLACES)
		r = write_place(adopt, adopt->marker, incomplete ? &record : &zeros);
	if (r < 0 && incomplete) {
		if (unlinkat(adopt->dir_fd, MPIB_ADOPT_NAME, 0) < 0 && errno != ENOENT)
			return -errno;
		mpib_adopt_close_file(adopt);
		r = 0;
	}
	if (r == 0)
		adopt->marked = incomplete;
	return r;
}

/* ---- save ----------------------------------------------------------------------------------- */

/* An empty file, in the place of one that isn't ours or can't be read. */
static int make_file(struct mpib_adopt *adopt)
{
	int r;

	if (unlinkat(adopt->dir_fd, MPIB_ADOPT_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	r = mpib_adopt_open_file(adopt, O_CREAT | O_EXCL);
	if (r < 0)
		return r;

	memset(adopt->places, MPIB_PLACE_FREE, MPIB_ADOPT_PLACES);
	adopt->n_places = adopt->n_allocated = adopt->lowest_free = adopt->n_stale = 0;
	adopt->erase_next = 0;
	adopt->marker = MPIB_ADOPT_PLACES;
	adopt->marked = false;
	adopt->header_due = true;
	return 0;
}

static void allocate_ahead(struct mpib_adopt *adopt)
{
	uint32_t want = adopt->n_allocated + AHEAD;

	if (adopt->n_places + AHEAD_LOW <= adopt->n_allocated ||
	    adopt->n_allocated == MPIB_ADOPT_PLACES)
		return;
	if (want > MPIB_ADOPT_PLACES)
		want = MPIB_ADOPT_PLACES;
	/* Without it the file grows a record at a time, as long as it can. */
	if (posix_fallocate(adopt->fd, 0, place_offset(want)) == 0)
		adopt->n_allocated = want;
}

/* Places looked at and erased in one call. */
#define LOOKS_A_CALL  16384u
#define ERASES_A_CALL 32u

/* 1: more are left. */
static int erase_stale(struct mpib_adopt *adopt)
{
	uint32_t erased = 0;

	for (uint32_t n = 0; n < LOOKS_A_CALL && erased < ERASES_A_CALL && adopt->n_stale; n++) {
		uint32_t index = adopt->erase_next;
		int r;

		adopt->erase_next = index + 1 < adopt->n_places ? index + 1 : 0;
		if (adopt->places[index] != MPIB_PLACE_STALE)
			continue;
		r = mpib_adopt_clear(adopt, index);
		if (r < 0)
			return r;
		erased++;
	}
	return adopt->n_stale > 0;
}

/* The marker's place has its block before it is needed. */
static int reserve_marker(struct mpib_adopt *adopt)
{
	uint32_t index;
	int r;

	if (adopt->marker < MPIB_ADOPT_PLACES)
		return 0;
	index = find_place(adopt);
	if (index == MPIB_ADOPT_PLACES)
		return -ENOSPC;
	r = write_place(adopt, index, &zeros);
	if (r == 0)
		adopt->marker = index;
	return r;
}

/* Only over records that are all of this boot and namespace. */
static int write_header(struct mpib_adopt *adopt)
{
	struct mpib_adopt_header header;
	int r;

	if (!adopt->header_due)
		return 0;
	mpib_adopt_make_header(&header);
	r = write_full(adopt->fd, &header, sizeof(header), 0);
	adopt->header_due = r < 0;
	return r;
}

/* The file under the name is no longer the one that is open. */
static bool was_replaced(const struct mpib_adopt *adopt)
{
	struct stat st;

	return fstatat(adopt->dir_fd, MPIB_ADOPT_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	       st.st_dev != adopt->device || st.st_ino != adopt->inode;
}

/* The marker before anything is erased, and before the header: a kill in between leaves a file that
 * promises too little. */
static int save(struct mpib_adopt *adopt, bool incomplete)
{
	int r = reserve_marker(adopt);
	int erased;

	if (incomplete) {
		int marked = mpib_adopt_mark(adopt, true);

		/* Without a place for it the file is gone, and was gone for this reason. */
		if (marked < 0 || adopt->fd < 0)
			return r < 0 ? r : marked < 0 ? marked : -EIO;
		r = 0;
	}
	erased = erase_stale(adopt);
	if (r == 0)
		r = erased;
	if (r == 0)
		r = write_header(adopt);
	if (r == 0 && !incomplete)
		r = mpib_adopt_mark(adopt, false);
	return r;
}

int mpib_adopt_save(struct mpib_adopt *adopt, bool incomplete, bool *ret_made,
		    struct mpib_cause *cause)
{
	int r = 0;

	*ret_made = false;
	if (adopt->fd >= 0 && was_replaced(adopt))
		mpib_adopt_close_file(adopt);
	if (adopt->fd < 0) {
		r = make_file(adopt);
		*ret_made = r == 0;
	}
	if (r == 0)
		r = save(adopt, incomplete || *ret_made);
	if (r < 0)
		return mpib_cause_set(cause, r, "%s/" MPIB_ADOPT_NAME ": %s", adopt->dir,
				      strerror(-r));

	if (adopt->fd >= 0)
		allocate_ahead(adopt);
	return r;
}

void mpib_adopt_move(struct mpib_adopt *adopt, int dir_fd)
{
	adopt->dir_fd = dir_fd;
	mpib_adopt_close_file(adopt);
}
