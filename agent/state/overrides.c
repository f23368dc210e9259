/* SPDX-License-Identifier: Apache-2.0 */
/* A sorted array in memory, written whole to a second file that then takes the place of the first:
 * a kill at any moment leaves the old one or the new one. A file of another version is kept under
 * the name of its version, where an agent of that version finds it again.
 *
 * Shares that find themselves are in a file of their own. An agent that knows none would believe
 * them damage, and the whole file with them. Where a flow is in both files the share that was given
 * holds: it is written first where it takes the place of the other, and taken out last where it
 * goes, so that each change is in force with a single rename. */
#include "agent/state/overrides.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-id128.h>
#include <unistd.h>

#include "agent/base/crc32.h"
#include "agent/state/dir.h"
#include "common/cleanup.h"
#include "common/share.h"

#define NEW_NAME MPIB_OVERRIDES_NAME ".new"

/* "overrides.v" and a version. */
#define NAME_SIZE 32u

/* The file's image, so that one write takes all of it. */
struct image {
	struct mpib_overrides_header header;
	struct mpib_override list[MPIB_OVERRIDES_MAX];
};

struct mpib_overrides {
	int dir_fd; /* the caller's */
	char *dir;  /* for messages */
	uint32_t count;
	uint32_t other;	    /* version of the file that is there, which is not ours; 0: none */
	bool due;	    /* the files say something else than what is in force */
	struct image image; /* list: by flow */
	struct image part;  /* what one of the files has, while it is read or written */
};

struct mpib_overrides *mpib_overrides_free(struct mpib_overrides *overrides)
{
	if (!overrides)
		return NULL;

	free(overrides->dir);
	free(overrides);
	return NULL;
}

uint32_t mpib_overrides_count(const struct mpib_overrides *overrides)
{
	return overrides->count;
}

const struct mpib_override *mpib_overrides_at(const struct mpib_overrides *overrides, uint32_t n)
{
	return &overrides->image.list[n];
}

/* ---- lookup --------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
	const struct mpib_override *a = left;
	const struct mpib_override *b = right;
	uint64_t x = (uint64_t)ntohl(a->src_be) << 32 | ntohl(a->dst_be);
	uint64_t y = (uint64_t)ntohl(b->src_be) << 32 | ntohl(b->dst_be);

	return x < y ? -1 : x > y;
}

const struct mpib_override *mpib_overrides_find(const struct mpib_overrides *overrides,
						uint32_t src_be, uint32_t dst_be)
{
	struct mpib_override key = { .src_be = src_be, .dst_be = dst_be };

	if (!overrides->count)
		return NULL;
	return bsearch(&key, overrides->image.list, overrides->count, sizeof(key), compare);
}

const struct mpib_override *mpib_overrides_expired(const struct mpib_overrides *overrides,
						   uint64_t now_usec)
{
	for (uint32_t n = 0; n < overrides->count; n++) {
		const struct mpib_override *o = &overrides->image.list[n];

		if (o->until_usec && o->until_usec <= now_usec)
			return o;
	}

	return NULL;
}

/* ---- file ----------------------------------------------------------------------------------- */

static size_t image_size(uint32_t count)
{
	return offsetof(struct image, list) + count * sizeof(struct mpib_override);
}

/* Over the whole image but its own four bytes, which count as 0. */
static uint32_t image_checksum(const struct image *image, uint32_t count)
{
	struct mpib_overrides_header header = image->header;
	uint32_t parts[2];

	header.checksum = 0;
	parts[0] = mpib_crc32(&header, sizeof(header));
	parts[1] = mpib_crc32(image->list, count * sizeof(image->list[0]));
	return mpib_crc32(parts, sizeof(parts));
}

static void boot_id(uint8_t ret[16])
{
	sd_id128_t boot = SD_ID128_NULL;

	(void)sd_id128_get_boot(&boot);
	memcpy(ret, boot.bytes, 16);
}

static void fill_header(struct image *image, uint32_t count)
{
	image->header = (struct mpib_overrides_header){
		.magic = MPIB_OVERRIDES_MAGIC,
		.version = MPIB_OVERRIDES_VERSION,
		.record_size = sizeof(struct mpib_override),
		.count = count,
	};
	boot_id(image->header.boot_id);
	image->header.checksum = image_checksum(image, count);
}

static const char *name_of(bool automatic)
{
	return automatic ? MPIB_OVERRIDES_AUTO_NAME : MPIB_OVERRIDES_NAME;
}

/* Takes those of one file out of all; how many they are. */
static uint32_t fill_part(struct mpib_overrides *overrides, bool automatic)
{
	uint32_t count = 0;

	for (uint32_t n = 0; n < overrides->count; n++)
		if (mpib_share_is_auto(overrides->image.list[n].share) == automatic)
			overrides->part.list[count++] = overrides->image.list[n];
	fill_header(&overrides->part, count);
	return count;
}

/* In one call. By itself, as gcc's LTO takes the image for its first member, and warns. */
__attribute__((noinline)) static int write_image(int fd, const struct image *image, size_t size)
{
	ssize_t n = write(fd, image, size);

	if (n != (ssize_t)size)
		return n < 0 ? -errno : -ENOSPC;
	return 0;
}

static int write_file(struct mpib_overrides *overrides, bool automatic)
{
	uint32_t count = fill_part(overrides, automatic);
	size_t size = image_size(count);
	int dir_fd = overrides->dir_fd;
	mpib_cleanup(mpib_closep) int fd = -1;
	int r;

	if (automatic && !count) /* as where none was ever set */
		return unlinkat(dir_fd, name_of(true), 0) < 0 && errno != ENOENT ? -errno : 0;
	if (unlinkat(dir_fd, NEW_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(dir_fd, NEW_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;

	r = write_image(fd, &overrides->part, size);
	if (r < 0)
		return r;
	return renameat(dir_fd, NEW_NAME, dir_fd, name_of(automatic)) < 0 ? -errno : 0;
}

static void name_of_version(uint32_t version, char ret[NAME_SIZE])
{
	(void)snprintf(ret, NAME_SIZE, MPIB_OVERRIDES_NAME ".v%u", version);
}

/* Makes room for a file of ours without losing the one that is there. */
static int put_aside(struct mpib_overrides *overrides)
{
	char name[NAME_SIZE];

	if (!overrides->other)
		return 0;
	name_of_version(overrides->other, name);
	if (renameat(overrides->dir_fd, MPIB_OVERRIDES_NAME, overrides->dir_fd, name) < 0 &&
	    errno != ENOENT)
		return -errno;
	overrides->other = 0;
	return 0;
}

static int save(struct mpib_overrides *overrides, bool automatic, struct mpib_cause *cause)
{
	int r = put_aside(overrides);

	if (r == 0)
		r = write_file(overrides, automatic);
	overrides->due |= r < 0;
	if (r < 0)
		return mpib_cause_set(cause, r, "can't write %s/%s: %s", overrides->dir,
				      name_of(automatic), strerror(-r));
	return 0;
}

static bool image_is_good(const struct image *image, ssize_t size)
{
	const struct mpib_overrides_header *header = &image->header;

	if (size < (ssize_t)sizeof(*header) || header->magic != MPIB_OVERRIDES_MAGIC ||
	    header->version != MPIB_OVERRIDES_VERSION ||
	    header->record_size != sizeof(struct mpib_override) ||
	    header->count > MPIB_OVERRIDES_MAX || size != (ssize_t)image_size(header->count) ||
	    header->checksum != image_checksum(image, header->count))
		return false;

	for (uint32_t n = 0; n < header->count; n++) {
		const struct mpib_override *o = &image->list[n];

		if (!mpib_share_rule_is_valid(o->share) || !o->src_be || !o->dst_be ||
		    (n && compare(o - 1, o) >= 0))
			return false;
	}

	return true;
}

static int refuse_version(struct mpib_overrides *overrides, struct mpib_cause *cause)
{
	char name[NAME_SIZE];
	int r;

	overrides->other = overrides->image.header.version;
	name_of_version(overrides->other, name);
	r = put_aside(overrides);
	if (r < 0)
		return mpib_cause_set(
			cause, -EPROTONOSUPPORT,
			"%s/" MPIB_OVERRIDES_NAME " is of version %u, not %u, and can't "
			"be renamed (%s): it stays, what it sets is not in force, and "
			"nothing can be set",
			overrides->dir, overrides->image.header.version, MPIB_OVERRIDES_VERSION,
			strerror(-r));
	return mpib_cause_set(
		cause, -EPROTONOSUPPORT,
		"%s/" MPIB_OVERRIDES_NAME " is of version %u, not %u: what it sets is "
		"not in force, and it is kept as %s for an agent of that version",
		overrides->dir, overrides->image.header.version, MPIB_OVERRIDES_VERSION, name);
}

/* Into @image; 1 where it is there. */
static int load_file(struct mpib_overrides *overrides, const char *name, struct image *image,
		     uint32_t *ret_count, struct mpib_cause *cause)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	uint8_t boot[16];
	struct stat st;
	ssize_t n;
	int r;

	fd = openat(overrides->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return mpib_cause_set(cause, -errno, "can't open %s/%s: %s", overrides->dir, name,
				      strerror(errno));

	r = mpib_dir_check_file(&st, overrides->dir, name, cause);
	if (r < 0)
		return r;

	n = read(fd, image, sizeof(*image));
	if (image == &overrides->image && n >= (ssize_t)sizeof(image->header) &&
	    image->header.magic == MPIB_OVERRIDES_MAGIC &&
	    image->header.version != MPIB_OVERRIDES_VERSION)
		return refuse_version(overrides, cause);
	if (n < 0 || !image_is_good(image, n))
		return mpib_cause_set(cause, -EBADMSG,
				      "%s/%s is damaged: shares that were set by mpibctl are lost, "
				      "the policy holds",
				      overrides->dir, name);

	boot_id(boot);
	if (memcmp(boot, image->header.boot_id, sizeof(boot)) == 0)
		*ret_count = image->header.count;
	return 1;
}

/* What an agent of another version has put aside of ours. */
static int load_kept(struct mpib_overrides *overrides, struct mpib_cause *cause)
{
	char name[NAME_SIZE];
	int r;

	name_of_version(MPIB_OVERRIDES_VERSION, name);
	r = load_file(overrides, name, &overrides->image, &overrides->count, cause);
	if (r == 1 && renameat(overrides->dir_fd, name, overrides->dir_fd, MPIB_OVERRIDES_NAME) < 0)
		overrides->due = true; /* written anew with the next check */
	return r;
}

static int load(struct mpib_overrides *overrides, struct mpib_cause *cause)
{
	int r = load_file(overrides, MPIB_OVERRIDES_NAME, &overrides->image, &overrides->count,
			  cause);
	struct mpib_cause kept;
	int k;

	if (r != 0 && r != -EPROTONOSUPPORT)
		return r;
	k = overrides->other ? 0 : load_kept(overrides, r == 0 ? cause : &kept);
	return r == 0 ? k : r;
}

/* Where the flow is, or would be. */
static uint32_t position(const struct mpib_overrides *overrides, const struct mpib_override *key)
{
	uint32_t n = 0;

	while (n < overrides->count && compare(&overrides->image.list[n], key) < 0)
		n++;
	return n;
}

static void insert_at(struct mpib_overrides *overrides, uint32_t n)
{
	struct mpib_override *list = overrides->image.list;

	memmove(list + n + 1, list + n, (overrides->count - n) * sizeof(*list));
	overrides->count++;
}

/* Adds what finds itself to what was given. */
static int load_auto(struct mpib_overrides *overrides, struct mpib_cause *cause)
{
	uint32_t count = 0;
	int r = load_file(overrides, MPIB_OVERRIDES_AUTO_NAME, &overrides->part, &count, cause);

	/* Of an agent that wrote one file. */
	for (uint32_t n = 0; n < overrides->count; n++)
		overrides->due |= mpib_share_is_auto(overrides->image.list[n].share);
	for (uint32_t n = 0; n < count; n++) {
		const struct mpib_override *o = &overrides->part.list[n];
		uint32_t at = position(overrides, o);

		if (mpib_overrides_find(overrides, o->src_be, o->dst_be) ||
		    overrides->count == MPIB_OVERRIDES_MAX) {
			overrides->due = true;
			continue;
		}
		insert_at(overrides, at);
		overrides->image.list[at] = *o;
	}
	return r < 0 ? r : 0;
}

int mpib_overrides_open(int dir_fd, const char *dir, struct mpib_overrides **ret,
			struct mpib_cause *cause)
{
	struct mpib_overrides *overrides = calloc(1, sizeof(*overrides));
	struct mpib_cause second;
	int r;
	int k;

	*ret = NULL;
	if (!overrides)
		return mpib_cause_set(cause, -ENOMEM, "out of memory");

	overrides->dir_fd = dir_fd;
	overrides->dir = strdup(dir);
	if (!overrides->dir) {
		(void)mpib_overrides_free(overrides);
		return mpib_cause_set(cause, -ENOMEM, "out of memory");
	}

	*ret = overrides;
	r = load(overrides, cause);
	k = load_auto(overrides, r < 0 ? &second : cause);
	/* Said to be lost, so it must not come back with the next start. */
	overrides->due |= k < 0 || (r < 0 && r != -EPROTONOSUPPORT);
	return r < 0 ? r : k;
}

/* ---- changes -------------------------------------------------------------------------------- */

static void remove_at(struct mpib_overrides *overrides, uint32_t n)
{
	struct mpib_override *list = overrides->image.list;

	overrides->count--;
	memmove(list + n, list + n + 1, (overrides->count - n) * sizeof(*list));
}

int mpib_overrides_set(struct mpib_overrides *overrides, const struct mpib_override *override,
		       struct mpib_cause *cause)
{
	bool there = mpib_overrides_find(overrides, override->src_be, override->dst_be) != NULL;
	bool automatic = mpib_share_is_auto(override->share);
	uint32_t n = position(overrides, override);
	struct mpib_override before = { 0 };
	struct mpib_cause second;
	int r;

	if (!there && overrides->count == MPIB_OVERRIDES_MAX)
		return mpib_cause_set(
			cause, -ENOSPC,
			"%u flows have a share that was set, which is the most; unset "
			"some, or write a rule into the policy file",
			MPIB_OVERRIDES_MAX);

	if (there)
		before = overrides->image.list[n];
	else
		insert_at(overrides, n);
	overrides->image.list[n] = *override;

	r = save(overrides, automatic, cause);
	if (r == 0 && there && mpib_share_is_auto(before.share) != automatic) {
		/* One that was given holds already; what it took the place of can go later. */
		if (automatic)
			r = save(overrides, false, cause);
		else
			(void)save(overrides, true, &second);
	}
	overrides->due |= r < 0;
	if (r < 0 && there)
		overrides->image.list[n] = before;
	else if (r < 0)
		remove_at(overrides, n);
	return r;
}

static int save_both(struct mpib_overrides *overrides, struct mpib_cause *cause)
{
	int r = save(overrides, true, cause);

	if (r == 0)
		r = save(overrides, false, cause);
	overrides->due = r < 0;
	return r;
}

int mpib_overrides_unset(struct mpib_overrides *overrides, uint32_t src_be, uint32_t dst_be,
			 struct mpib_cause *cause)
{
	struct mpib_override key = { .src_be = src_be, .dst_be = dst_be };

	if (!mpib_overrides_find(overrides, src_be, dst_be))
		return mpib_cause_set(cause, -ENOENT, "no share is set for this flow");

	remove_at(overrides, position(overrides, &key));
	return save_both(overrides, cause);
}

void mpib_overrides_move(struct mpib_overrides *overrides, int dir_fd)
{
	overrides->dir_fd = dir_fd;
}

static bool is_gone(const struct mpib_overrides *overrides, bool automatic)
{
	for (uint32_t n = 0; n < overrides->count; n++)
		if (mpib_share_is_auto(overrides->image.list[n].share) == automatic)
			return faccessat(overrides->dir_fd, name_of(automatic), F_OK,
					 AT_SYMLINK_NOFOLLOW) < 0;
	return false;
}

int mpib_overrides_check(struct mpib_overrides *overrides, struct mpib_cause *cause)
{
	if (!overrides->due && !is_gone(overrides, false) && !is_gone(overrides, true))
		return 0;
	return save_both(overrides, cause);
}
